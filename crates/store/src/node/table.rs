//! The replicas of a node, found by key, by cell and by the time of their next wakeup.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use politely_core::Timestamp;
use politely_core::key::Key;

use super::cell_name;
use crate::replica::Replica;

/// The replicas. An index identifies a replica as long as it is in the table.
#[derive(Default)]
pub(super) struct ReplicaTable {
    slots: Vec<Option<Replica>>,
    by_key: HashMap<Key, usize, foldhash::fast::RandomState>,
    by_cell: HashMap<Arc<str>, usize, foldhash::fast::RandomState>,
    free: Vec<usize>,
    /// The wakeups of all replicas, in local time.
    wakeups: BTreeSet<(Timestamp, usize)>,
    /// The wakeup of each replica, [`Timestamp::NEVER`] for none.
    wakeup_of: Vec<Timestamp>,
}

impl ReplicaTable {
    /// Returns the number of keys.
    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &Key> {
        self.by_key.keys()
    }

    pub(super) fn id_of(&self, key: &Key) -> Option<usize> {
        self.by_key.get(key).copied()
    }

    pub(super) fn id_of_cell(&self, cell: &str) -> Option<usize> {
        self.by_cell.get(cell).copied()
    }

    pub(super) fn get(&self, id: usize) -> Option<&Replica> {
        self.slots[id].as_ref()
    }

    pub(super) fn get_mut(&mut self, id: usize) -> Option<&mut Replica> {
        self.slots[id].as_mut()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Replica> {
        self.slots.iter().flatten()
    }

    pub(super) fn insert(&mut self, key: &Key, replica: Replica) -> usize {
        let id = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.wakeup_of.push(Timestamp::NEVER);
            self.slots.len() - 1
        });
        self.by_key.insert(key.clone(), id);
        self.by_cell.insert(Arc::clone(replica.name()), id);
        self.slots[id] = Some(replica);
        id
    }

    /// Drops up to `count` replicas that hold nothing the engine does not hold.
    pub(super) fn drop_idle(&mut self, count: usize) {
        self.drop_idle_where(&mut |_| true, count);
    }

    /// Drops up to `count` of the replicas for which `may_go` returns true, as
    /// [`ReplicaTable::drop_idle`] does.
    pub(super) fn drop_idle_where(&mut self, may_go: &mut dyn FnMut(&Key) -> bool, count: usize) {
        let is_idle = |id: &usize| self.slots[*id].as_ref().is_none_or(Replica::is_idle);
        let idle: Vec<Key> = self
            .by_key
            .iter()
            .filter(|(key, id)| may_go(key) && is_idle(id))
            .map(|(key, _)| key.clone())
            .take(count)
            .collect();
        for key in idle {
            if let Some(id) = self.by_key.remove(&key) {
                self.by_cell.remove(&cell_name(&key));
                self.slots[id] = None;
                self.set_wakeup(id, Timestamp::NEVER);
                self.free.push(id);
            }
        }
    }

    /// Calls `change` with each replica and wakes the replica.
    pub(super) fn change_all(&mut self, mut change: impl FnMut(&mut Replica)) {
        for id in 0..self.slots.len() {
            if let Some(replica) = &mut self.slots[id] {
                change(replica);
                self.wake(id);
            }
        }
    }

    /// Calls `change` with each replica, without waking it.
    pub(super) fn for_each(&mut self, change: impl FnMut(&mut Replica)) {
        self.slots.iter_mut().flatten().for_each(change);
    }

    /// Returns the states that have learned something since the last call.
    pub(super) fn take_learned(&mut self) -> Vec<(Key, Vec<u8>)> {
        let mut learned = Vec::new();
        for (key, &id) in &self.by_key {
            if let Some(replica) = &mut self.slots[id]
                && std::mem::take(&mut replica.has_learned)
            {
                learned.push((key.clone(), replica.host().snapshot()));
            }
        }
        learned
    }

    /// Wakes the replicas that have a wakeup at some time.
    pub(super) fn wake_scheduled(&mut self) {
        for id in 0..self.slots.len() {
            if self.slots[id].is_some() && self.wakeup_of[id] != Timestamp::NEVER {
                self.wake(id);
            }
        }
    }

    /// Lets the replica be called as soon as possible.
    pub(super) fn wake(&mut self, id: usize) {
        self.set_wakeup(id, Timestamp::ZERO);
    }

    pub(super) fn set_wakeup(&mut self, id: usize, at: Timestamp) {
        let before = self.wakeup_of[id];
        if before != Timestamp::NEVER {
            self.wakeups.remove(&(before, id));
        }
        self.wakeup_of[id] = at;
        if at != Timestamp::NEVER {
            self.wakeups.insert((at, id));
        }
    }

    pub(super) fn wakeup_of(&self, id: usize) -> Timestamp {
        self.wakeup_of[id]
    }

    /// Returns the earliest wakeup, [`Timestamp::NEVER`] for none.
    pub(super) fn next_wakeup(&self) -> Timestamp {
        let first = self.wakeups.first();
        first.map_or(Timestamp::NEVER, |(at, _)| *at)
    }

    /// Removes and returns a replica whose wakeup has come.
    pub(super) fn pop_due(&mut self, local: Timestamp) -> Option<usize> {
        let &(_, id) = self.wakeups.first().filter(|(at, _)| *at <= local)?;
        self.set_wakeup(id, Timestamp::NEVER);
        Some(id)
    }

    /// Returns the bytes held by the table, from its capacities. Long names and commits in flight
    /// are not counted.
    pub(super) fn memory(&self) -> usize {
        self.slots.capacity() * size_of::<Option<Replica>>()
            + self.wakeup_of.capacity() * size_of::<Timestamp>()
            + self.by_key.capacity() * size_of::<(Key, usize)>()
            + self.by_cell.capacity() * size_of::<(Arc<str>, usize)>()
    }
}
