//! Bodies of the audit log: the changes that operators made.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The page of the audit log to return.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams, utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
#[serde(deny_unknown_fields, default)]
pub struct AuditQuery {
    /// Return only changes before the change with this `id`. Set it to the `next` of the previous
    /// page.
    pub before: Option<u64>,
    /// The number of changes to return, at most 1,000. Default 100.
    pub limit: Option<u32>,
}

/// A page of the audit log, newest change first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AuditPage {
    /// The changes, newest first.
    pub changes: Vec<AuditChange>,
    /// The cursor of the next page; send it as `before`. Absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
    /// Whether all changes are on disk. False without a state directory, and after a failed write.
    pub durable: bool,
}

/// A change that an operator made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AuditChange {
    /// The sequence number of the change in this coordinator.
    pub id: u64,
    /// The time by the coordinator's clock, in milliseconds since 1970.
    pub at_ms: u64,
    /// The name of the caller's token. Empty for the only token, and without tokens.
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
    /// The values before the change, by name. Null if none was set.
    pub before: BTreeMap<String, Option<f64>>,
    /// The same values after the change.
    pub after: BTreeMap<String, Option<f64>>,
}
