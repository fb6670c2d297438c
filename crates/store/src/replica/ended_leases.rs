//! Leases whose end another node may not know of.
//!
//! After a loss every node writes what it knows of a key, and the taken slots of all are joined
//! ([`Host::join`]). A node that has not seen the last write takes up a lease again that it ended.
//! The node that wrote the end ends it once more.

use politely_core::Timestamp;
use politely_core::gate::{Lease, LeaseId};
use politely_core::host::Host;

/// The number of remembered leases. The oldest are forgotten first.
const LEASES_MAX: usize = 256;

/// The leases that writes of this node ended before they would have expired.
#[derive(Debug, Default)]
pub(super) struct EndedLeases(Vec<Lease>);

impl EndedLeases {
    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Notes the leases that a write of this node ended: they are in `before` and not in `after`.
    pub(super) fn note(&mut self, before: &Host, after: &Host, now: Timestamp) {
        let lasts = |lease: &Lease| lease.expires() > now;
        let ended = |lease: &Lease| lasts(lease) && after.lease_ends(lease.id).is_none();
        self.0.retain(lasts);
        self.0
            .extend(before.leases().iter().filter(|lease| ended(lease)));
        self.0.drain(..self.0.len().saturating_sub(LEASES_MAX));
    }

    /// Returns the ended leases that `host` contains.
    pub(super) fn taken_again(&self, host: &Host) -> impl Iterator<Item = LeaseId> {
        let live = host.leases();
        let again = |ours: &&Lease| {
            let theirs = live.binary_search_by_key(&ours.id, |lease| lease.id);
            theirs.is_ok_and(|at| live[at].start == ours.start)
        };
        self.0.iter().filter(again).map(|lease| lease.id)
    }
}
