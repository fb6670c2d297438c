//! The changes that operators made.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A part of the audit log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams, utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
#[serde(deny_unknown_fields, default)]
pub struct AuditQuery {
    /// Only changes before the one with this `id`: the `next` of the page before.
    pub before: Option<u64>,
    /// The number of changes, at most 1,000. Default 100.
    pub limit: Option<u32>,
}

/// Changes, the newest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AuditPage {
    /// The changes.
    pub changes: Vec<AuditChange>,
    /// The cursor of the next page, which is sent as `before`; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
    /// Whether all of them are on disk. False without a state folder, and after a failed write.
    pub durable: bool,
}

/// One change.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AuditChange {
    /// Counts the changes of this coordinator.
    pub id: u64,
    /// The time by the coordinator's clock, milliseconds since 1970.
    pub at_ms: u64,
    /// The name of the caller's token; empty for the only token, and without tokens.
    pub token: String,
    /// The role of the caller's token.
    pub role: String,
    /// The caller's address.
    pub peer: String,
    /// The call: `PATCH /api/v1/keys/{key}`.
    pub call: String,
    /// The key, if the call names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The body of the call.
    pub body: String,
    /// The numbers before the change, by name; null: none was set.
    pub before: BTreeMap<String, Option<f64>>,
    /// The same numbers after the change.
    pub after: BTreeMap<String, Option<f64>>,
}
