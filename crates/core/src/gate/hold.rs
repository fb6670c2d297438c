//! Not before: the latest of all reasons to leave a host alone.
//!
//! A hold only ever extends, whatever the order in which reasons arrive; only an operator may lift it.

use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// Why nothing leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum HoldReason {
    /// The server said so: Retry-After.
    RetryAfter,
    /// The server's quota is spent until it resets (RateLimit, X-RateLimit-*).
    QuotaSpent,
    /// We were refused and nobody said for how long: our own exponential backoff.
    Backoff,
    /// robots.txt: Crawl-delay, counted from the end of the last request.
    CrawlDelay,
    /// An operator.
    Operator,
}

impl HoldReason {
    /// The words a log line shows.
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

/// Nothing leaves before a time: 24 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    until: Timestamp,
    since: Timestamp,
    reason: HoldReason,
}

impl Default for Hold {
    fn default() -> Self {
        Self {
            until: Timestamp::ZERO,
            since: Timestamp::ZERO,
            reason: HoldReason::Operator,
        }
    }
}

impl Hold {
    /// Holds until `until`, unless something already holds for longer. Says whether it did.
    pub fn extend(&mut self, now: Timestamp, until: Timestamp, reason: HoldReason) -> bool {
        let longer = until > self.until && until > now;
        if longer {
            *self = Self {
                until,
                since: now,
                reason,
            };
        }
        longer
    }

    /// Lifts the hold: an operator's privilege.
    pub fn lift(&mut self) {
        *self = Self::default();
    }

    /// The hold in force at `now`: its end, its beginning and its reason.
    pub fn active(&self, now: Timestamp) -> Option<(Timestamp, Timestamp, HoldReason)> {
        (self.until > now).then_some((self.until, self.since, self.reason))
    }

    /// When it ends, or ended.
    pub const fn until(&self) -> Timestamp {
        self.until
    }

    /// After a restart the clock may have jumped: a hold never lasts longer than it was meant to.
    pub fn rebase(&mut self, now: Timestamp) {
        let length = self.until.since(self.since);
        if self.since > now {
            self.since = now;
            self.until = now + length;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(secs: u64) -> Timestamp {
        Timestamp::from_micros(secs * 1_000_000)
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
            Some((at(120), at(0), HoldReason::RetryAfter))
        );
        assert_eq!(hold.active(at(120)), None);
    }

    #[test]
    fn a_clock_set_back_while_we_were_away_does_not_make_it_longer() {
        let mut hold = Hold::default();
        hold.extend(at(1_000), at(1_060), HoldReason::RetryAfter);
        hold.rebase(at(10));
        assert_eq!(hold.until(), at(70));
    }
}
