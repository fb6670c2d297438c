//! The server behind the proxy. What it does is in the path of a request.

use std::collections::HashMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc};

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// The bytes that `/big` sends at once.
const PART: usize = 64 << 10;

pub(super) struct Host {
    pub(super) url: String,
    pub(super) state: Arc<State>,
}

/// The requests and connections that the server saw.
#[derive(Default)]
pub(super) struct State {
    /// The head of each request: its first line and its header fields.
    pub(super) heads: Mutex<Vec<(String, HeaderMap)>>,
    /// Requests of `/never` that wait for their answer.
    pub(super) live: AtomicU64,
    /// The bytes of `/big` that were passed to the connection.
    pub(super) sent: AtomicU64,
    /// Lets `/stream` go on.
    pub(super) go: Notify,
    visits: Mutex<HashMap<String, u32>>,
}

/// Counts a request of `/never` until its connection is given up.
struct Live(Arc<State>);

impl Live {
    fn new(state: Arc<State>) -> Self {
        state.live.fetch_add(1, Ordering::SeqCst);
        Self(state)
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.0.live.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Host {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let state = Arc::clone(&shared);
                let answer = move |request| answer(Arc::clone(&state), request);
                let connection = http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service_fn(answer))
                    .with_upgrades();
                tokio::spawn(connection);
            }
        });
        Self { url, state }
    }

    pub(super) fn address(&self) -> &str {
        self.url.trim_start_matches("http://")
    }

    pub(super) fn heads(&self) -> Vec<(String, HeaderMap)> {
        self.state.heads.lock().unwrap().clone()
    }

    /// Waits until `/never` has `live` requests.
    pub(super) async fn until_live(&self, live: u64) {
        until(|| self.state.live.load(Ordering::SeqCst) == live).await;
    }
}

/// Waits for a condition.
pub(super) async fn until(mut is_so: impl FnMut() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(30), waiting).await;
    waited.expect("it comes to be");
}

fn text(status: u16, text: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Full::new(text.into()).boxed_unsync());
    *response.status_mut() = StatusCode::from_u16(status).expect("a status");
    response
}

/// A body that is sent through a channel.
struct Frames(mpsc::Receiver<Frame<Bytes>>);

impl http_body::Body for Frames {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|frame| frame.map(Ok))
    }
}

fn streamed(frames: mpsc::Receiver<Frame<Bytes>>) -> Response<Body> {
    Response::new(Frames(frames).boxed_unsync())
}

async fn answer(
    state: Arc<State>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let uri = request.uri().clone();
    let line = format!("{} {uri}", request.method());
    let head = (line.clone(), request.headers().clone());
    state.heads.lock().unwrap().push(head);
    let visit = {
        let mut visits = state.visits.lock().unwrap();
        let count = visits.entry(line.clone()).or_default();
        *count += 1;
        *count
    };
    let (path, query) = (uri.path(), uri.query().unwrap_or_default());
    Ok(match path {
        "/count" | "/echo" => read(path, request.into_body()).await,
        // The body of the request comes back as a body of the type in the query.
        "/says" | "/says-on" => says(path, query, request.into_body(), state).await,
        "/moved-to" => {
            let mut response = text(302, "");
            let to = HeaderValue::from_str(query).expect("a field");
            response.headers_mut().insert("location", to);
            response
        }
        // An answer before the end of a body may be lost with its connection.
        "/refuses-once" if visit == 1 => read(path, request.into_body()).await,
        "/never" => {
            let _live = Live::new(state);
            std::future::pending().await
        }
        "/stream" | "/endless" | "/big" | "/trailers" => stream(path, query, state),
        "/moved" => with_fields(
            302,
            &[("location", "/elsewhere?a=b"), ("set-cookie", "a=1")],
        ),
        "/of-one-hop" => with_fields(
            200,
            &[
                ("connection", "x-private"),
                ("x-private", "secret"),
                ("keep-alive", "timeout=5"),
                ("proxy-authenticate", "Basic"),
                ("x-public", "yes"),
            ],
        ),
        "/coded" => {
            let mut response = text(200, &b"\x1f\x8b not really gzip"[..]);
            let gzip = HeaderValue::from_static("gzip");
            response.headers_mut().insert("content-encoding", gzip);
            response
        }
        "/ws" => {
            tokio::spawn(echo_words(request));
            with_fields(101, &[("connection", "upgrade"), ("upgrade", "websocket")])
        }
        path => match path.strip_prefix("/status/") {
            Some(status) => text(status.parse().expect("a status"), "as asked"),
            None => text(200, line),
        },
    })
}

fn with_fields(status: u16, fields: &[(&'static str, &'static str)]) -> Response<Body> {
    let mut response = text(status, "");
    for (name, value) in fields {
        let value = HeaderValue::from_static(value);
        response.headers_mut().append(*name, value);
    }
    response
}

/// Reads the body of a request, and answers.
async fn read(path: &str, mut body: Incoming) -> Response<Body> {
    let (mut bytes, mut kept, mut trailer) = (0, Vec::new(), None);
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else {
            return text(400, "broken");
        };
        if let Some(data) = frame.data_ref() {
            bytes += data.len();
            if path == "/echo" {
                kept.extend_from_slice(data);
            }
        } else if let Some(trailers) = frame.trailers_ref() {
            trailer = trailers.get("x-end").cloned();
        }
    }
    match path {
        "/count" => text(200, bytes.to_string()),
        "/echo" => {
            let mut response = text(200, kept);
            if let Some(trailer) = trailer {
                response.headers_mut().insert("x-trailer-seen", trailer);
            }
            response
        }
        _ => {
            let mut response = text(429, "slow down");
            let after = HeaderValue::from_static("1");
            response.headers_mut().insert("retry-after", after);
            response
        }
    }
}

/// Sends the body of a request back. `/says-on` then goes on without an end.
async fn says(path: &str, kind: &str, body: Incoming, state: Arc<State>) -> Response<Body> {
    let body = body.collect().await.expect("a body").to_bytes();
    let (send, frames) = mpsc::channel(1);
    let is_endless = path == "/says-on";
    tokio::spawn(async move {
        let _live = Live::new(state);
        let _ = send.send(Frame::data(body)).await;
        if is_endless {
            send.closed().await;
        }
    });
    let mut response = streamed(frames);
    let kind = HeaderValue::from_str(kind).expect("a type");
    response.headers_mut().insert("content-type", kind);
    response
}

/// Sends a body through a channel.
fn stream(path: &str, query: &str, state: Arc<State>) -> Response<Body> {
    let (send, frames) = mpsc::channel(1);
    let mut response = streamed(frames);
    let first = || Frame::data(Bytes::from_static(b"first"));
    match path {
        "/stream" => drop(tokio::spawn(async move {
            let _ = send.send(first()).await;
            state.go.notified().await;
            let _ = send.send(Frame::data("second".into())).await;
        })),
        "/endless" => drop(tokio::spawn(async move {
            let _live = Live::new(state);
            let _ = send.send(first()).await;
            send.closed().await;
        })),
        "/big" => {
            let parts = query.parse::<usize>().expect("a size") / PART;
            tokio::spawn(async move {
                let part = Bytes::from(vec![b'x'; PART]);
                for _ in 0..parts {
                    if send.send(Frame::data(part.clone())).await.is_err() {
                        return;
                    }
                    state.sent.fetch_add(PART as u64, Ordering::SeqCst);
                }
            });
        }
        _ => {
            let named = HeaderValue::from_static("x-end");
            response.headers_mut().insert("trailer", named);
            let trailers = HeaderMap::from_iter([(
                http::HeaderName::from_static("x-end"),
                HeaderValue::from_static("it"),
            )]);
            tokio::spawn(async move {
                let _ = send.send(Frame::data("body".into())).await;
                let _ = send.send(Frame::trailers(trailers)).await;
            });
        }
    }
    response
}

/// Sends each word of four bytes back, after an upgrade.
async fn echo_words(request: Request<Incoming>) {
    let upgraded = hyper::upgrade::on(request).await.expect("an upgrade");
    let mut stream = TokioIo::new(upgraded);
    let mut word = [0; 4];
    while stream.read_exact(&mut word).await.is_ok() {
        let _ = stream.write_all(&word).await;
    }
}
