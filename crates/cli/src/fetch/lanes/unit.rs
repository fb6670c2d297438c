//! How many pages a lane takes out of the crawl at once: as many as leave in about a second.

use std::time::Duration;

use politely::core::Timestamp;

/// The first length of a unit, and the factor by which it grows and shrinks.
const LEN_MIN: u32 = 1;
const GROWTH: u32 = 4;
/// The time for which the pages of a unit should last.
const TIME: Duration = Duration::from_secs(1);
/// The length from which on a lane takes further pages before it has sent the last one.
const LEN_EARLY: u32 = 4;

/// The pages that a lane took last.
pub(super) struct Unit {
    len: u32,
    filled_at: Timestamp,
}

impl Default for Unit {
    fn default() -> Self {
        Self {
            len: LEN_MIN,
            filled_at: Timestamp::ZERO,
        }
    }
}

impl Unit {
    /// Returns how many pages to take at `now`, at most `most`.
    pub(super) fn next_len(&mut self, now: Timestamp, most: u32) -> u32 {
        let lasted = now.since(self.filled_at);
        if lasted < TIME / 2 {
            self.len *= GROWTH;
        } else if lasted > TIME * 2 {
            self.len /= GROWTH;
        }
        self.len = self.len.clamp(LEN_MIN, most);
        self.filled_at = now;
        self.len
    }

    /// Returns whether further pages should be taken while `left` of the unit are left.
    pub(super) fn is_low(&self, left: usize) -> bool {
        self.len >= LEN_EARLY && left as u32 <= self.len / 2
    }
}
