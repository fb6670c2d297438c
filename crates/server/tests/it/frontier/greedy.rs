//! Callers that take without giving back, and callers that put without reading.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use super::place::Place;
use super::{counts, fast, open, put_urls, take, take_one, urls};

/// Longer than the server waits for a caller that does not read, even on a loaded machine.
const LONG: Duration = Duration::from_mins(2);
/// More than two batches, the buffers of both sockets, and their answers.
const SENT_MAX: usize = 64 << 20;

/// Sends lines in chunks and reads no answer, until the server closes the connection. Returns the
/// bytes that were sent.
fn put_without_reading(address: std::net::SocketAddr) -> usize {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_write_timeout(Some(LONG)).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    let head = "POST /api/v1/frontier/c/put HTTP/1.1\r\nhost: localhost\r\n\
                content-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    // The answer to each of these lines is a hundred times as long.
    let lines = "x\n".repeat(1 << 12);
    let chunk = format!("{:x}\r\n{lines}\r\n", lines.len());
    let mut sent = 0;
    loop {
        match stream.write(chunk.as_bytes()) {
            Ok(bytes) if bytes == chunk.len() => sent += bytes,
            // A chunk that was cut would be a protocol error of this client.
            Ok(bytes) => match stream.write_all(&chunk.as_bytes()[bytes..]) {
                Ok(()) => sent += chunk.len(),
                Err(why) => break assert_closed(why.kind()),
            },
            Err(why) => break assert_closed(why.kind()),
        }
        assert!(
            sent < SENT_MAX,
            "the server reads {sent} bytes without being read"
        );
    }
    let mut rest = Vec::new();
    // What was answered may be read or lost; the connection is closed after it.
    let ended = stream.read_to_end(&mut rest);
    assert!(ended.map_or_else(|why| why.kind() == ErrorKind::ConnectionReset, |_| true));
    sent
}

fn assert_closed(kind: ErrorKind) {
    let closed = [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset];
    assert!(closed.contains(&kind), "{kind:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_puts_without_reading_is_sent_away() {
    let place = Place::folder();
    let served = open(&place, fast(), None).await;
    let address = served.address;
    let sending = tokio::task::spawn_blocking(move || put_without_reading(address));
    // Other callers are served meanwhile.
    assert_eq!(put_urls(&served, &["https://a.com/1"]).await, ["new"]);
    sending.await.unwrap();
    let (status, _) = served.call(Method::GET, "/readyz", "").await;
    assert_eq!(status, 200);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_gets_its_answers_before_it_sends_more() {
    let place = Place::folder();
    let served = open(&place, fast(), None).await;
    let address = served.address;
    let talking = tokio::task::spawn_blocking(move || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        let head = "POST /api/v1/frontier/c/put HTTP/1.1\r\nhost: localhost\r\n\
                    content-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n";
        stream.write_all(head.as_bytes()).unwrap();
        let mut read = String::new();
        for number in 0..3 {
            let line = format!("{{\"url\":\"https://a.com/{number}\"}}\n");
            write!(stream, "{:x}\r\n{line}\r\n", line.len()).unwrap();
            let mut bytes = [0; 4_096];
            while read.matches("\"new\"").count() <= number {
                let count = stream.read(&mut bytes).unwrap();
                assert!(count > 0, "{read}");
                read += std::str::from_utf8(&bytes[..count]).unwrap();
            }
        }
    });
    talking.await.unwrap();
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_never_returns_its_units_delays_them_by_the_lease() {
    let place = Place::folder();
    let served = open(&place, fast(), None).await;
    let all: Vec<_> = (0..50).map(|host| format!("https://{host}.com/")).collect();
    let all: Vec<_> = all.iter().map(String::as_str).collect();
    put_urls(&served, &all).await;
    let body = json!({"client": "greedy", "units": 100, "lease_ms": 300});
    let taken = take(&served, body).await;
    assert_eq!(taken["units"].as_array().unwrap().len(), 50, "{taken}");
    let owners = served.get("/api/v1/frontier/c/owners?limit=2").await;
    let [first, _] = &owners["owners"].as_array().unwrap()[..] else {
        panic!("{owners}");
    };
    assert!(
        first["client"].as_str().unwrap().contains("greedy"),
        "{first}"
    );
    assert_eq!(first["pages"], 1);
    // The pages come back, and the words of the greedy worker are refused.
    let mut found = std::collections::BTreeSet::new();
    while found.len() < 50 {
        let unit = take_one(&served, "honest", 1).await;
        found.insert(urls(&unit)[0].to_owned());
    }
    let token = &taken["units"][0]["token"];
    let stale = super::done(&served, "greedy", json!({"token": token})).await;
    assert_eq!(stale["error"]["field"], "token", "{stale}");
    assert_eq!(counts(&served).await["leased"], Value::from(50));
    served.end().await;
}
