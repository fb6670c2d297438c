//! The common parts of many rivals: departures at a rate, a token bucket, calls that sleep between
//! attempts.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use politely_core::Timestamp;

use crate::client::Answer;

/// `secs` as a span of whole microseconds, rounded up; negative and NaN become zero.
pub(super) fn secs(secs: f64) -> Duration {
    Duration::from_micros((secs * 1e6).ceil() as u64)
}

/// Evenly spaced departures; unused time is lost.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    next: Timestamp,
}

impl Pace {
    /// Takes the next departure if it is due. `rate` in requests per second.
    pub(super) fn ask(&mut self, now: Timestamp, rate: f64) -> Answer {
        if now < self.next {
            return Answer::At(self.next);
        }
        self.next = now + secs(1.0 / rate);
        Answer::Go(0)
    }
}

/// The tolerance for rounding: a bucket this close to a whole token has a whole token.
const WHOLE: f64 = 1.0 - 1e-9;

/// A token bucket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bucket {
    pub(super) tokens: f64,
    pub(super) capacity: f64,
    /// Tokens per second.
    pub(super) rate: f64,
    at: Timestamp,
}

impl Bucket {
    pub(super) const fn new(rate: f64, capacity: f64, tokens: f64) -> Self {
        Self {
            tokens,
            capacity,
            rate,
            at: Timestamp::ZERO,
        }
    }

    /// Refills at the current rate.
    pub(super) fn refill(&mut self, now: Timestamp) {
        let elapsed = now.since(self.at).as_secs_f64();
        self.tokens = self.capacity.min(self.tokens + elapsed * self.rate);
        self.at = now;
    }

    /// Takes one token, or returns the time until there is one.
    pub(super) fn take(&mut self, now: Timestamp) -> Result<(), Duration> {
        self.refill(now);
        if self.tokens < WHOLE {
            return Err(secs((1.0 - self.tokens) / self.rate));
        }
        self.tokens = (self.tokens - 1.0).max(0.0);
        Ok(())
    }
}

/// Calls that sleep before their next attempt, each with a number that its owner chooses.
///
/// A page that slept goes before new ones when it wakes, so it gets the next departure.
#[derive(Clone, Debug, Default)]
pub(super) struct Sleepers(BinaryHeap<Reverse<(Timestamp, u64)>>);

impl Sleepers {
    pub(super) fn sleep(&mut self, until: Timestamp, memory: u64) {
        self.0.push(Reverse((until, memory)));
    }

    /// Returns a call that has woken, and keeps it.
    pub(super) fn woken(&self, now: Timestamp) -> Option<u64> {
        let &Reverse((until, memory)) = self.0.peek()?;
        (until <= now).then_some(memory)
    }

    /// Removes and returns a call that has woken.
    pub(super) fn wake(&mut self, now: Timestamp) -> Option<u64> {
        let memory = self.woken(now)?;
        self.0.pop();
        Some(memory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn departures_are_spaced_and_unused_time_is_lost() {
        let mut pace = Pace::default();
        let at = Timestamp::from_secs_f64;
        assert_eq!(pace.ask(at(1.0), 4.0), Answer::Go(0));
        assert_eq!(pace.ask(at(1.1), 4.0), Answer::At(at(1.25)));
        assert_eq!(pace.ask(at(9.0), 4.0), Answer::Go(0));
        assert_eq!(pace.ask(at(9.0), 4.0), Answer::At(at(9.25)));
    }

    #[test]
    fn a_bucket_fills_to_its_capacity_and_says_when_the_next_token_is_there() {
        let mut bucket = Bucket::new(2.0, 3.0, 0.0);
        let at = Timestamp::from_secs_f64;
        for _ in 0..3 {
            assert_eq!(bucket.take(at(100.0)), Ok(()));
        }
        assert_eq!(bucket.take(at(100.0)), Err(secs(0.5)));
        assert_eq!(bucket.take(at(100.5)), Ok(()));
    }

    #[test]
    fn sleepers_wake_in_order_of_time() {
        let mut sleepers = Sleepers::default();
        let at = Timestamp::from_micros;
        sleepers.sleep(at(30), 3);
        sleepers.sleep(at(10), 1);
        assert_eq!(sleepers.wake(at(9)), None);
        assert_eq!(sleepers.wake(at(20)), Some(1));
        assert_eq!(sleepers.wake(at(20)), None);
        assert_eq!(sleepers.wake(at(30)), Some(3));
    }
}
