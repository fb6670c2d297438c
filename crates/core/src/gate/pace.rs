//! A token bucket: it limits how often requests leave.
//!
//! The bucket is refilled when it is read, so an idle key costs nothing. It stores the tokens and
//! the time at which they were counted. A clock that stops, jumps or steps back does no harm:
//! elapsed time is at least zero, and the level is at most the burst.
//!
//! The level may go below zero. A negative level is a *reservation*: the departure slots of
//! requests that leave later. A hundred callers get a hundred different start times from a hundred
//! calls.
//!
//! A leaky bucket is the same bucket with a burst of one.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Lease, Leases};
use crate::Timestamp;

/// Tolerance for rounding errors, in tokens. Two sums of the same refills may differ in the last
/// bits, so a token that is short by this much counts as whole.
const ROUNDING: f64 = 1e-9;
/// Extra time, in seconds, for which a full bucket keeps filling. Timers fire some milliseconds
/// late, and a late departure must not delay all that follow. The rate stays the same; a single gap
/// may be shorter by this time.
const TIMER_SLACK_S: f64 = 0.002;
/// The same for a rate of [`FAST`] requests per second or more. There each wake of a timer serves
/// several requests, and on a busy machine it is later than their intervals.
const FAST_SLACK_S: f64 = 0.005;
const FAST: f64 = 500.0;

/// Returns the slack of a bucket of this rate.
#[inline(always)]
const fn slack_s(per_s: f64) -> f64 {
    if per_s < FAST {
        TIMER_SLACK_S
    } else {
        FAST_SLACK_S
    }
}

/// When tokens are added to a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub enum Refill {
    /// Continuously.
    #[default]
    Continuous,
    /// All at once at the end of each interval, counted from the bucket's first use. An interval
    /// adds the tokens that the rate yields in that time, at most the burst. Two bursts may meet at
    /// the end of an interval, as with every fixed window.
    Interval(Duration),
}

/// The parameters of a bucket: its rate, its size, and when it is refilled.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    /// Tokens per second. Fractions are valid. A bucket of rate zero is never refilled; a bucket of
    /// infinite rate is never empty.
    pub per_s: f64,
    /// The most tokens that are kept, at least one. So many requests may leave back to back after a
    /// rest.
    pub burst: f64,
    /// When tokens are added.
    pub refill: Refill,
}

impl Rate {
    /// Returns a rate of `per_s` tokens per second without a burst.
    pub const fn per_second(per_s: f64) -> Self {
        Self {
            per_s,
            burst: 1.0,
            refill: Refill::Continuous,
        }
    }

    /// Returns the most tokens that are kept, with the timer slack.
    #[inline]
    fn most(&self) -> f64 {
        match self.refill {
            Refill::Continuous => self.burst + self.per_s * slack_s(self.per_s),
            Refill::Interval(_) => self.burst,
        }
    }

    /// Returns the tokens that are added at the end of each interval.
    fn per_interval(&self, period: Duration) -> f64 {
        (self.per_s * (micros(period) as f64 / 1e6)).min(self.burst)
    }

    /// Returns the tokens per second over whole intervals.
    fn mean(&self) -> f64 {
        match self.refill {
            Refill::Continuous => self.per_s,
            Refill::Interval(period) => self.per_interval(period) / (micros(period) as f64 / 1e6),
        }
    }

    /// Returns the time in which `tokens` are added, from the last count.
    fn time_for(&self, tokens: f64) -> Duration {
        match self.refill {
            Refill::Continuous => seconds(tokens / self.per_s),
            Refill::Interval(period) => {
                let periods = ((tokens - ROUNDING) / self.per_interval(period)).ceil();
                Duration::from_micros((periods * micros(period) as f64) as u64)
            }
        }
    }

    /// Returns the time between two departures at this rate.
    pub fn interval(&self) -> Duration {
        seconds(1.0 / self.per_s)
    }
}

/// A token bucket: 16 bytes. The caller keeps the [`Rate`]. Before it changes the rate, it calls
/// [`Pace::settle`] with the old one, or it calls [`Pace::change`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pace {
    tokens: f64,
    at: Timestamp,
}

impl Pace {
    /// Returns a full bucket.
    pub const fn full(now: Timestamp, rate: &Rate) -> Self {
        Self {
            tokens: rate.burst,
            at: now,
        }
    }

    /// Adds the tokens of the time since the last count.
    #[inline(always)]
    pub fn settle(&mut self, now: Timestamp, rate: &Rate) {
        let mut tokens = self.tokens;
        // Without this check, zero seconds at an infinite rate would give NaN.
        if now > self.at {
            let (came, at) = match rate.refill {
                Refill::Continuous => (rate.per_s * now.seconds_since(self.at), now),
                Refill::Interval(period) => whole_periods(self.at, now, *rate, period),
            };
            tokens += came;
            self.at = at;
        }
        self.tokens = lesser(tokens, rate.most());
    }

    /// Takes the timer slack back: the next gap is a whole interval.
    pub(crate) const fn forget_slack(&mut self, rate: &Rate) {
        self.tokens = self.tokens.min(rate.burst);
    }
    /// Replaces the rate `old` by `new`.
    ///
    /// Departures that were granted ahead keep their times, and the next departure comes after
    /// `newest`, the last of them. Any further debt is a number of tokens, and is paid at the new
    /// rate.
    #[inline]
    pub fn change(&mut self, now: Timestamp, old: &Rate, new: &Rate, newest: Timestamp) {
        if old != new {
            self.changed(now, old, new, newest);
        }
    }

    fn changed(&mut self, now: Timestamp, old: &Rate, new: &Rate, newest: Timestamp) {
        self.settle(now, old);
        let share = new.per_s / old.per_s;
        if self.tokens < 0.0 && share > 0.0 && share.is_finite() {
            let (before, after) = (old.mean(), new.mean());
            // No departure is further ahead in time than the whole debt takes to pay.
            let ahead_s = (newest.seconds_after(self.at).max(0.0)).min(-self.tokens / before);
            self.tokens += ahead_s * (before - after);
        } else if share.is_infinite() || share.is_nan() || !self.tokens.is_finite() {
            // At an infinite rate there is no debt, and a debt at a rate of zero has no length in
            // time.
            self.tokens = self.tokens.clamp(0.0, new.burst);
        }
        self.settle(now, new);
    }

    /// Takes `cost` tokens for a departure at `now + horizon` at the latest, and returns its start.
    /// If that is not possible, it takes nothing. A cost above the burst waits for a full bucket
    /// and leaves a debt.
    ///
    /// # Errors
    /// The time at which the same call will succeed if no other call takes tokens before it;
    /// [`Timestamp::NEVER`] at a rate of zero.
    #[inline]
    pub fn reserve(
        &mut self,
        now: Timestamp,
        rate: &Rate,
        cost: f64,
        horizon: Duration,
    ) -> Result<Timestamp, Timestamp> {
        let start = self.next_start(now, rate, cost);
        if start == Timestamp::NEVER {
            return Err(start);
        }
        // Most departures start now. The first comparison saves the addition for them.
        if start > now && start > now + horizon {
            return Err(start - horizon);
        }
        self.take(cost);
        Ok(start)
    }

    /// Takes one token for a departure at `now` and returns `true`, or changes nothing.
    ///
    /// It is [`Pace::reserve`] for one token without a horizon, from a bucket that is refilled
    /// continuously: `per_s` tokens per second, at most `burst`. It writes the state once, and only
    /// if it takes the token. A test of the host checks that both functions grant the same.
    #[inline(always)]
    pub(crate) fn take_one(&mut self, now: Timestamp, per_s: f64, burst: f64) -> bool {
        let (came, at) = if now > self.at {
            (per_s * now.seconds_after(self.at), now)
        } else {
            (0.0, self.at)
        };
        let tokens = lesser(self.tokens + came, burst + per_s * slack_s(per_s));
        if tokens < 1.0 - ROUNDING && per_s < f64::INFINITY {
            return false;
        }
        *self = Self {
            tokens: tokens - 1.0,
            at,
        };
        true
    }

    /// Takes `cost` tokens for a departure that the caller has found possible.
    #[inline(always)]
    pub(crate) fn take(&mut self, cost: f64) {
        self.tokens -= cost;
    }

    /// Returns when `cost` tokens are there: `now`, or later.
    #[inline]
    pub fn next_start(&mut self, now: Timestamp, rate: &Rate, cost: f64) -> Timestamp {
        self.settle(now, rate);
        let missing = lesser(cost, rate.burst) - self.tokens;
        if missing <= ROUNDING || rate.per_s == f64::INFINITY {
            return now;
        }
        self.when_there(now, rate, missing)
    }

    #[cold]
    fn when_there(&self, now: Timestamp, rate: &Rate, missing: f64) -> Timestamp {
        if rate.per_s <= 0.0 {
            return Timestamp::NEVER;
        }
        (self.at + rate.time_for(missing)).max(now)
    }

    /// Notes in the newest of the `leases`, which just took `cost` tokens, and in those before it
    /// how many tokens may return: as many as the bucket lacked at that departure.
    pub(crate) fn note_departure(&self, rate: &Rate, cost: f64, leases: &mut Leases) {
        let mut before = *self;
        before.tokens += cost;
        if let Some(newest) = leases.live().last() {
            before.settle(newest.start, rate);
        }
        leases.note_room(rate.burst - before.tokens, cost);
    }

    /// Returns the `cost` tokens of a departure that did not happen: all but those that would have
    /// overflowed the bucket without it.
    pub(crate) fn give_back(
        &mut self,
        now: Timestamp,
        rate: &Rate,
        cost: f64,
        cancelled: &Lease,
        leases: &mut Leases,
    ) {
        self.settle(now, rate);
        let returned = cost.min(rate.most() - self.tokens);
        let returned = leases.take_room(cancelled, returned);
        self.tokens = lesser(self.tokens + returned, rate.most());
    }

    /// Fills the bucket to the burst.
    pub fn fill(&mut self, now: Timestamp, rate: &Rate) {
        self.settle(now, rate);
        self.tokens = self.tokens.max(rate.burst);
    }

    /// Adds `cost` tokens, which a charge took before.
    pub fn put_back(&mut self, now: Timestamp, rate: &Rate, cost: f64) {
        self.settle(now, rate);
        self.tokens = (self.tokens + cost).min(rate.most());
    }

    /// Empties the bucket. The next token is there one interval after `newest`.
    pub fn empty(&mut self, now: Timestamp, newest: Timestamp, rate: &Rate) {
        self.settle(now, rate);
        let ahead = newest.max(now).micros_since(now) as f64 / 1e6;
        let debt = if rate.per_s.is_finite() {
            ahead * rate.per_s
        } else {
            0.0
        };
        self.tokens = self.tokens.min(-debt);
    }

    /// Takes `cost` tokens at once, even into debt. This is for costs that are known only
    /// afterwards, such as bytes.
    pub fn charge(&mut self, now: Timestamp, rate: &Rate, cost: f64) {
        self.settle(now, rate);
        self.tokens -= cost;
    }

    /// Moves times that lie in the future back to `now`, after a restart whose clock was set back.
    pub fn rebase(&mut self, now: Timestamp) {
        self.at = self.at.min(now);
    }

    /// Merges two buckets: the lower level counts. Both must be counted up to the same time and
    /// have the same rate from now on.
    pub(crate) fn join(&mut self, other: &Self) {
        self.tokens = self.tokens.min(other.tokens);
        self.at = self.at.max(other.at);
    }

    /// Returns when the tokens were last counted.
    pub const fn at(&self) -> Timestamp {
        self.at
    }

    /// Returns whether the bucket is full, as that of an idle key is.
    pub fn is_full(&mut self, now: Timestamp, rate: &Rate) -> bool {
        self.settle(now, rate);
        self.tokens >= rate.burst
    }

    /// Returns the tokens at the last count. Reservations make the number negative.
    pub const fn tokens(&self) -> f64 {
        self.tokens
    }
}

/// Returns how much later than its start a departure may be, including the delivery of the permit:
/// half an `interval`, at least 50 and at most 500 ms. A later departure would leave together with
/// the departures behind it.
pub fn grace(interval: Duration) -> Duration {
    (interval / 2).clamp(Duration::from_millis(50), Duration::from_millis(500))
}

/// Returns the tokens added since `at`, and when the last of them were added. All arguments are
/// passed by value: a reference would force every caller to write them to memory.
#[cold]
fn whole_periods(at: Timestamp, now: Timestamp, rate: Rate, period: Duration) -> (f64, Timestamp) {
    let periods = now.micros_since(at) / micros(period);
    let came = rate.per_interval(period) * periods as f64;
    (came, at + Duration::from_micros(periods * micros(period)))
}

/// Returns whole microseconds, rounded up, so that no departure is early.
fn seconds(secs: f64) -> Duration {
    Duration::from_micros((secs * 1e6 - ROUNDING).ceil() as u64)
}

fn micros(period: Duration) -> u64 {
    (period.as_micros() as u64).max(1)
}

/// Returns the smaller of `a` and `bound`; `bound` must not be NaN. This compiles to one
/// instruction. [`f64::min`] takes six, because there either argument may be NaN.
#[inline]
pub(crate) fn lesser(a: f64, bound: f64) -> f64 {
    if a < bound { a } else { bound }
}

#[cfg(test)]
#[path = "pace_tests.rs"]
mod tests;
