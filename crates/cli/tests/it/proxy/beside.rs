//! `politely serve --proxy`: a proxy and its coordinator in one process.

use std::path::Path;

use politely_testkit::process::Server;

use super::client;
use super::host::Host;

/// Starts a coordinator with a proxy, and returns it with the URL of the proxy's route `host`.
fn start(host: &Host, folder: &Path) -> (Server, String) {
    let program = Path::new(env!("CARGO_BIN_EXE_politely"));
    let route = format!("host={}", host.url);
    let state = folder.join("state");
    let args = [
        "serve",
        "--bind",
        "127.0.0.1:0",
        "--proxy",
        "127.0.0.1:0",
        "--route",
        &route,
        "--profile",
        "api",
        "--limits",
        "3/h",
        "--state",
        state.to_str().unwrap(),
    ];
    let mut server = Server::start("serve", folder, program, args);
    let line = server.says("politely: proxy on http://");
    let url = line.trim_start_matches("politely: proxy on ").trim();
    let page = format!("{url}/host/page");
    (server, page)
}

#[tokio::test]
async fn the_limits_of_a_proxy_beside_its_coordinator_outlive_a_kill() {
    let host = Host::start().await;
    let folder = tempfile::tempdir().unwrap();
    let get = async |page: &str| {
        let request = client().get(page).header("prefer", "wait=1");
        request.send().await.unwrap().status().as_u16()
    };
    let (server, page) = start(&host, folder.path());
    assert_eq!([get(&page).await, get(&page).await], [200, 200]);
    // Dropping the server kills it.
    drop(server);
    let (server, page) = start(&host, folder.path());
    assert_eq!([get(&page).await, get(&page).await], [200, 429]);
    assert_eq!(host.heads().len(), 3);
    drop(server);
}
