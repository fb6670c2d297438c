//! The answer to a change of the policy.

use serde::{Deserialize, Serialize};

/// The policy that is in force now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PolicyBody {
    /// The number of rules.
    pub rules: u64,
}

/// How a policy is replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams, utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
#[serde(deny_unknown_fields, default)]
pub struct PolicyQuery {
    /// `true`: the policy may have no rule, which lifts all limits of rules. Default: `false`.
    pub allow_empty: bool,
}
