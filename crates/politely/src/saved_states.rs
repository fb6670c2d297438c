//! The saved states of keys that are not in memory.

use std::fmt::Debug;

use politely_core::key::Key;

/// Finds states that a caller saved, for [`Builder::saved_states`](crate::Builder::saved_states).
///
/// The caller saves what [`Limiter::snapshot`](crate::Limiter::snapshot) and
/// [`Limiter::take_learned`](crate::Limiter::take_learned) return. The method is called while a
/// part of the limiter is locked, so it must be fast and must not call the limiter.
pub trait SavedStates: Debug + Send + Sync {
    /// Returns the state of `key` that was saved last, or `None` if none was saved.
    ///
    /// # Errors
    /// The state cannot be read. The key is refused, or stays in memory.
    fn state_of(&self, key: &Key) -> Result<Option<Vec<u8>>, Unreadable>;
}

/// A saved state cannot be read now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot read a saved state")]
pub struct Unreadable;
