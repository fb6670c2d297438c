//! Uses the library directly: wait for a permit, send the request, report the outcome.

use std::error::Error;

use politely::{Key, Limiter};
use politely_target::{HostSpec, LimitSpec, Target, Town};

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
    let limiter = Limiter::builder()
        .rate(30.0)
        .burst(2)
        .in_flight(4)
        .build()?;
    let client = reqwest::Client::builder().no_proxy().build()?;

    for url in pages {
        // This waits in the key's queue. Dropping the future leaves the queue.
        let permit = limiter.acquire(&Key::host(&url)?).await?;
        let response = client.get(&url).send().await;
        // The key learns now. The slot stays taken until the body has arrived.
        let slot = permit.report_response(&response);
        response?.bytes().await?;
        drop(slot);
    }

    let seen = target.shutdown().hosts.remove(0);
    assert_eq!((seen.pages, limiter.stats().reported), (20, 20));
    Ok(())
}
