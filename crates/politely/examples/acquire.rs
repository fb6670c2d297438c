//! Uses the library directly: wait for a permit, send the request, report the outcome.

use std::error::Error;

use politely::core::signal::classify;
use politely::{Config, Key, Limiter, Outcome};
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
    let mut config = Config::api();
    config.limits.rate_start = 30.0;
    let limiter = Limiter::builder().config(config).build()?;
    let client = reqwest::Client::builder().no_proxy().build()?;

    for url in pages {
        let key = Key::host(&url)?;
        // This waits in the key's queue. Dropping the future leaves the queue.
        let mut permit = limiter.acquire(&key).await?;
        permit.sent();
        let sent = limiter.now();
        let response = client.get(&url).send().await?;
        let outcome = Outcome::Answered {
            status: response.status(),
            headers: response.headers(),
            body_start: &[],
        };
        let latency = limiter.now().since(sent);
        let report = classify(&outcome, politely::wall_clock(), latency, 0);
        // The key learns now. The slot stays taken until the body has arrived.
        let (_, slot) = permit.heard(&report);
        response.bytes().await?;
        drop(slot);
    }

    let seen = target.shutdown().hosts.remove(0);
    assert_eq!((seen.pages, limiter.stats().reported), (20, 20));
    Ok(())
}
