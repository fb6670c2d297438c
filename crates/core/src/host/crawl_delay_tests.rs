use std::time::Duration;

use super::*;
use crate::Rng;
use crate::signal::{Report, Signal};

fn tenths(host: &Host, now: Timestamp, config: &Config) -> u32 {
    (host.explain(now, config).rate * 10.0).round() as u32
}

/// A key with ten requests per second and five in flight. Its methods take the time in
/// milliseconds.
struct Told {
    host: Host,
    config: Config,
}

const DAY: Duration = Duration::from_hours(24);

impl Told {
    fn new() -> Self {
        let mut config = Config::fixed(10.0, 5.0);
        config.limits.in_flight = 5;
        let host = Host::new(&config, Self::at(0));
        Self { host, config }
    }

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_micros(1_000_000_000) + Duration::from_millis(ms)
    }

    fn told(&mut self, ms: u64, pause_ms: u64, fresh: Duration) -> bool {
        let pause = Duration::from_millis(pause_ms);
        let told = CrawlDelay { pause, fresh };
        self.host.crawl_delay(Self::at(ms), told, &self.config)
    }

    fn asks(&mut self, ms: u64) -> Result<LeaseId, Wait> {
        match self
            .host
            .request(Self::at(ms), AcquireRequest::default(), &self.config)
        {
            Decision::Granted(grant) => Ok(grant.lease),
            Decision::Wait(wait) => Err(wait),
        }
    }

    fn is_held_until(&mut self, ms: u64, until: u64) {
        let wait = Wait {
            at: Self::at(until),
            reason: Reason::Hold(HoldReason::CrawlDelay),
        };
        assert_eq!(self.asks(ms), Err(wait));
    }

    fn reports(&mut self, ms: u64, lease: LeaseId) {
        let (ok, mut rng) = (Report::of(Signal::Ok), Rng::new(1));
        self.host
            .report(Self::at(ms), lease, &ok, &self.config, &mut rng);
    }

    /// Returns the rate in tenths of requests per second.
    fn rate(&self, ms: u64) -> u32 {
        tenths(&self.host, Self::at(ms), &self.config)
    }
}

#[test]
fn a_crawl_delay_counts_from_the_end_of_each_request() {
    let mut key = Told::new();
    assert!(key.told(0, 1_000, DAY));
    // The end of the last request is not known.
    key.is_held_until(0, 1_000);
    let lease = key.asks(1_000).expect("rested");
    let beside = key.asks(2_500).expect_err("one at a time");
    assert_eq!(beside.reason, Reason::InFlight);
    key.reports(3_000, lease);
    key.is_held_until(3_000, 4_000);
    let sent = key.asks(4_000).expect("rested");
    key.host.cancel(Told::at(4_500), sent, None, &key.config);
    key.is_held_until(4_500, 5_500);
    let unsent = key.asks(5_500).expect("rested");
    key.host.cancel(
        Told::at(5_500),
        unsent,
        Some(AcquireRequest::default().unused()),
        &key.config,
    );
    let lost = key.asks(5_500).expect("that one never left");
    let ends = key.host.lease_ends(lost).expect("it is out");
    let ends_ms = ends.since(Told::at(0)).as_millis() as u64;
    key.is_held_until(ends_ms, ends_ms + 1_000);
}

/// Two workers read robots.txt at the same time, and both state its delay with their requests.
#[test]
fn a_crawl_delay_that_comes_with_a_request_separates_it_from_the_last_one() {
    let mut key = Told::new();
    let told = CrawlDelay {
        pause: Duration::from_secs(1),
        fresh: DAY,
    };
    let ask = AcquireRequest {
        crawl_delay: Some(told),
        ..AcquireRequest::default()
    };
    let mut asks = |ms| key.host.request(Told::at(ms), ask.clone(), &key.config);
    let waits_until = |ms| {
        Decision::Wait(Wait {
            at: Told::at(ms),
            reason: Reason::Hold(HoldReason::CrawlDelay),
        })
    };
    assert!(matches!(asks(0), Decision::Granted(_)));
    assert_eq!(asks(0), waits_until(1_000));
    let mut key = Told::new();
    key.asks(0).expect("a token is there");
    let is_limit_only = AcquireRequest {
        is_limit_only: true,
        ..ask.clone()
    };
    let other = key.host.request(Told::at(1), is_limit_only, &key.config);
    assert!(
        matches!(other, Decision::Granted(_)),
        "it is another host's"
    );
    let mut asks = |ms| key.host.request(Told::at(ms), ask.clone(), &key.config);
    assert_eq!(asks(2), waits_until(1_001));
    assert_eq!(key.rate(2), 100, "a request that waits changes nothing");
}

#[test]
fn the_largest_crawl_delay_counts_while_it_is_fresh() {
    let mut key = Told::new();
    let minute = Duration::from_mins(1);
    assert!(!key.told(0, 0, DAY), "none is no delay");
    assert!(!key.told(0, 500, Duration::ZERO), "over already");
    assert!(key.told(0, 500, DAY));
    assert!(!key.told(1, 500, DAY), "told again");
    assert!(key.told(2, 2_000, minute));
    assert!(!key.told(3, 500, DAY), "smaller");
    assert_eq!(key.rate(4), 5);
    assert_eq!(key.rate(60_003), 100, "nobody told it again");
    assert!(key.told(60_003, 500, DAY));
    assert_eq!(key.rate(60_004), 20);
    key.host.forget(Told::at(60_005), &key.config);
    assert_eq!(key.rate(60_006), 100);
}

#[test]
fn of_a_crawl_delay_and_an_operators_number_the_slower_counts() {
    let mut key = Told::new();
    key.told(0, 500, DAY);
    for (set, rate) in [(0.2, 2), (40.0, 20)] {
        let numbers = OperatorNumbers::rate(set, 3.0);
        key.host.set(Told::at(1), numbers, &key.config);
        assert_eq!(key.rate(2), rate);
    }
}

/// A state with a Crawl-delay has its own layout.
#[test]
fn a_crawl_delay_is_kept_with_the_state() {
    let mut key = Told::new();
    assert_eq!(key.host.snapshot()[0], 27);
    key.told(0, 2_000, DAY);
    let state = key.host.snapshot();
    assert_eq!(state[..2], [28, 1]);
    key.host = Host::restore(&state, Told::at(0), &key.config).expect("a state");
    assert_eq!(key.host.snapshot(), state);
    assert_eq!(key.rate(1), 5);
    key.host.forget_leases();
    assert_eq!(key.rate(1), 5);
    for short in 1..20 {
        assert!(Host::restore(&state[..short], Told::at(0), &key.config).is_err());
    }
    let long_ago = Timestamp::from_micros(1);
    let back = Host::restore(&state, long_ago, &key.config).expect("a state");
    let later = long_ago + DAY + Duration::from_secs(1);
    assert_eq!(tenths(&back, later, &key.config), 100);
}
