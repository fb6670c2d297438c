//! How often: a token bucket, refilled when somebody looks.
//!
//! The bucket is two numbers (tokens, and when they were counted), so an idle key costs nothing and
//! a clock that stands still, jumps or steps back does no harm: elapsed time is clamped at zero and
//! the level at the burst. Tokens may go below zero: that is a *reservation*, the departure slot of
//! somebody who will leave later. A hundred waiters get a hundred different start times from a
//! hundred calls.
//!
//! A leaky bucket is the same bucket with a burst of one.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// Two sums of the same refills may differ in the last bits; a token short by this much is a token.
const ROUNDING: f64 = 1e-9;
/// Timers wake late by a millisecond or so. What flows in during this long is kept beyond the
/// burst, so that a late departure does not delay all that follow: the rate holds, a gap may be
/// this much shorter.
const TIMER_SLACK_S: f64 = 0.002;

/// How a bucket is refilled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub enum Refill {
    /// Little by little, all the time.
    #[default]
    Continuous,
    /// At once every so often (counted from the bucket's first use): what the rate yields in that
    /// time, at most the burst. Two bursts may meet where one interval ends and the next begins, as
    /// with every fixed window.
    Interval(Duration),
}

/// What a bucket holds and how fast it fills.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    /// Tokens per second; fractions are fine, zero never refills, infinity never empties.
    pub per_s: f64,
    /// Most tokens kept, at least one: how many may leave back to back after a rest.
    pub burst: f64,
    /// When they come.
    pub refill: Refill,
}

impl Rate {
    /// `per_s` tokens per second and no burst.
    pub const fn per_second(per_s: f64) -> Self {
        Self {
            per_s,
            burst: 1.0,
            refill: Refill::Continuous,
        }
    }

    /// The most tokens that are kept.
    #[inline]
    fn most(&self) -> f64 {
        match self.refill {
            Refill::Continuous => self.burst + self.per_s * TIMER_SLACK_S,
            Refill::Interval(_) => self.burst,
        }
    }

    /// What flows in at the end of each interval.
    fn per_interval(&self, period: Duration) -> f64 {
        (self.per_s * (micros(period) as f64 / 1e6)).min(self.burst)
    }

    /// Tokens per second over whole intervals.
    fn mean(&self) -> f64 {
        match self.refill {
            Refill::Continuous => self.per_s,
            Refill::Interval(period) => self.per_interval(period) / (micros(period) as f64 / 1e6),
        }
    }

    /// How long `tokens` take to flow in, from the last count.
    fn time_for(&self, tokens: f64) -> Duration {
        match self.refill {
            Refill::Continuous => seconds(tokens / self.per_s),
            Refill::Interval(period) => {
                let periods = ((tokens - ROUNDING) / self.per_interval(period)).ceil();
                Duration::from_micros((periods * micros(period) as f64) as u64)
            }
        }
    }

    /// Time between two departures at this rate.
    pub fn interval(&self) -> Duration {
        seconds(1.0 / self.per_s)
    }
}

/// A token bucket: 24 bytes. The [`Rate`] is the caller's and may change between calls; call
/// [`Pace::settle`] with the old one first.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pace {
    tokens: f64,
    at: Timestamp,
    /// The start of the newest departure: the only one that can be given back.
    newest: Timestamp,
}

impl Pace {
    /// A full bucket.
    pub const fn full(now: Timestamp, rate: &Rate) -> Self {
        Self {
            tokens: rate.burst,
            at: now,
            newest: now,
        }
    }

    /// Counts what has flowed in since the last look.
    #[inline(always)]
    pub fn settle(&mut self, now: Timestamp, rate: &Rate) {
        let mut tokens = self.tokens;
        // Zero times infinity is not a number.
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

    /// Goes on at `new` instead of `old`.
    ///
    /// Departures that were handed out ahead keep their times, and the next one comes after the
    /// last of them. All further debt is a number of tokens, and is paid at the new rate.
    #[inline]
    pub fn change(&mut self, now: Timestamp, old: &Rate, new: &Rate) {
        if old != new {
            self.changed(now, old, new);
        }
    }

    fn changed(&mut self, now: Timestamp, old: &Rate, new: &Rate) {
        self.settle(now, old);
        let share = new.per_s / old.per_s;
        if self.tokens < 0.0 && share > 0.0 && share.is_finite() {
            let (before, after) = (old.mean(), new.mean());
            // No departure is further ahead in time than the whole debt is long.
            let ahead_s = (self.newest.seconds_after(self.at).max(0.0)).min(-self.tokens / before);
            self.tokens += ahead_s * (before - after);
        } else if share.is_infinite() || share.is_nan() || !self.tokens.is_finite() {
            // From or to a rate without end, or from one of zero: nothing can be owed.
            self.tokens = self.tokens.clamp(0.0, new.burst);
        }
        self.settle(now, new);
    }

    /// Takes `cost` tokens for a departure no later than `now + horizon` and answers its start;
    /// otherwise takes nothing and answers when to ask again. A cost above the burst waits for a
    /// full bucket and leaves a debt.
    ///
    /// # Errors
    /// The time at which the same call will succeed, if nobody else calls in between;
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
        // Most leave now, and need no sum.
        if start > now && start > now + horizon {
            return Err(start - horizon);
        }
        self.take(start, cost);
        Ok(start)
    }

    /// [`Pace::reserve`] of one token for `now` or not at all, out of a bucket that is refilled
    /// continuously: `per_s` tokens per second, at most `burst`. Written once, and nothing if it is
    /// not there; that both grant the same is a test of the host's.
    #[inline(always)]
    pub(crate) fn take_one(&mut self, now: Timestamp, per_s: f64, burst: f64) -> bool {
        let (came, at) = if now > self.at {
            (per_s * now.seconds_after(self.at), now)
        } else {
            (0.0, self.at)
        };
        let tokens = lesser(self.tokens + came, burst + per_s * TIMER_SLACK_S);
        if tokens < 1.0 - ROUNDING && per_s < f64::INFINITY {
            return false;
        }
        *self = Self {
            tokens: tokens - 1.0,
            at,
            newest: now,
        };
        true
    }

    #[inline(always)]
    fn take(&mut self, start: Timestamp, cost: f64) {
        self.tokens -= cost;
        self.newest = start;
    }

    /// When `cost` tokens will next be there: `now`, or later.
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

    /// Gives back `cost` tokens taken for a departure at `start` that did not happen, if it is the
    /// newest.
    ///
    /// An older one is lost: those behind a reservation have their times already, and a bucket that
    /// was nearly full would have overflowed without it, so that its token is nobody's to give.
    /// Says whether it is.
    pub fn give_back(&mut self, now: Timestamp, rate: &Rate, cost: f64, start: Timestamp) -> bool {
        let newest = start == self.newest;
        if newest {
            self.put_back(now, rate, cost);
        }
        newest
    }

    /// Fills the bucket to the burst.
    pub fn fill(&mut self, now: Timestamp, rate: &Rate) {
        self.settle(now, rate);
        self.tokens = self.tokens.max(rate.burst);
    }

    /// Takes a charge back.
    pub fn put_back(&mut self, now: Timestamp, rate: &Rate, cost: f64) {
        self.settle(now, rate);
        self.tokens = (self.tokens + cost).min(rate.most());
    }

    /// Takes one more token for a departure at `start`, right behind one just reserved.
    pub fn follow(&mut self, start: Timestamp) {
        self.tokens -= 1.0;
        self.newest = start;
    }

    /// Nothing is left, and the next token is whole one interval after `newest`.
    pub fn empty(&mut self, now: Timestamp, newest: Timestamp, rate: &Rate) {
        self.settle(now, rate);
        let ahead = newest.max(now).micros_since(now) as f64 / 1e6;
        let debt = if rate.per_s.is_finite() {
            ahead * rate.per_s
        } else {
            0.0
        };
        self.tokens = self.tokens.min(-debt);
        self.newest = self.newest.max(newest);
    }

    /// Takes `cost` tokens at once, into debt if need be: for costs known only afterwards (bytes).
    pub fn charge(&mut self, now: Timestamp, rate: &Rate, cost: f64) {
        self.settle(now, rate);
        self.tokens -= cost;
    }

    /// After a restart with a clock that was set back: what was counted in the future is counted
    /// now.
    pub fn rebase(&mut self, now: Timestamp) {
        let set_back = self.at.since(now);
        self.at = self.at - set_back;
        self.newest = self.newest - set_back;
    }

    /// The emptier of two that were counted at the same time and fill at the same rate from here
    /// on.
    pub(crate) fn join(&mut self, other: &Self) {
        self.tokens = self.tokens.min(other.tokens);
        self.at = self.at.max(other.at);
        self.newest = self.newest.max(other.newest);
    }

    /// When it was last counted.
    pub const fn at(&self) -> Timestamp {
        self.at
    }

    /// Nothing is missing: an idle key.
    pub fn is_full(&mut self, now: Timestamp, rate: &Rate) -> bool {
        self.settle(now, rate);
        self.tokens >= rate.burst
    }

    /// Tokens at the last look; below zero by what is reserved.
    pub const fn tokens(&self) -> f64 {
        self.tokens
    }
}

/// How much later than its start a departure may be, its delivery included: half an `interval`,
/// from 50 to 500 ms. What is later would leave with those behind it.
pub fn grace(interval: Duration) -> Duration {
    (interval / 2).clamp(Duration::from_millis(50), Duration::from_millis(500))
}

/// What flowed in since `at`, and when the last of it did. All by value: a reference would have
/// every call write to memory, for this.
#[cold]
fn whole_periods(at: Timestamp, now: Timestamp, rate: Rate, period: Duration) -> (f64, Timestamp) {
    let periods = now.micros_since(at) / micros(period);
    let came = rate.per_interval(period) * periods as f64;
    (came, at + Duration::from_micros(periods * micros(period)))
}

/// Whole microseconds, rounded up: a slot is never early.
fn seconds(secs: f64) -> Duration {
    Duration::from_micros((secs * 1e6 - ROUNDING).ceil() as u64)
}

fn micros(period: Duration) -> u64 {
    (period.as_micros() as u64).max(1)
}

/// [`f64::min`] of a number and a bound that is one: an instruction, where it takes six if either
/// may be none.
#[inline]
pub(crate) fn lesser(a: f64, bound: f64) -> f64 {
    if a < bound { a } else { bound }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(secs: f64) -> Timestamp {
        Timestamp::from_secs_f64(secs)
    }

    const NOW: Duration = Duration::ZERO;
    const FAR: Duration = Duration::from_secs(1_000_000);

    #[test]
    fn a_burst_then_the_rate() {
        let rate = Rate {
            per_s: 2.0,
            burst: 3.0,
            refill: Refill::Continuous,
        };
        let mut pace = Pace::full(at(0.0), &rate);
        let starts: Vec<f64> = (0..6)
            .map(|_| {
                pace.reserve(at(0.0), &rate, 1.0, FAR)
                    .unwrap()
                    .as_secs_f64()
            })
            .collect();
        assert_eq!(starts, [0.0, 0.0, 0.0, 0.5, 1.0, 1.5]);
    }

    #[test]
    fn without_a_horizon_the_answer_says_when_and_takes_nothing() {
        let rate = Rate::per_second(0.4);
        let mut pace = Pace::full(at(0.0), &rate);
        assert_eq!(pace.reserve(at(0.0), &rate, 1.0, NOW), Ok(at(0.0)));
        for _ in 0..3 {
            assert_eq!(pace.reserve(at(0.0), &rate, 1.0, NOW), Err(at(2.5)));
        }
        assert_eq!(pace.reserve(at(2.5), &rate, 1.0, NOW), Ok(at(2.5)));
    }

    #[test]
    fn intervals_refill_at_once() {
        let rate = Rate {
            per_s: 2.0,
            burst: 4.0,
            refill: Refill::Interval(Duration::from_secs(2)),
        };
        let mut pace = Pace::full(at(0.0), &rate);
        let starts: Vec<f64> = (0..9)
            .map(|_| {
                pace.reserve(at(0.5), &rate, 1.0, FAR)
                    .unwrap()
                    .as_secs_f64()
            })
            .collect();
        assert_eq!(starts, [0.5, 0.5, 0.5, 0.5, 2.0, 2.0, 2.0, 2.0, 4.0]);
    }

    /// Before this, half of a rate whose intervals brought no more than the burst halved what was
    /// owed.
    #[test]
    fn a_debt_by_intervals_is_as_long_as_it_was() {
        let rate = |per_s| Rate {
            per_s,
            burst: 2.0,
            refill: Refill::Interval(Duration::from_secs(1)),
        };
        let mut pace = Pace::full(at(0.0), &rate(8.0));
        (0..12).for_each(|_| _ = pace.reserve(at(0.0), &rate(8.0), 1.0, FAR));
        let next = pace.next_start(at(0.0), &rate(8.0), 1.0);
        pace.change(at(0.0), &rate(8.0), &rate(4.0));
        assert_eq!(pace.next_start(at(0.0), &rate(4.0), 1.0), next);
        pace.change(at(0.0), &rate(4.0), &rate(1.0));
        assert!(pace.next_start(at(0.0), &rate(1.0), 1.0) >= next);
    }

    #[test]
    fn joined_buckets_fill_no_sooner_than_either() {
        let rate = Rate {
            per_s: 1.0,
            burst: 4.0,
            refill: Refill::Interval(Duration::from_secs(4)),
        };
        let [mut early, mut late] = [0.0, 3.0].map(|secs| Pace::full(at(secs), &rate));
        (0..4).for_each(|_| early.follow(at(3.0)));
        late.follow(at(3.5));
        let mut joined = early;
        joined.join(&late);
        late.join(&early);
        assert_eq!(joined, late, "in either order");
        assert_eq!(joined.next_start(at(3.5), &rate, 1.0), at(7.0));
        joined.give_back(at(3.5), &rate, 1.0, at(3.0));
        assert_eq!(joined.next_start(at(3.5), &rate, 1.0), at(7.0));
    }

    #[test]
    fn idle_time_accrues_no_more_than_the_burst() {
        let rate = Rate {
            per_s: 10.0,
            burst: 2.0,
            refill: Refill::Continuous,
        };
        let mut pace = Pace::full(at(0.0), &rate);
        pace.settle(at(1e6), &rate);
        assert!((pace.tokens() - 2.0 - 10.0 * TIMER_SLACK_S).abs() < 1e-12);
    }

    #[test]
    fn zero_never_and_infinity_always() {
        let never = Rate::per_second(0.0);
        let mut pace = Pace::full(at(0.0), &never);
        assert!(pace.reserve(at(0.0), &never, 1.0, FAR).is_ok());
        assert_eq!(
            pace.reserve(at(9.0), &never, 1.0, FAR),
            Err(Timestamp::NEVER)
        );
        let always = Rate::per_second(f64::INFINITY);
        let mut pace = Pace::full(at(0.0), &always);
        for _ in 0..1000 {
            assert_eq!(pace.reserve(at(1.0), &always, 1.0, NOW), Ok(at(1.0)));
        }
    }

    #[test]
    fn a_clock_that_steps_back_neither_panics_nor_admits() {
        let rate = Rate::per_second(1.0);
        let mut pace = Pace::full(at(100.0), &rate);
        assert!(pace.reserve(at(100.0), &rate, 1.0, NOW).is_ok());
        assert_eq!(pace.reserve(at(50.0), &rate, 1.0, NOW), Err(at(101.0)));
    }

    #[test]
    fn a_slot_given_back_is_there_again() {
        let rate = Rate::per_second(1.0);
        let mut pace = Pace::full(at(0.0), &rate);
        let start = pace.reserve(at(0.0), &rate, 1.0, NOW).unwrap();
        pace.give_back(at(0.1), &rate, 1.0, start);
        assert_eq!(pace.reserve(at(0.1), &rate, 1.0, NOW), Ok(at(0.1)));
    }

    #[test]
    fn an_older_slot_is_lost_rather_than_given_twice() {
        let rate = Rate::per_second(1.0);
        let mut pace = Pace::full(at(0.0), &rate);
        let starts: Vec<_> = (0..4)
            .map(|_| pace.reserve(at(0.0), &rate, 1.0, FAR).unwrap())
            .collect();
        pace.give_back(at(0.0), &rate, 1.0, starts[2]);
        assert_eq!(pace.reserve(at(0.0), &rate, 1.0, FAR), Ok(at(4.0)));
        pace.give_back(at(0.0), &rate, 1.0, at(4.0));
        assert_eq!(pace.reserve(at(0.0), &rate, 1.0, FAR), Ok(at(4.0)));
    }

    /// Before this, the second burst was given on top of what had flowed in meanwhile.
    #[test]
    fn a_token_that_would_have_overflowed_is_nobodys() {
        let rate = Rate {
            per_s: 1.0,
            burst: 6.0,
            refill: Refill::Continuous,
        };
        let mut pace = Pace::full(at(0.0), &rate);
        let first = pace.reserve(at(0.0), &rate, 1.0, NOW).unwrap();
        for _ in 0..5 {
            pace.reserve(at(0.9), &rate, 1.0, NOW).unwrap();
        }
        pace.give_back(at(0.9), &rate, 1.0, first);
        assert!(pace.reserve(at(0.9), &rate, 1.0, NOW).is_err());
    }

    #[derive(Clone, Debug)]
    enum Step {
        Wait(u64),
        Ask { cost: u8, horizon_ms: u64 },
        GiveBack(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            (0_u64..3_000_000).prop_map(Step::Wait),
            (1_u8..3, 0_u64..4_000).prop_map(|(cost, horizon_ms)| Step::Ask { cost, horizon_ms }),
            (0_usize..8).prop_map(Step::GiveBack),
        ];
        prop::collection::vec(step, 1..120)
    }

    proptest! {
        /// P1 for one bucket: what really leaves never exceeds burst + rate x W in any window,
        /// whatever is reserved ahead, given back or asked at odd times.
        #[test]
        fn no_window_sees_more_than_burst_plus_rate(
            per_s in 0.05_f64..500.0, burst in 1_u8..20, steps in steps(),
        ) {
            let rate = Rate { per_s, burst: f64::from(burst), refill: Refill::Continuous };
            let mut now = Timestamp::from_micros(1);
            let mut pace = Pace::full(now, &rate);
            let mut taken: Vec<(Timestamp, u8)> = Vec::new();
            for step in steps {
                match step {
                    Step::Wait(micros) => now = now + Duration::from_micros(micros),
                    Step::Ask { cost, horizon_ms } => {
                        let cost = cost.min(burst);
                        let horizon = Duration::from_millis(horizon_ms);
                        if let Ok(start) = pace.reserve(now, &rate, f64::from(cost), horizon) {
                            prop_assert!(start >= now && start <= now + horizon);
                            taken.push((start, cost));
                        }
                    }
                    Step::GiveBack(which) => {
                        if which < taken.len() {
                            let (start, cost) = taken.remove(taken.len() - 1 - which);
                            // A departure that has happened cannot be undone; its holder would not
                            // try.
                            pace.give_back(now, &rate, f64::from(cost), start);
                        }
                    }
                }
            }
            taken.sort_unstable();
            for (i, (from, _)) in taken.iter().enumerate() {
                let mut sum = 0.0;
                for (to, cost) in &taken[i..] {
                    sum += f64::from(*cost);
                    let window = to.since(*from).as_secs_f64() + TIMER_SLACK_S;
                    let allowed = rate.burst + rate.per_s * window;
                    prop_assert!(sum <= allowed + 1e-3, "{sum} left in a window that allows {allowed}");
                }
            }
        }
    }
}
