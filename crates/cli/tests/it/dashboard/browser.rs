//! A headless Chromium that opens the dashboard.

use std::path::Path;
use std::time::{Duration, Instant};

use fantoccini::elements::Element;
use fantoccini::key::Key;
use fantoccini::{Client, ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};

use super::coordinator::Coordinator;
use politely_testkit::process::{Server, tool};

/// Longest wait for the browser. A loaded machine starts Chromium in some seconds.
const PATIENCE: Duration = Duration::from_mins(1);

/// The size of the window.
#[derive(Clone, Copy)]
pub(super) enum Screen {
    Desk,
    /// 320 x 720, with touch.
    Phone,
}

/// A page in the browser.
#[derive(Clone)]
pub(super) struct Page {
    client: Client,
    address: String,
}

/// Starts a coordinator, opens its dashboard and runs `body`. The browser is closed even if `body`
/// panics.
pub(super) fn browse<B, F>(screen: Screen, body: B)
where
    B: FnOnce(Page, Coordinator) -> F,
    F: Future<Output = ()> + Send + 'static,
{
    browse_with(screen, None, body);
}

/// Starts chromedriver and returns it with its port. chromedriver takes a free port of IPv6 and
/// needs the same port of IPv4. If another process has that one, it is started again.
fn driver(folder: &Path) -> (Server, String) {
    const TAKEN: &str = "port not available";
    loop {
        let mut driver = Server::start("chromedriver", folder, &tool("chromedriver"), ["--port=0"]);
        let line = driver.says_one_of(&["started successfully on port ", TAKEN]);
        if !line.contains(TAKEN) {
            let port = line.rsplit(' ').next().expect("a port");
            return (driver, port.trim_end_matches('.').to_owned());
        }
    }
}

/// [`browse`] with a coordinator that requires a token. The browser does not have the token yet.
pub(super) fn browse_with<B, F>(screen: Screen, token: Option<&str>, body: B)
where
    B: FnOnce(Page, Coordinator) -> F,
    F: Future<Output = ()> + Send + 'static,
{
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let folder = tempfile::tempdir().expect("a folder");
    tool("chromium"); // Without Chromium, chromedriver would not name the cause.
    let (_driver, port) = driver(folder.path());
    let profile = folder.path().join("profile");
    let args = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--window-size=1280,900",
        &format!("--user-data-dir={}", profile.display()),
    ];
    let mut options = json!({ "args": args });
    if matches!(screen, Screen::Phone) {
        options["mobileEmulation"] =
            json!({ "deviceMetrics": { "width": 320, "height": 720, "pixelRatio": 1.0 } });
    }
    let capabilities = [("goog:chromeOptions".to_owned(), options)];
    let coordinator = Coordinator::start(token);
    let address = coordinator.address.clone();
    let ended = runtime.block_on(async {
        let mut builder = ClientBuilder::new(HttpConnector::new());
        let builder = builder.capabilities(capabilities.into_iter().collect());
        let client = builder.connect(&format!("http://127.0.0.1:{port}")).await;
        let client = client.expect("a browser");
        let page = Page {
            client: client.clone(),
            address,
        };
        page.client.goto(&page.address).await.expect("the page");
        let ended = tokio::spawn(body(page, coordinator)).await;
        client.close().await.expect("the browser ends");
        ended
    });
    if let Err(failed) = ended {
        std::panic::resume_unwind(failed.into_panic());
    }
}

impl Page {
    /// Opens a page of the dashboard, such as `#/workers`.
    pub(super) async fn open(&self, hash: &str) {
        let url = format!("{}/{hash}", self.address);
        self.client.goto(&url).await.expect("the page");
    }

    /// Opens the page with a user name and a password, as a person does when the browser asks for
    /// them.
    pub(super) async fn log_in(&mut self, password: &str) {
        let host = self.address.trim_start_matches("http://").to_owned();
        let url = format!("http://me:{password}@{host}/");
        self.client.goto(&url).await.expect("the page");
    }

    /// Runs a script and returns its result.
    pub(super) async fn js(&self, script: &str) -> Value {
        let said = self.client.execute(script, Vec::new()).await;
        said.unwrap_or_else(|why| panic!("{why}: {script}"))
    }

    /// Waits until an expression is true.
    pub(super) async fn until(&self, expression: &str) {
        let script = format!("return Boolean({expression})");
        let deadline = Instant::now() + PATIENCE;
        while self.js(&script).await != json!(true) {
            if Instant::now() > deadline {
                let text = self
                    .js("return location.hash + '\\n' + document.body.innerText")
                    .await;
                panic!(
                    "never: {expression}\n{}",
                    text.as_str().unwrap_or("no text")
                );
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until the first column of the table contains exactly `names`.
    pub(super) async fn until_rows(&self, names: &[&str]) {
        let names = json!(names).to_string();
        let shown = "JSON.stringify([...document.querySelectorAll('td.name')].map((cell) => cell.textContent))";
        self.until(&format!("{shown} === JSON.stringify({names})"))
            .await;
    }

    async fn find(&self, css: &str) -> Element {
        let found = self
            .client
            .wait()
            .at_most(PATIENCE)
            .for_element(Locator::Css(css));
        found.await.unwrap_or_else(|why| panic!("{css}: {why}"))
    }

    pub(super) async fn click(&self, css: &str) {
        let clicked = self.find(css).await.click().await;
        clicked.unwrap_or_else(|why| panic!("{css}: {why}"));
    }

    /// Replaces the text of a field.
    pub(super) async fn fill(&self, css: &str, text: &str) {
        let field = self.find(css).await;
        field.clear().await.expect("a field");
        field.send_keys(text).await.expect("a field");
    }

    /// Types into the focused element.
    pub(super) async fn press(&self, keys: &str) {
        let focused = self.client.active_element().await.expect("a focus");
        focused.send_keys(keys).await.expect("keys are typed");
    }

    pub(super) async fn press_key(&self, key: Key) {
        self.press(&char::from(key).to_string()).await;
    }
}
