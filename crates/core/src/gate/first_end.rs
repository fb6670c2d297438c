//! A hint that saves a look at the leases.

use crate::Timestamp;

/// A time before which no lease expires, so [`Leases::expire`](super::Leases::expire) need not
/// look at the leases.
///
/// It counts steps of 2^20 µs, because it must fit into 32 bits of a host. Zero is always correct.
/// The value follows from the leases, so it plays no part in comparisons: any two are equal.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FirstEnd(u32);

impl FirstEnd {
    /// No lease is live.
    pub(crate) const NEVER: Self = Self(u32::MAX);

    /// Returns the hint for a lease that expires at `end`.
    #[inline]
    pub(crate) fn at(end: Timestamp) -> Self {
        // From the year 2112 on, 32 bits overflow. The hint is then too early, which only costs a
        // look at the leases.
        Self((end.as_micros() >> 20) as u32)
    }

    /// Returns the earlier of the two.
    #[inline]
    pub(crate) fn or(self, other: Self) -> Self {
        Self(self.0.min(other.0))
    }

    /// Returns whether no lease can have expired by `now`.
    #[inline]
    pub(crate) fn is_after(self, now: Timestamp) -> bool {
        now.as_micros() >> 20 < u64::from(self.0)
    }
}

impl PartialEq for FirstEnd {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}
