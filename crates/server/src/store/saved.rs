//! The states on disk of keys that are not in memory.

use std::fmt;
use std::sync::Arc;

use politely::core::key::Key;
use politely::{SavedStates, Unreadable};

use super::tables::Tables;

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
