//! With a scheduler of one's own: ask without waiting, and turn to another host meanwhile.

#[path = "common/server.rs"]
mod server;

use std::error::Error;
use std::time::Duration;

use politely::core::queue::NextQueue;
use politely::{Config, Key, Limiter, Report, Signal};
use server::{Limit, Server};

const PAGES: usize = 8;

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    server::tls_provider();
    let limit = Limit {
        rate: 30.0,
        burst: 5.0,
        retry_after: None,
    };
    let servers = [Server::start(limit).await?, Server::start(limit).await?];
    let mut config = Config::api();
    config.limits.rate_start = 20.0;
    let limiter = Limiter::builder().config(config).build()?;
    let client = reqwest::Client::builder().no_proxy().build()?;

    // The hosts with pages left, by the time at which they may be asked again.
    let mut queue = NextQueue::new();
    let mut left = [PAGES; 2];
    for host in 0..servers.len() {
        queue.push(limiter.now(), host);
    }
    while let Some(due) = queue.peek_due() {
        let Some((_, host)) = queue.pop_due(limiter.now()) else {
            sleep(due.since(limiter.now())).await;
            continue;
        };
        let url = servers[host].url("/");
        match limiter.try_acquire(&Key::host(&url)?) {
            Ok(permit) => {
                client.get(&url).send().await?.bytes().await?;
                permit.report(&Report::of(Signal::Ok));
                left[host] -= 1;
                if left[host] > 0 {
                    queue.push(limiter.now(), host);
                }
            }
            // Not now: it says when.
            Err(refusal) => queue.push(refusal.at, host),
        }
    }

    for server in &servers {
        assert_eq!((server.count(200), server.count(429)), (PAGES, 0));
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "until the next host is due")]
async fn sleep(length: Duration) {
    tokio::time::sleep(length).await;
}
