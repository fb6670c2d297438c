//! Puts the tower layer around a hyper client, which needs no further code.

use std::error::Error;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use politely::layer::PoliteLayer;
use politely::{Config, Limiter};
use politely_target::{HostSpec, LimitSpec, Target, Town};
use tower::{ServiceBuilder, ServiceExt};

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let limit = LimitSpec::TokenBucket {
        rate: 50.0,
        burst: 5,
    };
    let target = Target::start(Town::new(vec![HostSpec::new("shop", limit)])).await?;
    let pages = target.hosts()[0].page_urls().take(20);
    let mut config = Config::api();
    config.limits.rate_start = 30.0;
    let limiter = Limiter::builder().config(config).build()?;
    let client = ServiceBuilder::new()
        .layer(PoliteLayer::new(limiter.clone()))
        .service(Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>());

    for url in pages {
        let request = Request::get(url).body(Empty::new())?;
        let response = client
            .clone()
            .oneshot(request)
            .await
            .map_err(|error| error.to_string())?;
        assert_eq!(response.status(), 200);
        // The in-flight slot is taken until the body has arrived.
        let body = response.into_body().collect().await?.to_bytes();
        assert!(!body.is_empty());
    }

    let seen = target.shutdown().hosts.remove(0);
    assert_eq!((seen.pages, seen.arrivals), (20, limiter.stats().reported));
    Ok(())
}
