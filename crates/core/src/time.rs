//! Points in time, as the core sees them.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A point in time: microseconds since an origin only its holder knows.
///
/// Every state is read and written with one clock. Arithmetic saturates: a clock that steps back
/// makes elapsed time zero, never negative, and no sum overflows.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The clock's origin.
    pub const ZERO: Self = Self(0);
    /// Later than everything: "no end is known".
    pub const NEVER: Self = Self(u64::MAX);

    /// `micros` microseconds after the origin.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// `secs` seconds after the origin; negative and NaN become zero.
    pub fn from_secs_f64(secs: f64) -> Self {
        Self((secs * 1e6) as u64)
    }

    /// Microseconds since the origin.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Seconds since the origin.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// Time since `earlier`, zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }

    /// Microseconds since `earlier`, zero if `earlier` is later.
    pub const fn micros_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Seconds since `earlier`; below zero if `earlier` is later.
    #[inline]
    pub(crate) const fn seconds_after(self, earlier: Self) -> f64 {
        self.0.wrapping_sub(earlier.0).cast_signed() as f64 * 1e-6
    }

    /// Seconds since `earlier`, zero if `earlier` is later.
    #[inline]
    pub fn seconds_since(self, earlier: Self) -> f64 {
        // Of a signed number it is one instruction.
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

/// Without `Duration::as_micros`'s detour over 128 bits: this is the hot path.
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
