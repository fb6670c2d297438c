//! The token bucket: a request takes a token, and tokens return continuously up to the burst.

use std::time::Duration;

use politely_core::Timestamp;

use super::{Quota, Verdict, steps_to_reach};

/// A token in the bucket's unit. A rate with up to six decimals is a whole number of these units
/// per microsecond, so refilling is exact and no error accumulates over days.
const TOKEN: u64 = 1_000_000_000_000;

/// At most `burst + rate x W` requests in every window W. Starts full.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenBucket {
    /// Units per microsecond, which is microtokens per second.
    refill: u64,
    capacity: u64,
    level: u64,
    refilled: Timestamp,
}

impl TokenBucket {
    /// Creates the limit. `rate_micro`: tokens per second, times a million, at least 1. `burst`:
    /// tokens, 1 to 10 million.
    pub(super) const fn new(rate_micro: u64, burst: u32) -> Self {
        let capacity = burst as u64 * TOKEN;
        Self {
            refill: rate_micro,
            capacity,
            level: capacity,
            refilled: Timestamp::ZERO,
        }
    }

    fn refill(&mut self, now: Timestamp) {
        let gained = now.micros_since(self.refilled).saturating_mul(self.refill);
        self.level = self.level.saturating_add(gained).min(self.capacity);
        self.refilled = self.refilled.max(now);
    }

    /// Sets another rate from `now` on; the tokens stay.
    pub(super) fn set_rate(&mut self, now: Timestamp, rate_micro: u64) {
        self.refill(now);
        self.refill = rate_micro;
    }

    pub(super) fn check(&mut self, now: Timestamp) -> Verdict {
        self.refill(now);
        if self.level >= TOKEN {
            return Verdict::NOW;
        }
        let wait = steps_to_reach(TOKEN - self.level, self.refill);
        Verdict::Refuse {
            retry_after: Some(Duration::from_micros(wait)),
        }
    }

    pub(super) const fn take(&mut self) {
        self.level = self.level.saturating_sub(TOKEN);
    }

    pub(super) fn quota(&mut self, now: Timestamp) -> Quota {
        self.refill(now);
        // Headers count whole requests and seconds, so the window is long enough to express the
        // rate within 5 %.
        let fill = steps_to_reach(self.capacity.max(20 * TOKEN), self.refill).max(1_000_000);
        let fill = fill.next_multiple_of(1_000_000);
        let per_window =
            u64::try_from(u128::from(fill) * u128::from(self.refill) / u128::from(TOKEN));
        Quota {
            limit: per_window.unwrap_or(u64::MAX).max(self.capacity / TOKEN),
            remaining: self.level / TOKEN,
            reset: Duration::from_micros(steps_to_reach(self.capacity - self.level, self.refill)),
            window: Duration::from_micros(fill),
        }
    }
}
