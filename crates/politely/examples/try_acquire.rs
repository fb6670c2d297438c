//! With a scheduler of one's own: ask without waiting, and turn to another host meanwhile.

use std::error::Error;
use std::time::Duration;

use politely::core::queue::NextQueue;
use politely::{Config, Key, Limiter, Report, Signal};
use politely_target::{HostSpec, LimitSpec, Target, Town};

const PAGES: usize = 8;

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    // The reqwest of this workspace comes without a TLS provider.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let limit = LimitSpec::TokenBucket {
        rate: 30.0,
        burst: 5,
    };
    let town = ["shop", "blog"].map(|name| HostSpec::new(name, limit.clone()));
    let target = Target::start(Town::new(town.to_vec())).await?;
    let mut config = Config::api();
    config.limits.rate_start = 20.0;
    let limiter = Limiter::builder().config(config).build()?;
    let client = reqwest::Client::builder().no_proxy().build()?;

    // The hosts with pages left, by the time at which they may be asked again.
    let mut queue = NextQueue::new();
    let hosts = target.hosts().iter();
    let mut pages: Vec<_> = hosts
        .map(|host| host.page_urls().take(PAGES).peekable())
        .collect();
    for host in 0..pages.len() {
        queue.push(limiter.now(), host);
    }
    while let Some(due) = queue.peek_due() {
        let Some((_, host)) = queue.pop_due(limiter.now()) else {
            sleep(due.since(limiter.now())).await;
            continue;
        };
        let Some(url) = pages[host].peek() else {
            continue;
        };
        match limiter.try_acquire(&Key::host(url)?) {
            Ok(permit) => {
                client.get(url).send().await?.bytes().await?;
                permit.report(&Report::of(Signal::Ok));
                pages[host].next();
                queue.push(limiter.now(), host);
            }
            // The host may not be asked now. `at` is the time to ask again.
            Err(refusal) => queue.push(refusal.at, host),
        }
    }

    for seen in target.judge().hosts {
        assert_eq!((seen.pages, seen.refused), (PAGES as u64, 0));
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "until the next host is due")]
async fn sleep(length: Duration) {
    tokio::time::sleep(length).await;
}
