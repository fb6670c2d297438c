//! Bodies stream in both directions, with back pressure, trailers, cancellation and upgrades.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::host::{Host, until};
use super::{Proxy, builder, client};

/// The size of a large body, in bytes.
const BIG: usize = 50 << 20;
/// The most memory of the proxy in these tests, in KiB. The body is larger.
const MEMORY_MAX_KIB: u64 = 45 << 10;

/// Returns the most memory that the process ever had, in KiB.
fn peak_kib(proxy: &Proxy) -> u64 {
    let status = format!("/proc/{}/status", proxy.server.pid());
    let status = std::fs::read_to_string(status).expect("Linux");
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    number.and_then(|number| number.parse().ok()).expect("KiB")
}

#[tokio::test]
async fn the_first_part_comes_before_the_last_is_sent() {
    let host = Host::start().await;
    let proxy = Proxy::of(&host, &[]);
    for http2 in [false, true] {
        let client = if http2 {
            builder().http2_prior_knowledge().build().unwrap()
        } else {
            client()
        };
        let mut answer = client.get(proxy.at("/stream")).send().await.unwrap();
        assert_eq!(answer.chunk().await.unwrap().unwrap(), "first");
        host.state.go.notify_one();
        assert_eq!(answer.chunk().await.unwrap().unwrap(), "second");
        assert_eq!(answer.bytes().await.unwrap(), "");
    }
}

#[tokio::test]
async fn a_large_body_passes_in_both_directions_in_little_memory() {
    let host = Host::start().await;
    let proxy = Proxy::of(&host, &[]);
    let before = peak_kib(&proxy);
    let up = client().post(proxy.at("/count")).body(vec![b'x'; BIG]);
    assert_eq!(
        up.send().await.unwrap().text().await.unwrap(),
        BIG.to_string()
    );
    let down = client().get(proxy.at(&format!("/big?{BIG}"))).send().await;
    let mut down = down.unwrap();
    let mut bytes = 0;
    while let Some(part) = down.chunk().await.unwrap() {
        bytes += part.len();
    }
    assert_eq!(bytes, BIG);
    let more = peak_kib(&proxy).saturating_sub(before);
    assert!(more < MEMORY_MAX_KIB, "{more} KiB");
}

#[tokio::test]
async fn a_caller_that_does_not_read_stops_the_host() {
    let host = Host::start().await;
    let proxy = Proxy::of(&host, &[]);
    let answer = client().get(proxy.at(&format!("/big?{BIG}"))).send().await;
    let mut answer = answer.unwrap();
    // The host goes on until all buffers on the way are full.
    let mut sent = 0;
    until(|| {
        let before = std::mem::replace(&mut sent, host.state.sent.load(Ordering::SeqCst));
        before == sent && sent > 0
    })
    .await;
    assert!(sent < BIG as u64, "{sent} bytes were sent");
    let mut bytes = 0;
    while let Some(part) = answer.chunk().await.unwrap() {
        bytes += part.len();
    }
    assert_eq!(bytes, BIG);
}

#[tokio::test]
async fn trailers_pass_in_both_directions() {
    let host = Host::start().await;
    let proxy = Proxy::of(&host, &[]);
    let request = format!(
        "GET /host/trailers HTTP/1.1\r\nHost: {}\r\nTE: trailers\r\nConnection: te, close\r\n\r\n",
        proxy.address()
    );
    let answer = proxy.raw(&request).await;
    assert!(answer.ends_with("0\r\nx-end: it\r\n\r\n"), "{answer}");
    let request = format!(
        "POST /host/echo HTTP/1.1\r\nHost: {}\r\nTransfer-Encoding: chunked\r\nTrailer: x-end\r\n\
         Connection: close\r\n\r\n4\r\nbody\r\n0\r\nx-end: mine\r\n\r\n",
        proxy.address()
    );
    let answer = proxy.raw(&request).await;
    assert!(answer.contains("x-trailer-seen: mine"), "{answer}");
}

#[tokio::test]
async fn a_caller_that_goes_ends_its_request_and_frees_its_slot() {
    let host = Host::start().await;
    let proxy = Proxy::of(&host, &["--in-flight", "1"]);
    for path in ["/never", "/endless"] {
        for http2 in [false, true] {
            let client = if http2 {
                builder().http2_prior_knowledge().build().unwrap()
            } else {
                client()
            };
            let request = client.get(proxy.at(path));
            let waiting = tokio::spawn(async move {
                let mut answer = request.send().await.unwrap();
                while answer.chunk().await.unwrap().is_some() {}
            });
            host.until_live(1).await;
            waiting.abort();
            drop(client);
            host.until_live(0).await;
            // The only slot is free.
            let next = super::client().get(proxy.at("/page")).send().await;
            assert_eq!(next.unwrap().status(), 200, "{path}");
        }
    }
}

#[tokio::test]
async fn a_caller_that_goes_with_a_second_request_unread_frees_its_slot() {
    let host = Host::start().await;
    let proxy = Proxy::of(&host, &["--in-flight", "1"]);
    for path in ["/never", "/endless"] {
        let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
        let first = format!("GET /host{path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
        stream.write_all(first.repeat(2).as_bytes()).await.unwrap();
        host.until_live(1).await;
        drop(stream);
        host.until_live(0).await;
        let next = client().get(proxy.at("/page")).send().await.unwrap();
        assert_eq!(next.status(), 200, "{path}");
    }
    let lines: Vec<_> = host.heads().into_iter().map(|(line, _)| line).collect();
    assert_eq!(
        lines,
        ["GET /never", "GET /page", "GET /endless", "GET /page"]
    );
}

#[tokio::test]
async fn a_host_that_answers_instead_of_asking_for_the_body_gets_none() {
    let host = Host::start().await;
    let proxy = Proxy::of(&host, &["--retries", "0"]);
    for length in [10, 1_000_000] {
        let head = format!(
            "POST /host/status/401 HTTP/1.1\r\nHost: 127.0.0.1\r\nExpect: 100-continue\r\n\
             Content-Length: {length}\r\n\r\n"
        );
        let answer = proxy.raw(&head).await;
        assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
    }
}

#[tokio::test]
async fn an_upload_that_breaks_off_is_no_failure_of_the_host() {
    let host = Host::start().await;
    let proxy = Proxy::of(&host, &["--in-flight", "1"]);
    for _ in 0..20 {
        let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
        let head =
            "POST /host/count HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000000\r\n\r\nabc";
        stream.write_all(head.as_bytes()).await.unwrap();
        let seen = host.heads().len();
        until(|| host.heads().len() > seen).await;
        drop(stream);
    }
    let next = client().get(proxy.at("/page")).send().await.unwrap();
    assert_eq!(next.status(), 200);
    let waited = next.headers()["politely-wait-ms"].to_str().unwrap();
    assert!(waited.parse::<u64>().unwrap() < 1_000, "{waited} ms");
}

#[tokio::test]
async fn a_body_is_asked_for_when_its_request_may_leave() {
    let host = Host::start().await;
    let proxy = Proxy::of(&host, &["--in-flight", "1", "--wait", "0"]);
    let held = client().get(proxy.at("/endless")).send().await.unwrap();
    let head = "POST /host/count HTTP/1.1\r\nHost: 127.0.0.1\r\nExpect: 100-continue\r\n\
                Content-Length: 1000000\r\n\r\n";
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut first = [0; 12];
    stream.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 429", "the body was not asked for");
    drop(held);
    host.until_live(0).await;
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut first = [0; 25];
    stream.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(&vec![b'x'; 1_000_000]).await.unwrap();
    stream.read_exact(&mut first[..12]).await.unwrap();
    assert_eq!(&first[..12], b"HTTP/1.1 200");
    // The host asked for it.
    let (_, head) = host.heads().pop().unwrap();
    assert_eq!(head["expect"], "100-continue");
}

#[tokio::test]
async fn a_websocket_is_one_request_and_its_bytes_pass() {
    let host = Host::start().await;
    let proxy = Proxy::of(&host, &[]);
    let head = format!(
        "GET /host/ws HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n",
        proxy.address()
    );
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(stream.read_u8().await.unwrap());
    }
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 101 "), "{answer}");
    assert!(answer.contains("upgrade: websocket"), "{answer}");
    for word in [b"ping", b"pong"] {
        stream.write_all(word).await.unwrap();
        let mut back = [0; 4];
        stream.read_exact(&mut back).await.unwrap();
        assert_eq!(&back, word);
    }
    let (_, head) = host.heads().remove(0);
    assert_eq!(head["sec-websocket-key"], "dGhlIHNhbXBsZSBub25jZQ==");
}

/// Ten thousand idle streams would be one test more; a hundred show that each has its own.
#[tokio::test]
async fn many_streams_are_open_at_once() {
    let host = Host::start().await;
    let proxy = Proxy::of(&host, &["--in-flight", "200"]);
    let mut open = Vec::new();
    for _ in 0..100 {
        let mut answer = client().get(proxy.at("/endless")).send().await.unwrap();
        assert_eq!(answer.chunk().await.unwrap(), Some(Bytes::from("first")));
        open.push(answer);
    }
    host.until_live(100).await;
    drop(open);
    host.until_live(0).await;
}

#[tokio::test]
async fn a_get_with_a_body_reaches_the_host_with_it() {
    let host = Host::start().await;
    let proxy = Proxy::of(&host, &[]);
    let request = "GET /host/echo HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\
                   Transfer-Encoding: chunked\r\n\r\n5\r\nquery\r\n0\r\n\r\n";
    let answer = proxy.raw(request).await;
    assert!(answer.ends_with("\r\n\r\nquery"), "{answer}");
    let (_, head) = host.heads().remove(0);
    assert_eq!(head["transfer-encoding"], "chunked");
    let http2 = builder().http2_prior_knowledge().build().unwrap();
    let answer = http2.get(proxy.at("/echo")).body("query").send().await;
    assert_eq!(answer.unwrap().text().await.unwrap(), "query");
}

#[tokio::test]
async fn a_caller_that_leaves_its_wait_is_noticed_while_its_body_streams() {
    let host = Host::start().await;
    let proxy = Proxy::of(&host, &["--in-flight", "1"]);
    let held = client().get(proxy.at("/endless")).send().await.unwrap();
    let part = "x".repeat(1_000);
    for rest in [
        format!("Content-Length: 1000000\r\n\r\n{part}"),
        format!("Transfer-Encoding: chunked\r\n\r\n3e8\r\n{part}\r\n"),
        format!("Transfer-Encoding: chunked\r\n\r\n3e8\r\n{part}\r\n0\r\n\r\n"),
    ] {
        let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
        let head = format!("POST /host/count HTTP/1.1\r\nHost: 127.0.0.1\r\n{rest}");
        stream.write_all(head.as_bytes()).await.unwrap();
        // The proxy sees the end of a caller that writes no more, and closes the connection.
        stream.shutdown().await.unwrap();
        let _ = stream.read_to_end(&mut Vec::new()).await;
    }
    drop(held);
    host.until_live(0).await;
    let next = client().get(proxy.at("/page")).send().await.unwrap();
    assert_eq!(next.status(), 200);
    let lines: Vec<_> = host.heads().into_iter().map(|(line, _)| line).collect();
    assert_eq!(lines, ["GET /endless", "GET /page"]);
}
