//! `politely proxy`: a gateway and a forward proxy, in front of real servers on loopback.

mod beside;
mod forward;
mod gateway;
mod headers;
mod host;
mod limits;
mod safety;
mod smuggling;
mod streams;
mod usage;
mod waits;

use std::path::Path;

use politely_testkit::process::Server;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use host::Host;

/// A running proxy whose limits are no hindrance unless a test sets others.
struct Proxy {
    server: Server,
    url: String,
    _folder: TempDir,
}

impl Proxy {
    fn start(args: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let program = Path::new(env!("CARGO_BIN_EXE_politely"));
        let listen = ["proxy", "--listen", "127.0.0.1:0"];
        let args = listen.iter().chain(args);
        let mut server = Server::start("proxy", folder.path(), program, args);
        let line = server.says("politely: http://");
        let url = line.trim_start_matches("politely: ").trim().to_owned();
        Self {
            server,
            url,
            _folder: folder,
        }
    }

    /// Starts a proxy with the route `host` to `host`, at any rate.
    fn of(host: &Host, args: &[&str]) -> Self {
        let route = format!("host={}", host.url);
        let fast = ["--profile", "api", "--law", "fixed", "--rate", "5000"];
        let mut all = vec!["--route", &route, "--burst", "100"];
        all.extend(fast.iter().chain(args));
        if !args.contains(&"--in-flight") {
            all.extend(["--in-flight", "100"]);
        }
        Self::start(&all)
    }

    fn address(&self) -> &str {
        self.url.trim_start_matches("http://")
    }

    /// Returns a URL of the route `host`.
    fn at(&self, path: &str) -> String {
        format!("{}/host{path}", self.url)
    }

    /// Sends `text` over a connection of its own, and returns the answer up to its end.
    async fn raw(&self, text: &str) -> String {
        raw(self.address(), text).await
    }
}

/// Sends `text` to `address`, and returns what comes until the connection ends.
async fn raw(address: &str, text: &str) -> String {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    stream.write_all(text.as_bytes()).await.expect("it reads");
    let mut answer = Vec::new();
    // A reset after the answer is as good as its end.
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

/// Returns a client that follows nothing, and goes through no other proxy.
fn client() -> reqwest::Client {
    builder().build().expect("a client")
}

fn builder() -> reqwest::ClientBuilder {
    install_tls();
    let none = reqwest::redirect::Policy::none();
    reqwest::Client::builder().no_proxy().redirect(none)
}

/// Installs the TLS provider of the process. A second install fails.
fn install_tls() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// Returns a client of the forward proxy at `url`.
fn through(url: &str) -> reqwest::Client {
    install_tls();
    let proxy = reqwest::Proxy::all(url).expect("a URL");
    let none = reqwest::redirect::Policy::none();
    let builder = reqwest::Client::builder().redirect(none).proxy(proxy);
    builder.build().expect("a client")
}

/// Returns the problem document of an answer.
async fn problem(answer: reqwest::Response) -> serde_json::Value {
    assert_eq!(answer.headers()["content-type"], "application/problem+json");
    let text = answer.text().await.expect("a text");
    serde_json::from_str(&text).expect("JSON")
}
