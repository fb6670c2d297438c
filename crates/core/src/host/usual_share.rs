//! The share of a host's URLs that fail by themselves, and how unlikely a run of failures is.

use serde::{Deserialize, Serialize};

/// The assumed share of failing URLs before any outcome is known, as failures and tries: 0.5 of
/// 5.5.
const PRIOR: (f64, f64) = (0.5, 5.5);
/// The counts are halved when the tries reach this number, so that old failures fade.
pub(super) const TRIES_MAX: u8 = 200;

/// Counts of first tries of URLs, and of those that failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct UsualShare {
    pub(super) tries: u8,
    pub(super) failures: u8,
}

impl UsualShare {
    /// Returns the share of URLs that fail by themselves, in (0, 1).
    pub(super) fn get(self) -> f64 {
        (f64::from(self.failures) + PRIOR.0) / (f64::from(self.tries) + PRIOR.1)
    }

    /// Counts first tries of URLs, and how many of them failed.
    pub(super) fn count(&mut self, tries: u8, failures: u8) {
        self.tries = self.tries.saturating_add(tries);
        self.failures = self.failures.saturating_add(failures);
        if self.tries >= TRIES_MAX {
            (self.tries, self.failures) = (self.tries / 2, self.failures / 2);
        }
    }

    /// Returns the probability that this many URLs in a row fail, if they fail independently.
    pub(super) fn of_run(self, length: u8) -> f64 {
        let share = self.get();
        let mut likely = 1.0;
        for _ in 0..length {
            likely *= share;
        }
        likely
    }

    /// Returns whether calls could have led to these counts. Restored bytes may be anything.
    pub(super) const fn is_plausible(self) -> bool {
        self.failures <= self.tries
    }

    /// Merges `other`: the larger counts.
    pub(super) fn join(&mut self, other: Self) {
        self.tries = self.tries.max(other.tries);
        self.failures = self.failures.max(other.failures);
    }
}
