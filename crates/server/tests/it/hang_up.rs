//! Tests of callers that hang up around the grant: no slot stays taken.

#![expect(
    clippy::disallowed_methods,
    reason = "real connections close in real time"
)]

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use politely::Config;
use politely_server::Settings;
use serde_json::json;

use crate::client::{Served, serve};

const WAIT: Duration = Duration::from_secs(10);

/// Serves a coordinator that allows one request in flight, at a rate that never limits.
async fn lock() -> Served {
    let mut config = Config::fixed(1_000.0, 1_000.0);
    config.limits.in_flight = 1;
    let settings = Settings {
        config,
        ..Settings::default()
    };
    serve(settings, None).await
}

fn ask(served: &Served, close: bool) -> TcpStream {
    let body = r#"{"client":"w","wait_ms":20000,"items":[{"key":"custom/lock"}]}"#;
    let more = if close { "connection: close\r\n" } else { "" };
    let head = format!(
        "POST /api/v1/acquire HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n{more}\r\n{body}",
        served.address,
        body.len()
    );
    let mut stream = TcpStream::connect(served.address).unwrap();
    stream.set_read_timeout(Some(WAIT)).unwrap();
    stream.write_all(head.as_bytes()).unwrap();
    stream
}

impl Served {
    async fn until_free(&self) {
        let free = async {
            loop {
                let live = self.get("/api/v1/stats").await["live"].as_u64().unwrap();
                let slots = self.get("/api/v1/keys/custom%2Flock").await["in_flight"].clone();
                if live == 0 && slots == 0 {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let freed = tokio::time::timeout(WAIT, free).await;
        freed.expect("the slot comes back");
    }
}

/// Regression: 36 of 40 such calls kept the slot for the whole lease.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_nobody_reads_gives_its_permit_back() {
    let served = lock().await;
    for close in [false, true] {
        let stream = ask(&served, close);
        // The answer has arrived and is not read.
        let mut first = [0];
        stream.peek(&mut first).unwrap();
        drop(stream);
        served.until_free().await;
    }
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_waits_and_hangs_up_leaves_the_line() {
    let served = lock().await;
    let held = served
        .post(
            "acquire",
            r#"{"client":"holder","items":[{"key":"custom/lock"}]}"#,
        )
        .await;
    for close in [false, true] {
        drop(ask(&served, close));
    }
    let permit = &held["items"][0]["permit"];
    let told = json!({"client": "holder", "items": [{"permit": permit, "status": 200}]});
    served.post("report", &told.to_string()).await;
    served.until_free().await;
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_was_read_stands() {
    let served = lock().await;
    for close in [false, true] {
        let mut stream = ask(&served, close);
        let (mut answer, mut part) = (String::new(), [0; 4096]);
        while !answer.contains("granted") {
            let read = stream.read(&mut part).unwrap();
            answer += std::str::from_utf8(&part[..read]).unwrap();
        }
        drop(stream);
        let body = answer.split("\r\n\r\n").nth(1).unwrap();
        let granted: serde_json::Value = serde_json::from_str(body).unwrap();
        let permits = json!({"client": "w", "permits": [granted["items"][0]["permit"]]});
        let renewed = served.post("renew", &permits.to_string()).await;
        assert_eq!(renewed["lost"], json!([]));
        served.post("cancel", &permits.to_string()).await;
    }
    served.end().await;
}
