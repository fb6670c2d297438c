//! The towns that come with politely: sixteen hosts with every kind of limit.

use super::{Headers, HostSpec, RetryAfter, Signals, Town};
use crate::model::{FaultSpec, LimitSpec, Service};

/// As many pages as other tools were measured with: about 75 s for the slowest hosts at best.
const FULL_PAGES: u32 = 150;

/// Few enough to watch: about 22 s for the slowest hosts at best.
const DEMO_PAGES: u32 = 45;

impl Town {
    /// Returns sixteen hosts of 150 pages; the slowest need about 75 s at best.
    pub fn full() -> Self {
        Self::new(hosts(FULL_PAGES))
    }

    /// Returns the same hosts with 45 pages, and one that answers 503 for five seconds; the slowest
    /// need about 22 s at best.
    pub fn demo() -> Self {
        let mut hosts = hosts(DEMO_PAGES);
        let mut outage = host("outage", bucket(5.0, 5), BARE, DEMO_PAGES);
        outage.faults = vec![FaultSpec::Outage {
            from_s: 3.0,
            to_s: 8.0,
            status: 503,
        }];
        hosts.push(outage);
        Self::new(hosts)
    }
}

const fn bucket(rate: f64, burst: u32) -> LimitSpec {
    LimitSpec::TokenBucket { rate, burst }
}

const fn window(count: u32, window_s: f64, aligned: bool) -> LimitSpec {
    LimitSpec::FixedWindow {
        count,
        window_s,
        aligned,
    }
}

const fn says(status: u16, retry_after: RetryAfter, headers: Headers) -> Signals {
    Signals {
        status,
        retry_after,
        headers,
    }
}

/// A 429 and nothing else.
const BARE: Signals = says(429, RetryAfter::None, Headers::None);

fn hosts(pages: u32) -> Vec<HostSpec> {
    const SECONDS: Signals = says(429, RetryAfter::Seconds, Headers::None);
    const DATE: Signals = says(429, RetryAfter::Date, Headers::None);
    /// nginx's default.
    const NGINX: Signals = says(503, RetryAfter::None, Headers::None);

    let steps = LimitSpec::Steps {
        at: vec![(0.0, bucket(10.0, 10)), (10.0, bucket(3.0, 5))],
    };
    let several = LimitSpec::All {
        of: vec![bucket(5.0, 5), window(100, 30.0, true)],
    };
    let limits: [(&str, LimitSpec, Signals); 16] = [
        ("slow-bucket", bucket(2.0, 2), BARE),
        ("steps-down", steps, SECONDS),
        (
            "nginx-delay",
            LimitSpec::Leaky {
                rate: 5.0,
                queue: 10,
                nodelay: false,
            },
            NGINX,
        ),
        (
            "nginx-nodelay",
            LimitSpec::Leaky {
                rate: 10.0,
                queue: 20,
                nodelay: true,
            },
            BARE,
        ),
        ("window-bare", window(20, 10.0, true), BARE),
        ("window-retry-after", window(20, 10.0, false), SECONDS),
        (
            "sliding-log",
            LimitSpec::SlidingLog {
                count: 30,
                window_s: 10.0,
            },
            DATE,
        ),
        (
            "sliding-counter",
            LimitSpec::SlidingCounter {
                count: 40,
                window_s: 10.0,
            },
            BARE,
        ),
        (
            "four-slots",
            LimitSpec::ConcurrencyReject { slots: 4 },
            NGINX,
        ),
        (
            "four-slots-queue",
            LimitSpec::ConcurrencyQueue {
                slots: 4,
                queue: 64,
            },
            NGINX,
        ),
        (
            "ietf-headers",
            bucket(8.0, 8),
            says(429, RetryAfter::Seconds, Headers::Ietf),
        ),
        (
            "x-headers",
            window(60, 20.0, true),
            says(429, RetryAfter::None, Headers::X),
        ),
        ("noisy", bucket(20.0, 20), BARE),
        ("unlimited", LimitSpec::None {}, BARE),
        ("blocks", LimitSpec::None {}, BARE),
        ("two-limits", several, SECONDS),
    ];
    limits
        .into_iter()
        .map(|(name, limit, signals)| host(name, limit, signals, pages))
        .collect()
}

fn host(name: &str, limit: LimitSpec, signals: Signals, pages: u32) -> HostSpec {
    let mut host = HostSpec::new(name, limit);
    // Four slots of 200 ms serve 20 pages a second, so a limit below that is met first.
    let mean_ms = if name.starts_with("four-slots") {
        200.0
    } else {
        20.0
    };
    host.service = Service { mean_ms, cv: 0.3 };
    host.signals = signals;
    host.pages = pages;
    host.faults = match name {
        "noisy" => vec![FaultSpec::Noise {
            share: 0.03,
            status: 500,
        }],
        // Above the crawler profile's 10 per second, with room for jitter.
        "blocks" => vec![FaultSpec::Block {
            above_rps: 14.0,
            for_s: 30.0,
        }],
        _ => Vec::new(),
    };
    host
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use politely_core::Timestamp;

    use super::*;
    use crate::model::best_time;

    #[test]
    fn the_towns_are_valid_and_as_long_as_they_say() {
        for (town, pages, least, most) in [(Town::full(), 150, 70, 77), (Town::demo(), 45, 20, 25)]
        {
            town.validate().unwrap();
            let best = |host: &HostSpec| {
                let fresh = host.limit.build().unwrap();
                best_time(&fresh, Timestamp::ZERO, pages, host.service.mean())
            };
            let slowest = town.hosts.iter().map(best).max().unwrap();
            assert!(
                (Duration::from_secs(least)..Duration::from_secs(most)).contains(&slowest),
                "{slowest:?}"
            );
        }
    }

    #[test]
    fn every_kind_of_limit_lives_here() {
        let json = serde_json::to_string(&Town::full()).unwrap();
        for kind in [
            "token_bucket",
            "fixed_window",
            "sliding_log",
            "sliding_counter",
            "leaky",
            "concurrency_reject",
            "concurrency_queue",
            "all",
            "steps",
            "none",
        ] {
            assert!(json.contains(&format!(r#"{{"kind":"{kind}""#)), "{kind}");
        }
    }
}
