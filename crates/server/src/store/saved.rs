//! The states on disk of keys that are not in memory.

use std::fmt;
use std::sync::Arc;

use politely::core::key::Key;
use politely::{SavedStates, Unreadable};

use super::count::Counts;
use super::tables::Tables;
use super::version;

/// Finds states in the database.
pub(super) struct SavedKeys {
    pub(super) tables: Arc<Tables>,
    pub(super) counts: Arc<Counts>,
    pub(super) boot: u64,
}

impl SavedStates for SavedKeys {
    fn is_saved(&self, key: &Key, within: u64) -> bool {
        // The walk over a full registry should cost no reads while nothing is written.
        if self.counts.is_database_failing() {
            return false;
        }
        let saved = self.tables.read(key.as_str()).ok().flatten();
        saved.is_some_and(|saved| saved.version >= version(self.boot, within))
    }

    fn state_of(&self, key: &Key) -> Result<Option<Vec<u8>>, Unreadable> {
        let saved = self.tables.read(key.as_str()).map_err(|why| {
            tracing::debug!("cannot read the state of {key} in politely.redb: {why}");
            Unreadable
        })?;
        Ok(saved.map(|saved| saved.bytes))
    }
}

impl fmt::Debug for SavedKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SavedKeys").finish_non_exhaustive()
    }
}
