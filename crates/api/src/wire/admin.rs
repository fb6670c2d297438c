//! Bodies of the operators' calls: one key, configuration, events and statistics.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::absent::is_default;
use super::change::{self, Change};
use super::table::KeyRow;
use super::whole::maybe;

/// All details of one key.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct KeyDetail {
    /// The key's row of the table.
    #[serde(flatten)]
    pub row: KeyRow,
    /// The number of permits given back.
    pub cancelled: u64,
    /// The number of permits whose leases expired without a report.
    pub expired: u64,
    /// The limits that the operator set for this key, if any.
    pub limits: KeyPatch,
    /// The values in force, and the source of each.
    pub in_force: InForce,
    /// The state that outcomes taught.
    pub learned: Learned,
    /// The remainder of each declared limit.
    #[serde(default)]
    pub budgets: Vec<BudgetLeft>,
    /// The key's history, oldest first, with one point per step.
    pub history: Vec<Point>,
    /// The length of a step, in milliseconds.
    pub step_ms: u64,
    /// The decisions about the key, newest first.
    pub decisions: Vec<Decision>,
    /// The key's outstanding permits, oldest first; at most 100.
    pub out: Vec<Outstanding>,
}

/// The remainder of a declared limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BudgetLeft {
    /// The limit: `1000/day@UTC`.
    pub limit: String,
    /// The quantity that may still be spent in the present window.
    pub remaining: u64,
    /// The time until the oldest spent quantity counts no more, in milliseconds. Zero if nothing is
    /// spent.
    pub resets_in_ms: u64,
}

/// The source of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum SetBy {
    /// The program's default.
    #[default]
    Default,
    /// The profile.
    Profile,
    /// An operator, for this key, for all keys, or with a flag of `politely serve`.
    Operator,
    /// The law, from outcomes.
    Learned,
    /// The host's robots.txt, as a worker reported it.
    #[serde(rename = "robots.txt")]
    Robots,
    /// A header of the host's responses.
    Header,
}

/// A value in force.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NumberInForce {
    /// The value. Absent if there is no bound.
    pub value: Option<f64>,
    /// The source of the value.
    pub set_by: SetBy,
}

/// The law in force.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LawInForce {
    /// The law: `discover`, `aimd`, `advice` or `fixed`.
    pub value: String,
    /// The source of the law.
    pub set_by: SetBy,
    /// Whether outcomes change the key's limits.
    pub learns: bool,
}

/// The values in force for a key.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct InForce {
    /// The rate, in requests per second.
    pub rate: NumberInForce,
    /// The maximum number of requests back to back.
    pub burst: NumberInForce,
    /// The maximum number of requests in flight.
    pub in_flight: NumberInForce,
    /// The law.
    pub law: LawInForce,
    /// The pause after each request, in milliseconds. Absent if there is no Crawl-delay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crawl_delay_ms: Option<NumberInForce>,
    /// The remaining time of the hold, in milliseconds. Absent if there is no hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold_ms: Option<NumberInForce>,
}

/// The state of a key that outcomes taught.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Learned {
    /// The rate that the law asks for, before all bounds, in requests per second. Absent if there
    /// is none.
    pub rate: Option<f64>,
    /// The limit that was found, in requests per second.
    pub ceiling: Option<f64>,
    /// The rate that the law `advice` suggests, in requests per second.
    pub suggested: Option<f64>,
    /// The number of cuts of the rate.
    pub cuts: u32,
    /// The share of requests that fail whatever the rate, 0 to 1. Absent if none is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise: Option<f64>,
}

/// One step of a key's history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Point {
    /// The time since the step began, in milliseconds.
    pub ago_ms: u64,
    /// The rate in force, in requests per second.
    pub rate: f64,
    /// The number of permits granted.
    pub granted: u32,
    /// The number of requests served.
    pub ok: u32,
    /// The number of requests refused, with a 429 or similar.
    pub refused: u32,
    /// The number of requests that failed: with a 5xx, a time-out or no response.
    pub failed: u32,
    /// The number of block pages.
    pub blocked: u32,
    /// The median latency, in milliseconds.
    pub latency_p50_ms: f64,
    /// The 95th percentile of latency, in milliseconds.
    pub latency_p95_ms: f64,
}

/// A decision about a key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Decision {
    /// The time since the decision, in milliseconds.
    pub ago_ms: u64,
    /// The decision in words.
    pub text: String,
}

/// An outstanding permit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Outstanding {
    /// The permit's number. This is not the id that its holder reports.
    pub permit: String,
    /// The client that holds the permit.
    pub client: String,
    /// The time since the grant, in milliseconds.
    pub ago_ms: u64,
    /// The remaining time of the lease, in milliseconds.
    pub lease_ms: u64,
}

/// The name of all budgets of a key in [`KeyPatch::reset_budget`].
pub const ALL_BUDGETS: &str = "all";

/// Texts of an operator about a key, by name.
pub type Metadata = BTreeMap<String, String>;

/// The limits that an operator sets for one key. Absent fields stay unchanged. Null removes a rate,
/// a burst or a cap.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct KeyPatch {
    /// The rate, in requests per second, 0.000001 to 1,000,000. For a key that learns, this is an
    /// upper bound; otherwise it is the rate itself.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<f64>, minimum = 0.000_001, maximum = 1_000_000.0))]
    #[serde(default, skip_serializing_if = "is_default")]
    pub rate: Change<f64>,
    /// The maximum number of requests back to back.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<f64>, minimum = 1.0, maximum = 1_000_000.0))]
    #[serde(default, skip_serializing_if = "is_default")]
    pub burst: Change<f64>,
    /// The maximum number of requests in flight.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u32>, minimum = 1))]
    #[serde(default, skip_serializing_if = "is_default", with = "change::whole")]
    pub in_flight: Change<u32>,
    /// The declared limits of this key, in place of those of all keys: `["10/s", "1000/day@UTC",
    /// "100 concurrent"]`. An empty list means no limit.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Vec<String>>))]
    #[serde(default, skip_serializing_if = "is_default")]
    pub limits: Change<Vec<String>>,
    /// The key's own law: `discover`, `aimd`, `advice` or `fixed`. With `fixed`, the rate, burst
    /// and in-flight cap that are set here are the limits themselves.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    #[serde(default, skip_serializing_if = "is_default")]
    pub law: Change<String>,
    /// Whether outcomes change the learned state. If `false`, the values that are set here are the
    /// limits.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<bool>))]
    #[serde(default, skip_serializing_if = "is_default")]
    pub learn: Change<bool>,
    /// The pause after each request, in milliseconds. It replaces the Crawl-delay that workers
    /// report. Zero means no pause.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u32>, minimum = 0, maximum = 86_400_000))]
    #[serde(default, skip_serializing_if = "is_default", with = "change::whole")]
    pub crawl_delay_ms: Change<u32>,
    /// Texts of the operator, by name. The coordinator keeps them and does not read them. They
    /// replace all earlier ones. At most 32 entries, and 4,096 bytes in all.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<BTreeMap<String, String>>))]
    #[serde(default, skip_serializing_if = "is_default")]
    pub metadata: Change<Metadata>,
    /// The length of a hold from now, in milliseconds, at most a year. Nothing leaves for the key
    /// until it ends.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "maybe")]
    #[cfg_attr(feature = "openapi", schema(maximum = 31_536_000_000_u64))]
    pub hold_ms: Option<u64>,
    /// Whether to lift the hold, breaker, quarantine, and the Crawl-delay that workers reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unpark: Option<bool>,
    /// Whether to delete all that the key learned, all that workers reported and all that operators
    /// set, including an operator's hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forget: Option<bool>,
    /// The budget to make whole, as `budgets` of the key names it: `1000/day@UTC`, or `all`. What
    /// was spent of its present window counts no more. Outstanding permits give nothing back to it
    /// and owe it nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reset_budget: Option<String>,
}

/// The configuration of every key without limits of its own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ConfigBody {
    /// The limits.
    pub crawling: Crawling,
    /// The profile: `crawler` or `api`.
    pub profile: String,
    /// The law: `discover`, `aimd`, `fixed` or `advice`.
    pub law: String,
    /// The kind of key that limits attach to: `host`, `site`, `address` or `egress+host`.
    pub key: String,
    /// The number of changes so far.
    pub version: u64,
}

/// Limits per host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Crawling {
    /// The highest rate, in requests per second. Absent if there is no bound.
    pub rate_per_host: Option<f64>,
    /// The maximum number of requests back to back.
    pub rate_burst: f64,
    /// The first rate of a new key, in requests per second.
    pub rate_start: f64,
    /// The maximum number of requests in flight.
    pub in_flight: u32,
    /// The declared limits of each key.
    #[serde(default)]
    pub limits: Vec<String>,
}

/// A change of the configuration: `{"crawling": {"rate_per_host": 2.0, "rate_burst": 5}}`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ConfigPatch {
    /// The limits to change.
    #[serde(default)]
    pub crawling: CrawlingPatch,
    /// The keys to change.
    #[serde(default, skip_serializing_if = "is_default")]
    pub apply: Apply,
}

/// The keys that a change of the configuration applies to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Apply {
    /// All keys.
    #[default]
    All,
    /// Keys that are created from now on. Existing keys stay unchanged until the next change for
    /// all keys, also after a restart.
    New,
}

/// A change of [`Crawling`]. Absent fields stay unchanged. Null restores the value that the
/// coordinator was started with.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CrawlingPatch {
    /// The highest rate, in requests per second.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<f64>, minimum = 0.000_001, maximum = 1_000_000.0))]
    #[serde(default, skip_serializing_if = "is_default")]
    pub rate_per_host: Change<f64>,
    /// The maximum number of requests back to back.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<f64>, minimum = 1.0, maximum = 1_000_000.0))]
    #[serde(default, skip_serializing_if = "is_default")]
    pub rate_burst: Change<f64>,
    /// The first rate of a new key, in requests per second.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<f64>, minimum = 0.000_001, maximum = 1_000_000.0))]
    #[serde(default, skip_serializing_if = "is_default")]
    pub rate_start: Change<f64>,
    /// The maximum number of requests in flight.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u32>, minimum = 1))]
    #[serde(default, skip_serializing_if = "is_default", with = "change::whole")]
    pub in_flight: Change<u32>,
    /// The declared limits of each key: `["10/s", "1000/day@UTC", "100 concurrent"]`. An empty list
    /// means no limit.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Vec<String>>))]
    #[serde(default, skip_serializing_if = "is_default")]
    pub limits: Change<Vec<String>>,
}

/// The workers to return.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams, utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
#[serde(deny_unknown_fields, default)]
pub struct StatsQuery {
    /// The number of workers to return, at most 1,000. Default 1,000.
    pub workers: Option<u32>,
}

/// Statistics of the coordinator and its workers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FleetStats {
    /// The time since the coordinator started, in seconds.
    pub uptime_s: f64,
    /// The number of keys.
    pub keys: u64,
    /// The number of permits granted.
    pub granted: u64,
    /// The number of outcomes reported in time.
    pub reported: u64,
    /// The number of refusals among them.
    pub refused: u64,
    /// The number of permits given back.
    pub cancelled: u64,
    /// The number of permits whose leases expired without a report.
    pub expired: u64,
    /// The number of reports that came late or twice.
    pub late: u64,
    /// The number of outstanding permits.
    pub live: u64,
    /// The number of items that wait in queues.
    pub waiting: u64,
    /// The number of permits granted per second, over the last ten seconds.
    pub granted_per_s: f64,
    /// The number of refusals per second, over the last ten seconds.
    pub refused_per_s: f64,
    /// The memory that keys occupy, in bytes.
    pub memory: u64,
    /// The share of requested items that met a limit and had to wait, since the start. A wait for
    /// the engine does not count. An item that is requested again counts again. 0 before the first
    /// item.
    pub hit_rate: f64,
    /// The share of requested items that their keys granted at the first decision.
    pub granted_at_once: f64,
    /// The average wait of the granted items that had to wait, in milliseconds.
    pub average_wait_ms: f64,
    /// The number of keys for which nothing may leave now.
    pub limited_keys: u64,
    /// The workers, most active first; at most 1,000.
    pub workers: Vec<WorkerStats>,
}

/// Statistics of one worker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WorkerStats {
    /// The worker's name.
    pub client: String,
    /// The number of permits granted.
    pub granted: u64,
    /// The number of outcomes reported in time.
    pub reported: u64,
    /// The number of refusals among them.
    pub refused: u64,
    /// The number of permits given back.
    pub cancelled: u64,
    /// The number of permits whose leases expired without a report.
    pub expired: u64,
    /// The number of reports that came late or twice.
    pub late: u64,
    /// The number of outstanding permits.
    pub live: u64,
    /// The number of items answered with `wait`.
    pub waits: u64,
    /// The total time for which the worker's calls were held open, in milliseconds.
    pub waited_ms: u64,
    /// The time since the worker's last call, in milliseconds.
    pub seen_ago_ms: u64,
}
