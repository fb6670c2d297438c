//! The whole state of one key.
//!
//! [`Host::request`] decides whether a request may leave, and [`Host::report`] takes its outcome. A
//! [`Host`] owns no clock and no randomness: two hosts that get the same calls are equal to the
//! byte. It is small, because a process may hold millions; a test pins its size.

mod answer;
mod budgets;
mod crawl_delay;
mod evidence;
mod explain;
mod join;
mod rare;
mod refusal_cusum;
mod request;
mod rule;
mod state;
mod suspicion;
mod told;
mod usual_share;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use answer::{
    AcquireRequest, Decision, Directions, Doubt, Grant, HORIZON, Reason, Unused, Wait,
};
pub use budgets::never_fits;
pub use crawl_delay::{CRAWL_DELAY_FRESH_MAX, CRAWL_DELAY_MAX, CrawlDelay};
pub use explain::{Event, Explanation, InForce, Source};
pub use state::RestoreError;

pub use rare::OperatorNumbers;
pub use rule::{KeyRule, Spacing};

use evidence::Fault;
use rare::Rare;
use request::Bounds;

use crate::config::{BACKOFF_MIN, Config};
use crate::control::{KeyLaw, Latency, Law, Sample};
use crate::gate::{
    FirstEnd, HOLD_JITTER, Hold, HoldReason, Lease, LeaseId, Leases, Pace, Rate, Tally, jittered,
};
use crate::signal::{Quota, Report, Signal, Unit};
use crate::{Rng, Timestamp};

/// The first backoff after a refusal without a Retry-After, in request intervals.
const BACKOFF_INTERVALS: u32 = 2;
/// A key is not application-limited if each request starts within this many intervals of the one
/// before it. Below half its rate the demand sets the pace, and the law learns nothing about the
/// limit (as TCP does, RFC 7661).
const PRESSED_INTERVALS: f64 = 2.0;
/// How much later, in seconds, a request that waited for the pace may start and still count as
/// demand. Timers of a millisecond wake it late, and a busy machine later still.
const WAKE_LATE_S: f64 = 0.2;

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

    /// Handles the outcome of a permit's request and frees its slot.
    ///
    /// A late or repeated report frees no slot and does not change the rate. Its Retry-After still
    /// counts.
    pub fn report(
        &mut self,
        now: Timestamp,
        lease: LeaseId,
        report: &Report,
        config: &Config,
        rng: &mut Rng,
    ) -> Directions {
        if report.failed_before {
            return self.hear_page(now, lease, report, config, rng, false);
        }
        self.expire(now);
        self.settle(now, lease, &report.used, config);
        self.end_estimate(lease);
        let lease = self.leases.report(lease).filter(|lease| !lease.is_heard());
        self.rest(now, now);
        self.teach(now, lease, report, config, rng)
    }

    /// Handles the head of a response. The slot stays taken until [`Host::release`], because a
    /// server counts a request until its body is sent.
    ///
    /// The law learns at once. Otherwise this is [`Host::report`].
    pub fn on_head(
        &mut self,
        now: Timestamp,
        lease: LeaseId,
        report: &Report,
        config: &Config,
        rng: &mut Rng,
    ) -> Directions {
        if report.failed_before {
            return self.hear_page(now, lease, report, config, rng, true);
        }
        self.expire(now);
        self.settle(now, lease, &report.used, config);
        let lease = self.leases.on_head(lease);
        self.teach(now, lease, report, config, rng)
    }

    /// Handles the outcome of a page that failed before while others were served.
    #[cold]
    #[inline(never)]
    fn hear_page(
        &mut self,
        now: Timestamp,
        lease: LeaseId,
        report: &Report,
        config: &Config,
        rng: &mut Rng,
        is_head: bool,
    ) -> Directions {
        let report = report.of_page();
        if is_head {
            self.on_head(now, lease, &report, config, rng)
        } else {
            self.report(now, lease, &report, config, rng)
        }
    }

    #[inline]
    fn teach(
        &mut self,
        now: Timestamp,
        lease: Option<Lease>,
        report: &Report,
        config: &Config,
        rng: &mut Rng,
    ) -> Directions {
        let old = self.bounds(now, config);
        self.pace.settle(now, &old.rate);
        let bad = matches!(
            report.signal,
            Signal::RateLimited | Signal::Overloaded | Signal::Unreachable | Signal::Blocked
        );
        let may_be_a_limit = bad && self.may_be_a_limit(report);
        let doubt = self.suspect(now, lease.as_ref(), report, rng);
        let fault = self.weigh(lease.as_ref(), report);
        let is_new = lease.is_some_and(|lease| lease.id.0 >= self.knowing);
        let fresh = is_new && (bad && fault == Fault::Host || doubt == Doubt::Limited);
        if fresh {
            self.before_cut(report);
        }
        if let Some(lease) = lease {
            let signal = match fault {
                _ if doubt == Doubt::Limited => Some(Signal::RateLimited),
                _ if matches!(doubt, Doubt::Suspected | Doubt::Checking) => None,
                Fault::Host => Some(report.signal),
                Fault::Page => Some(Signal::Ok),
                Fault::Outage | Fault::Url => None,
            };
            // One call, which the compiler moves in here.
            if let Some(signal) = signal {
                self.learn(now, &lease, report, signal, fresh, &old);
            }
            self.judge(now, &lease, report, fault, config, rng);
        }
        if fault.is_the_urls() {
            self.undo_cuts(now, config);
        }
        if fresh {
            self.knowing = self.leases.next().0;
        }
        if fresh || fault == Fault::Outage {
            self.rare().event = Event {
                at: now,
                status: report.status,
                failure: report.failure,
                retry_after_s: report
                    .retry_after
                    .map(|after| u32::try_from(after.as_secs()).unwrap_or(u32::MAX)),
            };
        }
        if !fault.is_the_urls() || may_be_a_limit {
            self.hold_after(now, report, fresh, config, rng);
        }
        self.charge_bytes(now, report.bytes, config);
        if let Some(lease) = lease
            && !report.quotas.is_empty()
        {
            self.hear_quotas(now, lease.id, &report.quotas);
        }
        let new = self.bounds(now, config);
        self.pace.change(now, &old.rate, &new.rate);
        Directions {
            hold_until: self.hold.until(),
            rate: new.rate.per_s,
            event: fresh,
            late: lease.is_none(),
            url_fault: fault.is_the_urls(),
            has_served: !self.latency.is_empty(),
            doubt,
            quarantines: self.quarantines(),
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
        let Some(Unused { cost, bytes }) = unused else {
            self.rest(now, now);
            return;
        };
        if let Some(estimate) = estimate {
            self.refund_units(&estimate, config);
        }
        self.refund_budgets(lease.start, cost, bytes, config);
        let rate = self.bounds(now, config).rate;
        let newest = (self.pace).give_back(now, &rate, f64::from(cost), lease.start);
        if newest
            && bytes > 0
            && let Some((pace, rate)) = self.bytes(now, config)
        {
            pace.put_back(now, &rate, bytes as f64);
        }
    }

    /// Extends the lease of a request that takes long. Returns `false` if the lease is gone.
    pub fn renew(&mut self, now: Timestamp, lease: LeaseId, config: &Config) -> bool {
        self.expire(now);
        self.leases.renew(lease, now + config.lease)
    }

    /// Lets nothing leave before `until`. Returns whether that extends the hold.
    pub fn hold(&mut self, now: Timestamp, until: Timestamp, reason: HoldReason) -> bool {
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
        self.pace.change(now, &old, &new);
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
        self.pace.change(now, &old, &new);
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
        self.law = KeyLaw::new(&config.law, self.limits(config), now);
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
        let new = self.bounds(now, config).rate;
        self.pace.change(now, &old, &new);
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

    fn learn(
        &mut self,
        now: Timestamp,
        lease: &Lease,
        report: &Report,
        signal: Signal,
        fresh: bool,
        bounds: &Bounds,
    ) {
        if report.signal == Signal::Ok {
            self.latency.record(report.latency);
        }
        if self.operator_numbers().learn == Some(false) || self.is_frozen_by_rule() {
            return;
        }
        self.law.on_sample(&Sample {
            now,
            sent: lease.start,
            signal,
            is_trouble: signal == Signal::Overloaded && !matches!(report.status, Some(503 | 529)),
            fresh,
            last_event: self
                .rare
                .as_ref()
                .map_or(Timestamp::ZERO, |rare| rare.event.at),
            refused_in_a_row: self.strikes,
            pressed: lease.pressed && !bounds.law_is_bound,
            latency: report.latency,
            beside: lease.beside,
            retry_after: report.retry_after,
            quotas: &report.quotas,
            latencies: &self.latency,
        });
    }

    /// Updates the count of refusals, the busy share, the breaker and the quarantine.
    fn judge(
        &mut self,
        now: Timestamp,
        lease: &Lease,
        report: &Report,
        fault: Fault,
        config: &Config,
        rng: &mut Rng,
    ) {
        let served = matches!(report.signal, Signal::Ok | Signal::UrlError);
        // A success says nothing about the refusal if its request was sent before the refusal was
        // known.
        if served && self.strikes > 0 && lease.id.0 >= self.knowing {
            self.strikes = 0;
            self.hold.lasted(now);
            // A bucket that was empty a moment ago may hold a single token.
            let rate = self.bounds(now, config).rate;
            self.pace.forget_slack(&rate);
        }
        let busy_share = self.limits(config).busy_share;
        if served && busy_share.is_finite() {
            let busy_s = self.latency.p50().unwrap_or_default().as_secs_f64();
            self.busy_rate = (busy_share / busy_s.max(1e-6)) as f32;
        }
        if report.signal.is_refusal() {
            self.refused = self.refused.saturating_add(1);
        }
        let in_trouble = !served || report.status.is_some_and(|status| status >= 500);
        if in_trouble && fault.is_the_urls() {
            // A breaker's probe that failed by its URL's fault says nothing about the host. The
            // next request is the probe.
            if let Some(rare) = &mut self.rare
                && lease.is_probe()
            {
                rare.breaker.probe_lost();
                rare.quarantine.probe_lost();
            }
        } else if in_trouble {
            self.rare()
                .trouble(now, lease.is_probe(), report.signal, config, rng);
        } else if let Some(rare) = &mut self.rare {
            rare.success(lease.is_probe());
        }
    }

    /// Extends the hold after a failure. The server's Retry-After or reset comes first; without
    /// one, the hold is this key's own backoff.
    fn hold_after(
        &mut self,
        now: Timestamp,
        report: &Report,
        fresh: bool,
        config: &Config,
        rng: &mut Rng,
    ) {
        let refused = matches!(report.signal, Signal::RateLimited | Signal::Overloaded);
        let spent = self.spent_until(report, refused);
        // The Retry-After of a missing page, or of a page that fails by itself, delays that page
        // alone.
        let told = report
            .retry_after
            .filter(|_| !matches!(report.signal, Signal::Ok | Signal::UrlError));
        let asked = match (told, spent) {
            (Some(after), _) => Some((after, HoldReason::RetryAfter)),
            (None, Some(reset)) => Some((reset, HoldReason::QuotaSpent)),
            (None, None) => None,
        };
        if let Some((length, reason)) = asked {
            let until = now + jittered(length, config.hold_max, rng);
            self.hold.extend(now, until, reason);
        }
        if refused && fresh {
            let doublings = u32::from(self.strikes).min(20);
            self.strikes = self.strikes.saturating_add(1);
            if asked.is_none() {
                let until = self.law.rest_until().unwrap_or_else(|| {
                    let rate = self.bounds(now, config).rate;
                    let first = (rate.interval() * BACKOFF_INTERVALS)
                        .clamp(BACKOFF_MIN, config.backoff_max);
                    let length = first.saturating_mul(1 << doublings).min(config.backoff_max);
                    now + length.mul_f64(rng.between(1.0, 1.0 + HOLD_JITTER))
                });
                let until = until.min(now + config.backoff_max);
                self.hold.extend(now, until, HoldReason::Backoff);
            }
        }
    }

    /// Returns how long the quotas stop this key: until the last spent one resets.
    ///
    /// A refusal may be due to any quota. With any other response only quotas of requests count, by
    /// the law's rule.
    fn spent_until(&self, report: &Report, refused: bool) -> Option<Duration> {
        // The server has not yet counted the requests that are under way.
        let under_way = self.leases.unheard() as u64;
        let stops = |quota: &&Quota| match quota.unit {
            Unit::Requests if refused => quota.remaining.is_some_and(|left| left <= under_way),
            Unit::Requests => self.law.stops_at(quota, under_way),
            _ => refused && quota.is_spent(),
        };
        let spent = report.quotas.iter().filter(stops);
        spent
            .filter_map(|quota| quota.reset)
            .filter(|reset| !reset.is_zero())
            .max()
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
        self.forget_estimates();
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
#[expect(
    clippy::float_cmp,
    reason = "numbers that are set are in force to the bit"
)]
mod operator_tests;
#[cfg(test)]
mod tests;
