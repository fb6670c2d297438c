//! The gates that a request passes before it may leave.
//!
//! The order of the gates is hold, quarantine, breaker, in-flight cap, byte budget, declared
//! limits, pace. The pace comes last, so that a request that waits for a slot does not spend a
//! token.
//!
//! Most requests meet a healthy key that has no request in flight and a token to spend.
//! [`Host::pass`] grants them with the same numbers and skips the gates that do not exist for such
//! a key. It is short so that the processor can run ahead: while one key's state is loaded from
//! memory, the next call starts and loads its own key. That works until the waiting instructions
//! fill the processor's window. Among a million keys it halves the time of a grant
//! (docs/reference/benchmarks.md), so each comparison that depends on the state costs time.

use super::{AcquireRequest, Decision, Grant, HORIZON, Host, Reason, Unused, Wait};
use crate::Timestamp;
use crate::config::{Config, Limits};
use crate::control::{Law, Setpoint};
use crate::gate::{FirstEnd, Lease, Rate, Refill, lesser};

/// A key is not application-limited if each request starts within this many intervals of the one
/// before it. Below half its rate the demand sets the pace, and the law learns nothing about the
/// limit (as TCP does, RFC 7661).
const PRESSED_INTERVALS: f64 = 2.0;
/// How much later, in seconds, a request that waited for the pace may start and still count as
/// demand. Timers of a millisecond wake it late, and a busy machine later still.
const WAKE_LATE_S: f64 = 0.2;
/// The most requests of a key that wait in the queues of callers.
const QUEUED_MAX: u32 = 4_096;

impl Host {
    /// Grants one departure now if no request is in flight and only the pace could delay it.
    ///
    /// Returns `None` in every other case. [`Host::request`] then decides; for a key that passes
    /// here, it would have granted the same.
    #[inline(always)]
    pub fn pass(&mut self, now: Timestamp, config: &Config) -> Option<Grant> {
        let limits = config.limits_of(0);
        // After a refusal the cap is 1. Nothing is in flight here, so that slot is free.
        if self.rare.is_some()
            || self.hold.until() > now
            || self.leases.in_flight() > 0
            || limits.bytes_per_s < f64::INFINITY
            || limits.refill != Refill::Continuous
            || !config.declared.is_empty()
        {
            return None;
        }
        let Setpoint {
            rate,
            burst,
            in_flight,
        } = within_profile(self.law.setpoint(now, limits), limits);
        let rate = self.within_busy_share(rate, limits);
        if in_flight == 0 || !self.pace.take_one(now, rate, burst) {
            return None;
        }
        let pressed = self.follows_soon(now, rate);
        let lease = self.leases.take_first(now, config.lease, pressed);
        self.first_end = FirstEnd::at(lease.expires());
        Some(Grant {
            lease: lease.id,
            slots: 1,
            start: now,
            rate,
            unused: Unused { cost: 1, bytes: 0 },
        })
    }

    /// Decides whether `ask` may leave. A grant takes its slots and tokens; a wait takes nothing.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "callers build a request in the call"
    )]
    pub fn request(&mut self, now: Timestamp, ask: AcquireRequest, config: &Config) -> Decision {
        if ask.is_plain()
            && let Some(grant) = self.pass(now, config)
        {
            return Decision::Granted(grant);
        }
        self.at_gates(now, &ask, config)
    }

    /// Answers [`Host::request`] gate by gate.
    pub(super) fn at_gates(
        &mut self,
        now: Timestamp,
        ask: &AcquireRequest,
        config: &Config,
    ) -> Decision {
        if !ask.is_limit_only {
            self.expect_outcomes(now, config);
        }
        let crawl_delay = ask.crawl_delay.filter(|_| !ask.is_limit_only);
        if let Some(wait) = crawl_delay.and_then(|told| self.rest_before(now, told)) {
            return Decision::Wait(wait);
        }
        let Bounds { rate, cap, .. } = self.bounds(now, config);
        let cap = if ask.is_queued {
            self.cap_of_queue(now, cap, config)
        } else {
            cap
        };
        let (probe, free) = match self.closed_gate(now, cap, config) {
            Err(wait) => return Decision::Wait(wait),
            Ok(open) => open,
        };
        let is_spaced = self.is_spaced();
        let slots = match ask.cost {
            0 | 1 if ask.units.is_empty() && !is_spaced => u32::from(ask.slots.max(1)).min(free),
            _ => 1,
        };
        let slots = match self.budget_room(now, ask, slots, config) {
            Err(wait) => return Decision::Wait(wait),
            Ok(room) => room,
        };
        let is_told = !ask.units.is_empty() && self.has_told();
        if is_told && let Some(wait) = self.told_wait(now, ask) {
            return Decision::Wait(wait);
        }
        let cost = f64::from(ask.cost.max(1));
        // A run starts with its first slot and continues at the rate, as single requests would.
        let reserved = if is_spaced {
            self.reserve_spaced(now, &rate, ask)
        } else {
            let reserved = self.pace.reserve(now, &rate, cost, ask.horizon);
            reserved.map_err(|at| Wait {
                at,
                reason: Reason::Pace,
            })
        };
        let start = match reserved {
            Err(wait) => {
                self.is_awaited |= wait.reason == Reason::Pace;
                return Decision::Wait(wait);
            }
            Ok(start) => start,
        };
        self.follow_limits(now, config);
        // A grant that fills the cap counts as limited by the cap, unless the cap is 1.
        let last = free == 1 && cap > 1;
        let lease = self.lease(start, probe, last, &rate, config);
        self.pace.note_departure(&rate, cost, &mut self.leases);
        // The other leases of the run expire later.
        self.first_end = self.first_end.or(FirstEnd::at(lease.expires()));
        let mut granted = 1;
        while granted < slots {
            let start = start + rate.interval() * granted;
            if start > now + HORIZON {
                break;
            }
            self.pace.take(1.0);
            self.lease(start, false, false, &rate, config);
            self.pace.note_departure(&rate, 1.0, &mut self.leases);
            granted += 1;
        }
        if is_spaced {
            self.space(start, lease.id, ask.cost, &rate, config);
        }
        self.charge_budgets(now, start, ask, granted, rate.interval(), config);
        self.note_estimate(lease.id, start, ask, config);
        if is_told {
            self.charge_told(now, &ask.units);
        }
        if ask.bytes > 0 {
            self.charge_byte_rate(now, ask.bytes, config);
        }
        if let Some(told) = crawl_delay {
            self.crawl_delay(now, told, config);
        }
        Decision::Granted(Grant {
            lease: lease.id,
            slots: granted as u16,
            start,
            rate: rate.per_s,
            unused: ask.unused(),
        })
    }

    /// Returns the wait at the first closed gate. If all are open, returns whether this request is
    /// a breaker's probe, and how many slots are free.
    #[inline]
    pub(super) fn closed_gate(
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
                // The probe under way decides. Its report comes before its lease expires.
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

    /// Returns the cap for requests that wait in a queue of the caller. Numbers of an operator and
    /// declared limits bound them; the learned cap does so only after a refusal or in a pause.
    #[cold]
    fn cap_of_queue(&self, now: Timestamp, cap: u32, config: &Config) -> u32 {
        if cap == 0 || self.strikes > 0 || self.pause(now).is_some() {
            return cap;
        }
        let operator = self.rare.as_ref().and_then(|rare| rare.operator);
        let set = operator.and_then(|operator| operator.in_flight);
        let declared = self.declared(config).in_flight();
        QUEUED_MAX
            .min(set.unwrap_or(u32::MAX))
            .min(declared.unwrap_or(u32::MAX))
    }

    /// Returns the law's setpoint within the bounds of profile, operator and busy share.
    ///
    /// While the last answer was a refusal the cap is 1, because the next answer tells whether the
    /// host serves again.
    #[inline(always)]
    pub(super) fn bounds(&mut self, now: Timestamp, config: &Config) -> Bounds {
        let limits = self.limits(config);
        let wish = self.law.setpoint(now, limits);
        let Setpoint {
            rate: mut per_s,
            mut burst,
            in_flight: mut cap,
        } = within_profile(wish, limits);
        let learns_nothing = self.has_declared_alone() || self.is_frozen_by_rule();
        if learns_nothing {
            (per_s, cap) = (f64::INFINITY, u32::MAX);
        }
        if let Some(operator) = self.rare.as_ref().and_then(|rare| rare.operator) {
            burst = operator.burst.unwrap_or(burst);
            if self.learns() {
                per_s = per_s.min(operator.rate.unwrap_or(f64::INFINITY));
                cap = cap.min(operator.in_flight.unwrap_or(u32::MAX));
            } else {
                per_s = operator.rate.unwrap_or(per_s);
                cap = operator.in_flight.unwrap_or(cap);
            }
        }
        if let Some(most) = self.declared(config).in_flight() {
            cap = cap.min(most);
        }
        if !learns_nothing {
            per_s = self.within_busy_share(per_s, limits);
        }
        if let Some(pause) = self.pause(now) {
            (per_s, burst, cap) = (per_s.min(pause.rate()), 1.0, cap.min(1));
        }
        if let Some(rate) = self.trial_rate() {
            (per_s, burst) = (per_s.min(rate), 1.0);
        }
        Bounds {
            rate: Rate {
                per_s,
                burst,
                refill: limits.refill,
            },
            cap: match self.strikes {
                0 => cap,
                _ => 1,
            },
            law_is_bound: per_s < wish.rate,
        }
    }

    #[inline(always)]
    fn within_busy_share(&self, per_s: f64, limits: &Limits) -> f64 {
        if limits.busy_share < f64::INFINITY {
            lesser(per_s, f64::from(self.busy_rate))
        } else {
            per_s
        }
    }

    fn lease(
        &mut self,
        start: Timestamp,
        probe: bool,
        last: bool,
        rate: &Rate,
        config: &Config,
    ) -> Lease {
        let pressed = self.follows_soon(start, rate.per_s) || last;
        if probe {
            self.rare().probe_sent();
        }
        self.leases.take(start, config.lease, probe, pressed)
    }

    /// Returns whether a grant that starts at `start` is not application-limited.
    #[inline(always)]
    fn follows_soon(&mut self, start: Timestamp, per_s: f64) -> bool {
        // The time of a hold is not idle time.
        let free_since = self.last_grant.max(self.hold.until());
        self.last_grant = start;
        let late = if self.is_awaited { WAKE_LATE_S } else { 0.0 };
        self.is_awaited = false;
        (start.seconds_after(free_since) - late) * per_s <= PRESSED_INTERVALS
    }
}

#[inline]
fn within_profile(wish: Setpoint, limits: &Limits) -> Setpoint {
    Setpoint {
        rate: lesser(wish.rate, limits.rate_max),
        in_flight: wish.in_flight.min(limits.in_flight),
        ..wish
    }
}

/// The limits of a key at one moment.
pub(super) struct Bounds {
    pub(super) rate: Rate,
    pub(super) cap: u32,
    /// Whether profile, operator or busy share bound the rate below the law's. Outcomes then teach
    /// the law nothing about a higher rate.
    pub(super) law_is_bound: bool,
}
