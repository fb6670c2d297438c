//! The changes of one call, before they are committed.

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use crate::Batch;
use crate::rows::DomainId;
use crate::schedule::{Domain, Schedule};

/// The changes of one call, before they are committed.
#[derive(Default)]
pub(super) struct Stage {
    pub(super) batch: Batch,
    /// The domains that change, as they will be. Each is written once.
    pub(super) domains: Domains,
}

type Domains = HashMap<DomainId, Domain, foldhash::fast::FixedState>;

impl Stage {
    /// Returns the staged state of a domain, or `None` if it is not known.
    pub(super) fn domain(&mut self, schedule: &Schedule, id: DomainId) -> Option<&mut Domain> {
        self.parts(schedule, id).0
    }

    /// Returns the staged state of a domain, and the batch.
    pub(super) fn parts(
        &mut self,
        schedule: &Schedule,
        id: DomainId,
    ) -> (Option<&mut Domain>, &mut Batch) {
        let domain = match self.domains.entry(id) {
            Entry::Occupied(entry) => Some(entry.into_mut()),
            Entry::Vacant(entry) => schedule.domain(id).map(|domain| entry.insert(*domain)),
        };
        (domain, &mut self.batch)
    }
}
