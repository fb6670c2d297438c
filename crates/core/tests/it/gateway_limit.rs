//! A limit that closes connections, so that its gateway answers 502 or nothing at all.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use politely_core::config::Config;
use politely_core::host::{AcquireRequest, Decision, Host};
use politely_core::signal::{Report, Resource, Signal};
use politely_core::{Rng, Timestamp};

/// A request within this time of the one before is refused, and so are all for two seconds.
const GAP: Duration = Duration::from_millis(400);
const REFUSES: Duration = Duration::from_secs(2);

/// Returns the pages served and the requests refused in `length`, of a crawl with `pages` pages.
fn crawl(config: &Config, pages: u32, length: Duration) -> (u32, u32) {
    let mut now = Timestamp::from_micros(1_795_000_000_000_000);
    let end = now + length;
    let (mut host, mut rng) = (Host::new(config, now), Rng::new(1));
    let mut waiting: BinaryHeap<_> = (0..pages).map(|page| Reverse((now, page, 0_u32))).collect();
    let (mut before, mut refuses_until) = (Timestamp::ZERO, Timestamp::ZERO);
    let (mut served, mut refused) = (0, 0);
    while now < end
        && let Some(Reverse((at, page, tries))) = waiting.pop()
    {
        now = now.max(at);
        let lease = loop {
            match host.request(now, AcquireRequest::default(), config) {
                Decision::Wait(wait) => now = wait.at.max(now + Duration::from_millis(1)),
                Decision::Granted(grant) => {
                    now = now.max(grant.start);
                    break grant.lease;
                }
            }
        };
        if now < before + GAP {
            refuses_until = now + REFUSES;
        }
        before = now;
        let (signal, status) = if now < refuses_until {
            refused += 1;
            let wait = Duration::from_secs(1 << tries.min(3));
            waiting.push(Reverse((now + wait, page, tries + 1)));
            (Signal::Overloaded, 521)
        } else {
            served += 1;
            (Signal::Ok, 200)
        };
        let report = Report {
            status: Some(status),
            latency: Duration::from_millis(1),
            resource: Some(Resource::of(&page.to_string())),
            ..Report::of(signal)
        };
        host.report(
            now + Duration::from_millis(1),
            lease,
            &report,
            config,
            &mut rng,
        );
    }
    (served, refused)
}

#[test]
fn a_limit_behind_a_gateway_is_found() {
    let (served, refused) = crawl(&Config::crawler(), 20, Duration::from_mins(5));
    assert!(served == 20 && refused <= 30, "{served} {refused}");
}
