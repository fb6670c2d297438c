//! As a library: wait for leave, send, say what happened.

#[path = "common/server.rs"]
mod server;

use std::error::Error;

use politely::core::signal::classify;
use politely::{Config, Key, Limiter, Outcome};
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
    let url = server.url("/");
    let key = Key::host(&url)?;
    let client = reqwest::Client::builder().no_proxy().build()?;

    for _ in 0..20 {
        // Waits in the key's line; dropping the future leaves it.
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
        // Teaches now; the slot is taken until the body has come.
        let (_, slot) = permit.heard(&report);
        response.bytes().await?;
        drop(slot);
    }

    assert_eq!(server.count(200), 20);
    let tally = limiter.explain(&key).ok_or("an unknown key")?.tally;
    assert_eq!((tally.reported, tally.live), (20, 0));
    Ok(())
}
