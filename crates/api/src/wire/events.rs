//! Bodies of the stream of events.

use serde::{Deserialize, Serialize};

/// The events to stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams, utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
#[serde(deny_unknown_fields, default)]
pub struct EventsQuery {
    /// Stream only events of this key.
    pub key: Option<String>,
    /// Stream only events of keys whose names begin with this text.
    pub prefix: Option<String>,
    /// Stream only events of these kinds, separated by commas. `missed` is always streamed.
    pub kind: Option<String>,
    /// The id of the last event that was read, if the header `Last-Event-ID` cannot be sent.
    pub last_event_id: Option<String>,
}

/// An event for operators.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Event {
    /// The kind of event. It is also the `event:` of the stream.
    pub kind: EventKind,
    /// The key, if the event concerns a key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The event in words.
    pub text: String,
    /// The key's rate from now on, in requests per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// The length of the hold, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold_ms: Option<u64>,
}

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// A key has a hold: nothing leaves until it ends.
    Hold,
    /// A key's rate changed by a tenth or more.
    Rate,
    /// A key's breaker opened because its host fails.
    Breaker,
    /// A key's host blocks the client.
    Quarantine,
    /// An operator changed a setting.
    Operator,
    /// The configuration of all keys changed.
    Config,
    /// A session holds a key, or has released it.
    Lock,
    /// An answer fits a rule of the policy that says `notify`.
    Answer,
    /// The share of blocks among a key's answers passed a threshold.
    Blocks,
    /// Events were dropped because this reader was too slow. Read the table of keys again.
    Missed,
}
