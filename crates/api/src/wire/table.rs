//! Bodies of the table of keys.

use serde::{Deserialize, Serialize};

use super::KeyPatch;

/// The keys to return, and their order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams, utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
#[serde(deny_unknown_fields, default)]
pub struct KeysQuery {
    /// Return only keys whose name contains this text.
    pub q: Option<String>,
    /// Return only keys whose name begins with this text.
    pub prefix: Option<String>,
    /// Return only keys after this one: the `next` of the page before. It needs `sort=name` and
    /// excludes `descending` and `offset`. An empty text is before all keys.
    pub cursor: Option<String>,
    /// Return only keys in this state.
    pub state: Option<KeyState>,
    /// Return only keys with this need.
    pub needs: Option<Need>,
    /// Whether to return the last half hour of each key in `minutes`.
    pub minutes: bool,
    /// The column to sort by. Default `attention`.
    pub sort: SortBy,
    /// Whether to return the largest value first.
    pub descending: bool,
    /// The number of keys to skip.
    pub offset: u32,
    /// The number of keys to return, at most 1,000. Default 100.
    pub limit: Option<u32>,
}

/// A column of the table of keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum SortBy {
    /// The key's name.
    Name,
    /// The rate, in requests per second.
    Rate,
    /// The learned ceiling.
    Ceiling,
    /// The number of slots taken.
    InFlight,
    /// The number of items in the key's queue.
    Waiting,
    /// The share of refusals among the reported outcomes.
    RefusedShare,
    /// The number of permits granted.
    Granted,
    /// The time until a request may leave.
    ReadyIn,
    /// The most urgent need, most urgent first; then the number of items in the queue, and the
    /// name.
    #[default]
    Attention,
}

/// A reason why a key needs an operator's attention, most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Need {
    /// The engine that stores the key's state is unavailable, or the state cannot be decoded.
    Unavailable,
    /// The host shows block pages.
    Blocked,
    /// The host fails, and its breaker is open.
    Failing,
    /// Callers wait, and the key granted nothing for a minute or will grant nothing for a minute.
    Starved,
    /// The host refused more than 1 % of the requests of the last five minutes, and two or more.
    Refused,
    /// Leases expired without a report in the last five minutes.
    Expiring,
}

impl Need {
    /// All needs, most urgent first.
    pub const ALL: [Self; 6] = [
        Self::Unavailable,
        Self::Blocked,
        Self::Failing,
        Self::Starved,
        Self::Refused,
        Self::Expiring,
    ];
}

/// The number of keys with each need. A key with several needs counts for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NeedCounts {
    /// Keys whose engine is unavailable.
    pub unavailable: u32,
    /// Keys whose host shows block pages.
    pub blocked: u32,
    /// Keys whose host fails.
    pub failing: u32,
    /// Keys whose callers wait for too long.
    pub starved: u32,
    /// Keys whose host refuses more than 1 %.
    pub refused: u32,
    /// Keys whose leases expire without a report.
    pub expiring: u32,
}

/// The last half hour of a key, in steps of one minute, oldest first. The last minute is not over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Minutes {
    /// The number of permits granted in each minute.
    pub granted: Vec<u32>,
    /// The number of requests refused in each minute.
    pub refused: Vec<u32>,
}

/// The state of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum KeyState {
    /// A request may leave now.
    #[default]
    Ready,
    /// The next departure slot is later.
    Pacing,
    /// All in-flight slots are taken.
    Full,
    /// The byte budget is in debt.
    Bytes,
    /// A declared limit has no room.
    Budget,
    /// Nothing leaves until the hold ends.
    Hold,
    /// The hold is longer than the longest wait that is allowed.
    Parked,
    /// The breaker is open because the host fails.
    Breaker,
    /// The host blocks the client.
    Quarantine,
    /// The engine that stores the key's state is unavailable, or the stored state cannot be
    /// decoded.
    Unavailable,
}

/// A row of the table of keys.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct KeyRow {
    /// The key's name.
    pub key: String,
    /// The key's state.
    pub state: KeyState,
    /// The state in words: `waits 3.2 s: hold, Retry-After (429, Retry-After: 120)`.
    pub why: String,
    /// The time until a request may leave, in milliseconds.
    pub ready_in_ms: u64,
    /// The current rate, in requests per second. Absent if there is no bound.
    pub rate: Option<f64>,
    /// The learned ceiling, in requests per second.
    pub ceiling: Option<f64>,
    /// The number of tokens in the key's bucket now. Negative if the bucket is in debt.
    pub tokens: f64,
    /// The maximum number of tokens in the key's bucket.
    pub burst: f64,
    /// The number of slots taken.
    pub in_flight: u32,
    /// The maximum number of requests in flight.
    pub in_flight_max: u32,
    /// The number of items in the key's queue.
    pub waiting: u32,
    /// The number of permits granted.
    pub granted: u64,
    /// The number of permits reported.
    pub reported: u64,
    /// The number of requests that the host refused.
    pub refused: u64,
    /// The share of refusals among the reported outcomes.
    pub refused_share: f64,
    /// The median latency, in milliseconds.
    pub latency_p50_ms: Option<f64>,
    /// The 95th percentile of latency, in milliseconds.
    pub latency_p95_ms: Option<f64>,
    /// The settings that operators made for this key, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set: Option<Box<KeyPatch>>,
    /// Why the key needs attention, most urgent first. Only in the table of keys.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<Need>,
    /// The last half hour, if the query asks for it and the coordinator has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minutes: Option<Minutes>,
}

/// A page of the table of keys.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct KeyPage {
    /// The rows of the page.
    pub keys: Vec<KeyRow>,
    /// The cursor of the next page. Absent at the end, and in another order than that of names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// The number of keys that match the query. With a cursor, only keys after it count.
    pub matching: u32,
    /// The number of all keys.
    pub total: u32,
    /// The number of keys with each need, among all keys.
    #[serde(default)]
    pub needs: NeedCounts,
    /// The trouble of the engine: why it is unavailable now, or a setting with which it loses
    /// acknowledged changes while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine_error: Option<String>,
    /// Settings with which the engine loses acknowledged changes at a restart.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub engine_warnings: Vec<String>,
}
