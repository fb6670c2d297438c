//! Airbyte's moving window: `MovingWindowCallRatePolicy` of airbyte-cdk 7.39.1
//! (`sources/streams/call_rate.py`) over the `InMemoryBucket` of pyrate-limiter 3.1.1.
//!
//! The bucket keeps the time of every call in whole milliseconds. A call may leave if every rate
//! has fewer calls than its limit since `now - interval`, that moment included. Otherwise the
//! thread sleeps until the oldest call that is in its way is exactly one interval old, and asks
//! again. That call then still counts, so the next look is a millisecond later.
//!
//! A call has a weight that is fixed in the configuration. Tokens are known after the answer, so
//! they cannot be limited; the policy of such a provider has its requests alone. A calendar day is
//! a rate per 24 hours.
//!
//! After a 429, `HttpAPIBudget` fills the bucket up. `HttpClient` then sleeps 1 s, twice as long
//! after each further refusal of this call; its default reads no Retry-After.

use std::collections::VecDeque;
use std::time::Duration;

use politely_core::budget::{DeclaredLimits, LimitUnit, LimitWindow};
use politely_core::{Rng, Timestamp};

use super::keeper::{Keeper, Reply};

const DAY: Duration = Duration::from_hours(24);
/// Keeps the doubling in range.
const REFUSALS_MAX: u32 = 16;

pub(super) struct MovingWindow {
    /// Limits and intervals in milliseconds, the shortest first.
    rates: Vec<(usize, u64)>,
    /// Milliseconds.
    calls: VecDeque<u64>,
}

const fn millis(now: Timestamp) -> u64 {
    now.as_micros() / 1000
}

impl MovingWindow {
    pub(super) fn new(limits: &DeclaredLimits) -> Self {
        let requests = limits.windows().iter();
        let requests = requests.filter(|limit| limit.unit() == LimitUnit::Requests);
        let mut rates: Vec<_> = requests
            .map(|limit| {
                let interval = match limit.window() {
                    LimitWindow::Rolling(length) => *length,
                    _ => DAY,
                };
                (limit.quantity() as usize, interval.as_millis() as u64)
            })
            .collect();
        rates.sort_by_key(|(_, interval)| *interval);
        Self {
            rates,
            calls: VecDeque::new(),
        }
    }

    /// Returns how many calls more a rate allows.
    fn room(&self, now: u64, (limit, interval): (usize, u64)) -> usize {
        let first = self.calls.partition_point(|at| at + interval < now);
        limit.saturating_sub(self.calls.len() - first)
    }

    /// Leaves, or returns the wait in milliseconds.
    fn put(&mut self, now: u64) -> Result<(), u64> {
        let longest = self.rates.last().map_or(0, |(_, interval)| *interval);
        while self.calls.front().is_some_and(|at| at + longest < now) {
            self.calls.pop_front();
        }
        let full = self.rates.iter().find(|rate| self.room(now, **rate) == 0);
        if let Some((limit, interval)) = full {
            let oldest = self.calls[self.calls.len() - limit];
            return Err(oldest + interval - now);
        }
        self.calls.push_back(now);
        Ok(())
    }
}

impl Keeper for MovingWindow {
    fn ask(&mut self, now: Timestamp, _: usize, _: u64) -> Result<u64, Timestamp> {
        match self.put(millis(now)) {
            Ok(()) => Ok(0),
            Err(wait) => Err(now + Duration::from_millis(wait.max(1))),
        }
    }

    fn hear(&mut self, now: Timestamp, reply: &Reply, _: &mut Rng) -> Duration {
        if reply.tokens.is_some() {
            return Duration::ZERO;
        }
        let now = millis(now);
        let room = self.rates.iter().map(|rate| self.room(now, *rate)).min();
        self.calls.extend((0..room.unwrap_or(0)).map(|_| now));
        Duration::from_secs(1 << (reply.refusals - 1).min(REFUSALS_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_micros(ms * 1000)
    }

    /// Times of the published bucket with a virtual clock, for rates of 3 per 1 s and 5 per 2 s.
    #[test]
    fn the_times_of_the_published_bucket() {
        let mut policy = MovingWindow::new(&"3/s; 5/2s".parse().unwrap());
        let (mut now, mut left) = (0, Vec::new());
        while now < 9_000 {
            match policy.put(now) {
                Ok(()) => left.push(now),
                Err(wait) => now += wait.max(1),
            }
        }
        let published = [
            0, 0, 0, 1001, 1001, 2001, 2002, 2002, 3002, 3003, 4002, 4003, 4004, 5003, 5004, 6003,
            6004, 6005, 7004, 7005, 8004, 8005, 8006,
        ];
        assert_eq!(left, published);
    }

    /// `test_limit_rate` and `test_multiple_limit_rates` of the package.
    #[test]
    fn the_packages_own_tests() {
        let mut policy = MovingWindow::new(&"10/min".parse().unwrap());
        assert!((0..10).all(|_| policy.ask(at(1), 0, 0).is_ok()));
        assert_eq!(policy.ask(at(1), 0, 0), Err(at(60_001)));
        assert_eq!(policy.ask(at(501), 0, 0), Err(at(60_001)));
        let mut policy = MovingWindow::new(&"10/10min; 3/10s; 2/h".parse().unwrap());
        assert!((0..2).all(|_| policy.ask(at(1), 0, 0).is_ok()));
        assert_eq!(policy.ask(at(1), 0, 0), Err(at(3_600_001)));
    }

    #[test]
    fn a_refusal_fills_the_bucket_and_doubles_the_sleep() {
        let mut policy = MovingWindow::new(&"10/min".parse().unwrap());
        assert!(policy.ask(at(0), 0, 0).is_ok());
        let mut refused = |refusals| {
            let reply = Reply {
                ticket: 0,
                tokens: None,
                retry_after: Some(Duration::from_secs(7)),
                refusals,
            };
            policy.hear(at(1_000), &reply, &mut Rng::new(1))
        };
        assert_eq!(
            [refused(1), refused(2), refused(3)],
            [1, 2, 4].map(Duration::from_secs)
        );
        assert_eq!(policy.ask(at(2_000), 0, 0), Err(at(60_000)));
    }
}
