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

    /// Takes the slot behind all callers that wait for it now, and gives it back.
    async fn take_and_give_back(&self) {
        let body = r#"{"client":"last","wait_ms":5000,"items":[{"key":"custom/lock"}]}"#;
        let granted = self.post("acquire", body).await;
        let item = &granted["items"][0];
        assert_eq!(item["status"], "granted", "the slot stays taken: {item}");
        let permits = json!({"client": "last", "permits": [item["permit"]]});
        self.post("cancel", &permits.to_string()).await;
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

    /// Reads frames until the answer's end, and returns its text.
    fn answer(&mut self, stream: u32) -> String {
        let mut text = Vec::new();
        loop {
            let mut head = [0; 9];
            self.stream.read_exact(&mut head).unwrap();
            let [a, b, c, kind, flags, of @ ..] = head;
            let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
            self.stream.read_exact(&mut payload).unwrap();
            if (kind, u32::from_be_bytes(of)) == (0, stream) {
                text.extend(payload);
                if flags & 1 == 1 {
                    return String::from_utf8(text).unwrap();
                }
            }
        }
    }
}

/// Regression: an answer whose stream was reset after it was written kept its slot for the lease.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_reset_around_the_grant_gives_its_permit_back() {
    let served = lock().await;
    served.take_and_give_back().await;
    let mut client = Http2::connect(&served);
    for turn in 0..40_u64 {
        let stream = client.ask("custom/lock");
        // Some streams are reset before the grant, some while the answer is written, and most
        // after that. The client reads no answer.
        std::thread::sleep(Duration::from_micros(turn * turn * 10));
        client.reset(stream);
        if turn % 8 == 7 {
            served.take_and_give_back().await;
        }
    }
    // Many calls wait for one slot, so each grant follows a reset. Such a burst of resets does not
    // end the connection.
    for calls in [40, 40, 150] {
        let streams: Vec<_> = (0..calls).map(|_| client.ask("custom/lock")).collect();
        for stream in streams {
            client.reset(stream);
        }
        served.take_and_give_back().await;
    }
    served.until_free().await;
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_of_http2_that_ends_around_the_grant_gives_its_permit_back() {
    let served = lock().await;
    for turn in 0..20_u64 {
        let mut client = Http2::connect(&served);
        client.ask("custom/lock");
        std::thread::sleep(Duration::from_micros(turn * turn * 40));
        drop(client);
        served.take_and_give_back().await;
    }
    served.until_free().await;
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_over_http2_that_was_read_stands() {
    let served = lock().await;
    let mut client = Http2::connect(&served);
    let stream = client.ask("custom/lock");
    let granted: serde_json::Value = serde_json::from_str(&client.answer(stream)).unwrap();
    // Another stream is given up, and then the connection ends with unread answers.
    let other = client.ask("custom/lock");
    client.reset(other);
    client.ask("custom/lock");
    let ping = [0; 8];
    client.frame(6, 0, 0, &ping);
    std::thread::sleep(Duration::from_millis(50));
    drop(client);
    let permits = json!({"client": "w", "permits": [granted["items"][0]["permit"]]});
    for _ in 0..10 {
        let renewed = served.post("renew", &permits.to_string()).await;
        assert_eq!(renewed["lost"], json!([]));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    served.post("cancel", &permits.to_string()).await;
    served.until_free().await;
    served.end().await;
}

/// Answers that were read stand, however small the frames of HTTP/2 are.
#[tokio::test(flavor = "multi_thread")]
async fn no_answer_that_was_read_over_http2_is_taken_back() {
    let served = lock().await;
    for window in [40, 1_000, 1 << 20] {
        let http = reqwest::Client::builder()
            .http2_prior_knowledge()
            .http2_initial_stream_window_size(window)
            .build()
            .unwrap();
        let calls = (0..100).map(|i| {
            let items: Vec<_> = (0..=i % 40)
                .map(|j| json!({"key": format!("k{i}x{j}.example")}))
                .collect();
            let body = json!({"client": format!("w{i}"), "wait_ms": 1_000, "items": items});
            let call = http
                .post(served.url("/api/v1/acquire"))
                .body(body.to_string());
            tokio::spawn(call.header("content-type", "application/json").send())
        });
        for (i, call) in calls.collect::<Vec<_>>().into_iter().enumerate() {
            let answer: serde_json::Value =
                serde_json::from_str(&call.await.unwrap().unwrap().text().await.unwrap()).unwrap();
            let items = answer["items"].as_array().unwrap();
            let permits: Vec<_> = items.iter().map(|item| item["permit"].clone()).collect();
            let body = json!({"client": format!("w{i}"), "permits": permits}).to_string();
            let renewed = served.post("renew", &body).await;
            assert_eq!(renewed["lost"], json!([]), "window {window}");
            served.post("cancel", &body).await;
        }
    }
    served.end().await;
}
