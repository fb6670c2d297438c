//! Tests of callers that hang up: while they wait, and before they read their answer.

#![expect(
    clippy::disallowed_methods,
    reason = "real connections close in real time"
)]

use std::io::Write as _;
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

fn ask(served: &Served, id: Option<&str>, close: bool) -> TcpStream {
    let item = json!({"key": "custom/lock", "id": id});
    let body = json!({"client": "w", "wait_ms": 20_000, "items": [item]}).to_string();
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

    async fn until_waiting(&self, calls: u64) {
        let waiting = async {
            while self.get("/api/v1/stats").await["waiting"] != calls {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let came = tokio::time::timeout(WAIT, waiting).await;
        came.unwrap_or_else(|_| panic!("{calls} calls wait"));
    }
}

/// The answer arrives, is not read, and the connection ends.
#[tokio::test(flavor = "multi_thread")]
async fn a_caller_with_an_id_that_hung_up_gets_its_permit_when_it_asks_again() {
    let served = lock().await;
    for close in [false, true] {
        let id = format!("call {close}");
        let stream = ask(&served, Some(&id), close);
        stream.peek(&mut [0]).unwrap();
        drop(stream);
        let body = json!({"client": "w", "items": [{"key": "custom/lock", "id": id}]});
        let again = served.post("acquire", &body.to_string()).await;
        assert_eq!(again["items"][0]["status"], "granted", "{again}");
        let permits = json!({"client": "w", "permits": [again["items"][0]["permit"]]});
        served.post("cancel", &permits.to_string()).await;
    }
    served.until_free().await;
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
        let stream = ask(&served, None, close);
        served.until_waiting(1).await;
        drop(stream);
        served.until_waiting(0).await;
    }
    let permit = &held["items"][0]["permit"];
    let told = json!({"client": "holder", "items": [{"permit": permit, "status": 200}]});
    served.post("report", &told.to_string()).await;
    served.until_free().await;
    served.end().await;
}

/// A client of HTTP/2 that writes its frames itself, because a library reads each answer at once.
struct Http2 {
    stream: TcpStream,
    next: u32,
}

impl Http2 {
    fn connect(served: &Served) -> Self {
        let mut stream = TcpStream::connect(served.address).unwrap();
        stream.set_read_timeout(Some(WAIT)).unwrap();
        stream
            .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            .unwrap();
        let mut client = Self { stream, next: 1 };
        client.frame(4, 0, 0, b"");
        client
    }

    fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
        bytes.extend([kind, flags]);
        bytes.extend(stream.to_be_bytes());
        bytes.extend(payload);
        self.stream.write_all(&bytes).unwrap();
    }

    /// Sends an acquire call that waits, and returns its stream.
    fn ask(&mut self, key: &str) -> u32 {
        let stream = self.next;
        self.next += 2;
        let body = format!(r#"{{"client":"w","wait_ms":20000,"items":[{{"key":"{key}"}}]}}"#);
        // Literal fields without indexing (RFC 7541, section 6.2.2).
        let mut fields = Vec::new();
        for (name, value) in [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", "/api/v1/acquire"),
            (":authority", "localhost"),
            ("content-type", "application/json"),
        ] {
            fields.push(0);
            for text in [name, value] {
                fields.push(text.len() as u8);
                fields.extend(text.as_bytes());
            }
        }
        self.frame(1, 4, stream, &fields);
        self.frame(0, 1, stream, body.as_bytes());
        stream
    }

    fn reset(&mut self, stream: u32) {
        self.frame(3, 0, stream, &8_u32.to_be_bytes());
    }
}

/// Such a burst of resets does not end the connection.
#[tokio::test(flavor = "multi_thread")]
async fn streams_that_wait_and_are_reset_leave_the_line() {
    let served = lock().await;
    let body = r#"{"client":"holder","items":[{"key":"custom/lock"}]}"#;
    let held = served.post("acquire", body).await;
    let mut client = Http2::connect(&served);
    for calls in [1, 40, 150] {
        let streams: Vec<_> = (0..calls).map(|_| client.ask("custom/lock")).collect();
        served.until_waiting(calls).await;
        for stream in streams {
            client.reset(stream);
        }
        served.until_waiting(0).await;
    }
    let permits = json!({"client": "holder", "permits": [held["items"][0]["permit"]]});
    served.post("cancel", &permits.to_string()).await;
    served.until_free().await;
    served.end().await;
}
