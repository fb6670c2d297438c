//! The states of keys on disk: how they are read, and when they are written.

use std::fmt;
use std::sync::Arc;

use politely::core::key::Key;
use politely::{SavedStates, Snapshot, Unreadable};

use super::Store;
use super::commit::{Batch, KeepError};
use super::tables::Tables;

impl Store {
    /// Calls `each` with every key and its state, in the order of keys. Damaged states are set
    /// aside and logged in one line.
    ///
    /// # Errors
    /// The database cannot be read. The error is one line.
    pub fn for_each_key(&self, each: impl FnMut(&str, &[u8])) -> Result<(), String> {
        let damaged = self.tables.for_each_key(each);
        let damaged = damaged.map_err(|why| format!("politely.redb: {why}"))?;
        if let Some(first) = damaged.first() {
            tracing::error!(
                "politely.redb: the states of {} keys are damaged and set aside, the first of \
                 {first:?}; they begin anew: set their limits and holds again",
                damaged.len()
            );
        }
        Ok(())
    }

    /// Returns the state of `key` on disk.
    ///
    /// # Errors
    /// The database cannot be read. The error is one line.
    pub fn state_of(&self, key: &str) -> Result<Option<Vec<u8>>, String> {
        let state = self.tables.read(key);
        state.map_err(|why| format!("politely.redb: {why}"))
    }

    /// Returns the states on disk, for the limiter whose states this store keeps.
    pub fn saved_states(&self) -> Arc<dyn SavedStates> {
        Arc::new(SavedKeys(Arc::clone(&self.tables)))
    }

    /// Keeps learned states within half a second. Of two states of a key, the higher version wins,
    /// in any order of the calls.
    pub fn learned(&self, states: impl IntoIterator<Item = (String, Snapshot)>) {
        let states = states.into_iter();
        self.committer
            .learned(states.map(|(key, state)| (key, self.versioned(state))));
    }

    /// Keeps states now. The future resolves to `Ok` when they, or newer ones, are on disk.
    /// Concurrent calls share a transaction. Dropping the future cancels nothing.
    ///
    /// # Errors
    /// The disk refused. The states are written again with the learned states.
    pub fn keep_now(
        &self,
        states: Vec<(String, Snapshot)>,
    ) -> impl Future<Output = Result<(), KeepError>> + use<> {
        let states = states.into_iter();
        self.commit(Batch {
            states: states
                .map(|(key, state)| (key, self.versioned(state)))
                .collect(),
            config: None,
        })
    }

    /// Keeps states, and all learned states that wait, now. The future resolves as that of
    /// [`Store::keep_now`].
    ///
    /// # Errors
    /// As [`Store::keep_now`].
    pub fn keep_all_now(
        &self,
        states: Vec<(String, Snapshot)>,
    ) -> impl Future<Output = Result<(), KeepError>> + use<> {
        self.learned(states);
        self.commit(Batch {
            states: self.committer.take_learned(),
            config: None,
        })
    }

    /// Keeps states like [`Store::keep_all_now`]. Returns whether they are on disk. Blocks.
    pub fn save_all(&self, states: Vec<(String, Snapshot)>) -> bool {
        let kept = self.keep_all_now(states);
        let wait = || {
            let runtime = tokio::runtime::Builder::new_current_thread().build();
            runtime.is_ok_and(|runtime| runtime.block_on(kept).is_ok())
        };
        // The caller may be in a runtime, where no thread may block.
        std::thread::scope(|scope| scope.spawn(wait).join().unwrap_or(false))
    }
}

/// Finds states in the database.
pub(super) struct SavedKeys(pub(super) Arc<Tables>);

impl SavedStates for SavedKeys {
    fn state_of(&self, key: &Key) -> Result<Option<Vec<u8>>, Unreadable> {
        let saved = self.0.read(key.as_str()).map_err(|why| {
            tracing::debug!("cannot read the state of {key} in politely.redb: {why}");
            Unreadable
        })?;
        Ok(saved)
    }
}

impl fmt::Debug for SavedKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SavedKeys").finish_non_exhaustive()
    }
}
