//! Tests of callers that never read their answers. The server disconnects them after half a minute,
//! so the name of this module is early in the order in which the tests start.

use std::time::Duration;

use politely_server::Settings;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::{interval, timeout};

use crate::client::serve;

const TOKEN: &str = "a-token-of-24-characters";
/// The longest wait of a test, with room for a busy machine.
const LONG: Duration = Duration::from_mins(2);

/// Sends requests and reads nothing, until the server closes the connection.
async fn never_reads(address: std::net::SocketAddr, requests: &str) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // The socket may not accept all requests, because the server stops reading. That is enough for
    // the test.
    let _ = timeout(
        Duration::from_secs(1),
        stream.write_all(requests.as_bytes()),
    )
    .await;
    let mut ticks = interval(Duration::from_millis(500));
    loop {
        ticks.tick().await;
        let more = timeout(Duration::from_millis(100), stream.write_all(b"GET")).await;
        if matches!(more, Ok(Err(_))) {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_that_never_read_are_sent_away() {
    let shut = serve(Settings::default(), Some(TOKEN)).await;
    let open = serve(Settings::default(), None).await;
    let items: Vec<_> = (0..1_000)
        .map(|i| json!({"key": format!("custom/{}-{i}", "x".repeat(200))}))
        .collect();
    let acquire = json!({"client": "w", "items": items}).to_string();
    open.post("acquire", &acquire).await;
    let without_token = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(100_000);
    let large = "GET /api/v1/keys?limit=1000 HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(60);
    let http2 = async {
        let http = reqwest::Client::builder()
            .http2_prior_knowledge()
            .http2_initial_stream_window_size(1_024)
            .build()
            .unwrap();
        let page = http.get(open.url("/api/v1/keys?limit=1000"));
        let unread = page.send().await.unwrap();
        // The connection serves other calls meanwhile, so this stream shows when the connection
        // ends.
        let mut events = http.get(open.url("/api/v1/events")).send().await.unwrap();
        while let Ok(Some(_)) = events.chunk().await {}
        assert!(unread.text().await.is_err(), "the answer was not taken");
    };
    let all = async {
        tokio::join!(
            never_reads(shut.address, &without_token),
            never_reads(open.address, &large),
            http2,
        )
    };
    timeout(LONG, all).await.expect("all are sent away");
    open.get("/healthz").await;
    open.end().await;
    shut.end().await;
}
