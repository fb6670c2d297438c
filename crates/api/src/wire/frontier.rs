//! Bodies of the frontier's calls: pages, units of work, and an operator's orders.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::absent::{is_default, is_one, one};
use super::permits::{Error, Grant};
use super::reports::{Told, ToldAnswer};
use super::whole::{self, maybe};

/// A page that is added to a crawl: one line of `put`, or an element of `found`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct FrontierPage {
    /// The URL, with a scheme, at most 8,192 bytes. Its fragment is ignored.
    pub url: String,
    /// The domain, as a key. Default: the key that follows from the URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The order within the domain and between domains, 0 (last) to 9 (first). Default 5.
    #[cfg_attr(feature = "openapi", schema(maximum = 255))]
    #[serde(default = "five", skip_serializing_if = "is_five", with = "whole")]
    pub priority: u8,
    /// The date before which the page is not handed out, in milliseconds since 1970 (UTC), before
    /// the year 10000. A date that has passed means now.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "maybe")]
    pub due_unix_ms: Option<u64>,
    /// Any JSON of the caller, at most 16 KiB. It comes back with the page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Value>,
    /// Whether the page was visited elsewhere. It then becomes known and is never handed out.
    #[serde(default, skip_serializing_if = "is_default")]
    pub finished: bool,
}

/// Creates a page with defaults.
impl From<&str> for FrontierPage {
    fn from(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            key: None,
            priority: five(),
            due_unix_ms: None,
            metadata: None,
            finished: false,
        }
    }
}

/// The answer to one page: one line of the answer to `put`, in the order of the pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PutAnswer {
    /// What became of the page.
    pub answer: PutResult,
    /// The reason why the page is invalid, or why the call failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// What became of a page that was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum PutResult {
    /// The page is stored.
    New,
    /// The crawl has had this page before. Nothing changed.
    Known,
    /// A bound of the domain, the crawl or the frontier is reached. The page is not stored.
    Full,
    /// The page is not valid. It is not stored.
    Invalid,
    /// The storage failed, so the call ends with this line. The pages from here on are not stored.
    Failed,
}

/// The options of `put`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[serde(deny_unknown_fields)]
pub struct PutQuery {
    /// Answers with one [`PutSummary`] instead of a line per page.
    #[serde(default)]
    pub summary: bool,
}

/// The counts of the answers to the pages of one `put`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PutSummary {
    /// Pages that are stored.
    pub new: u64,
    /// Pages that the crawl has had before.
    pub known: u64,
    /// Pages beyond a bound.
    pub full: u64,
    /// Pages that are not valid.
    pub invalid: u64,
    /// The first line that is not valid, from 1, and the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_invalid: Option<String>,
    /// The failure of the storage that ended the call. The pages that are not counted are not
    /// stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

/// A request for units of work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct FrontierTake {
    /// The worker's own name, 1 to 128 characters.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 128))]
    pub client: String,
    /// The most units, 1 to 100. Default 1.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 65535))]
    #[serde(default = "one", skip_serializing_if = "is_one", with = "whole")]
    pub units: u16,
    /// The most pages in a unit, 1 to 1,000. Default 1. A unit has fewer if the limits of its key
    /// let fewer leave within two seconds.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 65535))]
    #[serde(default = "one", skip_serializing_if = "is_one", with = "whole")]
    pub pages_per_unit: u16,
    /// The longest time to hold the call open until a domain may be handed out, in milliseconds, at
    /// most 60,000. Default 0: answer at once.
    #[serde(default, skip_serializing_if = "is_default", with = "whole")]
    pub wait_ms: u32,
    /// The time after which a unit ends without `done`, in milliseconds. Default 60,000, at most an
    /// hour.
    #[serde(default = "minute", skip_serializing_if = "is_minute", with = "whole")]
    pub lease_ms: u32,
    /// Values for the names of keys in the coordinator's policy, at most 8, as in an item of
    /// `acquire`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

impl Default for FrontierTake {
    fn default() -> Self {
        Self {
            client: String::new(),
            units: one(),
            pages_per_unit: one(),
            wait_ms: 0,
            lease_ms: minute(),
            labels: BTreeMap::new(),
        }
    }
}

/// The answer to [`FrontierTake`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FrontierTaken {
    /// The units of work. Empty if no domain may be handed out.
    pub units: Vec<FrontierUnit>,
    /// The time after which to ask again, in milliseconds, if there is no unit. Absent if only new
    /// pages or the end of another unit can change the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_in_ms: Option<u64>,
}

/// A unit of work: a domain with some of its pages, owned by one worker for a time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FrontierUnit {
    /// The fencing token: the name of the unit in `done`. A later unit has a higher token.
    pub token: u64,
    /// The domain, as a key.
    pub domain: String,
    /// The time after which the unit ends without `done`, in milliseconds.
    pub lease_ms: u64,
    /// The permit of the pages. Page `i` is departure `i`: it starts `i` intervals after the first.
    pub grant: Grant,
    /// The pages, in the order in which they leave.
    pub pages: Vec<FrontierUnitPage>,
}

/// A page of a unit of work.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FrontierUnitPage {
    /// The canonical URL.
    pub url: String,
    /// The priority, 0 (last) to 9 (first).
    #[cfg_attr(feature = "openapi", schema(maximum = 255))]
    pub priority: u8,
    /// The number of this attempt, from 1. The report of this page repeats it.
    #[cfg_attr(feature = "openapi", schema(maximum = 65535))]
    pub attempt: u16,
    /// The number of earlier attempts that did not count. The report of this page repeats it.
    #[cfg_attr(feature = "openapi", schema(maximum = 65535))]
    #[serde(default, skip_serializing_if = "is_default")]
    pub free: u16,
    /// The JSON with which the page was added.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Value>,
}

/// The words of an owner about its units.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct FrontierDone {
    /// The worker's own name, as in [`FrontierTake`].
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 128))]
    pub client: String,
    /// The units, 1 to 100.
    #[cfg_attr(feature = "openapi", schema(min_items = 1, max_items = 100))]
    pub units: Vec<DoneUnit>,
}

/// The words of an owner about one unit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct DoneUnit {
    /// The fencing token of the unit.
    pub token: u64,
    /// What happened to pages of the unit. Pages that are not named return to the queue.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pages: Vec<DonePage>,
    /// Pages that were found, of any domain. They are added together with the outcomes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub found: Vec<FrontierPage>,
    /// Whether the owner keeps the unit and the pages that are not named.
    #[serde(default, skip_serializing_if = "is_default")]
    pub keep: bool,
    /// With `keep`: the new length of the lease from now on, in milliseconds, at most an hour.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "maybe")]
    pub lease_ms: Option<u32>,
}

/// What happened to a page of a unit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct DonePage {
    /// The page's URL.
    pub url: String,
    /// The outcome of the request, from which the key learns. Absent if no request was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<Told>,
    /// What becomes of the page.
    #[serde(default)]
    pub then: Then,
    /// The date of the next visit, in milliseconds since 1970 (UTC), before the year 10000. It is
    /// not used for a page that is retried.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "maybe")]
    pub again_unix_ms: Option<u64>,
}

/// What becomes of a page after an attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Then {
    /// The advice in the answer to the report decides: the page is retried later, or finished.
    #[default]
    Advice,
    /// The page is finished, whatever the advice is.
    Finish,
    /// The page returns to its place in the queue.
    Return,
}

/// The answer to [`FrontierDone`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FrontierDoneAnswer {
    /// One answer per unit, in order.
    pub units: Vec<DoneAnswer>,
}

/// The answer to the words about one unit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DoneAnswer {
    /// The fencing token of the unit.
    pub token: u64,
    /// The pages that the owner still has.
    pub kept: u32,
    /// The answers to the reports, in the order of the pages that have one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reports: Vec<ToldAnswer>,
    /// The answers to the pages that were found, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub found: Vec<PutAnswer>,
    /// The reason why nothing was accepted. Reports reach the key in any case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Error>,
}

/// The words of an owner, and then a request for further units, in one call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct FrontierExchange {
    /// The worker's own name, as in [`FrontierTake`].
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 128))]
    pub client: String,
    /// The words about units, as in [`FrontierDone`]; may be empty.
    #[cfg_attr(feature = "openapi", schema(max_items = 100))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub done: Vec<DoneUnit>,
    /// The most units, as in [`FrontierTake`].
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 65535))]
    #[serde(default = "one", skip_serializing_if = "is_one", with = "whole")]
    pub units: u16,
    /// The most pages in a unit, as in [`FrontierTake`].
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 65535))]
    #[serde(default = "one", skip_serializing_if = "is_one", with = "whole")]
    pub pages_per_unit: u16,
    /// The longest time to hold the call open, in milliseconds, as in [`FrontierTake`].
    #[serde(default, skip_serializing_if = "is_default", with = "whole")]
    pub wait_ms: u32,
    /// The lease of the units, in milliseconds, as in [`FrontierTake`].
    #[serde(default = "minute", skip_serializing_if = "is_minute", with = "whole")]
    pub lease_ms: u32,
    /// Values for the names of keys in the coordinator's policy, at most 8, as in an item of
    /// `acquire`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// The answer to [`FrontierExchange`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FrontierExchanged {
    /// One answer per unit of `done`, in order.
    pub done: Vec<DoneAnswer>,
    /// The units of work, as in [`FrontierTaken`].
    pub units: Vec<FrontierUnit>,
    /// The time after which to ask again, in milliseconds, as in [`FrontierTaken`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_in_ms: Option<u64>,
}

const fn five() -> u8 {
    5
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_five(number: &u8) -> bool {
    *number == 5
}

const fn minute() -> u32 {
    60_000
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_minute(number: &u32) -> bool {
    *number == 60_000
}
