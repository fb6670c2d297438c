//! The reqwest middleware in a client of one's own.

use std::error::Error;
use std::time::Duration;

use politely::middleware::{PoliteMiddleware, Redirects};
use politely::{Config, Limiter};
use politely_target::{HostSpec, LimitSpec, Target, Town};
use reqwest_middleware::ClientBuilder;

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    // The reqwest of this workspace comes without a TLS provider.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let limit = LimitSpec::TokenBucket {
        rate: 50.0,
        burst: 5,
    };
    let target = Target::start(Town::new(vec![HostSpec::new("shop", limit)])).await?;
    let pages = target.hosts()[0].page_urls().take(20);
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

    for url in pages {
        let response = client.get(&url).send().await?;
        assert_eq!(response.url().as_str(), url);
        assert!(!response.bytes().await?.is_empty());
    }

    let seen = target.shutdown().hosts.remove(0);
    assert_eq!((seen.pages, seen.arrivals), (20, limiter.stats().reported));
    Ok(())
}
