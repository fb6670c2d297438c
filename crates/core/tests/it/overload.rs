//! A host that answers plain 500s above its rate: they are refusals, as a 429 would be.

use std::time::Duration;

use http::Method;
use politely_core::config::Config;
use politely_core::fault::{Company, Outage};
use politely_core::host::{AcquireRequest, Decision, Host};
use politely_core::retry::{Attempt, Next, Policy};
use politely_core::signal::{Report, Resource, Signal};
use politely_core::{Rng, Timestamp};

/// Requests per second that the host serves, one after the other.
const CAPACITY: f64 = 8.0;

struct Crawl {
    host: Host,
    outage: Outage,
    config: Config,
    rng: Rng,
    now: Timestamp,
    /// The time until which the host is busy.
    busy: Timestamp,
    errors: u32,
    /// The errors that were told apart as refusals.
    refusals: u32,
    sent: u32,
}

impl Crawl {
    fn new() -> Self {
        let now = Timestamp::from_micros(1_795_000_000_000_000);
        let config = Config::api();
        Self {
            host: Host::new(&config, now),
            outage: Outage::default(),
            config,
            rng: Rng::new(1),
            now,
            busy: now,
            errors: 0,
            refusals: 0,
            sent: 0,
        }
    }

    /// Requests new pages for some time.
    fn run(&mut self, length: Duration) {
        let end = self.now + length;
        while self.now < end {
            let decision = (self.host).request(self.now, AcquireRequest::default(), &self.config);
            match decision {
                Decision::Wait(wait) => self.now = wait.at.max(self.now + Duration::from_millis(1)),
                Decision::Granted(grant) => self.answer(grant.lease),
            }
        }
    }

    fn answer(&mut self, lease: politely_core::gate::LeaseId) {
        let free = self.busy <= self.now;
        if free {
            self.busy = self.now + Duration::from_secs_f64(1.0 / CAPACITY);
        }
        self.sent += 1;
        let (signal, status) = if free {
            (Signal::Ok, 200)
        } else {
            (Signal::UrlError, 500)
        };
        let report = Report {
            status: Some(status),
            latency: Duration::from_millis(1),
            resource: Some(Resource::of(&self.sent.to_string())),
            ..Report::of(signal)
        };
        let told = (self.host).report(self.now, lease, &report, &self.config, &mut self.rng);
        let meaning = told.meaning(&report);
        let report = Report {
            signal: meaning,
            ..report
        };
        if free {
            self.outage.served();
            return;
        }
        self.errors += 1;
        if meaning == Signal::RateLimited {
            self.refusals += 1;
            let (policy, mut attempt) = (Policy::crawler(), Attempt::first(Method::GET));
            let (outage, now) = (&mut self.outage, self.now);
            let company = Company::Untried;
            let verdict = policy.judge(outage, &mut attempt, &report, &told, company, now);
            let next = policy.decide(&attempt, &report, verdict, &mut [], &mut self.rng, now);
            assert!(
                matches!(
                    next,
                    Next::Retry {
                        is_charged: false,
                        ..
                    }
                ),
                "{next:?}"
            );
        }
    }
}

#[test]
fn plain_500s_of_an_overloaded_host_are_refusals_that_cost_no_attempt() {
    let mut crawl = Crawl::new();
    crawl.run(Duration::from_mins(10));
    assert!(crawl.refusals > 0, "of {} errors", crawl.errors);
    let (sent, errors) = (crawl.sent, crawl.errors);
    crawl.run(Duration::from_mins(10));
    let (sent, errors) = (crawl.sent - sent, crawl.errors - errors);
    assert!(errors * 5 <= sent, "{errors} of {sent}");
    assert!(f64::from(sent - errors) >= 0.8 * CAPACITY * 600.0, "{sent}");
}

/// A key of several processes, or of one that is killed, decides alike.
#[test]
fn the_trial_is_kept_with_the_state() {
    let mut crawl = Crawl::new();
    crawl.run(Duration::from_mins(10));
    crawl.host = Host::restore(&crawl.host.snapshot(), crawl.now, &crawl.config).unwrap();
    let (errors, refusals) = (crawl.errors, crawl.refusals);
    crawl.run(Duration::from_mins(10));
    assert!(
        crawl.refusals > refusals,
        "of {} errors",
        crawl.errors - errors
    );
}
