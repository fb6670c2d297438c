//! Five hours of requests under the default law. The state stays small, and its numbers stay
//! finite.

use std::time::Duration;

use politely_core::config::Config;
use politely_core::host::{AcquireRequest, Decision, Grant, Host};
use politely_core::signal::{Quota, Report, Signal};
use politely_core::{Rng, Timestamp};
use politely_target::model::{Limit, LimitSpec};

/// Microseconds since 1970, the longest form of a time.
const EPOCH: Timestamp = Timestamp::from_micros(1_800_000_000_000_000);
const LATENCY: Duration = Duration::from_millis(30);

/// A host whose limit changes every quarter of an hour, and a client that never rests.
struct Life {
    host: Host,
    config: Config,
    rng: Rng,
    now: Timestamp,
    refused: u32,
    /// The size of its largest state, in bytes.
    largest: usize,
    /// Whether its state is read back from its bytes after every request.
    reread: bool,
}

impl Life {
    fn new(config: Config) -> Self {
        Self {
            host: Host::new(&config, EPOCH),
            config,
            rng: Rng::new(3),
            now: EPOCH,
            refused: 0,
            largest: 0,
            reread: false,
        }
    }

    /// Sends requests for `length`, one after the other, to a host with this limit.
    fn spend(&mut self, length: Duration, limit: &serde_json::Value) {
        let spec: LimitSpec = serde_json::from_value(limit.clone()).expect("a limit");
        let mut limit: Limit = spec.build().expect("a limit");
        let end = self.now + length;
        while self.now < end {
            let Some(grant) = self.next() else { break };
            self.send(&grant, &mut limit);
            let state = self.host.snapshot();
            self.largest = self.largest.max(state.len());
            if self.reread {
                let read = Host::thaw(&state, self.now, &self.config);
                (self.host, _) = read.expect("what was written");
            }
        }
    }

    /// Returns the next permit after any finite wait, or `None` if the wait is endless.
    fn next(&mut self) -> Option<Grant> {
        loop {
            match self
                .host
                .request(self.now, AcquireRequest::default(), &self.config)
            {
                Decision::Granted(grant) => return Some(grant),
                Decision::Wait(wait) if wait.at == Timestamp::NEVER => return None,
                Decision::Wait(wait) => self.now = wait.at,
            }
        }
    }

    fn send(&mut self, grant: &Grant, limit: &mut Limit) {
        let accepted = limit.arrive(grant.start).accepted();
        self.now = grant.start + LATENCY;
        let signal = if accepted {
            let _ = limit.depart(self.now);
            Signal::Ok
        } else {
            self.refused += 1;
            Signal::RateLimited
        };
        let report = Report {
            latency: LATENCY,
            ..Report::of(signal)
        };
        self.report(grant, &report);
    }

    fn report(&mut self, grant: &Grant, report: &Report) {
        self.host
            .report(self.now, grant.lease, report, &self.config, &mut self.rng);
    }
}

/// Runs five hours at limits of all kinds.
fn long_life(reread: bool) -> Life {
    let limits = serde_json::json!([
        {"kind": "fixed_window", "count": 100, "window_s": 60.0, "aligned": false},
        {"kind": "token_bucket", "rate": 7.0, "burst": 20},
        {"kind": "sliding_log", "count": 300, "window_s": 300.0},
        {"kind": "fixed_window", "count": 30, "window_s": 10.0, "aligned": true},
        {"kind": "leaky", "rate": 0.5, "queue": 0},
    ]);
    let mut life = Life::new(Config::api());
    life.reread = reread;
    for limit in limits.as_array().expect("a list").iter().cycle().take(20) {
        life.spend(Duration::from_mins(15), limit);
    }
    life
}

#[test]
fn a_state_stays_small_however_much_it_has_seen() {
    let life = long_life(false);
    // With a writer's name, the value stays in the engine's size class of 512 bytes.
    assert!(life.largest <= 490, "{} bytes", life.largest);
    assert!(
        life.refused > 20,
        "{} refused: a life in peace",
        life.refused
    );
}

#[test]
fn a_life_read_again_after_every_request_is_the_same_life() {
    let [once, again] = [false, true].map(long_life);
    assert_eq!((once.now, once.refused), (again.now, again.refused));
    assert!(once.host.snapshot() == again.host.snapshot());
}

#[test]
fn no_number_a_worker_or_server_may_send_is_too_large() {
    let extremes = [
        Report {
            retry_after: Some(Duration::MAX),
            ..Report::of(Signal::RateLimited)
        },
        quota(0, Duration::ZERO, 0, Duration::ZERO),
        quota(u64::MAX, Duration::from_nanos(1), u64::MAX, Duration::MAX),
        quota(1, Duration::MAX, 0, Duration::from_secs(3)),
        Report {
            latency: Duration::MAX,
            ..Report::of(Signal::Ok)
        },
    ];
    for extreme in &extremes {
        let mut life = Life::new(Config::api());
        for turn in 0..40 {
            let Some(grant) = life.next() else { break };
            life.now = grant.start + LATENCY;
            let usual = Report::of([Signal::Ok, Signal::RateLimited][turn / 3 % 2]);
            let report = if turn % 3 == 0 { extreme } else { &usual };
            life.report(&grant, report);
            let rate = life.host.explain(life.now, &life.config).rate;
            assert!(rate > 0.0, "{extreme:?}: {rate}");
        }
    }
}

#[test]
fn no_rate_to_start_with_is_too_small() {
    for rate in [1e300, 1e-3, 1e-20, 1e-300] {
        let mut config = Config::api();
        config.limits.rate_start = rate;
        config.limits.burst = 4.0;
        config.validate().expect("a number above 0");
        let mut life = Life::new(config);
        for signal in [Signal::RateLimited, Signal::RateLimited, Signal::Ok] {
            let grant = life.next().expect("a token is left");
            life.now = grant.start + LATENCY;
            life.report(&grant, &Report::of(signal));
        }
    }
}

fn quota(limit: u64, window: Duration, remaining: u64, reset: Duration) -> Report {
    Report {
        quotas: Quota {
            limit: Some(limit),
            window: Some(window),
            remaining: Some(remaining),
            reset: Some(reset),
            ..Quota::default()
        }
        .into(),
        ..Report::of(Signal::Ok)
    }
}
