//! The saved states of keys that are not in memory.

use std::fmt::Debug;

use politely_core::key::Key;

/// Finds states that a caller saved, for [`Builder::saved_states`](crate::Builder::saved_states).
///
/// The caller saves what [`Limiter::snapshot`](crate::Limiter::snapshot) and
/// [`Limiter::take_learned`](crate::Limiter::take_learned) return. The methods are called while a
/// part of the limiter is locked, so they must be fast and must not call the limiter.
pub trait SavedStates: Debug + Send + Sync {
    /// Returns whether the snapshot of `key` with this version, or a newer one, is saved.
    fn is_saved(&self, key: &Key, version: u64) -> bool;

    /// Returns the state of `key` that was saved last, or `None` if none was saved.
    ///
    /// # Errors
    /// The state cannot be read. The key is refused then.
    fn state_of(&self, key: &Key) -> Result<Option<Vec<u8>>, Unreadable>;
}

/// A saved state cannot be read now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot read a saved state")]
pub struct Unreadable;
