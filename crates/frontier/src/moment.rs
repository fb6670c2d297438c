//! The two clocks of a call.

use std::time::Duration;

use politely_core::Timestamp;

use crate::Date;

/// The time of a call, on two clocks.
///
/// Leases and intervals follow the monotonic clock, so a step of the wall clock does not end a
/// lease early or delay a domain. Dates follow the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The monotonic clock. A value below an earlier call's counts as that call's value.
    pub at: Timestamp,
    /// The wall clock.
    pub date: Date,
}

impl Moment {
    /// Returns the date that lies `length` after this moment.
    pub(crate) fn date_after(self, length: Duration) -> Date {
        self.date.after(length)
    }

    /// Returns the monotonic time of `date`, at most `most` ahead. A date that has passed is now.
    pub(crate) fn at_of(self, date: Date, most: Duration) -> Timestamp {
        let ahead = date.millis().saturating_sub(self.date.millis());
        self.at + Duration::from_millis(ahead).min(most)
    }
}
