//! Where the queues of domains begin that were taken lately.

use hashbrown::HashMap;

use crate::queue::RunId;
use crate::rows::DomainId;

/// The most domains that are remembered.
const FRONTS_MAX: usize = 10_000;

/// Where the queues of domains begin that were taken lately.
///
/// An LSM tree keeps deleted entries until a compaction, and a scan skips them one by one. A domain
/// with millions of pages loses its first pages with every unit. A scan that starts at the first
/// page that is left passes none of them.
#[derive(Debug, Default)]
pub(super) struct Fronts(HashMap<DomainId, RunId, foldhash::fast::FixedState>);

impl Fronts {
    /// Returns a run such that no page of the domain's queue is before it.
    pub(super) fn find(&self, id: DomainId) -> Option<RunId> {
        self.0.get(&id).copied()
    }

    /// Remembers that no page of the domain's queue is before `first`.
    pub(super) fn set(&mut self, id: DomainId, first: RunId) {
        // Forgetting costs one long scan per domain, and this happens rarely.
        if self.0.len() >= FRONTS_MAX && !self.0.contains_key(&id) {
            self.0.clear();
        }
        self.0.insert(id, first);
    }

    /// Notes a run that enters the domain's queue.
    pub(super) fn add(&mut self, id: DomainId, run: RunId) {
        if let Some(first) = self.0.get_mut(&id) {
            *first = run.min(*first);
        }
    }

    /// Forgets a domain.
    pub(super) fn remove(&mut self, id: DomainId) {
        self.0.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Date, Priority};

    #[test]
    fn a_front_moves_back_for_an_earlier_run_only() {
        let run = |level, order| RunId::new(Priority::new(level).unwrap(), Date::EPOCH, order);
        let (id, other) = (DomainId(1), DomainId(2));
        let mut fronts = Fronts::default();
        fronts.set(id, run(5, 7));
        fronts.add(id, run(5, 8));
        fronts.add(other, run(9, 1));
        assert_eq!(
            (fronts.find(id), fronts.find(other)),
            (Some(run(5, 7)), None)
        );
        fronts.add(id, run(6, 9));
        assert_eq!(fronts.find(id), Some(run(6, 9)));
        fronts.remove(id);
        assert_eq!(fronts.find(id), None);
    }

    #[test]
    fn fronts_are_bounded() {
        let mut fronts = Fronts::default();
        for id in 0..3 * FRONTS_MAX as u32 {
            fronts.set(DomainId(id), RunId::new(Priority::MIN, Date::EPOCH, 1));
            assert!(fronts.0.len() <= FRONTS_MAX);
        }
    }
}
