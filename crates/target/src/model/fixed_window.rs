//! The fixed window: a counter that begins again at intervals.
//!
//! Aligned windows start at multiples of the window (Flask-Limiter's default, GitHub). First-hit
//! windows start with the first request after the last one ended (express-rate-limit, a Redis
//! `INCR` with `EXPIRE`). Both let twice the count through around a boundary, so a client must not
//! use count / window as a rate.

use std::time::Duration;

use politely_core::Timestamp;

use super::{Quota, Verdict};

/// At most `count` requests per window.
#[derive(Clone, Debug, PartialEq)]
pub struct FixedWindow {
    count: u64,
    window: u64,
    aligned: bool,
    /// The reading of the clock of aligned windows at time zero.
    phase: u64,
    /// The start of the current window by that clock.
    start: u64,
    used: u64,
}

impl FixedWindow {
    /// Creates the limit; `window` is in microseconds.
    pub(super) const fn new(count: u64, window: u64, aligned: bool) -> Self {
        Self {
            count,
            window,
            aligned,
            phase: 0,
            start: 0,
            used: 0,
        }
    }

    /// Clears the count if its window is over. A first-hit window without requests has not begun.
    fn roll(&mut self, now: Timestamp) {
        let now = now.as_micros() + self.phase;
        if self.aligned {
            let start = now - now % self.window;
            if start > self.start {
                (self.start, self.used) = (start, 0);
            }
        } else if now >= self.start.saturating_add(self.window) {
            self.used = 0;
        }
    }

    /// Makes the clock of aligned windows read `phase` at time zero.
    pub(super) const fn shift(&mut self, phase: u64) {
        if self.aligned {
            self.phase = phase % self.window;
        }
    }

    fn end(&self) -> Timestamp {
        Timestamp::from_micros(self.start.saturating_add(self.window) - self.phase)
    }

    pub(super) fn check(&mut self, now: Timestamp) -> Verdict {
        self.roll(now);
        if self.used < self.count {
            Verdict::NOW
        } else {
            Verdict::refuse_until(now, self.end())
        }
    }

    pub(super) const fn take(&mut self, now: Timestamp) {
        if self.used == 0 && !self.aligned {
            self.start = now.as_micros();
        }
        self.used += 1;
    }

    pub(super) fn quota(&mut self, now: Timestamp) -> Quota {
        self.roll(now);
        let begun = self.aligned || self.used > 0;
        Quota {
            limit: self.count,
            remaining: self.count - self.used,
            reset: if begun {
                self.end().since(now)
            } else {
                Duration::ZERO
            },
            window: Duration::from_micros(self.window),
        }
    }
}
