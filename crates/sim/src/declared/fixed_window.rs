//! Fixed windows as gateways count them: Envoy's rate limit service (`envoyproxy/ratelimit` at
//! 04f202f, `src/limiter/cache_key.go` and `src/utils/utilities.go`) and Kong's rate-limiting
//! plugin with its defaults.
//!
//! A counter belongs to a limit and to the start of its window: `now - now % seconds` by the
//! gateway's clock, in UTC. So a day begins at 00:00 UTC, whichever zone the limit names. A request
//! that exceeds no counter is counted in all of them. Tokens are counted after the answer, in the
//! window of the answer, as Kong's AI rate limiting and Envoy's AI gateway count them; a request
//! passes while a counter is below its limit.
//!
//! As a gateway it would answer 429 to the excess. A client waits instead until the window ends
//! (`CalculateReset`), and after a refusal of the server for its Retry-After.

use std::time::Duration;

use politely_core::budget::{DeclaredLimits, LimitUnit, LimitWindow};
use politely_core::{Rng, Timestamp};

use super::keeper::{Keeper, Reply};

const DAY_S: u64 = 86_400;

pub(super) struct FixedWindows {
    counters: Vec<Counter>,
}

struct Counter {
    quantity: u64,
    is_tokens: bool,
    seconds: u64,
    /// The start of the window that `count` belongs to.
    start_s: u64,
    count: u64,
}

/// Returns the start of the window and the seconds until its end.
const fn window(now_s: u64, seconds: u64) -> (u64, u64) {
    (now_s / seconds * seconds, seconds - now_s % seconds)
}

impl Counter {
    fn at(&mut self, now: Timestamp) -> &mut u64 {
        let (start_s, _) = window(now.as_micros() / 1_000_000, self.seconds);
        if start_s != self.start_s {
            (self.start_s, self.count) = (start_s, 0);
        }
        &mut self.count
    }
}

impl FixedWindows {
    pub(super) fn new(limits: &DeclaredLimits) -> Self {
        let counters = limits.windows().iter().map(|limit| Counter {
            quantity: limit.quantity(),
            is_tokens: matches!(limit.unit(), LimitUnit::Named(_)),
            seconds: match limit.window() {
                LimitWindow::Rolling(length) => length.as_secs(),
                _ => DAY_S,
            },
            start_s: 0,
            count: 0,
        });
        Self {
            counters: counters.collect(),
        }
    }
}

impl Keeper for FixedWindows {
    fn ask(&mut self, now: Timestamp, _: usize, _: u64) -> Result<u64, Timestamp> {
        let mut until_s = None;
        for counter in &mut self.counters {
            if *counter.at(now) >= counter.quantity {
                until_s = until_s.max(Some(counter.start_s + counter.seconds));
            }
        }
        if let Some(until_s) = until_s {
            return Err(Timestamp::from_micros(until_s * 1_000_000));
        }
        for counter in self
            .counters
            .iter_mut()
            .filter(|counter| !counter.is_tokens)
        {
            *counter.at(now) += 1;
        }
        Ok(0)
    }

    fn hear(&mut self, now: Timestamp, reply: &Reply, _: &mut Rng) -> Duration {
        for counter in self.counters.iter_mut().filter(|counter| counter.is_tokens) {
            *counter.at(now) += reply.tokens.unwrap_or(0);
        }
        reply.retry_after.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: f64) -> Timestamp {
        Timestamp::from_secs_f64(secs)
    }

    /// `TestGenerateCacheKeys` has the key `domain_key_value_1234` at 1234 s. The others are by
    /// hand from `UnitToDivider` and `CalculateReset`.
    #[test]
    fn the_windows_of_the_published_keys() {
        assert_eq!(window(1234, 1), (1234, 1));
        assert_eq!(window(1234, 60), (1200, 26));
        assert_eq!(window(1234, 3600), (0, 2366));
        assert_eq!(window(1234, DAY_S), (0, 85_166));
    }

    /// The known fault of fixed windows.
    #[test]
    fn twice_the_quantity_leaves_around_a_boundary() {
        let mut gateway = FixedWindows::new(&"10/s".parse().unwrap());
        let mut left = |secs| {
            (0..20)
                .filter(|_| gateway.ask(at(secs), 0, 0).is_ok())
                .count()
        };
        assert_eq!([left(1.999), left(2.0), left(2.999)], [10, 10, 0]);
        assert_eq!(gateway.ask(at(2.5), 0, 0), Err(at(3.0)));
    }

    #[test]
    fn tokens_count_after_the_answer() {
        let mut gateway = FixedWindows::new(&"100 tokens/min".parse().unwrap());
        assert!(gateway.ask(at(1.0), 0, 1_000).is_ok());
        assert!(gateway.ask(at(2.0), 0, 1_000).is_ok());
        let reply = Reply {
            ticket: 0,
            tokens: Some(100),
            retry_after: None,
            refusals: 0,
        };
        gateway.hear(at(3.0), &reply, &mut Rng::new(1));
        assert_eq!(gateway.ask(at(4.0), 0, 1), Err(at(60.0)));
    }
}
