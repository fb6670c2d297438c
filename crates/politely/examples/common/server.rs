//! A limited server in this process: a token bucket, refusals with Retry-After, and a log of what
//! came.
#![allow(
    dead_code,
    clippy::disallowed_methods,
    reason = "each user takes a part of it, and a server's limit is in real time"
)]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use hyper::body::{Body, Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

/// Installs a TLS provider. The reqwest of this workspace has none, and builds no client without
/// one.
pub(crate) fn tls_provider() {
    // The call fails if a provider is already installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// The limit of the server.
#[derive(Clone, Copy)]
pub(crate) struct Limit {
    pub(crate) rate: f64,
    pub(crate) burst: f64,
    /// Seconds that refusals ask for.
    pub(crate) retry_after: Option<u64>,
}

/// One request, as the server saw it.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    pub(crate) at: Instant,
    pub(crate) path: String,
    pub(crate) authorized: bool,
    pub(crate) status: u16,
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    state: Arc<Mutex<State>>,
}

struct State {
    limit: Limit,
    tokens: f64,
    filled: Instant,
    arrivals: Vec<Arrival>,
    in_flight: usize,
    in_flight_peak: usize,
}

impl Server {
    /// Answers `/status/N` with that status, `/to/URL` with a redirect there (`/see/URL`: 303;
    /// `/keep/URL`: 307), `/slow` with a body that takes 100 ms, and everything else with its
    /// method and path.
    pub(crate) async fn start(limit: Limit) -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let state = Arc::new(Mutex::new(State {
            limit,
            tokens: limit.burst,
            filled: Instant::now(),
            arrivals: Vec::new(),
            in_flight: 0,
            in_flight_peak: 0,
        }));
        let shared = Arc::clone(&state);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let state = Arc::clone(&shared);
                let service = service_fn(move |request: Request<Incoming>| {
                    let response = answer(&state, &request);
                    async { Ok::<_, Infallible>(response) }
                });
                let connection = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service);
                tokio::spawn(connection);
            }
        });
        Ok(Self { address, state })
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn arrivals(&self) -> Vec<Arrival> {
        lock(&self.state).arrivals.clone()
    }

    pub(crate) fn count(&self, status: u16) -> usize {
        let state = lock(&self.state);
        let with = state.arrivals.iter().filter(|one| one.status == status);
        with.count()
    }

    pub(crate) fn in_flight_peak(&self) -> usize {
        lock(&self.state).in_flight_peak
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn answer(shared: &Arc<Mutex<State>>, request: &Request<Incoming>) -> Response<Answer> {
    let mut state = lock(shared);
    let now = Instant::now();
    let earned = now.duration_since(state.filled).as_secs_f64() * state.limit.rate;
    state.tokens = (state.tokens + earned).min(state.limit.burst);
    state.filled = now;
    let path = request.uri().path().to_owned();
    let mut response = Response::builder();
    if state.tokens < 1.0 {
        response = response.status(429);
        if let Some(secs) = state.limit.retry_after {
            response = response.header(header::RETRY_AFTER, secs);
        }
    } else {
        state.tokens -= 1.0;
        response = match path[1..].split_once('/') {
            Some(("status", code)) => response.status(code),
            Some(("to", url)) => response.status(302).header(header::LOCATION, url),
            Some(("see", url)) => response.status(303).header(header::LOCATION, url),
            Some(("keep", url)) => response.status(307).header(header::LOCATION, url),
            _ => response,
        };
    }
    state.in_flight += 1;
    state.in_flight_peak = state.in_flight_peak.max(state.in_flight);
    let takes = Duration::from_millis(if path == "/slow" { 100 } else { 0 });
    let body = Answer {
        text: Some(Bytes::from(format!("{} {path}", request.method()))),
        after: Box::pin(tokio::time::sleep(takes)),
        state: Arc::clone(shared),
    };
    let response = response.body(body).expect("parts that are valid");
    let status: StatusCode = response.status();
    state.arrivals.push(Arrival {
        at: now,
        path,
        authorized: request.headers().contains_key(header::AUTHORIZATION),
        status: status.as_u16(),
    });
    response
}

/// A body that is in flight until it has left.
struct Answer {
    text: Option<Bytes>,
    after: Pin<Box<tokio::time::Sleep>>,
    state: Arc<Mutex<State>>,
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        ready!(self.after.as_mut().poll(cx));
        Poll::Ready(self.text.take().map(|text| Ok(Frame::data(text))))
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        lock(&self.state).in_flight -= 1;
    }
}
