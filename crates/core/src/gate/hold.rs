//! The time before which nothing leaves for a key.
//!
//! There may be several reasons for a hold; the latest end counts. A later reason extends a hold
//! and never shortens it. Only an operator lifts it.

use std::cmp::Reverse;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Rng, Timestamp, join};

/// The reason for a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum HoldReason {
    /// The server sent Retry-After.
    RetryAfter,
    /// The server's quota is spent until it resets (`RateLimit`, X-RateLimit-*).
    QuotaSpent,
    /// The server refused a request and named no time. The hold is this key's own exponential
    /// backoff.
    Backoff,
    /// The Crawl-delay of robots.txt, counted from the end of the last request.
    CrawlDelay,
    /// An operator set it.
    Operator,
}

impl HoldReason {
    /// Returns the reason as a log line shows it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RetryAfter => "Retry-After",
            Self::QuotaSpent => "quota spent",
            Self::Backoff => "backoff",
            Self::CrawlDelay => "Crawl-delay",
            Self::Operator => "operator",
        }
    }
}

/// A time before which nothing leaves, and the reason: 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    until: Timestamp,
    /// The length at the time the hold was set. [`u32::MAX`] stands for an endless hold.
    length_ms: u32,
    reason: HoldReason,
}

impl Default for Hold {
    fn default() -> Self {
        Self {
            until: Timestamp::ZERO,
            length_ms: 0,
            reason: HoldReason::Operator,
        }
    }
}

impl Hold {
    /// Holds until `until`, unless the present hold is longer. Returns whether the hold changed.
    pub fn extend(&mut self, now: Timestamp, until: Timestamp, reason: HoldReason) -> bool {
        let longer = until > self.until && until > now;
        if longer {
            let length_ms = u32::try_from(until.since(now).as_millis()).unwrap_or(u32::MAX);
            *self = Self {
                until,
                length_ms,
                reason,
            };
        }
        longer
    }

    /// Returns when a backoff that would end at `until` ends: later if another one ended less than
    /// twice its length ago, and with the one in force.
    pub(crate) fn backed_off(&self, now: Timestamp, until: Timestamp) -> Timestamp {
        let twice = self.length().saturating_mul(2);
        if self.reason != HoldReason::Backoff || now >= self.until + twice {
            until
        } else if self.until > now {
            self.until
        } else {
            until.max(now + twice.min(BACKOFF_MAX))
        }
    }

    /// Records that nothing could leave until `now`, because the answer of a canary was awaited.
    pub(crate) fn lasted(&mut self, now: Timestamp) {
        self.until = self.until.max(now);
    }

    /// Lifts the hold, as an operator asks.
    pub fn lift(&mut self) {
        *self = Self::default();
    }

    /// Lifts the hold if `lifts` is true for its reason.
    pub fn lift_if(&mut self, lifts: impl FnOnce(HoldReason) -> bool) {
        if lifts(self.reason) {
            self.lift();
        }
    }

    /// Returns the end, the whole length and the reason of the hold in force at `now`.
    #[inline]
    pub fn active(&self, now: Timestamp) -> Option<(Timestamp, Duration, HoldReason)> {
        (self.until > now).then(|| (self.until, self.length(), self.reason))
    }

    /// Returns when the hold ends or ended.
    #[inline]
    pub const fn until(&self) -> Timestamp {
        self.until
    }

    /// Bounds the hold by its own length after a restart, because the clock may have jumped.
    pub fn rebase(&mut self, now: Timestamp) {
        self.until = self
            .until
            .min(now + self.length() + Duration::from_millis(1));
    }

    /// Merges two holds: the later one counts.
    pub(crate) fn join(&mut self, other: &Self) {
        join::least(self, other, |hold| Reverse((hold.until, hold.length_ms)));
    }

    fn length(&self) -> Duration {
        match self.length_ms {
            u32::MAX => Duration::MAX,
            ms => Duration::from_millis(u64::from(ms)),
        }
    }
}

/// The longest backoff of a key that no outcome is reported to.
const BACKOFF_MAX: Duration = Duration::from_mins(1);
/// The largest jitter of a hold, as a share of its length. A hold ends later than the server asked,
/// so that the processes of a fleet do not return at the same moment.
pub(crate) const HOLD_JITTER: f64 = 0.05;
/// The largest jitter of a hold, as a time.
const HOLD_JITTER_MAX: Duration = Duration::from_secs(2);

/// Returns `length` with some jitter added. Jitter never pushes a wait past `hold_max`; beyond it
/// the key would be parked.
pub(crate) fn jittered(length: Duration, hold_max: Duration, rng: &mut Rng) -> Duration {
    let jitter = length.mul_f64(rng.between(0.0, HOLD_JITTER));
    let later = length.saturating_add(jitter.min(HOLD_JITTER_MAX));
    if length <= hold_max {
        later.min(hold_max)
    } else {
        later
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_that_lasted_longer_ends_now_and_a_running_one_stays() {
        let at = |secs: u64| Timestamp::ZERO + Duration::from_secs(secs);
        let mut hold = Hold::default();
        hold.extend(at(0), at(5), HoldReason::Backoff);
        hold.lasted(at(3));
        assert_eq!(hold.until(), at(5));
        hold.lasted(at(7));
        assert_eq!((hold.until(), hold.active(at(7))), (at(7), None));
    }

    const fn at(secs: u64) -> Timestamp {
        Timestamp::from_micros(secs * 1_000_000)
    }

    #[test]
    fn backoffs_that_follow_one_another_grow_to_a_minute() {
        let (mut hold, mut now, mut lengths) = (Hold::default(), at(100), Vec::new());
        let second = Duration::from_secs(1);
        for _ in 0..8 {
            let until = hold.backed_off(now, now + second);
            assert!(hold.extend(now, until, HoldReason::Backoff));
            assert_eq!(hold.backed_off(now, now + second * 9), until, "it is known");
            lengths.push(until.since(now).as_secs());
            now = until + Duration::from_millis(500);
        }
        assert_eq!(lengths, [1, 2, 4, 8, 16, 32, 60, 60]);
        now = now + Duration::from_mins(2);
        assert_eq!(hold.backed_off(now, now + second), now + second);
    }

    #[test]
    fn a_hold_only_extends() {
        let mut hold = Hold::default();
        assert!(hold.extend(at(0), at(120), HoldReason::RetryAfter));
        assert!(
            !hold.extend(at(1), at(3), HoldReason::Backoff),
            "a shorter reason must not cut it"
        );
        assert_eq!(
            hold.active(at(119)),
            Some((at(120), Duration::from_mins(2), HoldReason::RetryAfter))
        );
        assert_eq!(hold.active(at(120)), None);
    }

    #[test]
    fn a_clock_set_back_while_we_were_away_does_not_make_it_longer() {
        let mut hold = Hold::default();
        hold.extend(at(1_000), at(1_060), HoldReason::RetryAfter);
        hold.rebase(at(10));
        assert_eq!(hold.until(), at(70) + Duration::from_millis(1));
    }
}
