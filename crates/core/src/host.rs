//! One key's whole state: the heart.
//!
//! A [`Host`] is asked [`Host::request`] (*may I send?*) and told [`Host::report`] (*this is what
//! happened*). It owns no clock and no randomness; two hosts fed with the same calls are equal to the
//! byte. It is small (see the test on its size) because there may be millions.
//!
//! The gates are asked in this order: hold, quarantine, breaker, in-flight, bytes, pace. The token comes
//! last, so that nobody who must wait for a slot burns the rate while waiting.

mod answer;
mod crawl_delay;
mod explain;
mod join;
mod rare;
mod state;

use serde::{Deserialize, Serialize};

pub use answer::{Ask, Decision, Directions, Grant, HORIZON, Reason, Unused, Wait};
pub use crawl_delay::{CRAWL_DELAY_FRESH_MAX, CRAWL_DELAY_MAX, CrawlDelay};
pub use explain::{Event, Explanation};
pub use state::RestoreError;

pub use rare::OperatorNumbers;

use rare::Rare;

use crate::config::{BACKOFF_MIN, Config};
use crate::control::{KeyLaw, Latency, Law, Sample};
use crate::gate::{
    FirstEnd, HOLD_JITTER, Hold, HoldReason, Lease, LeaseId, Leases, Pace, Rate, Tally, jittered,
    lesser,
};
use crate::signal::{Quota, Report, Signal};
use crate::{Rng, Timestamp};

/// The first backoff after a refusal that named no time, in request intervals.
const BACKOFF_INTERVALS: u32 = 2;
/// A key is pressed if a request follows the one before it within this many intervals; below half its
/// rate the demand sets the pace and teaches nothing about the limit (as in TCP, RFC 7661).
const PRESSED_INTERVALS: f64 = 2.0;

/// One key's whole state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Host {
    hold: Hold,
    rare: Option<Box<Rare>>,
    leases: Leases,
    pace: Pace,
    law: KeyLaw,
    last_grant: Timestamp,
    /// Permits from this number on were granted knowing of the last event; what happens to those before it
    /// is still that event, however late they leave.
    knowing: u64,
    latency: Latency,
    /// What the busy share leaves, requests per second.
    busy_rate: f32,
    refused: u32,
    /// Refusals in a row, each sent after the one before it was noticed.
    strikes: u16,
    #[serde(skip)]
    first_end: FirstEnd,
}

impl Host {
    /// A key never heard of.
    pub fn new(config: &Config, now: Timestamp) -> Self {
        let start = config.limits.start();
        let rate = Rate {
            per_s: start.rate,
            burst: start.burst,
            refill: config.limits.refill,
        };
        Self {
            hold: Hold::default(),
            rare: None,
            leases: Leases::default(),
            pace: Pace::full(now, &rate),
            law: KeyLaw::new(&config.law, &config.limits, now),
            last_grant: Timestamp::ZERO,
            knowing: 0,
            latency: Latency::default(),
            busy_rate: f32::INFINITY,
            refused: 0,
            strikes: 0,
            first_end: FirstEnd::NEVER,
        }
    }

    /// May `ask` leave? A grant takes its slots and tokens; a wait takes nothing.
    #[inline]
    pub fn request(&mut self, now: Timestamp, ask: Ask, config: &Config) -> Decision {
        let Bounds { rate, cap, .. } = self.bounds(now, config);
        let (probe, free) = match self.closed_gate(now, cap, config) {
            Err(wait) => return Decision::Wait(wait),
            Ok(open) => open,
        };
        let slots = match ask.cost {
            0 | 1 => u32::from(ask.slots.max(1)).min(free),
            _ => 1,
        };
        let cost = f64::from(ask.cost.max(1));
        // A run starts with its first slot and goes on at the rate: as many single requests would have.
        let start = match self.pace.reserve(now, &rate, cost, ask.horizon) {
            Err(at) => {
                return Decision::Wait(Wait {
                    at,
                    reason: Reason::Pace,
                });
            }
            Ok(start) => start,
        };
        // Who takes the last slot was kept waiting by the slots, if not by the rate; of one slot, nobody can tell.
        let last = free == 1 && cap > 1;
        let lease = self.lease(start, probe, last, &rate, config);
        // Those of the same run end later.
        self.first_end = self.first_end.or(FirstEnd::at(lease.expires()));
        let mut granted = 1;
        while granted < slots {
            let start = start + rate.interval() * granted;
            if start > now + HORIZON {
                break;
            }
            self.pace.follow(start);
            self.lease(start, false, false, &rate, config);
            granted += 1;
        }
        if ask.bytes > 0 {
            self.charge_bytes(now, ask.bytes, config);
        }
        Decision::Granted(Grant {
            lease: lease.id,
            slots: granted as u16,
            start,
            rate: rate.per_s,
            unused: ask.unused(),
        })
    }

    /// What happened to a permit's request. Late and repeated reports release nothing and move no rate,
    /// but a server's word to wait is kept whenever it comes.
    pub fn report(
        &mut self,
        now: Timestamp,
        lease: LeaseId,
        report: &Report,
        config: &Config,
        rng: &mut Rng,
    ) -> Directions {
        self.expire(now);
        let lease = self.leases.report(lease).filter(|lease| !lease.is_heard());
        self.rest(now, now);
        self.teach(now, lease, report, config, rng)
    }

    /// [`Host::report`] as soon as the response's head is there: it teaches now and leaves the slot taken
    /// until [`Host::release`], since servers count a request until its body has left them.
    pub fn hear(
        &mut self,
        now: Timestamp,
        lease: LeaseId,
        report: &Report,
        config: &Config,
        rng: &mut Rng,
    ) -> Directions {
        self.expire(now);
        let lease = self.leases.hear(lease);
        self.teach(now, lease, report, config, rng)
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
        let fresh = lease.is_some_and(|lease| lease.id.0 >= self.knowing) && bad;
        if let Some(lease) = lease {
            self.learn(now, &lease, report, fresh, &old);
            self.judge(now, &lease, report, config, rng);
        }
        if fresh {
            self.knowing = self.leases.next().0;
            self.rare().event = Event {
                at: now,
                status: report.status,
                failure: report.failure,
                retry_after_s: report
                    .retry_after
                    .map(|after| u32::try_from(after.as_secs()).unwrap_or(u32::MAX)),
            };
        }
        self.hold_after(now, report, fresh, config, rng);
        self.charge_bytes(now, report.bytes, config);
        let new = self.bounds(now, config);
        self.pace.change(now, &old.rate, &new.rate);
        Directions {
            hold_until: self.hold.until(),
            rate: new.rate.per_s,
            event: fresh,
            late: lease.is_none(),
        }
    }

    /// The end of a request that was heard, or that this key was only a limit of: its slot returns and its
    /// bytes are charged; its outcome is judged already, or another key's to judge.
    pub fn release(&mut self, now: Timestamp, lease: LeaseId, bytes: u64, config: &Config) {
        self.expire(now);
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

    /// A permit that will not be reported, and what it gives back; nothing if its request may have left.
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
        let Some(Unused { cost, bytes }) = unused else {
            self.rest(now, now);
            return;
        };
        let rate = self.bounds(now, config).rate;
        let newest = (self.pace).give_back(now, &rate, f64::from(cost), lease.start);
        if newest
            && bytes > 0
            && let Some((pace, rate)) = self.bytes(now, config)
        {
            pace.put_back(now, &rate, bytes as f64);
        }
    }

    /// Extends a permit whose request takes long; `false` if its lease is gone.
    pub fn renew(&mut self, now: Timestamp, lease: LeaseId, config: &Config) -> bool {
        self.expire(now);
        self.leases.renew(lease, now + config.lease)
    }

    /// Nothing leaves before `until`. Says whether that is longer than before.
    pub fn hold(&mut self, now: Timestamp, until: Timestamp, reason: HoldReason) -> bool {
        self.hold.extend(now, until, reason)
    }

    /// Lifts hold, breaker and quarantine: an operator's privilege.
    pub fn unpark(&mut self) {
        self.hold.lift();
        if let Some(rare) = &mut self.rare {
            rare.breaker.reset();
            rare.quarantine.reset();
        }
        self.leases.forget_probes();
        self.strikes = 0;
    }

    /// An operator's numbers for this key; those absent stay as they were, and those infinite are taken back. To a law that learns they are upper
    /// bounds, beside the profile's; with one that does not ([`crate::control::Fixed`],
    /// [`crate::control::Advice`]) they hold, be they above or below what was configured. The busy share bounds both.
    pub fn set(&mut self, now: Timestamp, numbers: OperatorNumbers, config: &Config) {
        let old = self.bounds(now, config).rate;
        let rare = self.rare();
        rare.operator = numbers.over(rare.operator.unwrap_or_default());
        let new = self.bounds(now, config).rate;
        self.pace.change(now, &old, &new);
    }

    /// What an operator set for this key.
    pub fn operator_numbers(&self) -> OperatorNumbers {
        let rare = self.rare.as_ref();
        rare.and_then(|rare| rare.operator).unwrap_or_default()
    }

    /// Forgets what was learned of the host, was told of its robots.txt, and was set by an operator. What is out stays out:
    /// leases, tokens spent, a hold.
    pub fn forget(&mut self, now: Timestamp, config: &Config) {
        let old = self.bounds(now, config).rate;
        self.law = KeyLaw::new(&config.law, &config.limits, now);
        self.latency = Latency::default();
        self.busy_rate = f32::INFINITY;
        self.strikes = 0;
        if let Some(rare) = &mut self.rare {
            (rare.operator, rare.pause) = (None, None);
        }
        let new = self.bounds(now, config).rate;
        self.pace.change(now, &old, &new);
    }

    /// The books.
    pub fn tally(&self) -> Tally {
        self.leases.tally()
    }

    /// Slots taken, and of how many.
    pub fn slots(&mut self, now: Timestamp, config: &Config) -> (u32, u32) {
        let cap = self.bounds(now, config).cap;
        (self.leases.in_flight() as u32, cap)
    }

    /// Slots taken.
    pub fn in_flight(&self) -> usize {
        self.leases.in_flight()
    }

    /// When a permit's slot returns by itself, if it is still taken.
    pub fn lease_ends(&self, lease: LeaseId) -> Option<Timestamp> {
        self.leases.ends(lease)
    }

    /// What the next lease is called.
    pub const fn next_lease(&self) -> LeaseId {
        self.leases.next()
    }

    /// When it last granted a permit.
    pub const fn last_grant(&self) -> Timestamp {
        self.last_grant
    }

    /// Gives memory of a past rush back.
    pub fn shrink(&mut self) {
        self.leases.shrink();
    }

    /// The first gate that is shut, or (whether this is a breaker's probe, how many slots are free).
    #[inline]
    fn closed_gate(
        &mut self,
        now: Timestamp,
        cap: u32,
        config: &Config,
    ) -> Result<(bool, u32), Wait> {
        self.expire(now);
        if let Some((until, length, reason)) = self.hold.active(now) {
            let parked = length > config.hold_max;
            let reason = if parked {
                Reason::Parked(reason)
            } else {
                Reason::Hold(reason)
            };
            return Err(Wait { at: until, reason });
        }
        let probe = match &self.rare {
            None => false,
            Some(rare) => rare.check(now).map_err(|(at, reason)| {
                // The probe under way decides; its report comes before its lease ends.
                let at = if at > now {
                    at
                } else {
                    self.leases.next_expiry().unwrap_or(now)
                };
                Wait { at, reason }
            })?,
        };
        let free = cap.saturating_sub(self.leases.in_flight() as u32);
        if free == 0 {
            return Err(Wait {
                at: self.leases.next_expiry().unwrap_or(now),
                reason: Reason::InFlight,
            });
        }
        if let Some((bytes, rate)) = self.bytes(now, config) {
            let at = bytes.next_start(now, &rate, 1.0);
            if at > now {
                return Err(Wait {
                    at,
                    reason: Reason::Bytes,
                });
            }
        }
        Ok((probe, if probe { 1 } else { free }))
    }

    /// What the law asks for, within the bounds of profile, operator and busy share; and one at a time
    /// while the last answer was a refusal: the next tells all there is to know.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "a call's twentieth, by politely-benches limiter"
    )]
    fn bounds(&mut self, now: Timestamp, config: &Config) -> Bounds {
        let wish = self.law.setpoint(now, &config.limits);
        let (mut per_s, mut burst) = (lesser(wish.rate, config.limits.rate_max), wish.burst);
        let mut cap = wish.in_flight.min(config.limits.in_flight);
        if let Some(operator) = self.rare.as_ref().and_then(|rare| rare.operator) {
            burst = operator.burst.unwrap_or(burst);
            if self.law.learns() {
                per_s = per_s.min(operator.rate.unwrap_or(f64::INFINITY));
                cap = cap.min(operator.in_flight.unwrap_or(u32::MAX));
            } else {
                per_s = operator.rate.unwrap_or(per_s);
                cap = operator.in_flight.unwrap_or(cap);
            }
        }
        if config.limits.busy_share.is_finite() {
            per_s = per_s.min(f64::from(self.busy_rate));
        }
        if let Some(pause) = self.pause(now) {
            (per_s, burst, cap) = (per_s.min(pause.rate()), 1.0, cap.min(1));
        }
        Bounds {
            rate: Rate {
                per_s,
                burst,
                refill: config.limits.refill,
            },
            cap: match self.strikes {
                0 => cap,
                _ => 1,
            },
            law_is_bound: per_s < wish.rate,
        }
    }

    #[inline]
    fn lease(
        &mut self,
        start: Timestamp,
        probe: bool,
        last: bool,
        rate: &Rate,
        config: &Config,
    ) -> Lease {
        // Time on hold is not idle time.
        let free_since = self.last_grant.max(self.hold.until());
        let intervals = start.seconds_since(free_since) * rate.per_s;
        let pressed = last || intervals <= PRESSED_INTERVALS;
        self.last_grant = start;
        if probe {
            self.rare().probe_sent();
        }
        self.leases.take(start, config.lease, probe, pressed)
    }

    fn learn(
        &mut self,
        now: Timestamp,
        lease: &Lease,
        report: &Report,
        fresh: bool,
        bounds: &Bounds,
    ) {
        if report.signal == Signal::Ok {
            self.latency.record(report.latency);
        }
        self.law.on_sample(&Sample {
            now,
            sent: lease.start,
            signal: report.signal,
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
            quota: report.quota,
            latencies: &self.latency,
        });
    }

    /// What strikes, busy share, breaker and quarantine make of it.
    fn judge(
        &mut self,
        now: Timestamp,
        lease: &Lease,
        report: &Report,
        config: &Config,
        rng: &mut Rng,
    ) {
        let served = matches!(report.signal, Signal::Ok | Signal::UrlError);
        // A success that was under way before the refusal says nothing about what came after it.
        if served && lease.id.0 >= self.knowing {
            self.strikes = 0;
        }
        if served && config.limits.busy_share.is_finite() {
            let busy_s = self.latency.p50().unwrap_or_default().as_secs_f64();
            self.busy_rate = (config.limits.busy_share / busy_s.max(1e-6)) as f32;
        }
        if report.signal == Signal::RateLimited {
            self.refused = self.refused.saturating_add(1);
        }
        let in_trouble = !served || report.status.is_some_and(|status| status >= 500);
        if in_trouble {
            self.rare()
                .trouble(now, lease.is_probe(), report.signal, config, rng);
        } else if let Some(rare) = &mut self.rare {
            rare.success(lease.is_probe());
        }
    }

    /// What the server asked for comes first; without a word from it, our own backoff.
    fn hold_after(
        &mut self,
        now: Timestamp,
        report: &Report,
        fresh: bool,
        config: &Config,
        rng: &mut Rng,
    ) {
        let refused = matches!(report.signal, Signal::RateLimited | Signal::Overloaded);
        // To a law that paces by the quota, nothing left is a window that slides or a bucket that holds little:
        // by the time its pace lets the next one go, there is one left.
        let spent = (report.quota).filter(|_| refused || !self.law.reads_quota());
        let spent = spent.and_then(|quota: Quota| {
            // Those still under way are not yet counted in what the server says remains.
            let remaining = quota
                .remaining?
                .saturating_sub(self.leases.unheard() as u64);
            (quota.reset).filter(|reset| remaining == 0 && !reset.is_zero())
        });
        let asked = match (report.retry_after, spent) {
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
                self.hold.extend(now, until, HoldReason::Backoff);
            }
        }
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

/// What holds for a key at one moment.
struct Bounds {
    rate: Rate,
    cap: u32,
    /// The law would go faster than profile, operator or busy share allow: what follows teaches it nothing.
    law_is_bound: bool,
}

#[cfg(test)]
mod tests;
