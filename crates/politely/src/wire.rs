//! What workers and the coordinator say to each other: the JSON bodies of `/api/v1`.
//!
//! One set of types for both ends. All times are relative milliseconds, so that no worker's clock matters:
//! `start_in_ms` and `retry_in_ms` count from when the answer came. A lease is over for its holder so long after the call was
//! *sent*: whoever slept between the answer and its reading must not believe that the lease has just begun. Unknown fields
//! are errors that name them. Absent options keep their defaults.
//!
//! | call | body | answer |
//! | --- | --- | --- |
//! | `POST acquire` | [`Acquire`] | [`Acquired`] |
//! | `POST report` | [`Report`] | [`Reported`] |
//! | `POST exchange` | [`Exchange`]: a report and an acquire in one round trip | [`Exchanged`] |
//! | `POST renew` | [`Permits`] | [`Renewed`] |
//! | `POST cancel` | [`Cancel`] | [`Cancelled`] |
//! | `GET keys` | query: [`KeysQuery`] | [`KeyPage`] |
//! | `GET keys/{key}` | | [`KeyDetail`] |
//! | `PATCH keys/{key}` | [`KeyPatch`] | [`KeyDetail`] |
//! | `GET config`, `PATCH config` | [`ConfigPatch`] | [`ConfigBody`] |
//! | `GET events` | server-sent events | [`Event`] |
//! | `GET stats` | query: [`StatsQuery`] | [`FleetStats`] |
//! | `GET audit/changes` | query: [`AuditQuery`] | [`AuditPage`] |
//!
//! Whatever is wrong with a call as a whole is an RFC 9457 [`Problem`]; what is wrong with one item is that
//! item's answer.

mod absent;
mod admin;
mod audit;
mod change;
mod permits;
mod reports;
mod whole;

pub use admin::{
    Apply, ConfigBody, ConfigPatch, Crawling, CrawlingPatch, Decision, Event, EventKind,
    FleetStats, InForce, KeyDetail, KeyPage, KeyPatch, KeyRow, KeyState, KeysQuery, LawInForce,
    Learned, NumberInForce, Outstanding, Point, SetBy, SortBy, StatsQuery, WorkerStats,
};
pub use audit::{AuditChange, AuditPage, AuditQuery};
pub use change::Change;
pub use permits::{
    Acquire, Acquired, Answer, Cancel, Cancelled, Error, Exchange, Exchanged, Grant, Item, Kind,
    Permits, Problem, RefusedCode, Renewed, RenewedPermit, Want,
};
pub use reports::{
    ErrorKind, Heard, Meaning, Next, QuotaUnit, Report, Reported, Told, ToldAnswer, ToldQuota,
};

/// The most items of one call.
pub const ITEMS_MAX: usize = 4096;
/// The longest a call is held open, milliseconds.
pub const WAIT_MAX_MS: u32 = 60_000;
/// The furthest ahead a permit may start, milliseconds.
pub const AHEAD_MAX_MS: u32 = politely_core::host::HORIZON.as_millis() as u32;
/// The least requests per second that may be set.
pub const RATE_MIN: f64 = 1e-6;
/// … and the most, of a rate and of a burst.
pub const RATE_MAX: f64 = 1e6;
/// The longest hold an operator sets, milliseconds: a year.
pub const HOLD_MAX_MS: u64 = 31_536_000_000;
/// The longest Crawl-delay, milliseconds: a day.
pub const CRAWL_DELAY_MAX_MS: u64 = politely_core::host::CRAWL_DELAY_MAX.as_millis() as u64;
/// The longest one is gone by without being told again, milliseconds: 24 hours.
pub const CRAWL_DELAY_FRESH_MAX_MS: u64 =
    politely_core::host::CRAWL_DELAY_FRESH_MAX.as_millis() as u64;
/// The most departure slots of one permit.
pub const SLOTS_MAX: u16 = 1_024;
/// The longest client name and item id, characters.
pub const NAME_MAX: usize = 128;
/// Keys beside the first whose limits one request may have to keep.
pub const ALSO_MAX: usize = 8;
