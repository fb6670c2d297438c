//! The answer to a change of the policy.

use serde::{Deserialize, Serialize};

/// The policy that is in force now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PolicyBody {
    /// The number of rules.
    pub rules: u64,
}
