//! Points in time, as the core sees them.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A point in time: microseconds since an origin that the caller chooses.
///
/// All times of one state come from one clock. Arithmetic saturates: if a clock steps back, the
/// elapsed time is zero, and sums do not overflow.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The clock's origin.
    pub const ZERO: Self = Self(0);
    /// The latest time. It stands for an end that is not known.
    pub const NEVER: Self = Self(u64::MAX);

    /// Returns the time `micros` microseconds after the origin.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Returns the time `secs` seconds after the origin. A negative number or NaN counts as zero.
    pub fn from_secs_f64(secs: f64) -> Self {
        Self((secs * 1e6) as u64)
    }

    /// Returns the microseconds since the origin.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Returns the seconds since the origin.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// Returns the time since `earlier`, or zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }

    /// Returns the microseconds since `earlier`, or zero if `earlier` is later.
    pub const fn micros_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Returns the seconds since `earlier`, negative if `earlier` is later.
    #[inline]
    pub(crate) const fn seconds_after(self, earlier: Self) -> f64 {
        self.0.wrapping_sub(earlier.0).cast_signed() as f64 * 1e-6
    }

    /// Returns the seconds since `earlier`, or zero if `earlier` is later.
    #[inline]
    pub fn seconds_since(self, earlier: Self) -> f64 {
        // The conversion of a signed integer to `f64` is one instruction.
        let micros = i64::try_from(self.micros_since(earlier)).unwrap_or(i64::MAX);
        micros as f64 * 1e-6
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;

    fn add(self, rhs: Duration) -> Self {
        Self(self.0.saturating_add(micros(rhs)))
    }
}

impl Sub<Duration> for Timestamp {
    type Output = Self;

    fn sub(self, rhs: Duration) -> Self {
        Self(self.0.saturating_sub(micros(rhs)))
    }
}

/// Returns the length in microseconds, saturating. [`Duration::as_micros`] calculates with 128
/// bits, which is slower, and this is a hot path.
const fn micros(length: Duration) -> u64 {
    length
        .as_secs()
        .saturating_mul(1_000_000)
        .saturating_add(length.subsec_micros() as u64)
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::NEVER {
            f.write_str("never")
        } else {
            write!(f, "{:.3}s", self.as_secs_f64())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_that_steps_back_is_no_time_at_all() {
        let later = Timestamp::from_micros(10);
        assert_eq!(Timestamp::ZERO.since(later), Duration::ZERO);
        assert_eq!(Timestamp::ZERO - Duration::from_secs(1), Timestamp::ZERO);
    }

    #[test]
    fn sums_saturate() {
        assert_eq!(Timestamp::from_micros(1) + Duration::MAX, Timestamp::NEVER);
    }
}
