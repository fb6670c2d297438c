//! A date of the wall clock.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The last millisecond of the year 9999. RFC 3339 has no later date.
const MILLIS_MAX: u64 = 253_402_300_799_999;

/// A date: milliseconds since 1970 (UTC), at most the end of the year 9999.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Date(u64);

impl Date {
    /// The start of 1970 (UTC).
    pub const EPOCH: Self = Self(0);

    /// Returns the date, or `None` for a date after the year 9999.
    pub const fn from_millis(millis: u64) -> Option<Self> {
        if millis > MILLIS_MAX {
            return None;
        }
        Some(Self(millis))
    }

    /// Milliseconds since 1970 (UTC).
    pub const fn millis(self) -> u64 {
        self.0
    }

    /// Returns the date `length` later, at most the end of the year 9999.
    #[must_use]
    pub fn after(self, length: Duration) -> Self {
        let millis = u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(millis).min(MILLIS_MAX))
    }

    /// Returns the date `length` earlier, at least the start of 1970.
    #[must_use]
    pub fn before(self, length: Duration) -> Self {
        let millis = u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
        Self(self.0.saturating_sub(millis))
    }
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms after 1970", self.0)
    }
}
