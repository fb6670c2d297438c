//! The keys of a request, and the reasons why a limiter refuses.

use std::time::Duration;

use politely_core::Timestamp;
use politely_core::budget::DeclaredLimit;
use politely_core::config::InvalidConfig;
use politely_core::host::{AcquireRequest, Reason, RestoreError};
use politely_core::key::Key;

use crate::backend::local::registry::Full;

/// The keys that limit one request. The outcome is reported to the first of them.
#[derive(Clone, Copy, Debug)]
pub struct Keys<'a> {
    pub(crate) keys: &'a [Key],
    /// Whether the policy has been applied to them.
    pub(crate) are_planned: bool,
}

impl<'a> Keys<'a> {
    const fn of(keys: &'a [Key]) -> Self {
        Self {
            keys,
            are_planned: false,
        }
    }

    /// Returns the keys of a [plan](crate::Limiter::plan). The policy is not applied to them again.
    pub const fn planned(keys: &'a [Key]) -> Self {
        Self {
            keys,
            are_planned: true,
        }
    }

    /// Returns the keys in their order.
    pub const fn as_slice(self) -> &'a [Key] {
        self.keys
    }
}

impl<'a> From<&'a Key> for Keys<'a> {
    fn from(key: &'a Key) -> Self {
        Self::of(std::slice::from_ref(key))
    }
}

impl<'a> From<&'a [Key]> for Keys<'a> {
    fn from(keys: &'a [Key]) -> Self {
        Self::of(keys)
    }
}

impl<'a, const N: usize> From<&'a [Key; N]> for Keys<'a> {
    fn from(keys: &'a [Key; N]) -> Self {
        Self::of(keys)
    }
}

impl<'a> From<&'a Vec<Key>> for Keys<'a> {
    fn from(keys: &'a Vec<Key>) -> Self {
        Self::of(keys)
    }
}

/// Why a permit is not granted now, and when to ask again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {reason}")]
pub struct Refusal {
    /// The key that refused.
    pub key: Key,
    /// Why the key refused.
    pub reason: RefusalReason,
    /// The time to ask again. If a report for the key comes earlier, ask then.
    pub at: Timestamp,
    /// The index of the key among the requested keys.
    pub(crate) index: usize,
}

/// Why a key refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RefusalReason {
    /// The key must wait.
    #[error("{0}")]
    Wait(Reason),
    /// Earlier arrivals wait for the key.
    #[error("others wait")]
    Queue,
    /// The coordinator or the engine is asked in the background, as long as calls for the key
    /// continue.
    #[error("the coordinator or the engine is asked")]
    Asked,
    /// The coordinator refuses the call, because of a wrong token or a number that it does not
    /// allow. [`Limiter::last_error`](crate::Limiter::last_error) has the reason if the last call
    /// was refused.
    #[error("the coordinator refuses")]
    Refused,
    /// No coordinator answers, and the limiter does not wait for one.
    #[error("no coordinator answers")]
    Unavailable,
    /// The registry is full of keys that cannot be evicted.
    #[error("no room for another key")]
    Full,
    /// The limiter is closed.
    #[error("closed")]
    Closed,
    /// The rule of the key needs a label that the request does not have.
    #[error("its rule needs a label; acquire with `Limiter::plan`")]
    NoLabel,
}

/// A request lacks a label that its rule needs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the rule of line {line} of the policy counts under {name}; send the label \"{label}\"")]
pub struct MissingLabel {
    /// The line on which the rule begins.
    pub line: usize,
    /// The name of the key, with its places.
    pub name: String,
    /// The label.
    pub label: String,
}

impl Refusal {
    /// Returns the refusal of a request that lacks a label.
    pub(crate) fn no_label(keys: &[Key]) -> Self {
        Self {
            key: keys[0].clone(),
            reason: RefusalReason::NoLabel,
            at: Timestamp::NEVER,
            index: 0,
        }
    }

    /// Returns the refusal of a `key` that the backend has not answered for yet.
    pub fn asked(key: &Key, at: Timestamp) -> Self {
        Self {
            key: key.clone(),
            reason: RefusalReason::Asked,
            at,
            index: 0,
        }
    }

    /// Returns the refusal of a `key` that must wait until `at`.
    pub fn waits(key: &Key, reason: Reason, at: Timestamp) -> Self {
        Self {
            key: key.clone(),
            reason: RefusalReason::Wait(reason),
            at,
            index: 0,
        }
    }

    /// Returns this refusal for a request of `keys`.
    pub(crate) fn among(mut self, keys: &[Key]) -> Self {
        let at = keys.iter().position(|key| *key == self.key);
        self.index = at.unwrap_or_default();
        self
    }

    /// Returns the index of the refusing key among the requested keys.
    pub const fn index(&self) -> usize {
        self.index
    }
}

/// Why `acquire` failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// The limiter was closed.
    #[error("the limiter is closed")]
    Closed,
    /// The registry is full of keys that cannot be evicted.
    #[error("no room for another key")]
    Full,
    /// The queue of the key is full.
    #[error("the queue of {0} is full")]
    QueueFull(Key),
    /// The key is held for longer than `Config::hold_max`. Waiting in the queue would take too
    /// long.
    #[error("{0} is parked for another {1:?}")]
    Parked(Key, Duration),
    /// The request costs more than a whole declared limit of the key, so it would never leave.
    #[error("the request costs more than the whole limit {1} of {0}; split it or raise the limit")]
    NeverFits(Key, DeclaredLimit),
    /// The request has no key.
    #[error("a request needs a key")]
    NoKey,
    /// The coordinator refuses the call: the token is wrong, or the URL is not a coordinator's.
    #[error("the coordinator refuses: {0}")]
    Coordinator(String),
    /// No coordinator answers, and the limiter does not wait for one
    /// ([`OnUnavailable::Stop`](crate::coordinator::OnUnavailable::Stop)).
    #[error("no coordinator answers: {0}")]
    Unavailable(String),
    /// The rule of the request needs a label that it does not have.
    #[error(transparent)]
    Label(#[from] MissingLabel),
}

/// An operation that this limiter's backend does not support.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{operation} is not supported by a limiter {backend}; {instead}")]
pub struct Unsupported {
    /// The method that was called.
    pub operation: &'static str,
    /// Where the limiter keeps its keys.
    pub backend: &'static str,
    /// The alternative for the user.
    pub instead: &'static str,
}

/// Why a setting has no effect.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SetError {
    /// The backend does not support the operation.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// A number is invalid.
    #[error(transparent)]
    Invalid(#[from] InvalidConfig),
    /// The given state cannot be decoded.
    #[error(transparent)]
    State(#[from] RestoreError),
    /// The key is unknown, and there is no room for another.
    #[error(transparent)]
    Full(#[from] Full),
}

/// Reduces `ask` to one departure now. The keys of a request would not agree on another time.
pub(crate) fn alone(ask: AcquireRequest) -> AcquireRequest {
    AcquireRequest {
        slots: 1,
        horizon: Duration::ZERO,
        ..ask
    }
}

/// Returns what the key at `index` is asked for. Only the first key of a request learns from its
/// outcome.
pub(crate) fn of_key(ask: &AcquireRequest, index: usize) -> AcquireRequest {
    AcquireRequest {
        is_limit_only: ask.is_limit_only || index > 0,
        ..ask.clone()
    }
}

/// Returns each key once, at its first index.
pub(crate) fn distinct(keys: &[Key]) -> impl Iterator<Item = (usize, &Key)> {
    let named = |(index, key): &(usize, &Key)| !keys[..*index].contains(key);
    keys.iter().enumerate().filter(named)
}
