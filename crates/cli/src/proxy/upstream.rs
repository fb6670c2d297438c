//! The hosts' side: one pooled client for hosts that the operator named, and one for all others.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::ext::on_informational;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls_platform_verifier::ConfigVerifierExt as _;
use tokio::time::timeout;
use tower::Service;

use super::body::{Answer, BoxError, Sent, Stream};
use super::guard::Guard;
use super::tunnel;
use crate::exit::Wrong;

/// The maximum time for a TCP connection to a host.
pub(super) const CONNECT_MAX: Duration = Duration::from_secs(10);
/// The time between two probes of an idle connection.
const KEEPALIVE: Duration = Duration::from_secs(15);
/// The maximum size of an answer's head, in bytes, as in Chromium.
const HEAD_MAX: u32 = 256 << 10;

/// How a request reaches its host. It is in the extensions of the request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hop {
    /// Whether private addresses are refused.
    pub(super) is_guarded: bool,
    /// Whether the request needs HTTP/1.1: for another protocol, or a host that asks for the body.
    pub(super) is_http1: bool,
}

/// Sends one request, once. The layer around it does all else.
#[derive(Clone)]
pub(super) struct Upstream {
    /// For hosts that the operator named.
    open: Clients,
    guarded: Clients,
    guard: Guard,
    head_max: Duration,
}

#[derive(Clone)]
struct Clients {
    all: HttpClient,
    http1: HttpClient,
}

type HttpClient = Client<HttpsConnector<HttpConnector<Guard>>, Sent>;

impl Upstream {
    /// Returns the clients, which wait for the head of an answer at most for `head_max`.
    pub(super) fn new(guard: &Guard, head_max: Duration) -> Result<Self, Wrong> {
        Ok(Self {
            open: Clients::new(&guard.open())?,
            guarded: Clients::new(guard)?,
            guard: guard.clone(),
            head_max,
        })
    }

    async fn send(&self, request: Request<Sent>) -> Result<Response<Answer>, BoxError> {
        if request.method() == Method::CONNECT {
            return tunnel::dial(&self.guard, request.uri()).await;
        }
        let hop = request.extensions().get::<Hop>();
        let clients = if hop.is_none_or(|hop| hop.is_guarded) {
            &self.guarded
        } else {
            &self.open
        };
        let client = if hop.is_some_and(|hop| hop.is_http1) {
            &clients.http1
        } else {
            &clients.all
        };
        let response = client.request(request).await?;
        Ok(response.map(|body| body.map_err(Into::into).boxed_unsync()))
    }
}

impl Clients {
    fn new(guard: &Guard) -> Result<Self, Wrong> {
        let tls = rustls::ClientConfig::with_platform_verifier();
        let tls = tls.map_err(|why| Wrong::no_client(&why.to_string()))?;
        let mut tcp = HttpConnector::new_with_resolver(guard.clone());
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT_MAX));
        tcp.set_keepalive(Some(KEEPALIVE));
        let https = || {
            HttpsConnectorBuilder::new()
                .with_tls_config(tls.clone())
                .https_or_http()
        };
        let client = |connector| {
            Client::builder(TokioExecutor::new())
                .timer(TokioTimer::new())
                .pool_timer(TokioTimer::new())
                // Some servers know header names only as curl and browsers write them.
                .http1_title_case_headers(true)
                .http1_max_buf_size(HEAD_MAX as usize)
                .http2_max_header_list_size(HEAD_MAX)
                .build(connector)
        };
        Ok(Self {
            all: client(https().enable_all_versions().wrap_connector(tcp.clone())),
            http1: client(https().enable_http1().wrap_connector(tcp)),
        })
    }
}

impl Service<Request<Sent>> for Upstream {
    type Response = Response<Answer>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Answer>, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Sent>) -> Self::Future {
        let upstream = self.clone();
        let stream = match request.body() {
            Sent::Stream(stream) => Some(stream.clone()),
            Sent::Kept(..) => None,
        };
        if let Some(stream) = stream.clone().filter(Stream::is_expected) {
            on_informational(&mut request, move |response| {
                if response.status() == StatusCode::CONTINUE {
                    stream.ask();
                }
            });
        }
        Box::pin(async move {
            let sent = timeout(upstream.head_max, upstream.send(request)).await?;
            let Some(stream) = stream else { return sent };
            stream.answered();
            // The host is not at fault for a body that did not come.
            sent.map_err(|error| stream.broken().map_or(error, Into::into))
        })
    }
}
