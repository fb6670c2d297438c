//! Reports of outcomes: what the law, the breaker and the hold of a key learn from them.

use std::time::Duration;

use super::evidence::Fault;
use super::request::Bounds;
use super::{Directions, Doubt, Event, Host};
use crate::config::{BACKOFF_MIN, Config};
use crate::control::{Law, Sample};
use crate::gate::{HOLD_JITTER, HoldReason, Lease, LeaseId, jittered};
use crate::signal::{Alike, Quota, Report, Signal, Unit};
use crate::{Rng, Timestamp};

/// The first backoff after a refusal without a Retry-After, in request intervals.
const BACKOFF_INTERVALS: u32 = 2;

impl Host {
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
        let report = if self.suspects(report) {
            Report {
                failed_before: false,
                ..report.clone()
            }
        } else {
            report.of_page()
        };
        if is_head {
            self.on_head(now, lease, &report, config, rng)
        } else {
            self.report(now, lease, &report, config, rng)
        }
    }

    /// Handles an answer that proved to be a limit of this host, though no list says so.
    #[cold]
    #[inline(never)]
    fn hear_limit(
        &mut self,
        now: Timestamp,
        lease: Option<Lease>,
        report: &Report,
        config: &Config,
        rng: &mut Rng,
    ) -> Directions {
        let refusal = Report {
            signal: Signal::RateLimited,
            alike: Alike::Nothing,
            ..report.clone()
        };
        let directions = self.teach(now, lease, &refusal, config, rng);
        Directions {
            doubt: Doubt::Limited,
            ..directions
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
        if self.is_known_limit(report)
            || self.is_refused_by_error(now, lease.as_ref(), report, config)
        {
            return self.hear_limit(now, lease, report, config, rng);
        }
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
                Fault::Page if self.may_be_overload(report) => None,
                Fault::Host if bad && self.may_be_overload(report) => Some(Signal::RateLimited),
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
        self.pace.change(now, &old.rate, &new.rate, self.last_grant);
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
            let backoff_max = self.backoff_max(config);
            let doublings = u32::from(self.strikes).min(20);
            self.strikes = self.strikes.saturating_add(1);
            if asked.is_none() {
                let until = self.law.rest_until().unwrap_or_else(|| {
                    let rate = self.bounds(now, config).rate;
                    let first =
                        (rate.interval() * BACKOFF_INTERVALS).clamp(BACKOFF_MIN, backoff_max);
                    let length = first.saturating_mul(1 << doublings).min(backoff_max);
                    now + length.mul_f64(rng.between(1.0, 1.0 + HOLD_JITTER))
                });
                let until = until.min(now + backoff_max);
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
}
