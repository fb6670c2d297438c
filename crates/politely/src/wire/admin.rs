//! What operators see and set.

use serde::{Deserialize, Serialize};

use super::change::{self, Change};
use super::whole::maybe;

/// Which keys, in which order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams, utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
#[serde(deny_unknown_fields, default)]
pub struct KeysQuery {
    /// Only keys whose name contains this.
    pub q: Option<String>,
    /// Only keys in this state.
    pub state: Option<KeyState>,
    /// By what. Default `name`.
    pub sort: SortBy,
    /// The largest first.
    pub descending: bool,
    /// How many to skip.
    pub offset: u32,
    /// How many, at most 1,000. Default 100.
    pub limit: Option<u32>,
}

/// A column of the table of keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum SortBy {
    /// The key's name.
    #[default]
    Name,
    /// Requests per second.
    Rate,
    /// The learned ceiling.
    Ceiling,
    /// Slots taken.
    InFlight,
    /// Those in its line.
    Waiting,
    /// Refused, as a share of the reported.
    RefusedShare,
    /// Permits given.
    Granted,
    /// When it may be asked again.
    ReadyIn,
}

/// What a key is doing.
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
    /// Nothing leaves before a time.
    Hold,
    /// … which is further away than anybody should wait for.
    Parked,
    /// The host is in trouble.
    Breaker,
    /// The host blocks us.
    Quarantine,
    /// The engine that keeps its state is away, or what it keeps for the key cannot be read.
    Away,
}

/// One key in the table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct KeyRow {
    /// Its name.
    pub key: String,
    /// What it is doing.
    pub state: KeyState,
    /// In words: `waits 3.2 s: hold, Retry-After (429, Retry-After: 120)`.
    pub why: String,
    /// When a request may leave, milliseconds from now.
    pub ready_in_ms: u64,
    /// Requests per second, as it is set now; absent: no bound.
    pub rate: Option<f64>,
    /// The learned ceiling, requests per second.
    pub ceiling: Option<f64>,
    /// Tokens in its bucket now; below zero by what is owed.
    pub tokens: f64,
    /// Most tokens in its bucket.
    pub burst: f64,
    /// Slots taken.
    pub in_flight: u32,
    /// … of how many.
    pub in_flight_max: u32,
    /// Those in its line.
    pub waiting: u32,
    /// Permits given.
    pub granted: u64,
    /// Permits reported.
    pub reported: u64,
    /// Refused by the host.
    pub refused: u64,
    /// Refused, as a share of the reported.
    pub refused_share: f64,
    /// Median latency.
    pub latency_p50_ms: Option<f64>,
    /// 95th percentile of latency.
    pub latency_p95_ms: Option<f64>,
}

/// Part of the table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct KeyPage {
    /// The rows asked for.
    pub keys: Vec<KeyRow>,
    /// How many match.
    pub matching: u32,
    /// How many there are.
    pub total: u32,
}

/// All about one key.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct KeyDetail {
    /// As in the table.
    #[serde(flatten)]
    pub row: KeyRow,
    /// Permits given back.
    pub cancelled: u64,
    /// Permits never heard of again.
    pub expired: u64,
    /// What the operator set, if anything.
    pub limits: KeyPatch,
    /// The numbers in force, and who set each.
    pub in_force: InForce,
    /// What was learned.
    pub learned: Learned,
    /// The past, oldest first; one point per step.
    pub history: Vec<Point>,
    /// Length of a step.
    pub step_ms: u64,
    /// What was decided, newest first.
    pub decisions: Vec<Decision>,
    /// Its permits that are out, the oldest first; at most 100.
    pub out: Vec<Outstanding>,
}

/// Who set a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum SetBy {
    /// The program's default.
    #[default]
    Default,
    /// The profile.
    Profile,
    /// An operator: for this key, for all keys, or with a flag of `politely serve`.
    Operator,
    /// The law, from outcomes.
    Learned,
    /// The host's robots.txt, as a worker told it.
    #[serde(rename = "robots.txt")]
    Robots,
    /// A header of the host's answers.
    Header,
}

/// A number in force.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NumberInForce {
    /// The number; absent: no bound.
    pub value: Option<f64>,
    /// Who set it.
    pub set_by: SetBy,
}

/// The law in force.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LawInForce {
    /// `discover`, `aimd`, `advice` or `fixed`.
    pub value: String,
    /// Who set it.
    pub set_by: SetBy,
    /// Whether outcomes move the key's limits.
    pub learns: bool,
}

/// The numbers in force for a key.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct InForce {
    /// Requests per second.
    pub rate: NumberInForce,
    /// Requests back to back.
    pub burst: NumberInForce,
    /// Most requests under way.
    pub in_flight: NumberInForce,
    /// The law.
    pub law: LawInForce,
    /// Milliseconds of rest after each request, if there is a Crawl-delay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crawl_delay_ms: Option<NumberInForce>,
    /// Milliseconds that are left of the hold, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold_ms: Option<NumberInForce>,
}

/// What outcomes taught of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Learned {
    /// The rate that the law asks for, before all bounds; absent: none.
    pub rate: Option<f64>,
    /// The limit that was found, requests per second.
    pub ceiling: Option<f64>,
    /// The rate that the law `advice` suggests.
    pub suggested: Option<f64>,
    /// How often the rate was cut.
    pub cuts: u32,
}

/// One step of a key's past.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Point {
    /// It began this long ago.
    pub ago_ms: u64,
    /// The rate that was set, requests per second.
    pub rate: f64,
    /// Permits given.
    pub granted: u32,
    /// Outcomes by signal.
    pub ok: u32,
    /// 429s and their like.
    pub refused: u32,
    /// 5xx, time-outs, no answer.
    pub failed: u32,
    /// Block pages.
    pub blocked: u32,
    /// Median latency.
    pub latency_p50_ms: f64,
    /// 95th percentile of latency.
    pub latency_p95_ms: f64,
}

/// A decision, in words.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Decision {
    /// How long ago.
    pub ago_ms: u64,
    /// What.
    pub text: String,
}

/// A permit that is out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Outstanding {
    /// Its number. Its holder reports it under a name that nobody else is given.
    pub permit: String,
    /// The client that holds it.
    pub client: String,
    /// Since when.
    pub ago_ms: u64,
    /// Until its lease ends.
    pub lease_ms: u64,
}

/// What an operator sets for one key. Absent fields stay as they are; null takes a rate, a burst or a cap back.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct KeyPatch {
    /// Requests per second, 0.000001 to 1,000,000. An upper bound on a key that learns, and the rate
    /// itself on a key that does not.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<f64>, minimum = 0.000_001, maximum = 1_000_000.0))]
    #[serde(default, skip_serializing_if = "Change::is_keep")]
    pub rate: Change<f64>,
    /// Requests back to back.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<f64>, minimum = 1.0, maximum = 1_000_000.0))]
    #[serde(default, skip_serializing_if = "Change::is_keep")]
    pub burst: Change<f64>,
    /// Most requests under way.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u32>, minimum = 1))]
    #[serde(
        default,
        skip_serializing_if = "Change::is_keep",
        deserialize_with = "change::whole"
    )]
    pub in_flight: Change<u32>,
    /// The key's own law: `discover`, `aimd`, `advice` or `fixed`. Under `fixed` the rate, burst
    /// and in-flight cap that are set here are the limits themselves.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    #[serde(default, skip_serializing_if = "Change::is_keep")]
    pub law: Change<String>,
    /// `false`: outcomes no longer move what was learned; the numbers set here are the limits.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<bool>))]
    #[serde(default, skip_serializing_if = "Change::is_keep")]
    pub learn: Change<bool>,
    /// Milliseconds of rest after each request, in place of the Crawl-delay that workers tell. Zero
    /// is none.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u32>, minimum = 0, maximum = 86_400_000))]
    #[serde(
        default,
        skip_serializing_if = "Change::is_keep",
        deserialize_with = "change::whole"
    )]
    pub crawl_delay_ms: Change<u32>,
    /// Nothing leaves for so long, a year at most.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "maybe"
    )]
    #[cfg_attr(feature = "openapi", schema(maximum = 31_536_000_000_u64))]
    pub hold_ms: Option<u64>,
    /// Lifts hold, breaker, quarantine, and the Crawl-delay that workers told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unpark: Option<bool>,
    /// Forgets what was learned, told and set, an operator's hold included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forget: Option<bool>,
}

/// What holds for every key without numbers of its own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ConfigBody {
    /// The limits.
    pub crawling: Crawling,
    /// `crawler` or `api`.
    pub profile: String,
    /// `discover`, `aimd`, `fixed`, `advice`.
    pub law: String,
    /// What limits attach to: `host`, `site`, `address`, `egress+host`.
    pub key: String,
    /// Counts the changes.
    pub version: u64,
}

/// Limits per host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Crawling {
    /// Never more, requests per second; absent: no bound.
    pub rate_per_host: Option<f64>,
    /// Requests back to back.
    pub rate_burst: f64,
    /// What a stranger is asked first, requests per second.
    pub rate_start: f64,
    /// Most requests under way.
    pub in_flight: u32,
}

/// The control call: `{"crawling": {"rate_per_host": 2.0, "rate_burst": 5}}`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ConfigPatch {
    /// What is to change.
    #[serde(default)]
    pub crawling: CrawlingPatch,
    /// For which keys.
    #[serde(default, skip_serializing_if = "Apply::is_all")]
    pub apply: Apply,
}

/// The keys that a change of the configuration concerns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Apply {
    /// All keys.
    #[default]
    All,
    /// Keys that are created from now on. Known keys go on as they are, until the next change for
    /// all keys or a restart.
    New,
}

impl Apply {
    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "serde calls it with a reference"
    )]
    const fn is_all(&self) -> bool {
        matches!(self, Self::All)
    }
}

/// What is to change of [`Crawling`]. Absent fields stay as they are; null is what the coordinator was started with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CrawlingPatch {
    /// Never more, requests per second.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<f64>, minimum = 0.000_001, maximum = 1_000_000.0))]
    #[serde(default, skip_serializing_if = "Change::is_keep")]
    pub rate_per_host: Change<f64>,
    /// Requests back to back.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<f64>, minimum = 1.0, maximum = 1_000_000.0))]
    #[serde(default, skip_serializing_if = "Change::is_keep")]
    pub rate_burst: Change<f64>,
    /// What a stranger is asked first, requests per second.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<f64>, minimum = 0.000_001, maximum = 1_000_000.0))]
    #[serde(default, skip_serializing_if = "Change::is_keep")]
    pub rate_start: Change<f64>,
    /// Most requests under way.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u32>, minimum = 1))]
    #[serde(
        default,
        skip_serializing_if = "Change::is_keep",
        deserialize_with = "change::whole"
    )]
    pub in_flight: Change<u32>,
}

/// Something an operator may want to see.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Event {
    /// What kind; also the `event:` of the stream.
    pub kind: EventKind,
    /// The key, if it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// In words.
    pub text: String,
    /// Requests per second of the key from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// Nothing leaves for so long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold_ms: Option<u64>,
}

/// Kinds of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// Nothing leaves for a key before a time.
    Hold,
    /// A key's rate changed by a tenth or more.
    Rate,
    /// A key's host is in trouble.
    Breaker,
    /// A key's host blocks us.
    Quarantine,
    /// An operator set something.
    Operator,
    /// What holds for every key changed.
    Config,
    /// This reader was too slow, and events were dropped: read the table again.
    Missed,
}

/// How much of the fleet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams, utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
#[serde(deny_unknown_fields, default)]
pub struct StatsQuery {
    /// How many workers, at most 1,000. Default 1,000.
    pub workers: Option<u32>,
}

/// The fleet in numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FleetStats {
    /// Since the coordinator started.
    pub uptime_s: f64,
    /// Keys known.
    pub keys: u64,
    /// Permits given.
    pub granted: u64,
    /// Outcomes reported in time.
    pub reported: u64,
    /// … of which refusals.
    pub refused: u64,
    /// Permits given back.
    pub cancelled: u64,
    /// Permits never heard of again.
    pub expired: u64,
    /// Reports that came too late or twice.
    pub late: u64,
    /// Permits out now.
    pub live: u64,
    /// Items waiting in lines now.
    pub waiting: u64,
    /// Permits per second, over the last ten seconds.
    pub granted_per_s: f64,
    /// Refusals per second, over the last ten seconds.
    pub refused_per_s: f64,
    /// Bytes held for keys.
    pub memory: u64,
    /// Items granted without waiting, as a share of all items asked for; 1 before the first.
    pub hit_rate: f64,
    /// How long granted items waited that had to, on average.
    pub average_wait_ms: f64,
    /// Keys for which nothing may leave now.
    pub limited_keys: u64,
    /// The workers, the most active first; at most 1,000.
    pub workers: Vec<WorkerStats>,
}

/// One worker in numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WorkerStats {
    /// Its name.
    pub client: String,
    /// Permits given.
    pub granted: u64,
    /// Outcomes reported in time.
    pub reported: u64,
    /// … of which refusals.
    pub refused: u64,
    /// Permits given back.
    pub cancelled: u64,
    /// Permits never heard of again: idle leases.
    pub expired: u64,
    /// Reports that came too late or twice.
    pub late: u64,
    /// Permits out now.
    pub live: u64,
    /// Answers that said wait.
    pub waits: u64,
    /// How long its calls were held open, all together.
    pub waited_ms: u64,
    /// When it was last heard of.
    pub seen_ago_ms: u64,
}
