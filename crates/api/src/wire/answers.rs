//! Bodies of the counts of answers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::statuses::StatusCounts;

/// The answers to count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams, utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
#[serde(deny_unknown_fields, default)]
pub struct AnswersQuery {
    /// Count only answers of this key. Default: all keys.
    pub key: Option<String>,
    /// The number of hours to count, 1 to 24, the current one included. Default: 24.
    #[cfg_attr(feature = "openapi", param(minimum = 1, maximum = 24))]
    pub hours: u32,
}

impl Default for AnswersQuery {
    fn default() -> Self {
        Self {
            key: None,
            hours: 24,
        }
    }
}

/// How many answers came, by status and by meaning.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AnswerCounts {
    /// The number of hours that are counted.
    pub hours: u32,
    /// The number of answers.
    pub answers: u64,
    /// Answers by status. `none` counts requests without a response, and `other` the statuses
    /// beyond the first 32.
    #[cfg_attr(feature = "openapi", schema(value_type = BTreeMap<String, u64>))]
    pub statuses: StatusCounts,
    /// Answers by meaning: `ok`, `rate_limited`, `overloaded`, `unreachable`, `blocked`,
    /// `url_error`.
    pub signals: BTreeMap<String, u64>,
    /// The beginnings of the hours whose counts may be incomplete, in seconds since 1970, as in the
    /// audit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub incomplete: Vec<u64>,
}
