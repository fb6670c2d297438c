//! Known faults of rate limiters, and the tests that keep this one free of them.
//!
//! The faults are from the issue trackers of other crawlers and limiters:
//!
//! - Refusals of requests already in flight are one event: [`refusals_under_way_are_one_event`],
//!   [`reserved_ahead_and_refused_is_one_event`],
//!   `control::aimd::a_burst_of_refusals_is_one_event`.
//! - Two failures of the same URL must not cut twice:
//!   [`a_second_report_of_one_request_cuts_nothing`],
//!   [`a_url_at_fault_cuts_nothing_however_often`].
//! - Backoff and Crawl-delay are separate waits: [`a_crawl_delay_does_not_swallow_a_retry_after`].
//! - Holds only extend: `gate::hold::a_hold_only_extends`, P4 in [`crate::promises`].
//! - A late report still holds the key: [`a_late_report_still_holds`].
//! - A waiting request holds no slot: `politely`:
//!   `limiter_keys::one_key_in_the_way_takes_nothing_of_the_others`.
//! - The concurrency gate comes before the token: [`waiting_for_a_slot_burns_no_token`].
//! - robots.txt fetches and redirects need permits too: robots, layers (crate `politely`).
//! - Jitter is drawn once per grant: [`asking_again_draws_no_new_jitter`].
//! - Holds end late by some jitter, never early: [`two_workers_do_not_return_in_step_nor_early`].
//! - Recovery must not need N successes in a row:
//!   `control::aimd::it_climbs_by_equal_steps_without_needing_successes_in_a_row`.
//! - The ceiling must be able to rise: [`the_ceiling_rises_again`].
//! - Eviction never drops a delay, hold or count: [`crate::promises`] (`World::evict`),
//!   [`crate::evict`]; `politely`: `limiter_bound`.
//! - Check and reservation are atomic: `politely`: `limiter_threads`, `registry` under shuttle.
//! - A Crawl-delay may be below a second: [`half_a_second_is_half_a_second`].
//! - Timeouts and resets count: [`time_outs_and_resets_cut`].
//! - Odd values of Retry-After: `signal::retry_after` (`trap_…`, `row_…`).
//! - Host names are normalised: `key::tests`.
//! - Idle time earns neither burst nor credit: [`an_idle_hour_buys_one_burst`],
//!   `gate::pace::idle_time_accrues_no_more_than_the_burst`,
//!   `control::aimd::idle_keys_learn_nothing`.
//! - Dates must not be compared with the client's clock:
//!   `signal::…::trap_clock_skew_the_servers_date_decides`.
//! - Waiting requests must not get the same start time: [`reservations_get_different_times`].
//! - A slot must have an expiry: `gate::leases::a_killed_worker_leaks_nothing`, P3 in
//!   [`crate::promises`].
//! - With several keys, a wait at one must not drain the others: `politely`:
//!   `limiter_keys::one_key_in_the_way_takes_nothing_of_the_others`.
//! - A restored bucket is not full again: [`a_restore_refills_nothing`], [`crate::evict`].

mod first_version;

use std::sync::Arc;
use std::time::Duration;

use politely_core::config::Config;
use politely_core::control::{AdviceConfig, LawConfig};
use politely_core::gate::{HoldReason, LeaseId, Refill};
use politely_core::host::{
    AcquireRequest, Decision, Directions, Grant, Host, OperatorNumbers, Reason,
};
use politely_core::signal::{Failure, Report, Signal};
use politely_core::{Rng, Timestamp};

/// A host, its clock and its configuration.
pub(crate) struct Bench {
    pub(crate) host: Host,
    pub(crate) config: Config,
    pub(crate) now: Timestamp,
    rng: Rng,
}

impl Bench {
    pub(crate) fn new(config: Config) -> Self {
        let now = Timestamp::from_micros(1_000_000_000);
        let host = Host::new(&config, now);
        let rng = Rng::new(7);
        Self {
            host,
            config,
            now,
            rng,
        }
    }

    pub(crate) fn ahead(&mut self, secs: f64) {
        self.now = self.now + Duration::from_secs_f64(secs);
    }

    fn set_rate(&mut self, rate: f64) {
        self.host
            .set(self.now, OperatorNumbers::rate(rate, 1.0), &self.config);
    }

    pub(crate) fn ask(&mut self, ask: AcquireRequest) -> Decision {
        self.host.request(self.now, ask, &self.config)
    }

    pub(crate) fn grant(&mut self) -> Grant {
        self.reserve(0.0)
    }

    pub(crate) fn reserve(&mut self, horizon_s: f64) -> Grant {
        match self.ask(AcquireRequest::within(Duration::from_secs_f64(horizon_s))) {
            Decision::Granted(grant) => grant,
            Decision::Wait(wait) => panic!("{wait:?}"),
        }
    }

    pub(crate) fn wait(&mut self) -> politely_core::host::Wait {
        match self.ask(AcquireRequest::default()) {
            Decision::Granted(grant) => panic!("{grant:?}"),
            Decision::Wait(wait) => wait,
        }
    }

    pub(crate) fn tell(&mut self, lease: LeaseId, report: &Report) -> Directions {
        self.host
            .report(self.now, lease, report, &self.config, &mut self.rng)
    }

    pub(crate) fn say(&mut self, lease: LeaseId, signal: Signal) -> Directions {
        self.tell(lease, &Report::of(signal))
    }

    pub(crate) fn rate(&self) -> f64 {
        self.host.explain(self.now, &self.config).rate
    }
}

/// Returns a configuration with a learning law that starts at 8 requests per second, with room for
/// a burst.
fn quick() -> Config {
    let mut config = Config::api();
    config.limits.rate_start = 8.0;
    config.limits.burst = 8.0;
    config.limits.in_flight = 16;
    config
}

/// Returns the same configuration with AIMD.
fn quick_aimd() -> Config {
    let mut config = quick();
    config.law = LawConfig::Aimd(Arc::default());
    config
}

fn after(signal: Signal, secs: u64) -> Report {
    Report {
        retry_after: Some(Duration::from_secs(secs)),
        ..Report::of(signal)
    }
}

#[test]
fn refusals_under_way_are_one_event() {
    let mut bench = Bench::new(quick_aimd());
    let leases: Vec<_> = (0..6).map(|_| bench.grant().lease).collect();
    // With a coarse clock, all these reports may come at the same time.
    let told: Vec<_> = leases
        .iter()
        .map(|lease| bench.say(*lease, Signal::RateLimited))
        .collect();
    assert!(told[0].event && told[1..].iter().all(|told| !told.event));
    assert!(
        told.iter().all(|told| (told.rate - 8.0 / 1.5).abs() < 1e-9),
        "cut once: {told:?}"
    );
}

#[test]
fn reserved_ahead_and_refused_is_one_event() {
    // Regression: the requests of a run were reserved at the old rate and refused one by one, and
    // each refusal cut the rate.
    let mut bench = Bench::new(quick_aimd());
    bench.config.limits.burst = 1.0;
    bench.host = Host::new(&bench.config, bench.now);
    let grants: Vec<_> = (0..6).map(|_| bench.reserve(10.0)).collect();
    for grant in grants {
        bench.now = grant.start + Duration::from_millis(20);
        bench.say(grant.lease, Signal::RateLimited);
    }
    assert!((bench.rate() - 8.0 / 1.5).abs() < 1e-9, "{}", bench.rate());
}

#[test]
fn a_success_from_before_the_refusal_does_not_end_the_canary() {
    let mut bench = Bench::new(quick());
    let (refused, served) = (bench.grant().lease, bench.grant().lease);
    bench.say(refused, Signal::RateLimited);
    bench.say(served, Signal::Ok);
    bench.ahead(10.0);
    bench.grant();
    assert_eq!(bench.wait().reason, Reason::InFlight, "one at a time");
}

#[test]
fn a_second_report_of_one_request_cuts_nothing() {
    let mut bench = Bench::new(quick());
    let lease = bench.grant().lease;
    bench.say(lease, Signal::RateLimited);
    let rate = bench.rate();
    bench.ahead(5.0);
    let told = bench.say(lease, Signal::RateLimited);
    assert!(told.late && !told.event);
    assert!((bench.rate() - rate).abs() < 1e-9);
}

#[test]
fn a_url_at_fault_cuts_nothing_however_often() {
    let mut bench = Bench::new(quick());
    for _ in 0..4 {
        let lease = bench.grant().lease;
        let report = Report {
            status: Some(400),
            ..Report::of(Signal::UrlError)
        };
        assert!(!bench.tell(lease, &report).event);
        bench.ahead(1.0);
    }
    assert!(bench.rate() >= 8.0);
    assert_eq!(bench.host.explain(bench.now, &bench.config).wait, None);
}

#[test]
fn a_crawl_delay_does_not_swallow_a_retry_after() {
    for crawl_delay_first in [true, false] {
        let mut bench = Bench::new(quick());
        let lease = bench.grant().lease;
        let until = bench.now + Duration::from_secs(2);
        if crawl_delay_first {
            bench.host.hold(bench.now, until, HoldReason::CrawlDelay);
        }
        bench.tell(lease, &after(Signal::RateLimited, 120));
        bench.host.hold(bench.now, until, HoldReason::CrawlDelay);
        let wait = bench.wait();
        assert_eq!(wait.reason, Reason::Hold(HoldReason::RetryAfter));
        assert!(wait.at >= bench.now + Duration::from_mins(2));
    }
}

#[test]
fn a_late_report_still_holds() {
    let mut bench = Bench::new(quick());
    let lease = bench.grant().lease;
    bench.ahead(1_000.0);
    let told = bench.tell(lease, &after(Signal::RateLimited, 60));
    assert!(told.late && !told.event);
    assert!(bench.wait().at >= bench.now + Duration::from_mins(1));
}

#[test]
fn waiting_for_a_slot_burns_no_token() {
    let mut config = quick();
    config.limits.in_flight = 1;
    let mut bench = Bench::new(config);
    let first = bench.grant().lease;
    for _ in 0..100 {
        assert_eq!(bench.wait().reason, Reason::InFlight);
    }
    bench.say(first, Signal::Ok);
    for _ in 1..8 {
        let lease = bench.grant().lease;
        bench.say(lease, Signal::Ok);
    }
    assert_eq!(
        bench.wait().reason,
        Reason::Pace,
        "the whole burst was there"
    );
}

#[test]
fn asking_again_draws_no_new_jitter() {
    let mut bench = Bench::new(quick());
    let lease = bench.grant().lease;
    bench.say(lease, Signal::RateLimited);
    let at = bench.wait().at;
    assert!((0..10).all(|_| bench.wait().at == at));
    assert_eq!(
        bench
            .host
            .explain(bench.now, &bench.config)
            .wait
            .map(|wait| wait.at),
        Some(at)
    );
}

#[test]
fn two_workers_do_not_return_in_step_nor_early() {
    let mut ends: Vec<_> = (0..20)
        .map(|seed| {
            let mut bench = Bench::new(quick());
            bench.rng = Rng::new(seed);
            let lease = bench.grant().lease;
            bench.tell(lease, &after(Signal::RateLimited, 10));
            bench.wait().at.since(bench.now)
        })
        .collect();
    assert!(ends.iter().all(|end| *end >= Duration::from_secs(10)));
    ends.sort_unstable();
    ends.dedup();
    assert!(ends.len() > 15, "{ends:?}");
}

#[test]
fn the_ceiling_rises_again() {
    let mut bench = Bench::new(quick_aimd());
    let lease = bench.grant().lease;
    bench.say(lease, Signal::RateLimited);
    let low = bench
        .host
        .explain(bench.now, &bench.config)
        .law
        .ceiling
        .unwrap();
    for _ in 0..400 {
        bench.now = bench
            .host
            .explain(bench.now, &bench.config)
            .wait
            .map_or(bench.now, |wait| wait.at);
        let lease = bench.grant().lease;
        bench.say(lease, Signal::Ok);
    }
    let high = bench
        .host
        .explain(bench.now, &bench.config)
        .law
        .ceiling
        .unwrap();
    assert!(high > 2.0 * low, "{low} to {high}");
}

#[test]
fn half_a_second_is_half_a_second() {
    let mut bench = Bench::new(quick());
    let until = bench.now + Duration::from_millis(500);
    bench.host.hold(bench.now, until, HoldReason::CrawlDelay);
    assert_eq!(bench.wait().at, until);
    bench.now = until;
    bench.grant();
    let slow = Bench::new(Config::fixed(0.4, 1.0));
    let mut slow = slow;
    slow.grant();
    assert_eq!(slow.wait().at, slow.now + Duration::from_millis(2_500));
}

#[test]
fn time_outs_and_resets_cut() {
    for failure in [Failure::Timeout, Failure::Reset] {
        let mut bench = Bench::new(quick());
        let lease = bench.grant().lease;
        let report = Report {
            failure: Some(failure),
            ..Report::of(Signal::Overloaded)
        };
        assert!(bench.tell(lease, &report).event);
        assert!(bench.rate() < 8.0);
    }
}

#[test]
fn an_idle_hour_buys_one_burst() {
    let mut bench = Bench::new(Config::fixed(2.0, 3.0));
    bench.ahead(3_600.0);
    for _ in 0..3 {
        bench.grant();
    }
    assert_eq!(bench.wait().reason, Reason::Pace);
}

#[test]
fn reservations_get_different_times() {
    let mut config = Config::fixed(10.0, 1.0);
    config.limits.in_flight = 100;
    let mut bench = Bench::new(config);
    let starts: Vec<_> = (0..100).map(|_| bench.reserve(1_000.0).start).collect();
    assert!(
        starts
            .windows(2)
            .all(|pair| pair[1].since(pair[0]) == Duration::from_millis(100))
    );
}

#[test]
fn a_restore_refills_nothing() {
    let mut bench = Bench::new(Config::fixed(1.0, 5.0));
    for _ in 0..5 {
        bench.grant();
    }
    let wait = bench.wait();
    bench.host = Host::restore(&bench.host.snapshot(), bench.now, &bench.config).unwrap();
    bench.host.forget_leases();
    assert_eq!(bench.wait(), wait);
}

impl Bench {
    fn wait_or_now(&self) -> Timestamp {
        let wait = self.host.explain(self.now, &self.config).wait;
        wait.map_or(self.now, |wait| wait.at)
    }
}
