//! Explains why a key waits, until when, and since which event.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::request::Bounds;
use super::{AcquireRequest, Host, Reason, Wait};
use crate::Timestamp;
use crate::budget::Remainder;
use crate::config::Config;
use crate::control::{Law, Metrics};
use crate::gate::{HoldReason, Rate, Tally};
use crate::signal::{Failure, WAIT_MAX};

/// The last congestion event or outage. Its time decides which outcomes belong to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// When it was noticed.
    pub at: Timestamp,
    /// The status, if a response came.
    pub status: Option<u16>,
    /// The failure, if no response came.
    pub failure: Option<Failure>,
    /// The server's Retry-After, whole seconds.
    pub retry_after_s: Option<u32>,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.status, self.failure) {
            (Some(status), _) => write!(f, "{status}")?,
            (None, Some(failure)) => write!(f, "{failure}")?,
            (None, None) => f.write_str("no event")?,
        }
        match self.retry_after_s {
            Some(secs) if u64::from(secs) >= WAIT_MAX.as_secs() => {
                f.write_str(", Retry-After: a day or more")
            }
            Some(secs) => write!(f, ", Retry-After: {secs}"),
            None => Ok(()),
        }
    }
}

/// Where a number in force comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The configuration of all keys.
    Configured,
    /// An operator's setting for this key.
    Operator,
    /// Outcomes.
    Learned,
    /// The host's robots.txt.
    Robots,
}

/// The numbers in force, each with its source.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InForce {
    /// Requests per second.
    pub rate: (f64, Source),
    /// Tokens.
    pub burst: (f64, Source),
    /// Requests in flight at once.
    pub in_flight: (u32, Source),
    /// The rest after each request.
    pub crawl_delay: Option<(Duration, Source)>,
    /// The law's name.
    pub law: (&'static str, Source),
    /// Whether outcomes move the limits.
    pub learns: bool,
    /// The rate that the law asks for, before all bounds.
    pub law_rate: f64,
}

/// Why a key waits, until when, and since which event.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// The closed gate and when it opens. `None` if a request may leave now.
    pub wait: Option<Wait>,
    /// The last event, if there was one.
    pub event: Option<Event>,
    /// Requests per second.
    pub rate: f64,
    /// The slots that are taken, and the cap.
    pub in_flight: (u32, u32),
    /// Tokens in the bucket. A debt is negative.
    pub tokens: f64,
    /// Most tokens in the bucket.
    pub burst: f64,
    /// When the last permit was granted, or zero.
    pub last_grant: Timestamp,
    /// The numbers in force and their sources.
    pub in_force: InForce,
    /// The end and the reason of the hold, if there is one.
    pub hold: Option<(Timestamp, HoldReason)>,
    /// The remainder of each declared limit.
    pub budgets: Vec<Remainder>,
    /// The law's metrics.
    pub law: Metrics,
    /// The counts of leases.
    pub tally: Tally,
    /// Refusals so far.
    pub refused: u64,
    /// Median and 95th percentile latency, once known.
    pub latency: Option<(Duration, Duration)>,
}

impl Explanation {
    /// Returns one line for a person: `waits 3.2 s: hold, Retry-After (429, Retry-After: 120)`.
    pub fn line(&self, now: Timestamp) -> String {
        let Some(wait) = self.wait else {
            let (in_flight, cap) = self.in_flight;
            // A key with declared limits alone has no rate.
            return if self.rate.is_finite() {
                let noise = self.law.noise.map(|share| 100.0 * share);
                let noise = noise.map(|noise| format!(", {noise:.1} % fail at any rate"));
                let noise = noise.unwrap_or_default();
                let rate = self.rate;
                format!("ready, {rate:.2}/s, {in_flight} of {cap} in flight{noise}")
            } else {
                format!("ready, {in_flight} of {cap} in flight")
            };
        };
        if wait.reason == Reason::InFlight {
            // The end of this wait is unknown: a slot returns with a report, long before its lease
            // expires.
            return format!(
                "waits for a slot: {} of {} in flight",
                self.in_flight.0, self.in_flight.1
            );
        }
        let length = Length(wait.at.since(now));
        let resets = |left: &&Remainder| left.remaining == 0 && left.resets > now;
        let spent = self.budgets.iter().filter(resets);
        if wait.reason == Reason::Budget
            && let Some(left) = spent.max_by_key(|left| left.resets)
        {
            return format!("waits {length}: budget {} is spent", left.limit);
        }
        match (wait.reason, self.event) {
            (Reason::Breaker, Some(event)) => format!("{event}; next try in {length}"),
            (Reason::Quarantine, Some(event)) => {
                format!("blocked ({event}); next try in {length}")
            }
            (reason @ (Reason::Hold(_) | Reason::Parked(_)), Some(event)) => {
                format!("waits {length}: {reason} ({event})")
            }
            (reason, _) => format!("waits {length}: {reason}"),
        }
    }
}

/// A length of time for a person: `3.2 s`, `54 min`, `5.1 h`.
struct Length(Duration);

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let secs = self.0.as_secs_f64();
        match secs {
            ..300.0 => write!(f, "{secs:.1} s"),
            ..7_200.0 => write!(f, "{:.0} min", secs / 60.0),
            _ => write!(f, "{:.1} h", secs / 3_600.0),
        }
    }
}

impl Host {
    /// Explains why this key waits, until when, and since which event.
    pub fn explain(&self, now: Timestamp, config: &Config) -> Explanation {
        self.clone().look(now, config)
    }

    /// Brings the key up to `now` and explains its wait. It takes no slot or token, and copies
    /// nothing; otherwise it is [`Host::explain`].
    pub fn look(&mut self, now: Timestamp, config: &Config) -> Explanation {
        let Bounds { rate, cap, .. } = self.bounds(now, config);
        let wait = match self.closed_gate(now, cap, config) {
            Err(wait) => Some(wait),
            Ok(_) => match self.budget_room(now, &AcquireRequest::default(), 1, config) {
                Err(wait) => Some(wait),
                Ok(_) => Some(self.next_departure(now, &rate))
                    .filter(|at| *at > now)
                    .map(|at| Wait {
                        at,
                        reason: Reason::Pace,
                    }),
            },
        };
        let (in_flight, tally) = (self.leases.in_flight() as u32, self.leases.tally());
        Explanation {
            wait,
            event: self
                .rare
                .as_ref()
                .map(|rare| rare.event)
                .filter(|event| *event != Event::default()),
            rate: rate.per_s,
            in_flight: (in_flight, cap),
            tokens: self.pace.tokens(),
            burst: rate.burst,
            last_grant: self.last_grant,
            in_force: self.in_force(now, config),
            hold: self
                .hold
                .active(now)
                .map(|(until, _, reason)| (until, reason)),
            budgets: self.remainders(now, config),
            law: self.law.metrics(),
            tally,
            refused: u64::from(self.refused),
            latency: self.latency.p50().zip(self.latency.p95()),
        }
    }

    fn next_departure(&mut self, now: Timestamp, rate: &Rate) -> Timestamp {
        if self.is_spaced() {
            self.next_spaced(now, rate)
        } else {
            self.pace.next_start(now, rate, 1.0)
        }
    }

    fn in_force(&mut self, now: Timestamp, config: &Config) -> InForce {
        use Source::{Configured, Learned, Operator, Robots};

        let limits = self.limits(config);
        let start = limits.start();
        let wish = self.law.setpoint(now, limits);
        let Bounds { rate, cap, .. } = self.bounds(now, config);
        let set = self.operator_numbers();
        let told = if set.crawl_delay_ms.is_some() {
            Operator
        } else {
            Robots
        };
        let pause = self.pause(now);
        let source = |is_set: bool, is_configured: bool| match (is_set, is_configured) {
            (true, _) => Operator,
            (false, true) => Configured,
            (false, false) => Learned,
        };
        let of_rate = match pause {
            Some(pause) if rate.per_s >= pause.rate() => told,
            _ => source(
                set.rate == Some(rate.per_s)
                    || self.has_declared_alone()
                    || self.is_frozen_by_rule(),
                is_same(rate.per_s, start.rate) || is_same(rate.per_s, limits.rate_max),
            ),
        };
        let of_cap = match pause {
            Some(_) if cap == 1 => told,
            _ => source(
                set.in_flight == Some(cap),
                cap == start.in_flight || cap == limits.in_flight,
            ),
        };
        let of_burst = match pause {
            Some(_) => told,
            None => source(
                set.burst == Some(rate.burst),
                is_same(rate.burst, start.burst),
            ),
        };
        InForce {
            rate: (rate.per_s, of_rate),
            burst: (rate.burst, of_burst),
            in_flight: (cap, of_cap),
            crawl_delay: pause.map(|pause| (pause.length(), told)),
            law: (self.law.name(), source(set.law.is_some(), true)),
            learns: self.law.learns() && set.learn != Some(false) && !self.is_frozen_by_rule(),
            law_rate: wish.rate,
        }
    }
}
/// Returns whether a number in force is the configured one, to the bit.
const fn is_same(in_force: f64, configured: f64) -> bool {
    in_force.to_bits() == configured.to_bits()
}
