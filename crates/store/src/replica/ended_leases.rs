//! Leases whose end another may not have heard of.
//!
//! After a loss each says what it knows of a key, and the slots taken are those of all ([`Host::join`]): who has not seen the last
//! write takes a slot again that it gave back. Whoever wrote that does so once more.

use politely_core::Timestamp;
use politely_core::gate::{Lease, LeaseId};
use politely_core::host::Host;

/// The latest are kept.
const MOST: usize = 256;

/// Ended by writes of ours, before they would have run out.
#[derive(Debug, Default)]
pub(super) struct EndedLeases(Vec<Lease>);

impl EndedLeases {
    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A write of ours made `after` of `before`.
    pub(super) fn note(&mut self, before: &Host, after: &Host, now: Timestamp) {
        let lasts = |lease: &Lease| lease.expires() > now;
        let ended = |lease: &Lease| lasts(lease) && after.lease_ends(lease.id).is_none();
        self.0.retain(lasts);
        self.0
            .extend(before.leases().iter().filter(|lease| ended(lease)));
        self.0.drain(..self.0.len().saturating_sub(MOST));
    }

    /// Those that somebody brought back.
    pub(super) fn taken_again(&self, host: &Host) -> impl Iterator<Item = LeaseId> {
        let live = host.leases();
        let again = |ours: &&Lease| {
            let theirs = live.binary_search_by_key(&ours.id, |lease| lease.id);
            theirs.is_ok_and(|at| live[at].start == ours.start)
        };
        self.0.iter().filter(again).map(|lease| lease.id)
    }
}
