//! The reqwest middleware in a client of one's own.

#[path = "common/server.rs"]
mod server;

use std::error::Error;
use std::time::Duration;

use politely::reqwest::{PoliteMiddleware, Redirects};
use politely::{Config, Limiter};
use reqwest_middleware::ClientBuilder;
use server::{Limit, Server};

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    server::tls_provider();
    let limit = Limit {
        rate: 50.0,
        burst: 5.0,
        retry_after: Some(1),
    };
    let server = Server::start(limit).await?;
    let mut config = Config::api();
    config.limits.rate_start = 30.0;
    let limiter = Limiter::builder().config(config).build()?;

    // reqwest would follow redirects below the middleware, unpaced.
    let inner = reqwest::Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .timeout(Duration::from_secs(10));
    let client = ClientBuilder::new(inner.build()?)
        .with(Redirects)
        .with(PoliteMiddleware::new(limiter.clone()))
        .build();

    for page in 0..20 {
        let url = server.url(&format!("/{page}"));
        let response = client.get(&url).send().await?;
        assert_eq!(response.url().as_str(), url);
        assert_eq!(response.text().await?, format!("GET /{page}"));
    }

    assert_eq!(server.count(200), 20);
    Ok(())
}
