//! Helpers that the tests of the client integrations share.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use politely::attempts::Attempts;
use politely::core::retry::{Backoff, Jitter, Policy};
use politely::layer::{PoliteLayer, PoliteService};
use politely::{Config, Key, Limiter};
use reqwest_middleware::ClientWithMiddleware;
use tower::{Layer, ServiceExt};

use crate::server::{Limit, Server};

/// Returns a limiter that starts at `rate`, which is fast enough for a test, and learns from there.
pub(crate) fn limiter(rate: f64) -> Limiter {
    let mut config = Config::api();
    config.limits.rate_start = rate;
    Limiter::builder().config(config).build().unwrap()
}

pub(crate) async fn unlimited() -> Server {
    let limit = Limit {
        rate: 1e6,
        burst: 1e6,
        retry_after: None,
    };
    Server::start(limit).await.unwrap()
}

/// Returns the crawler's policy with short backoffs.
pub(crate) fn quick() -> Policy {
    let ms = Duration::from_millis;
    Policy {
        backoff: Backoff::new(ms(1), 2.0, ms(20), Jitter::Full).unwrap(),
        ..Policy::crawler()
    }
}

pub(crate) fn client(attempts: impl Into<Attempts>) -> ClientWithMiddleware {
    crate::server::tls_provider();
    let settings = || reqwest::Client::builder().no_proxy();
    politely::middleware::client_with(settings, attempts).unwrap()
}

type Hyper = Client<hyper_util::client::legacy::connect::HttpConnector, Empty<Bytes>>;

pub(crate) fn service(attempts: impl Into<Attempts>) -> PoliteService<Hyper> {
    PoliteLayer::new(attempts).layer(Client::builder(TokioExecutor::new()).build_http())
}

/// Sends a GET request through the layer and reads the whole response.
pub(crate) async fn get(service: &PoliteService<Hyper>, url: &str) -> Response<Bytes> {
    let request = Request::get(url).body(Empty::new()).unwrap();
    let response = service.clone().oneshot(request).await.unwrap();
    let (head, body) = response.into_parts();
    Response::from_parts(head, body.collect().await.unwrap().to_bytes())
}

/// Returns the counts of a server's key (granted, reported, cancelled, live). Asserts that they
/// balance.
pub(crate) fn books(limiter: &Limiter, server: &Server) -> (u64, u64, u64, u64) {
    let key = Key::host(&server.url("/")).unwrap();
    let tally = limiter.explain(&key).unwrap().tally;
    assert_eq!(
        tally.granted,
        tally.reported + tally.cancelled + tally.expired + tally.live
    );
    (tally.granted, tally.reported, tally.cancelled, tally.live)
}

/// Returns a limiter with the clock of the runtime.
pub(crate) fn in_virtual_time(rate: f64, burst: f64) -> Limiter {
    Limiter::builder()
        .clock(politely::Clock::tokio())
        .config(Config::fixed(rate, burst))
        .build()
        .unwrap()
}
