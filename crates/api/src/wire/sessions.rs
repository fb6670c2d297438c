//! Bodies of `sessions` and `locks`.

use serde::{Deserialize, Serialize};

use super::absent::is_default;
use super::whole::{self, maybe};

/// Shortest time-out of a session, in milliseconds.
pub const SESSION_TTL_MIN_MS: u32 = 1_000;
/// Longest time-out of a session, in milliseconds: an hour.
pub const SESSION_TTL_MAX_MS: u32 = 3_600_000;
/// Time-out of a session that names none, in milliseconds.
pub const SESSION_TTL_MS: u32 = 30_000;
/// Largest number of holders of one lock.
pub const HOLDERS_MAX: u16 = 1_000;
/// Most locks of one session, held or waited for. Each new one rewrites the list of all.
pub const SESSION_LOCKS_MAX: usize = 4_096;

const fn ttl() -> u32 {
    SESSION_TTL_MS
}

const fn one_holder() -> u16 {
    1
}

/// A request for a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct OpenSession {
    /// The worker's own name, 1 to 128 characters.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 128))]
    pub client: String,
    /// The session's time-out, in milliseconds: 1,000 to 3,600,000. Default 30,000. The session
    /// ends if no call names it for this long.
    #[cfg_attr(feature = "openapi", schema(minimum = 1_000, maximum = 3_600_000))]
    #[serde(default = "ttl", with = "whole")]
    pub ttl_ms: u32,
}

/// A session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SessionState {
    /// The session's id. Only its owner should know it.
    pub session: String,
    /// The time until the session ends, in milliseconds, unless a call renews it.
    pub ttl_ms: u64,
    /// The locks that the session holds.
    #[serde(default)]
    pub locks: Vec<HeldLock>,
    /// The keys that the session waits for.
    #[serde(default)]
    pub waiting: Vec<String>,
    /// The keys whose locks have ended although the session has not. Stop the work on them.
    #[serde(default)]
    pub lost: Vec<String>,
}

/// A lock that a session holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HeldLock {
    /// The key.
    pub key: String,
    /// The fencing number. It is larger than that of every earlier lock on the key.
    pub fencing: u64,
}

/// The answer to the end of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SessionClosed {
    /// The keys whose locks and waiting claims ended.
    pub released: Vec<String>,
    /// The number of permits that ended.
    pub permits: u64,
}

/// How a session holds a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum LockMode {
    /// Beside other holders, at most `max` in total.
    #[default]
    Shared,
    /// Alone.
    Exclusive,
}

/// A request for a lock on a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ClaimLock {
    /// The session that will hold the lock.
    pub session: String,
    /// The key, in any form that `acquire` takes.
    pub key: String,
    /// The most holders of the key at once, this one included: 1 to 1,000. Default 1. If holders
    /// name different numbers, the smallest counts.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 1_000))]
    #[serde(default = "one_holder", with = "whole")]
    pub max: u16,
    /// `exclusive` waits until no other session holds the key. It needs `max` 1.
    #[serde(default)]
    pub mode: LockMode,
    /// The longest time to hold the call open, in milliseconds, at most 60,000. Default 0. The
    /// session is renewed meanwhile.
    #[serde(default, skip_serializing_if = "is_default", with = "whole")]
    pub wait_ms: u32,
    /// The idempotency key of this claim. A repeated call with the same id gets the same lock, and
    /// keeps its place in the queue. Without an id, the claim leaves the queue with its call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

/// The answer to [`ClaimLock`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum LockAnswer {
    /// The session holds the key.
    Held {
        /// The key.
        key: String,
        /// The fencing number. It is larger than that of every earlier lock on the key.
        fencing: u64,
        /// The time until the session ends, in milliseconds, unless a call renews it.
        ttl_ms: u64,
    },
    /// The key has too many holders.
    Wait {
        /// The key.
        key: String,
        /// The number of claims before this one in the key's queue.
        position: u32,
        /// The time after which to repeat the call, in milliseconds. With an id, the claim keeps
        /// its place meanwhile.
        retry_in_ms: u64,
    },
}

/// The end of a lock, or of a claim that waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ReleaseLock {
    /// The session that holds the lock.
    pub session: String,
    /// The key.
    pub key: String,
    /// The fencing number of the lock. If the session holds the key under another number, nothing
    /// is released, and the answer is 409.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "maybe")]
    pub fencing: Option<u64>,
}

/// The answer to [`ReleaseLock`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LockReleased {
    /// Whether the session had a lock or a waiting claim on the key.
    pub released: bool,
}

/// The key whose locks to return.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams, utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct LocksQuery {
    /// The key.
    pub key: String,
}

/// The locks of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct KeyLocks {
    /// The key.
    pub key: String,
    /// The holders, in the order of their arrival.
    pub holders: Vec<LockHolder>,
    /// The number of claims that wait.
    pub waiting: u32,
}

/// A holder of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LockHolder {
    /// The fencing number. A number that no holder has is stale.
    pub fencing: u64,
    /// The most holders that this one accepts, itself included.
    pub max: u16,
    /// The worker's name, if this coordinator knows the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// The time until the lock ends, in milliseconds, unless its session is renewed.
    pub ends_in_ms: u64,
}
