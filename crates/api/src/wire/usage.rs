//! Bodies of `audit`: what each worker did.

use serde::{Deserialize, Serialize};

use super::absent::is_default;
use super::statuses::StatusCounts;

/// The rows to return.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
#[serde(deny_unknown_fields, default)]
pub struct UsageQuery {
    /// What a row is about: a worker, a key, or an account. An account is a token's name.
    pub by: UsageBy,
    /// The length of a step, in hours or days: `1h` to `720h`, `1d` to `30d`. Default `1h`.
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>, example = "1h"))]
    pub step: UsageStep,
    /// The beginning, in seconds since 1970. It is rounded down to an hour. Default: 23 hours
    /// before this hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<u64>,
    /// The end, in seconds since 1970. It is rounded up to an hour. Default: now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<u64>,
    /// Return only rows with this name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// The length of a step: 1 to 720 hours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct UsageStep(u32);

impl UsageStep {
    /// The longest step, 720 hours.
    pub const LONGEST: Self = Self(720);

    /// Returns the step in hours.
    pub const fn hours(self) -> u32 {
        self.0
    }
}

impl Default for UsageStep {
    fn default() -> Self {
        Self(1)
    }
}

/// A text that is no step.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not a step; use 1h to 720h, or 1d to 30d")]
pub struct NoUsageStep(String);

impl std::str::FromStr for UsageStep {
    type Err = NoUsageStep;

    fn from_str(text: &str) -> Result<Self, NoUsageStep> {
        let wrong = || NoUsageStep(text.chars().take(20).collect());
        let (number, unit) = match (text.strip_suffix('h'), text.strip_suffix('d')) {
            (Some(number), _) => (number, 1),
            (_, Some(number)) => (number, 24),
            _ => return Err(wrong()),
        };
        let number: u32 = number.parse().map_err(|_| wrong())?;
        let hours = number
            .checked_mul(unit)
            .filter(|hours| (1..=720).contains(hours));
        hours.map(Self).ok_or_else(wrong)
    }
}

impl TryFrom<String> for UsageStep {
    type Error = NoUsageStep;

    fn try_from(text: String) -> Result<Self, NoUsageStep> {
        text.parse()
    }
}

impl From<UsageStep> for String {
    fn from(step: UsageStep) -> Self {
        format!("{}h", step.0)
    }
}

/// What a row is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum UsageBy {
    /// A worker.
    #[default]
    Worker,
    /// A key.
    Key,
    /// A token.
    Account,
}

/// Counts of a worker's requests. Absent counts are 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct UsageCounts {
    /// The number of permits granted.
    #[serde(skip_serializing_if = "is_default")]
    pub granted: u64,
    /// The number of outcomes with the signal `Ok`.
    #[serde(skip_serializing_if = "is_default")]
    pub ok: u64,
    /// The number of outcomes with the signal `RateLimited`: refusals by a limit.
    #[serde(skip_serializing_if = "is_default")]
    pub rate_limited: u64,
    /// The number of outcomes with the signal `Overloaded`.
    #[serde(skip_serializing_if = "is_default")]
    pub overloaded: u64,
    /// The number of outcomes with the signal `Unreachable`.
    #[serde(skip_serializing_if = "is_default")]
    pub unreachable: u64,
    /// The number of outcomes with the signal `Blocked`: challenges and block pages.
    #[serde(skip_serializing_if = "is_default")]
    pub blocked: u64,
    /// The number of outcomes with the signal `UrlError`.
    #[serde(skip_serializing_if = "is_default")]
    pub url_error: u64,
    /// The number of grants that were waited for.
    #[serde(skip_serializing_if = "is_default")]
    pub waits: u64,
    /// The sum of these waits, in milliseconds.
    #[serde(skip_serializing_if = "is_default")]
    pub waited_ms: u64,
    /// The sum of the bytes that were reported.
    #[serde(skip_serializing_if = "is_default")]
    pub bytes: u64,
    /// The number of permits whose leases expired without a report.
    #[serde(skip_serializing_if = "is_default")]
    pub expired: u64,
    /// The answers by status. `none` counts requests without a response, and `other` the statuses
    /// beyond the first 32.
    #[serde(skip_serializing_if = "StatusCounts::is_empty")]
    #[cfg_attr(feature = "openapi", schema(value_type = std::collections::BTreeMap<String, u64>))]
    pub statuses: StatusCounts,
}

impl UsageCounts {
    /// Adds the counts of `other`.
    pub fn add(&mut self, other: &Self) {
        self.granted += other.granted;
        self.ok += other.ok;
        self.rate_limited += other.rate_limited;
        self.overloaded += other.overloaded;
        self.unreachable += other.unreachable;
        self.blocked += other.blocked;
        self.url_error += other.url_error;
        self.waits += other.waits;
        self.waited_ms += other.waited_ms;
        self.bytes += other.bytes;
        self.expired += other.expired;
        self.statuses.add(&other.statuses);
    }
}

/// The counts of a name in one step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UsageRow {
    /// The beginning of the step, in seconds since 1970.
    pub at_s: u64,
    /// The worker, key or account. Empty for the account of callers without a named token.
    pub name: String,
    /// The counts.
    #[serde(flatten)]
    pub counts: UsageCounts,
}

/// The rows in the order of time and name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UsagePage {
    /// The rows, at most 10,000.
    pub rows: Vec<UsageRow>,
    /// Whether there are more rows. Use a longer step, a later beginning, or a name.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
    /// The beginnings of the hours whose counts may be incomplete, in seconds since 1970. A
    /// coordinator was killed in them or is cut off, or this one does not know them whole.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub incomplete: Vec<u64>,
}
