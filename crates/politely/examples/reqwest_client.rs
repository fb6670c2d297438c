//! The ready client: reqwest's request builder, polite; every hop of a redirect at its own host's
//! pace.

#[path = "common/server.rs"]
mod server;

use std::error::Error;

use politely::{Config, Key, Limiter};
use server::{Limit, Server};

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let limit = Limit {
        rate: 50.0,
        burst: 5.0,
        retry_after: Some(1),
    };
    let old = Server::start(limit).await?;
    let new = Server::start(limit).await?;
    let mut config = Config::api();
    config.limits.rate_start = 30.0;
    let limiter = Limiter::builder().config(config).build()?;
    let settings = || reqwest::Client::builder().no_proxy();
    let client = politely::middleware::client_with(settings, limiter.clone())?;

    for page in 0..10 {
        let moved = new.url(&format!("/{page}"));
        let response = client.get(old.url(&format!("/to/{moved}"))).send().await?;
        assert_eq!(response.url().as_str(), moved);
        assert_eq!(response.text().await?, format!("GET /{page}"));
    }

    for server in [&old, &new] {
        let known = limiter.explain(&Key::host(&server.url("/"))?);
        let tally = known.ok_or("an unknown key")?.tally;
        assert_eq!(tally.reported, server.arrivals().len() as u64);
    }
    Ok(())
}
