//! The sliding counter: two fixed windows, the former one weighted by its part that is still in
//! view.
//!
//! Cloudflare's approximation ("How we built rate limiting capable of scaling to millions of
//! domains", 2017): with `e` of the window elapsed, `former x (1 - e) + current` must be below the
//! count. Exact in integers.

use std::time::Duration;

use politely_core::Timestamp;

use super::{Quota, Verdict};

/// About `count` requests in every window; at most `count` in an aligned one.
#[derive(Clone, Debug, PartialEq)]
pub struct SlidingCounter {
    count: u64,
    window: u64,
    /// The reading at time zero of the clock that separates windows.
    phase: u64,
    /// The start of the current window by that clock.
    start: u64,
    former: u64,
    current: u64,
}

impl SlidingCounter {
    /// Creates the limit; `window` is in microseconds. Windows begin at multiples of it by the
    /// clock.
    pub(super) const fn new(count: u64, window: u64) -> Self {
        Self {
            count,
            window,
            phase: 0,
            start: 0,
            former: 0,
            current: 0,
        }
    }

    /// Makes the clock read `phase` at time zero.
    pub(super) const fn shift(&mut self, phase: u64) {
        self.phase = phase % self.window;
    }

    const fn roll(&mut self, now: Timestamp) {
        let now = now.as_micros() + self.phase;
        let start = now - now % self.window;
        if start > self.start {
            self.former = if start - self.start == self.window {
                self.current
            } else {
                0
            };
            (self.start, self.current) = (start, 0);
        }
    }

    /// Returns how many microseconds before its window's end a request is first accepted with these
    /// counts; `None` if never in this window.
    fn opens_before_end(&self, former: u64, current: u64) -> Option<u64> {
        let room = self.count.checked_sub(current).filter(|&room| room > 0)?;
        if former == 0 {
            return Some(self.window);
        }
        // former x left / window < room, for the largest whole `left`.
        let left = (u128::from(room) * u128::from(self.window) - 1) / u128::from(former);
        Some(u64::try_from(left).unwrap_or(u64::MAX).min(self.window))
    }

    pub(super) fn check(&mut self, now: Timestamp) -> Verdict {
        self.roll(now);
        let end = self.start + self.window;
        let opens = if let Some(left) = self.opens_before_end(self.former, self.current) {
            end - left
        } else {
            // Full for the rest of this window, which is then the former one.
            let left = self.opens_before_end(self.current, 0).unwrap_or(0);
            end + self.window - left
        };
        let opens = Timestamp::from_micros(opens.saturating_sub(self.phase));
        if opens <= now {
            Verdict::NOW
        } else {
            Verdict::refuse_until(now, opens)
        }
    }

    pub(super) const fn take(&mut self) {
        self.current += 1;
    }

    pub(super) fn quota(&mut self, now: Timestamp) -> Quota {
        self.roll(now);
        let left = self.start + self.window - (now.as_micros() + self.phase);
        let weighted = u128::from(self.former) * u128::from(left) / u128::from(self.window);
        let used = u64::try_from(weighted)
            .unwrap_or(u64::MAX)
            .saturating_add(self.current);
        Quota {
            limit: self.count,
            remaining: self.count.saturating_sub(used),
            reset: Duration::from_micros(left),
            window: Duration::from_micros(self.window),
        }
    }
}
