//! The order in which callers arrived.

use std::time::Duration;

/// The time at which a caller arrived, in microseconds that count up.
///
/// A caller that waits for several keys takes its arrival from queue to queue, so no later caller
/// is served before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Arrival(u64);

impl Arrival {
    /// The arrival behind all other callers.
    pub const LAST: Self = Self(u64::MAX);

    /// Returns the arrival at `micros`, which must come from a count that only grows.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Returns the microseconds of this arrival.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Returns an arrival that is earlier by `by`.
    ///
    /// This is what priority means here: the caller overtakes callers that came up to `by` before
    /// it, and no caller waits longer than that because of it.
    #[must_use]
    pub fn earlier(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(by.as_micros() as u64))
    }
}
