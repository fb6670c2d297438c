//! Bodies of changes of many keys.

use serde::{Deserialize, Serialize};

use super::{KeyPatch, KeyState};

/// The keys to change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams, utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
#[serde(deny_unknown_fields, default)]
pub struct KeysPattern {
    /// Change only keys whose name begins with this text. At least one field is required; an empty
    /// text means all keys.
    pub prefix: Option<String>,
    /// Change only keys whose name contains this text.
    pub q: Option<String>,
    /// Change only keys in this state.
    pub state: Option<KeyState>,
}

/// Keys to create or change.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ImportKeys {
    /// The keys, 1 to 4,096.
    #[cfg_attr(feature = "openapi", schema(min_items = 1, max_items = 4096))]
    pub keys: Vec<ImportedKey>,
}

/// A key to create or change.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ImportedKey {
    /// The key, in any form that `acquire` takes.
    pub key: String,
    /// The settings. Absent fields stay as they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set: Option<Box<KeyPatch>>,
}

/// The answer to a change of many keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct KeysChanged {
    /// The number of keys that were created or changed.
    pub changed: u32,
    /// The keys that were not changed, at most 100.
    #[serde(default)]
    pub failed: Vec<KeyFailure>,
}

/// A key that was not changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct KeyFailure {
    /// The key as it was sent.
    pub key: String,
    /// The reason.
    pub detail: String,
}
