//! A lease as the holder of its permit knows it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use politely_core::Timestamp;
use politely_core::gate::LeaseId;

/// Returns how long a holder relies on a lease that is granted for `length`. It is a tenth less,
/// at most a second, since the grant takes time to arrive and clocks differ in speed.
pub fn safe_length(length: Duration) -> Duration {
    length.saturating_sub((length / 10).min(Duration::from_secs(1)))
}

/// Returns the part of a lease's length after which it is renewed. A renewal that fails then leaves
/// time for another.
pub fn renewed_after(length: Duration) -> Duration {
    length / 2
}

/// A lease, shared by its permit and the renewals in flight. All times are local.
///
/// `Id` identifies the lease where it is renewed: a number in a shared key, or the id of a permit
/// at a coordinator.
#[derive(Debug)]
pub struct HeldLease<Id = LeaseId> {
    id: Id,
    /// The end of the lease in microseconds. Zero: the lease is over, or its end is not known yet.
    until: AtomicU64,
    /// A renewal is in flight.
    is_renewing: AtomicBool,
    /// The state to which the last renewal was applied contained the lease.
    is_present: AtomicBool,
}

impl<Id> HeldLease<Id> {
    /// Creates a lease that ends at `until`. [`Timestamp::ZERO`]: it is not known yet whether it
    /// exists.
    pub fn new(id: Id, until: Timestamp) -> Self {
        Self {
            id,
            until: AtomicU64::new(until.as_micros()),
            is_renewing: AtomicBool::new(false),
            is_present: AtomicBool::new(true),
        }
    }

    /// Returns the id of the lease.
    pub const fn id(&self) -> &Id {
        &self.id
    }

    /// Returns whether no answer has told yet if the lease exists.
    pub fn is_unknown(&self) -> bool {
        let until = self.until.load(Ordering::Acquire);
        until == 0
            && (self.is_renewing.load(Ordering::Acquire) || self.is_present.load(Ordering::Acquire))
    }

    /// Assumes that the lease lasts until `until`, unless an answer has told otherwise.
    pub fn presume(&self, until: Timestamp) {
        if self.is_unknown() {
            self.extend(until);
        }
    }

    /// Returns the end of the lease. For the fault simulation.
    #[doc(hidden)]
    pub fn until(&self) -> Timestamp {
        Timestamp::from_micros(self.until.load(Ordering::Acquire))
    }

    /// Returns the remaining time at `now`, `None` once the lease is over.
    pub fn left(&self, now: Timestamp) -> Option<Duration> {
        let left = self.until().since(now);
        (!left.is_zero()).then_some(left)
    }

    /// Extends the lease to `until`, if that is later than its present end.
    pub fn extend(&self, until: Timestamp) {
        self.until.fetch_max(until.as_micros(), Ordering::AcqRel);
    }

    /// Ends the lease, since the place that granted it does not know it any more.
    pub fn end(&self) {
        self.is_present.store(false, Ordering::Release);
        self.until.store(0, Ordering::Release);
    }

    /// Marks a renewal as in flight. Returns whether none was, so that the caller should send one.
    pub fn begin_renewal(&self) -> bool {
        !self.is_renewing.swap(true, Ordering::AcqRel)
    }

    /// Notes whether the state to which the renewal was applied contained the lease.
    pub(crate) fn note_renewed(&self, is_present: bool) {
        self.is_present.store(is_present, Ordering::Release);
    }

    /// Ends the renewal in flight, since the state that it was applied to is written: the lease
    /// lasts until `until`, or is over.
    pub(crate) fn confirm(&self, until: Timestamp) {
        if self.is_present.load(Ordering::Acquire) {
            self.extend(until);
        } else {
            self.end();
        }
        self.is_renewing.store(false, Ordering::Release);
    }
}
