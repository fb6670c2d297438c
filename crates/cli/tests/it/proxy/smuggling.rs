//! Requests whose length two servers may understand differently: each is refused, or reaches the
//! host as one request with one length.

use super::Proxy;
use super::host::Host;

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
