//! The locks of keys, as far as the engine has confirmed them.

use politely_core::Timestamp;
use politely_core::key::Key;
use politely_core::lock::Locks;

use super::Node;

impl Node {
    /// Returns the locks of `key` that the engine has confirmed, and the shared time at `local`.
    pub fn locks(&self, key: &Key, local: Timestamp) -> Option<(Locks, Timestamp)> {
        let replica = self.table.get(self.table.id_of(key)?)?;
        let locks = replica.locks()?.clone();
        Some((locks, self.context.clock.now(local)))
    }

    /// Returns the keys whose confirmed locks have changed since the last call.
    pub fn take_lock_changes(&mut self) -> Vec<Key> {
        let changed = std::mem::take(&mut self.lock_changes);
        let keys = changed.into_iter().filter_map(|id| self.table.key_of(id));
        keys.cloned().collect()
    }

    /// Lets the replica be called as soon as possible, and notes a change of its locks.
    pub(super) fn wake_after_change(&mut self, id: usize) {
        if let Some(replica) = self.table.get_mut(id)
            && replica.take_lock_change()
        {
            self.lock_changes.push(id);
        }
        self.table.wake(id);
    }
}
