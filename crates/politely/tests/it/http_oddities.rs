//! Tests with stale connections, content codings and malformed header lines, through the layer and
//! the reqwest client.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use politely::attempts::PartialContent;
use politely::coding::CodingError;
use politely::middleware::Decode;
use politely::{Key, Limiter};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tower::ServiceExt;

use crate::support::{client, get, limiter, service};

/// Starts a server that never closes a connection. It answers each request with `answer` of the
/// request's number on its connection, from 1. Returns the server's URL and the number of requests
/// that arrived.
async fn start(
    answer: impl Fn(usize) -> Vec<u8> + Send + Sync + 'static,
) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let (answer, asked) = (Arc::new(answer), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&asked);
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(serve(stream, Arc::clone(&answer), Arc::clone(&count)));
        }
    });
    (url, asked)
}

async fn serve<A: Fn(usize) -> Vec<u8>>(
    mut stream: TcpStream,
    answer: Arc<A>,
    asked: Arc<AtomicUsize>,
) {
    let mut request = [0; 4096];
    for on_this in 1.. {
        if stream.read(&mut request).await.unwrap_or(0) == 0 {
            return;
        }
        asked.fetch_add(1, Ordering::Relaxed);
        let bytes = answer(on_this);
        if bytes.is_empty() || stream.write_all(&bytes).await.is_err() {
            return;
        }
    }
}

fn page(headers: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!("HTTP/1.1 200 OK\r\n{headers}Content-Length: {length}\r\n\r\n");
    [head.as_bytes(), body].concat()
}

/// Returns the numbers of permits granted and of reports. A failure would have added a report of
/// its own.
fn learned(limiter: &Limiter, url: &str) -> (u64, u64) {
    let key = Key::of_url(&url.parse().unwrap()).unwrap();
    let tally = limiter.explain(&key).unwrap().tally;
    (tally.granted, tally.reported)
}

/// Answers the first two requests of a connection, and closes it at the third.
fn stale(on_this: usize) -> Vec<u8> {
    if on_this == 3 {
        Vec::new()
    } else {
        page("", b"a page")
    }
}

#[tokio::test]
async fn a_stale_connection_charges_nobody_through_the_layer() {
    let (url, asked) = start(stale).await;
    let limiter = limiter(500.0);
    let service = service(limiter.clone());
    for _ in 0..10 {
        assert_eq!(get(&service, &url).await.status(), 200);
    }
    assert_eq!(learned(&limiter, &url), (10, 10));
    assert!(asked.load(Ordering::Relaxed) > 10);
}

#[tokio::test]
async fn a_stale_connection_charges_nobody_through_reqwest() {
    let (url, _) = start(stale).await;
    let limiter = limiter(500.0);
    let client = client(limiter.clone());
    for _ in 0..10 {
        let response = client.get(&url).send().await.unwrap();
        assert_eq!(response.text().await.unwrap(), "a page");
    }
    assert_eq!(learned(&limiter, &url), (10, 10));
}

#[tokio::test]
async fn a_server_that_answers_nobody_is_not_asked_twice_at_once() {
    let (url, asked) = start(|_| Vec::new()).await;
    let attempts = politely::attempts::Attempts::new(limiter(500.0));
    let once = politely::core::retry::Policy {
        attempts_max: 1,
        ..crate::support::quick()
    };
    let client = client(attempts.policy(once));
    assert!(client.get(&url).send().await.is_err());
    assert_eq!(asked.load(Ordering::Relaxed), 1);
}

/// "hello" in one uncompressed meta-block (RFC 7932, section 9.2).
const BROTLI: &[u8] = b"\x0b\x02\x80hello\x03";

#[tokio::test]
async fn codings_are_undone_by_the_client() {
    let (url, _) = start(|_| page("Content-Encoding: BR, identity\r\n", BROTLI)).await;
    let client = client(limiter(500.0));
    let response = client.get(&url).send().await.unwrap();
    assert_eq!(response.url().as_str(), url);
    assert!(!response.headers().contains_key("content-encoding"));
    assert_eq!(response.text().await.unwrap(), "hello");
    // A request with its own `Accept-Encoding` gets that coding.
    let own = client.get(&url).header("accept-encoding", "br");
    assert_eq!(own.send().await.unwrap().bytes().await.unwrap(), BROTLI);
}

#[tokio::test]
async fn an_unknown_or_broken_coding_is_an_error_of_the_body() {
    for (headers, wanted) in [
        (
            "Content-Encoding: compress\r\n",
            CodingError::Unsupported("compress"),
        ),
        (
            "Content-Encoding: br\r\n",
            CodingError::CutOff(politely::coding::Coding::Brotli),
        ),
    ] {
        let (url, _) = start(move |_| page(headers, &BROTLI[..5])).await;
        crate::server::tls_provider();
        let bare = reqwest::Client::builder().no_proxy().no_gzip();
        let bare = bare.build().unwrap();
        let client = reqwest_middleware::ClientBuilder::new(bare)
            .with(Decode)
            .build();
        let response = client.get(&url).send().await.unwrap();
        assert_eq!(response.status(), 200);
        let error = response.bytes().await.unwrap_err();
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&error);
        let found = std::iter::from_fn(|| {
            let this = cause?;
            cause = this.source();
            Some(this.downcast_ref::<CodingError>().cloned())
        });
        assert_eq!(found.flatten().next(), Some(wanted));
    }
}

#[tokio::test]
async fn malformed_header_lines_cost_no_response() {
    for headers in [
        "X-Policy: a\r\n  b\r\n",
        "X-Powered : by\r\n",
        "<!DOCTYPE html>\r\n",
        "X-Odd: a\x01b\r\n",
    ] {
        let (url, _) = start(move |_| page(headers, b"a page")).await;
        let response = client(limiter(500.0)).get(&url).send().await.unwrap();
        assert_eq!(response.status(), 200, "{headers}");
    }
}

fn part(range: &str) -> Vec<u8> {
    let head = format!("HTTP/1.1 206 Partial Content\r\nContent-Range: {range}\r\n");
    format!("{head}Content-Length: 4\r\n\r\npage").into_bytes()
}

#[tokio::test]
async fn a_part_that_was_not_requested_is_never_a_page() {
    let (url, asked) = start(|_| part("bytes 0-3/10")).await;
    let limiter = limiter(500.0);
    let request = || http::Request::get(&url);
    let body = http_body_util::Empty::<bytes::Bytes>::new;

    let layer = service(limiter.clone());
    let error = layer.clone().oneshot(request().body(body()).unwrap()).await;
    let error = error.unwrap_err().downcast::<PartialContent>().unwrap();
    assert_eq!(error.range, "bytes 0-3/10");
    let ranged = request().header("range", "bytes=0-3").body(body());
    let response = layer.oneshot(ranged.unwrap()).await.unwrap();
    assert_eq!(response.status(), 206);
    drop(response);

    let client = client(limiter.clone());
    match client.get(&url).send().await {
        Err(reqwest_middleware::Error::Middleware(error)) => {
            assert!(error.is::<PartialContent>(), "{error}");
        }
        other => panic!("{other:?}"),
    }
    let ranged = client.get(&url).header("range", "bytes=0-3");
    assert_eq!(ranged.send().await.unwrap().text().await.unwrap(), "page");
    // The host answered each request, and none was repeated.
    assert_eq!(learned(&limiter, &url), (4, 4));
    assert_eq!(asked.load(Ordering::Relaxed), 4);

    let (url, _) = start(|_| part("bytes 0-3/4")).await;
    let whole = client.get(url).send().await.unwrap();
    assert_eq!(whole.text().await.unwrap(), "page");
}

/// Starts a server that resets each HTTP/2 stream with `HTTP_1_1_REQUIRED`, and answers over
/// HTTP/1.1. Returns its URL and its numbers of requests over HTTP/2 and HTTP/1.1.
async fn requires_http1() -> (String, Arc<[AtomicUsize; 2]>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let counts = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
    let asked = Arc::clone(&counts);
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(http1_only(stream, Arc::clone(&asked)));
        }
    });
    (url, counts)
}

async fn http1_only(mut stream: TcpStream, asked: Arc<[AtomicUsize; 2]>) -> std::io::Result<()> {
    const SETTINGS: u8 = 4;
    const HEADERS: u8 = 1;
    let mut start = [0; 24];
    stream.read_exact(&mut start).await?;
    if !start.starts_with(b"PRI * HTTP/2.0") {
        let mut rest = [0; 4096];
        loop {
            asked[1].fetch_add(1, Ordering::Relaxed);
            let _ = stream.read(&mut rest).await?;
            stream.write_all(&page("", b"a page")).await?;
            stream.read_exact(&mut start).await?;
        }
    }
    stream
        .write_all(&[0, 0, 0, SETTINGS, 0, 0, 0, 0, 0])
        .await?;
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await?;
        let [a, b, c, kind, _, id @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        stream.read_exact(&mut payload).await?;
        if kind == HEADERS {
            asked[0].fetch_add(1, Ordering::Relaxed);
            // RST_STREAM with HTTP_1_1_REQUIRED (13).
            let reset = [&[0, 0, 4, 3, 0][..], &id, &[0, 0, 0, 13]].concat();
            stream.write_all(&reset).await?;
        }
    }
}

#[tokio::test]
async fn a_complete_client_continues_with_http_1_where_that_is_required() {
    let (url, asked) = requires_http1().await;
    let limiter = limiter(500.0);
    crate::server::tls_provider();
    let settings = || {
        reqwest::Client::builder()
            .no_proxy()
            .http2_prior_knowledge()
    };
    let client = politely::middleware::client_with(settings, limiter.clone()).unwrap();
    for _ in 0..5 {
        let response = client.get(&url).send().await.unwrap();
        assert_eq!(response.text().await.unwrap(), "a page");
    }
    let counts = [0, 1].map(|version: usize| asked[version].load(Ordering::Relaxed));
    assert_eq!(counts, [1, 5]);
    assert_eq!(learned(&limiter, &url), (5, 5));
    let key = Key::of_url(&url.parse().unwrap()).unwrap();
    assert!(limiter.explain(&key).unwrap().event.is_none());

    let (url, asked) = requires_http1().await;
    let post = client.post(&url).body("x").send().await;
    assert!(post.is_err(), "a POST is not repeated");
    assert_eq!(
        client.post(&url).body("x").send().await.unwrap().status(),
        200
    );
    let counts = [0, 1].map(|version: usize| asked[version].load(Ordering::Relaxed));
    assert_eq!(counts, [1, 1]);
}
