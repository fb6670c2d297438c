//! The whole state of one key.
//!
//! [`Host::request`] decides whether a request may leave, and [`Host::report`] takes its outcome. A
//! [`Host`] owns no clock and no randomness: two hosts that get the same calls are equal to the
//! byte. It is small, because a process may hold millions; a test pins its size.

mod answer;
mod budgets;
mod crawl_delay;
mod error_trial;
mod estimate;
mod evidence;
mod explain;
mod join;
mod rare;
mod refusal_cusum;
mod report;
mod request;
mod rule;
mod state;
mod suspicion;
mod told;
mod usual_share;
mod weigh;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use answer::{
    AcquireRequest, Decision, Directions, Doubt, Grant, HORIZON, Reason, Unused, Wait,
};
pub use budgets::{LATE, never_fits};
pub use crawl_delay::{CRAWL_DELAY_FRESH_MAX, CRAWL_DELAY_MAX, CrawlDelay};
pub use explain::{Event, Explanation, InForce, Source};
pub use state::RestoreError;

pub use rare::OperatorNumbers;
pub use rule::{KeyRule, Spacing, TroubleNumbers};

use rare::Rare;

use crate::Timestamp;
use crate::config::Config;
use crate::control::{KeyLaw, Latency};
use crate::gate::{FirstEnd, Hold, HoldReason, LeaseId, Leases, Pace, Rate, Tally};

/// The whole state of one key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Host {
    hold: Hold,
    rare: Option<Box<Rare>>,
    leases: Leases,
    pace: Pace,
    law: KeyLaw,
    last_grant: Timestamp,
    /// Whether a request was told to wait for the pace since the last grant.
    is_awaited: bool,
    /// Id of the first lease granted after the last congestion event. An outcome of an earlier
    /// lease belongs to that event, however late its request leaves.
    knowing: u64,
    latency: Latency,
    /// The rate that the busy share allows, requests per second.
    busy_rate: f32,
    refused: u32,
    /// Consecutive refusals, each of a request that was sent after the refusal before it was known.
    strikes: u16,
    #[serde(skip)]
    first_end: FirstEnd,
}

impl Host {
    /// Returns the state of a new key.
    pub fn new(config: &Config, now: Timestamp) -> Self {
        let start = config.limits.start();
        let rate = Rate {
            per_s: start.rate,
            burst: start.burst,
            refill: config.limits.refill,
        };
        let cohort = config.cohorts.of_new_key();
        let in_cohort = Rare {
            cohort,
            ..Rare::default()
        };
        Self {
            hold: Hold::default(),
            rare: (cohort > 0).then(|| Box::new(in_cohort)),
            leases: Leases::default(),
            pace: Pace::full(now, &rate),
            law: KeyLaw::new(&config.law, &config.limits, now),
            last_grant: Timestamp::ZERO,
            is_awaited: false,
            knowing: 0,
            latency: Latency::default(),
            busy_rate: f32::INFINITY,
            refused: 0,
            strikes: 0,
            first_end: FirstEnd::NEVER,
        }
    }

    /// Frees the slot of a request whose outcome this key does not judge, and charges its bytes.
    ///
    /// The outcome is judged already by [`Host::on_head`], or it is judged by another key and this
    /// key is only a limit of the request.
    pub fn release(&mut self, now: Timestamp, lease: LeaseId, bytes: u64, config: &Config) {
        self.expire(now);
        self.end_estimate(lease);
        if self
            .leases
            .report(lease)
            .is_some_and(|lease| lease.is_probe())
        {
            self.probe_returned();
        }
        self.rest(now, now);
        self.charge_bytes(now, bytes, config);
    }

    /// Cancels a permit that will not be reported, and takes back `unused`.
    ///
    /// Pass `None` if the request may have left.
    pub fn cancel(
        &mut self,
        now: Timestamp,
        lease: LeaseId,
        unused: Option<Unused>,
        config: &Config,
    ) {
        let Some(lease) = self.leases.cancel(lease) else {
            return;
        };
        if lease.is_probe() {
            self.probe_returned();
        }
        let estimate = self.end_estimate(lease.id);
        let Some(unused) = unused else {
            self.rest(now, now);
            return;
        };
        self.refund_budgets(now, lease.start, unused, estimate);
        let Unused { cost, bytes } = unused;
        let rate = self.bounds(now, config).rate;
        (self.pace).give_back(now, &rate, f64::from(cost), &lease, &mut self.leases);
        let is_newest = lease.id.0 + 1 == self.leases.next().0;
        if bytes > 0
            && let Some((pace, rate)) = self.bytes(now, config)
        {
            // A bucket that was full at the start would have lost what came since.
            let age_s = now.seconds_since(lease.start);
            let lost = if is_newest { 0.0 } else { rate.per_s * age_s };
            pace.put_back(now, &rate, (bytes as f64 - lost).max(0.0));
        }
    }

    /// Extends the lease of a request that takes long. Returns `false` if the lease is gone.
    pub fn renew(&mut self, now: Timestamp, lease: LeaseId, config: &Config) -> bool {
        self.expire(now);
        self.leases.renew(lease, now + config.lease)
    }

    /// Lets nothing leave before `until`. Returns whether that extends the hold.
    ///
    /// A backoff that follows another one soon is twice as long, at most a minute. While one is in
    /// force, nothing changes: it is known already that the key is refused.
    pub fn hold(&mut self, now: Timestamp, until: Timestamp, reason: HoldReason) -> bool {
        let until = match reason {
            HoldReason::Backoff => self.hold.backed_off(now, until),
            _ => until,
        };
        self.hold.extend(now, until, reason)
    }

    /// Lifts the hold, the breaker, the quarantine and the Crawl-delay that workers reported.
    pub fn unpark(&mut self, now: Timestamp, config: &Config) {
        let old = self.bounds(now, config).rate;
        self.hold.lift();
        if let Some(rare) = &mut self.rare {
            rare.breaker.reset();
            rare.quarantine.reset();
            rare.suspicion = None;
            rare.pause = None;
        }
        self.leases.forget_probes();
        self.strikes = 0;
        let new = self.bounds(now, config).rate;
        self.pace.change(now, &old, &new, self.last_grant);
    }

    /// Sets an operator's numbers for this key. An absent number leaves the old one; an infinite
    /// one removes it.
    ///
    /// On a key that learns, the numbers are upper bounds, beside those of the profile. On a key
    /// that learns nothing, they are the limits themselves. Such a key has the law
    /// [`crate::control::Fixed`] or [`crate::control::Advice`], or `learn: false`, or only limits
    /// requests whose outcomes go to other keys. The busy share bounds the key in every case.
    pub fn set(&mut self, now: Timestamp, numbers: OperatorNumbers, config: &Config) {
        let old = self.bounds(now, config).rate;
        let was_full = self.pace.is_full(now, &old);
        let has_learned = self.has_learned();
        let rare = self.rare();
        rare.operator = numbers.over(rare.operator.unwrap_or_default());
        rare.has_outcomes |= has_learned;
        if numbers.law.is_some() {
            self.adopt_law(now, Duration::ZERO, config);
        }
        if numbers.crawl_delay_ms.is_some() {
            self.rare().pause = None;
            self.hold.lift_if(|reason| reason == HoldReason::CrawlDelay);
        }
        let new = self.bounds(now, config).rate;
        self.pace.change(now, &old, &new, self.last_grant);
        if was_full {
            self.pace.fill(now, &new);
        }
    }

    /// Returns the numbers that an operator set for this key.
    pub fn operator_numbers(&self) -> OperatorNumbers {
        let rare = self.rare.as_ref();
        rare.and_then(|rare| rare.operator).unwrap_or_default()
    }

    /// Forgets everything that was learned about the host, the Crawl-delay of its robots.txt, and
    /// the numbers that an operator set.
    ///
    /// Leases, spent tokens, and a hold that the server asked for stay.
    pub fn forget(&mut self, now: Timestamp, config: &Config) {
        let old = self.bounds(now, config).rate;
        self.hold.lift_if(|reason| {
            matches!(
                reason,
                HoldReason::Operator | HoldReason::Backoff | HoldReason::CrawlDelay
            )
        });
        self.latency = Latency::default();
        self.busy_rate = f32::INFINITY;
        self.strikes = 0;
        if let Some(rare) = &mut self.rare {
            (rare.operator, rare.pause, rare.evidence) = (None, None, None);
            rare.suspicion = None;
            (rare.has_outcomes, rare.declared) = (false, None);
        }
        self.law = KeyLaw::new(&self.law_config(config), self.limits(config), now);
        let new = self.bounds(now, config).rate;
        self.pace.change(now, &old, &new, self.last_grant);
    }

    /// Returns the counts of leases.
    pub fn tally(&self) -> Tally {
        self.leases.tally()
    }

    /// Returns the slots that are taken, and the cap.
    pub fn slots(&mut self, now: Timestamp, config: &Config) -> (u32, u32) {
        let cap = self.bounds(now, config).cap;
        (self.leases.in_flight() as u32, cap)
    }

    /// Returns the slots that are taken.
    pub fn in_flight(&self) -> usize {
        self.leases.in_flight()
    }

    /// Returns when the lease of a permit expires, if its slot is still taken.
    pub fn lease_ends(&self, lease: LeaseId) -> Option<Timestamp> {
        self.leases.ends(lease)
    }

    /// Returns the id of the next lease.
    pub const fn next_lease(&self) -> LeaseId {
        self.leases.next()
    }

    /// Returns when the key last granted a permit.
    pub const fn last_grant(&self) -> Timestamp {
        self.last_grant
    }

    #[inline]
    fn expire(&mut self, now: Timestamp) {
        if !self.first_end.is_after(now) {
            self.expire_leases(now);
        }
    }

    #[cold]
    fn expire_leases(&mut self, now: Timestamp) {
        let expired = self.leases.expire(now);
        if expired.probe {
            self.probe_lost();
        }
        self.forget_estimates(now);
        if let Some(last) = expired.last {
            self.rest(last, now);
        }
        let next = self.leases.next_expiry();
        self.first_end = next.map_or(FirstEnd::NEVER, FirstEnd::at);
    }

    fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }
}

#[cfg(test)]
mod crawl_delay_tests;
#[cfg(test)]
#[expect(
    clippy::float_cmp,
    reason = "numbers that are set are in force to the bit"
)]
mod operator_tests;
#[cfg(test)]
mod queued_tests;
#[cfg(test)]
mod tests;
