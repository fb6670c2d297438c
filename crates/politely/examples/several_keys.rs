//! Several limits at once: each host's, its site's, and one for the whole process.

use std::error::Error;
use std::time::Duration;

use politely::attempts::Attempts;
use politely::{Config, Key, Limiter};
use politely_target::{HostSpec, LimitSpec, Target, Town};

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    // The reqwest of this workspace comes without a TLS provider.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let limit = LimitSpec::TokenBucket {
        rate: 100.0,
        burst: 10,
    };
    let town = ["shop", "blog"].map(|name| HostSpec::new(name, limit.clone()));
    let target = Target::start(Town::new(town.to_vec())).await?;
    let mut config = Config::api();
    config.limits.rate_start = 50.0;
    let limiter = Limiter::builder().config(config).build()?;
    let everything = Key::custom("everything")?;
    limiter.configure(&everything, Config::fixed(20.0, 1.0))?;

    // Outcomes are reported to the first key; the others are only limits. An IP address is its own
    // site, and a key that is named twice counts once.
    let attempts = Attempts::new(limiter.clone())
        .keys_by(|asked| Ok(vec![Key::of_url(asked.url)?, Key::site_of_url(asked.url)?]))
        .and_key(everything);
    let client =
        politely::middleware::client_with(|| reqwest::Client::builder().no_proxy(), attempts)?;

    let began = limiter.now();
    for host in target.hosts() {
        for url in host.page_urls().take(6) {
            client.get(url).send().await?.text().await?;
        }
    }

    // Twelve requests at 20 per second together, though each host alone allows more.
    assert!(limiter.now().since(began) >= Duration::from_millis(11 * 50 - 5));
    assert!(target.shutdown().hosts.iter().all(|seen| seen.pages == 6));
    Ok(())
}
