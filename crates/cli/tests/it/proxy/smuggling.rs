//! Requests whose length two servers may understand differently: each is refused, or reaches the
//! host as one request with one length.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::host::Host;
use super::{Proxy, client};

#[tokio::test]
async fn a_request_of_two_meanings_never_becomes_two() {
    let host = Host::start().await;
    let proxy = Proxy::of(&host, &[]);
    let smuggled = "0\r\n\r\nGET /host/smuggled HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
    let length = smuggled.len();
    let both = format!("Content-Length: {length}\r\nTransfer-Encoding: chunked\r\n\r\n{smuggled}");
    let swapped =
        format!("Transfer-Encoding: chunked\r\nContent-Length: {length}\r\n\r\n{smuggled}");
    let refused = [
        (
            "two lengths",
            "Content-Length: 1\r\nContent-Length: 2\r\n\r\nab".to_owned(),
        ),
        (
            "a list of lengths",
            "Content-Length: 1, 2\r\n\r\nab".to_owned(),
        ),
        ("a signed length", "Content-Length: +1\r\n\r\na".to_owned()),
        (
            "a negative length",
            "Content-Length: -1\r\n\r\na".to_owned(),
        ),
        (
            "a space before the colon",
            "Content-Length : 1\r\n\r\na".to_owned(),
        ),
        (
            "a folded line",
            "X-A: b\r\n Content-Length: 1\r\n\r\na".to_owned(),
        ),
        (
            "an unknown coding",
            "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n".to_owned(),
        ),
        (
            "chunked is not last",
            "Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n".to_owned(),
        ),
        (
            "a vertical tab",
            "Transfer-Encoding: \u{b}chunked\r\n\r\n0\r\n\r\n".to_owned(),
        ),
        ("no name", ": x\r\n\r\n".to_owned()),
        ("a bare CR", "X-A: b\rContent-Length: 5\r\n\r\n".to_owned()),
        ("a NUL", "X-A: b\0c\r\n\r\n".to_owned()),
    ];
    for (what, rest) in refused {
        let request =
            format!("POST /host/echo HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n{rest}");
        let answer = proxy.raw(&request).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{what}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{what}: {answer}");
    }
    // Bad chunks show only when the body is read. The host gets no whole body.
    for (what, chunks) in [
        ("no number", "zz\r\nab\r\n0\r\n\r\n"),
        ("a negative size", "-1\r\nab\r\n0\r\n\r\n"),
        (
            "a size beyond 64 bits",
            "10000000000000001\r\na\r\n0\r\n\r\n",
        ),
        ("0x", "0x1\r\na\r\n0\r\n\r\n"),
        ("too long a chunk", "1\r\nab\r\n0\r\n\r\n"),
    ] {
        let request = format!(
            "POST /host/echo HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}"
        );
        let answer = proxy.raw(&request).await;
        assert!(!answer.starts_with("HTTP/1.1 200 "), "{what}: {answer}");
    }
    // hyper goes by the coding, and ends the connection: the rest is no request.
    for rest in [both, swapped] {
        let request = format!("POST /host/echo HTTP/1.1\r\nHost: 127.0.0.1\r\n{rest}");
        let answer = proxy.raw(&request).await;
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{answer}");
    }
    for (line, head) in host.heads() {
        assert_eq!(line, "POST /echo");
        let (length, coding) = (head.get("content-length"), head.get("transfer-encoding"));
        assert!(length.is_none() || coding.is_none(), "{head:?}");
    }
}

#[tokio::test]
async fn a_head_that_is_too_long_is_refused() {
    let host = Host::start().await;
    let proxy = Proxy::of(&host, &[]);
    let long = "x".repeat(100 << 10);
    let many = "X-A: b\r\n".repeat(1_000);
    for field in [format!("X-Long: {long}\r\n"), many] {
        let request = format!("GET /host/page HTTP/1.1\r\nHost: 127.0.0.1\r\n{field}\r\n");
        let answer = proxy.raw(&request).await;
        assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    }
    assert!(host.heads().is_empty());
}

#[tokio::test]
async fn only_one_chunked_is_a_coding() {
    let host = Host::start().await;
    let proxy = Proxy::of(&host, &[]);
    for (coding, status) in [
        ("gzip, chunked", 501),
        ("chunked, chunked", 400),
        ("chunked\r\nTransfer-Encoding: chunked", 400),
    ] {
        let head = format!(
            "POST /host/echo HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\
             Transfer-Encoding: {coding}\r\n\r\n0\r\n\r\n"
        );
        let answer = proxy.raw(&head).await;
        let told = format!("HTTP/1.1 {status} ");
        assert!(answer.starts_with(&told), "{coding}: {answer}");
    }
    assert!(host.heads().is_empty());
}

#[tokio::test]
async fn a_connect_without_a_port_or_with_a_body_ends_its_connection() {
    let proxy = Proxy::start(&["--allow-private", "--profile", "api"]);
    let inner = "GET /inside HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
    for (target, field) in [
        ("127.0.0.1", ""),
        ("127.0.0.1:0", ""),
        ("127.0.0.1:99999", ""),
        ("http://127.0.0.1:9/", ""),
        ("127.0.0.1:9", "Content-Length: 3\r\n"),
        ("127.0.0.1:9", "Transfer-Encoding: chunked\r\n"),
    ] {
        let head = format!("CONNECT {target} HTTP/1.1\r\nHost: 127.0.0.1\r\n{field}\r\n{inner}");
        let answer = proxy.raw(&head).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{target}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{answer}");
    }
}

#[tokio::test]
async fn an_answer_with_a_foreign_protocol_coding_or_length_is_a_502() {
    for (head, status) in [
        (
            "101 S\r\nConnection: upgrade\r\nUpgrade: websocket\r\n",
            502,
        ),
        ("101 S\r\nConnection: upgrade\r\nUpgrade: foo\r\n", 502),
        ("200 OK\r\nTransfer-Encoding: gzip\r\n", 502),
        ("200 OK\r\nContent-Length: 2, 3\r\n", 502),
        ("200 OK\r\nContent-Length: 2, 2\r\n", 200),
    ] {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let route = format!("raw=http://{}", listener.local_addr().unwrap());
        let says = format!("HTTP/1.1 {head}politely-key: fake\r\npolitely-x: fake\r\n\r\nab");
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.read(&mut [0; 4096]).await;
                let _ = stream.write_all(says.as_bytes()).await;
            }
        });
        let proxy = Proxy::start(&["--route", &route, "--profile", "api", "--retries", "0"]);
        let answer = client().get(format!("{}/raw/", proxy.url)).send().await;
        let answer = answer.unwrap();
        assert_eq!(answer.status(), status, "{head}");
        assert!(!answer.headers().contains_key("politely-x"));
        if status == 200 {
            assert_eq!(answer.headers()["content-length"], "2");
            assert_ne!(answer.headers()["politely-key"], "fake");
        }
    }
}
