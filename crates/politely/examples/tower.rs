//! The tower layer around a hyper client: nothing more to write.

#[path = "common/server.rs"]
mod server;

use std::error::Error;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use politely::layer::PoliteLayer;
use politely::{Config, Limiter};
use server::{Limit, Server};
use tower::{ServiceBuilder, ServiceExt};

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let limit = Limit {
        rate: 50.0,
        burst: 5.0,
        retry_after: Some(1),
    };
    let server = Server::start(limit).await?;
    let mut config = Config::api();
    config.limits.rate_start = 30.0;
    let limiter = Limiter::builder().config(config).build()?;
    let client = ServiceBuilder::new()
        .layer(PoliteLayer::new(limiter.clone()))
        .service(Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>());

    for page in 0..20 {
        let request = Request::get(server.url(&format!("/{page}"))).body(Empty::new())?;
        let response = client
            .clone()
            .oneshot(request)
            .await
            .map_err(|error| error.to_string())?;
        assert_eq!(response.status(), 200);
        // The in-flight slot is taken until the body has come.
        let body = response.into_body().collect().await?.to_bytes();
        assert_eq!(body, format!("GET /{page}"));
    }

    assert_eq!(server.count(200), 20);
    assert_eq!(limiter.stats().reported, server.arrivals().len() as u64);
    Ok(())
}
