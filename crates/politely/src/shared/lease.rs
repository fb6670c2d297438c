//! Until when a shared permit's slot is its own, as its holder knows it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use politely_core::Timestamp;
use politely_core::gate::LeaseId;

/// Ours ends a little before everybody's: clocks and wires take their time.
pub(super) fn safely(lease: Duration) -> Duration {
    lease.saturating_sub((lease / 10).min(Duration::from_secs(1)))
}

/// One lease of one key.
#[derive(Debug)]
pub(super) struct Lease {
    id: LeaseId,
    /// By our own clock.
    until: AtomicU64,
    /// A renewal is on its way, and what came of it where it was applied last.
    asked: AtomicBool,
    there: AtomicBool,
}

impl Lease {
    pub(super) fn new(id: LeaseId, until: Timestamp) -> Self {
        Self {
            id,
            until: AtomicU64::new(until.as_micros()),
            asked: AtomicBool::new(false),
            there: AtomicBool::new(true),
        }
    }

    pub(super) const fn id(&self) -> LeaseId {
        self.id
    }

    /// Nobody has said yet that it is there, nor that it is not.
    pub(super) fn is_unknown(&self) -> bool {
        let until = self.until.load(Ordering::Acquire);
        until == 0 && (self.asked.load(Ordering::Acquire) || self.there.load(Ordering::Acquire))
    }

    /// It lasts until then, unless somebody knows better.
    pub(super) fn presume(&self, until: Timestamp) {
        if self.is_unknown() {
            self.until.fetch_max(until.as_micros(), Ordering::AcqRel);
        }
    }

    /// When it is over, by our own clock.
    #[cfg(test)]
    pub(super) fn until(&self) -> Timestamp {
        Timestamp::from_micros(self.until.load(Ordering::Acquire))
    }

    /// Still so long; nothing once it is over.
    pub(super) fn left(&self, mono: Timestamp) -> Option<Duration> {
        let left = Timestamp::from_micros(self.until.load(Ordering::Acquire)).since(mono);
        (!left.is_zero()).then_some(left)
    }

    /// Whether a renewal should be sent: none is on its way.
    pub(super) fn ask(&self) -> bool {
        !self.asked.swap(true, Ordering::AcqRel)
    }

    /// Where the renewal was applied, the lease was there or was not.
    pub(super) fn answered(&self, there: bool) {
        self.there.store(there, Ordering::Release);
    }

    /// The state it was applied to holds for all: it lasts until then by our own clock, or is over.
    pub(super) fn settled(&self, until: Timestamp) {
        if self.there.load(Ordering::Acquire) {
            self.until.fetch_max(until.as_micros(), Ordering::AcqRel);
        } else {
            self.until.store(0, Ordering::Release);
        }
        self.asked.store(false, Ordering::Release);
    }
}
