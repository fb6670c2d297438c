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

/// What the server saw.
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
    mut request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let uri = request.uri().clone();
    let line = format!("{} {uri}", request.method());
    let head = (line.clone(), request.headers().clone());
    state.heads.lock().unwrap().push(head);
    let visit = {
        let mut visits = state.visits.lock().unwrap();
        let count = visits.entry(line).or_default();
        *count += 1;
        *count
    };
    let query = uri.query().unwrap_or_default();
    Ok(match uri.path() {
        "/count" => {
            let mut bytes = 0;
            while let Some(Ok(frame)) = request.body_mut().frame().await {
                bytes += frame.data_ref().map_or(0, Bytes::len);
            }
            text(200, bytes.to_string())
        }
        "/echo" => {
            let body = request.into_body().collect().await;
            let Ok(body) = body else {
                return Ok(text(400, "broken"));
            };
            let trailer = body.trailers().and_then(|all| all.get("x-end")).cloned();
            let mut response = text(200, body.to_bytes());
            if let Some(trailer) = trailer {
                response.headers_mut().insert("x-trailer-seen", trailer);
            }
            response
        }
        "/never" => {
            let _live = Live::new(state);
            std::future::pending().await
        }
        "/stream" => {
            let (send, frames) = mpsc::channel(1);
            tokio::spawn(async move {
                let _ = send.send(Frame::data("first".into())).await;
                state.go.notified().await;
                let _ = send.send(Frame::data("second".into())).await;
            });
            streamed(frames)
        }
        "/endless" => {
            let (send, frames) = mpsc::channel(1);
            tokio::spawn(async move {
                let _live = Live::new(state);
                let _ = send.send(Frame::data("first".into())).await;
                send.closed().await;
            });
            streamed(frames)
        }
        "/big" => {
            let (send, frames) = mpsc::channel(1);
            let parts = query.parse::<usize>().expect("a size") / PART;
            tokio::spawn(async move {
                for _ in 0..parts {
                    let part = Bytes::from_static(&[b'x'; PART]);
                    if send.send(Frame::data(part)).await.is_err() {
                        return;
                    }
                    state.sent.fetch_add(PART as u64, Ordering::SeqCst);
                }
            });
            streamed(frames)
        }
        "/trailers" => {
            let (send, frames) = mpsc::channel(2);
            let mut trailers = HeaderMap::new();
            trailers.insert("x-end", HeaderValue::from_static("it"));
            let _ = send.send(Frame::data("body".into())).await;
            let _ = send.send(Frame::trailers(trailers)).await;
            let mut response = streamed(frames);
            let named = HeaderValue::from_static("x-end");
            response.headers_mut().insert("trailer", named);
            response
        }
        "/refuses-once" if visit == 1 => {
            // An answer before the end of a body may be lost with its connection.
            let _ = request.into_body().collect().await;
            let mut response = text(429, "slow down");
            let after = HeaderValue::from_static("1");
            response.headers_mut().insert("retry-after", after);
            response
        }
        "/moved" => {
            let mut response = text(302, "");
            let to = HeaderValue::from_static("/elsewhere?a=b");
            response.headers_mut().insert("location", to);
            let cookie = HeaderValue::from_static("a=1");
            response.headers_mut().append("set-cookie", cookie);
            response
        }
        "/coded" => {
            let mut response = text(200, &b"\x1f\x8b not really gzip"[..]);
            let gzip = HeaderValue::from_static("gzip");
            response.headers_mut().insert("content-encoding", gzip);
            response
        }
        "/of-one-hop" => {
            let mut response = text(200, "");
            for (name, value) in [
                ("connection", "x-private"),
                ("x-private", "secret"),
                ("keep-alive", "timeout=5"),
                ("proxy-authenticate", "Basic"),
                ("x-public", "yes"),
            ] {
                let value = HeaderValue::from_static(value);
                response.headers_mut().append(name, value);
            }
            response
        }
        "/ws" => {
            let upgraded = hyper::upgrade::on(&mut request);
            tokio::spawn(async move {
                let mut stream = TokioIo::new(upgraded.await.expect("an upgrade"));
                let mut bytes = [0; 4];
                while stream.read_exact(&mut bytes).await.is_ok() {
                    let _ = stream.write_all(&bytes).await;
                }
            });
            let mut response = text(101, "");
            for (name, value) in [("connection", "upgrade"), ("upgrade", "websocket")] {
                let value = HeaderValue::from_static(value);
                response.headers_mut().insert(name, value);
            }
            response
        }
        path => match path.strip_prefix("/status/") {
            Some(status) => text(status.parse().expect("a status"), "as asked"),
            None => text(200, format!("{} {uri}", request.method())),
        },
    })
}
