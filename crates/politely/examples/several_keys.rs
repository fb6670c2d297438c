//! Several limits at once: each host's, its site's, and one for the whole process.

#[path = "common/server.rs"]
mod server;

use std::error::Error;
use std::time::Duration;

use politely::attempts::Attempts;
use politely::{Config, Key, Limiter};
use server::{Limit, Server};

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    server::tls_provider();
    let limit = Limit {
        rate: 100.0,
        burst: 10.0,
        retry_after: None,
    };
    let servers = [Server::start(limit).await?, Server::start(limit).await?];
    let mut config = Config::api();
    config.limits.rate_start = 50.0;
    let limiter = Limiter::builder().config(config).build()?;
    let everything = Key::custom("everything")?;
    limiter.configure(&everything, Config::fixed(20.0, 1.0))?;

    // The first key hears the outcomes; the others are limits to be kept. An address is its own site, and a
    // key that is named twice counts once.
    let attempts = Attempts::new(limiter.clone())
        .keys_by(|asked| Ok(vec![Key::of_url(asked.url)?, Key::site_of_url(asked.url)?]))
        .and_key(everything);
    let client = politely::reqwest::client_with(reqwest::Client::builder().no_proxy(), attempts)?;

    let began = limiter.now();
    for _ in 0..6 {
        for server in &servers {
            client.get(server.url("/")).send().await?.text().await?;
        }
    }

    // Twelve requests at 20 per second together, though each host alone allows more.
    assert!(limiter.now().since(began) >= Duration::from_millis(11 * 50 - 5));
    assert!(servers.iter().all(|server| server.count(200) == 6));
    Ok(())
}
