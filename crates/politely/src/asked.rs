//! What a limiter is asked for, and why it says no.

use std::time::Duration;

use politely_core::Timestamp;
use politely_core::config::InvalidConfig;
use politely_core::host::{Ask, Reason, RestoreError};
use politely_core::key::Key;

use crate::registry::Full;

/// The keys one request is limited by: one, or several of which the first hears its outcome.
#[derive(Clone, Copy, Debug)]
pub struct Keys<'a>(pub(crate) &'a [Key]);

impl<'a> From<&'a Key> for Keys<'a> {
    fn from(key: &'a Key) -> Self {
        Self(std::slice::from_ref(key))
    }
}

impl<'a> From<&'a [Key]> for Keys<'a> {
    fn from(keys: &'a [Key]) -> Self {
        Self(keys)
    }
}

impl<'a, const N: usize> From<&'a [Key; N]> for Keys<'a> {
    fn from(keys: &'a [Key; N]) -> Self {
        Self(keys)
    }
}

impl<'a> From<&'a Vec<Key>> for Keys<'a> {
    fn from(keys: &'a Vec<Key>) -> Self {
        Self(keys)
    }
}

/// Why there is no permit now, and when to ask again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {reason}")]
pub struct Refusal {
    /// The key in the way.
    pub key: Key,
    /// What is in the way.
    pub reason: RefusalReason,
    /// Ask again at this time, or when a report for the key comes, whichever is first.
    pub at: Timestamp,
    /// Its place among the keys asked for.
    pub(crate) index: usize,
}

/// What is in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RefusalReason {
    /// The key must wait.
    #[error("{0}")]
    Wait(Reason),
    /// Others wait for the key already.
    #[error("others wait")]
    Line,
    /// The coordinator or the engine is being asked, as long as somebody comes back to ask here.
    #[error("the coordinator or the engine is asked")]
    Asked,
    /// The coordinator refuses to be asked so: a wrong token, a number it does not allow. [`Limiter::trouble`](crate::Limiter::trouble)
    /// says which, where the last call was refused.
    #[error("the coordinator refuses")]
    Refused,
    /// The registry is full of keys none of which can be forgotten.
    #[error("no room for another key")]
    Full,
    /// The limiter is closed.
    #[error("closed")]
    Closed,
}

impl Refusal {
    /// Nobody has answered yet for `key`.
    pub fn asked(key: &Key, at: Timestamp) -> Self {
        Self {
            key: key.clone(),
            reason: RefusalReason::Asked,
            at,
            index: 0,
        }
    }

    /// `key` must wait until `at`.
    pub fn waits(key: &Key, reason: Reason, at: Timestamp) -> Self {
        Self {
            key: key.clone(),
            reason: RefusalReason::Wait(reason),
            at,
            index: 0,
        }
    }

    /// The place of the key in the way among those asked for.
    pub const fn index(&self) -> usize {
        self.index
    }
}

/// Why waiting came to nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// The limiter was closed.
    #[error("the limiter is closed")]
    Closed,
    /// The registry is full of keys none of which can be forgotten.
    #[error("no room for another key")]
    Full,
    /// As many wait for this key as may.
    #[error("the line of {0} is full")]
    LineFull(Key),
    /// A hold longer than the user's ceiling (`Config::hold_max`): nobody should wait in line for it.
    #[error("{0} is parked for another {1:?}")]
    Parked(Key, Duration),
    /// No key was named.
    #[error("a request needs a key")]
    NoKey,
    /// The coordinator cannot be asked so: a wrong token, a URL that is not its own.
    #[error("the coordinator refuses: {0}")]
    Coordinator(String),
}

/// An operation that this limiter's backend does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{operation} is not supported by a limiter {backend}; {instead}")]
pub struct Unsupported {
    /// The method that was called.
    pub operation: &'static str,
    /// Where the limiter's keys are kept.
    pub backend: &'static str,
    /// What to do.
    pub instead: &'static str,
}

/// Why a setting is not in force.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SetError {
    /// The backend does not have this operation.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// A number makes no sense.
    #[error(transparent)]
    Invalid(#[from] InvalidConfig),
    /// The state given back cannot be read.
    #[error(transparent)]
    State(#[from] RestoreError),
    /// The key is not known and there is no room for another.
    #[error(transparent)]
    Full(#[from] Full),
}

/// One departure, now: what a request of several keys may ask each for, since they would not agree on another time.
pub(crate) const fn alone(ask: Ask) -> Ask {
    Ask {
        slots: 1,
        horizon: Duration::ZERO,
        ..ask
    }
}

/// What the key at `index` is asked: only the first key of a request learns from its outcome.
pub(crate) const fn of_key(ask: Ask, index: usize) -> Ask {
    Ask {
        is_limit_only: index > 0,
        ..ask
    }
}

/// A key once, where it is named first.
pub(crate) fn distinct(keys: &[Key]) -> impl Iterator<Item = (usize, &Key)> {
    let named = |(index, key): &(usize, &Key)| !keys[..*index].contains(key);
    keys.iter().enumerate().filter(named)
}
