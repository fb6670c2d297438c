//! Where the queues of domains begin that were taken lately.

use hashbrown::HashMap;

use crate::rows::{DomainId, QueueRow};

/// The most domains that are remembered.
const FRONTS_MAX: usize = 10_000;

/// Where the queues of domains begin that were taken lately.
///
/// An LSM tree keeps deleted entries until a compaction, and a scan skips them one by one. A domain
/// with millions of pages loses its first pages with every unit. A scan that starts at the first
/// page that is left passes none of them.
#[derive(Debug, Default)]
pub(super) struct Fronts(HashMap<DomainId, QueueRow, foldhash::fast::FixedState>);

impl Fronts {
    /// Returns a row such that no page of the domain's queue is before it.
    pub(super) fn find(&self, id: DomainId) -> Option<QueueRow> {
        self.0.get(&id).copied()
    }

    /// Remembers that no page of the domain's queue is before `first`.
    pub(super) fn set(&mut self, id: DomainId, first: QueueRow) {
        // Forgetting costs one long scan per domain, and this happens rarely.
        if self.0.len() >= FRONTS_MAX && !self.0.contains_key(&id) {
            self.0.clear();
        }
        self.0.insert(id, first);
    }

    /// Notes a page that enters the domain's queue.
    pub(super) fn add(&mut self, id: DomainId, row: QueueRow) {
        if let Some(first) = self.0.get_mut(&id) {
            *first = row.min(*first);
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
    use crate::Priority;

    #[test]
    fn a_front_moves_back_for_an_earlier_page_only() {
        let row = |level, order| QueueRow::ready(Priority::new(level).unwrap(), order, 0);
        let (id, other) = (DomainId(1), DomainId(2));
        let mut fronts = Fronts::default();
        fronts.set(id, row(5, 7));
        fronts.add(id, row(5, 8));
        fronts.add(other, row(9, 1));
        assert_eq!(
            (fronts.find(id), fronts.find(other)),
            (Some(row(5, 7)), None)
        );
        fronts.add(id, row(6, 9));
        assert_eq!(fronts.find(id), Some(row(6, 9)));
        fronts.remove(id);
        assert_eq!(fronts.find(id), None);
    }

    #[test]
    fn fronts_are_bounded() {
        let mut fronts = Fronts::default();
        for id in 0..3 * FRONTS_MAX as u32 {
            fronts.set(DomainId(id), QueueRow::ready(Priority::MIN, 1, 0));
            assert!(fronts.0.len() <= FRONTS_MAX);
        }
    }
}
