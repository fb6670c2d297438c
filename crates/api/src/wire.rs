//! The JSON bodies of `/api/v1`, which workers and the coordinator exchange.
//!
//! Both ends use the same types. All times are relative milliseconds, so the workers' clocks do not
//! matter. `start_in_ms` and `retry_in_ms` count from the arrival of the answer. A holder counts
//! its lease from the moment at which it *sent* the call: a process that was suspended between the
//! answer and its reading must not believe that the lease has just begun. An unknown field is an
//! error that names the field. An absent option keeps its default.
//!
//! | call | body | answer |
//! | --- | --- | --- |
//! | `POST acquire` | [`Acquire`] | [`Acquired`] |
//! | `POST report` | [`Report`] | [`Reported`] |
//! | `POST exchange` | [`Exchange`]: a report and an acquire in one round trip | [`Exchanged`] |
//! | `POST renew` | [`Permits`] | [`Renewed`] |
//! | `POST cancel` | [`Cancel`] | [`Cancelled`] |
//! | `POST sessions` | [`OpenSession`] | [`SessionState`] |
//! | `PUT sessions/{session}` | | [`SessionState`] |
//! | `DELETE sessions/{session}` | | [`SessionClosed`] |
//! | `POST locks` | [`ClaimLock`] | [`LockAnswer`] |
//! | `POST locks/release` | [`ReleaseLock`] | [`LockReleased`] |
//! | `GET locks` | query: [`LocksQuery`] | [`KeyLocks`] |
//! | `GET keys` | query: [`KeysQuery`] | [`KeyPage`] |
//! | `POST keys` | [`ImportKeys`] | [`KeysChanged`] |
//! | `PATCH keys` | query: [`KeysPattern`]; [`KeyPatch`] | [`KeysChanged`] |
//! | `GET keys/{key}` | | [`KeyDetail`] |
//! | `PATCH keys/{key}` | [`KeyPatch`] | [`KeyDetail`] |
//! | `GET config`, `PATCH config` | [`ConfigPatch`] | [`ConfigBody`] |
//! | `GET events` | query: [`EventsQuery`] | [`Event`] |
//! | `GET stats` | query: [`StatsQuery`] | [`FleetStats`] |
//! | `GET audit` | query: [`UsageQuery`] | [`UsagePage`] |
//! | `GET audit/changes` | query: [`AuditQuery`] | [`AuditPage`] |
//! | `POST frontier/{crawl}/put` | one [`FrontierPage`] per line | one [`PutAnswer`] per line |
//! | `POST frontier/{crawl}/take` | [`FrontierTake`] | [`FrontierTaken`] |
//! | `POST frontier/{crawl}/done` | [`FrontierDone`] | [`FrontierDoneAnswer`] |
//! | `POST frontier/{crawl}/exchange` | [`FrontierExchange`] | [`FrontierExchanged`] |
//! | `GET frontier` | | [`FrontierCrawls`] |
//! | `GET frontier/{crawl}` | | [`FrontierCounts`] |
//! | `GET frontier/{crawl}/domains` | query: [`FrontierDomainsQuery`] | [`FrontierDomains`] |
//! | `GET frontier/{crawl}/owners` | query: [`FrontierOwnersQuery`] | [`FrontierOwners`] |
//! | `GET frontier/{crawl}/pages` | query: [`FrontierPagesQuery`] | [`FrontierPages`] |
//! | `GET frontier/{crawl}/urls/{url}` | query: [`FrontierUrlQuery`] | [`FrontierUrl`] |
//! | `POST frontier/{crawl}/purge`, `delete` | [`FrontierPart`] | nothing |
//! | `POST frontier/{crawl}/block` | [`FrontierBlock`] | nothing |
//! | `POST frontier/{crawl}/delay` | [`FrontierDelay`] | nothing |
//! | `POST frontier/{crawl}/pause` | [`FrontierPause`] | [`FrontierCounts`] |
//!
//! An error in the call as a whole is an RFC 9457 [`Problem`]. An error in one item is the answer
//! to that item.

mod absent;
mod admin;
mod answers;
mod audit;
mod change;
mod cost;
mod events;
mod frontier;
mod frontier_admin;
mod many;
mod permits;
mod policy;
mod reports;
mod sessions;
mod statuses;
mod table;
mod usage;
mod whole;

pub use admin::{
    ALL_BUDGETS, Apply, BudgetLeft, ConfigBody, ConfigPatch, Crawling, CrawlingPatch, Decision,
    FleetStats, InForce, KeyDetail, KeyPatch, LawInForce, Learned, Metadata, NumberInForce,
    Outstanding, Point, SetBy, StatsQuery, WorkerStats,
};
pub use answers::{AnswerCounts, AnswersQuery};
pub use audit::{AuditChange, AuditPage, AuditQuery};
pub use change::Change;
pub use cost::Cost;
pub use events::{Event, EventKind, EventsQuery};
pub use frontier::{
    DoneAnswer, DonePage, DoneUnit, FrontierDone, FrontierDoneAnswer, FrontierExchange,
    FrontierExchanged, FrontierPage, FrontierTake, FrontierTaken, FrontierUnit, FrontierUnitPage,
    PutAnswer, PutQuery, PutResult, PutSummary, Then,
};
pub use frontier_admin::{
    FrontierBlock, FrontierCounts, FrontierCrawls, FrontierDelay, FrontierDomain, FrontierDomains,
    FrontierDomainsQuery, FrontierOwner, FrontierOwners, FrontierOwnersQuery, FrontierPages,
    FrontierPagesQuery, FrontierPart, FrontierPause, FrontierUrl, FrontierUrlQuery,
};
pub use many::{ImportKeys, ImportedKey, KeyFailure, KeysChanged, KeysPattern};
pub use permits::{
    Acquire, Acquired, Answer, Cancel, Cancelled, Error, Exchange, Exchanged, Grant, Item,
    KeyLimit, Kind, Permits, Problem, RefusedCode, Renewed, RenewedPermit, SendBodies, SharePlace,
    Want, WorkerShare,
};
pub use policy::{PolicyBody, PolicyQuery};
pub use reports::{
    ErrorKind, Meaning, Next, QuotaUnit, Report, Reported, ReportedSignal, Told, ToldAnswer,
    ToldQuota, ToldScope,
};
pub use sessions::{
    ClaimLock, HOLDERS_MAX, HeldLock, KeyLocks, LockAnswer, LockHolder, LockMode, LockReleased,
    LocksQuery, OpenSession, ReleaseLock, SESSION_LOCKS_MAX, SESSION_TTL_MAX_MS,
    SESSION_TTL_MIN_MS, SESSION_TTL_MS, SessionClosed, SessionState,
};
pub use statuses::StatusCounts;
pub use table::{KeyPage, KeyRow, KeyState, KeysQuery, Minutes, Need, NeedCounts, SortBy};
pub use usage::{NoUsageStep, UsageBy, UsageCounts, UsagePage, UsageQuery, UsageRow, UsageStep};

/// Maximum number of items in one call.
pub const ITEMS_MAX: usize = 4096;
/// Longest time that a call is held open, in milliseconds.
pub const WAIT_MAX_MS: u32 = 60_000;
/// Furthest start of a permit from now, in milliseconds.
pub const AHEAD_MAX_MS: u32 = politely_core::host::HORIZON.as_millis() as u32;
/// Lowest rate that can be set, in requests per second.
pub const RATE_MIN: f64 = 1e-6;
/// Highest rate that can be set, in requests per second, and highest burst.
pub const RATE_MAX: f64 = 1e6;
/// Longest hold that an operator can set, in milliseconds: a year.
pub const HOLD_MAX_MS: u64 = 31_536_000_000;
/// Longest Crawl-delay, in milliseconds: a day.
pub const CRAWL_DELAY_MAX_MS: u64 = politely_core::host::CRAWL_DELAY_MAX.as_millis() as u64;
/// Longest time for which a Crawl-delay applies without being sent again, in milliseconds: 24
/// hours.
pub const CRAWL_DELAY_FRESH_MAX_MS: u64 =
    politely_core::host::CRAWL_DELAY_FRESH_MAX.as_millis() as u64;
/// Maximum number of departure slots in one permit.
pub const SLOTS_MAX: u16 = 1_024;
/// Maximum length of a client name and of an item id, in characters.
pub const NAME_MAX: usize = 128;
/// Maximum number of further keys whose limits one request also keeps.
pub const ALSO_MAX: usize = 8;
/// The most labels of an item.
pub const LABELS_MAX: usize = 8;
