//! Bodies of `acquire`, `exchange`, `renew` and `cancel`, and the problem document.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::absent::{is_default, is_one, one};
use super::cost::Cost;
use super::reports::{Told, ToldAnswer};
use super::whole::{self, maybe};

/// A request for permits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Acquire {
    /// The worker's own name, 1 to 128 characters. The coordinator counts the worker's calls and
    /// permits under it.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 128))]
    pub client: String,
    /// The longest time to hold the call open until permits come free, in milliseconds, at most
    /// 60,000. Default 0: answer at once.
    #[serde(default, skip_serializing_if = "is_default", with = "whole")]
    pub wait_ms: u32,
    /// The number of items to answer: all of them, or the first n that can leave. With `all`, a
    /// call with items that must wait stays open until the first of these can leave. It is answered
    /// then, because a permit that waits for other items grows old.
    #[serde(default)]
    pub want: Want,
    /// The session that the permits belong to. They end with it, and this call renews it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Whether the worker may go on with a share while no coordinator answers, and the place that
    /// it was told last. Without it the worker waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<SharePlace>,
    /// The permits to acquire, 1 to 4,096.
    #[cfg_attr(feature = "openapi", schema(min_items = 1, max_items = 4096))]
    pub items: Vec<Item>,
}

/// The number of items to answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Want {
    /// Answers each item.
    #[default]
    All,
    /// Answers the first n items that can leave. The other items are not charged and not answered.
    Any(#[serde(with = "whole")] u32),
}

/// A request for one permit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Item {
    /// The idempotency key of this item, unique for this client.
    ///
    /// A repeated item with the same id gets the same permit and is charged once. Its place in the
    /// queue is kept for a minute. Another key, cost or number of slots under the same id is an
    /// error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The URL to request. The coordinator derives the key from it, unless `key` names the key, and
    /// finds the rule of its policy by it. It also names the page, unless the report has a
    /// `resource`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The key itself: `example.com`, `example.com:8080`, `site/example.co.uk`,
    /// `address/192.0.2.1`, `egress/proxy-1/example.com`, `custom/account-7`. An item has a
    /// `key`, a `url`, or both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Further keys whose limits this request must keep, for example of an account or a site. Only
    /// the first key learns from the outcome.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<String>,
    /// The method of the request, for the costs and keys in the coordinator's policy. Default: GET.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Values for the names of keys in the coordinator's policy, at most 8. The name of a label has
    /// 1 to 32 lowercase letters, digits and `_`; a value has 1 to 128 characters.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Whether the request is a first attempt or a retry. A first attempt adds to the key's retry
    /// budget when it is served.
    #[serde(default)]
    pub kind: Kind,
    /// The number of tokens that the request costs, 1 to 1,000; or an estimate for each unit, as in
    /// `{"requests": 1, "tokens": 1000}`. A report's `used` corrects the estimate.
    #[serde(default, skip_serializing_if = "Cost::is_one")]
    pub cost: Cost,
    /// The number of bytes that the request sends. The key's byte budget is charged with them at
    /// once.
    #[serde(default, skip_serializing_if = "is_default", with = "whole")]
    pub bytes: u64,
    /// The priority, 0 (default) to 9. Each step counts like ten seconds of waiting in the queue,
    /// so low priorities do not starve.
    #[cfg_attr(feature = "openapi", schema(maximum = 255))]
    #[serde(default, skip_serializing_if = "is_default", with = "whole")]
    pub priority: u8,
    /// The latest start of the request, in milliseconds from now. If it cannot start by then, the
    /// answer is `wait`. A value above `wait_ms` reserves a start in advance, by at most 2,000.
    /// Default: `wait_ms`.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "maybe")]
    pub max_wait_ms: Option<u32>,
    /// The Crawl-delay in the host's robots.txt, in milliseconds: 1 to 86,400,000 (a day).
    ///
    /// Once this item is granted, the key's requests leave one at a time, and each is followed by a
    /// pause of this length. This holds for all workers. If workers send different delays, the
    /// largest fresh one counts. Slower limits of the key stay in force. Send the delay with every
    /// item.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 86_400_000))]
    #[serde(default, skip_serializing_if = "Option::is_none", with = "maybe")]
    pub crawl_delay_ms: Option<u64>,
    /// The remaining time for which that robots.txt is valid, in milliseconds: 1 to 86,400,000 (24
    /// hours, the default). Afterwards the worker reads it again.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 86_400_000))]
    #[serde(default, skip_serializing_if = "Option::is_none", with = "maybe")]
    pub crawl_delay_fresh_ms: Option<u64>,
    /// The number of consecutive departures to acquire, 1 to 1,024. The grant covers as many as are
    /// free and leave within two seconds.
    #[cfg_attr(feature = "openapi", schema(maximum = 65535))]
    #[serde(default = "one", skip_serializing_if = "is_one", with = "whole")]
    pub slots: u16,
    /// Whether the requests wait in a queue of the caller, which sends them one after another. The
    /// coordinator sets it for workers that speak another protocol.
    #[serde(skip)]
    pub is_queued: bool,
}

/// The values of absent fields: one departure of one token. Such an item still needs a `url` or a
/// `key`.
impl Default for Item {
    fn default() -> Self {
        Self {
            id: None,
            url: None,
            key: None,
            also: Vec::new(),
            method: None,
            labels: BTreeMap::new(),
            kind: Kind::First,
            cost: Cost::default(),
            bytes: 0,
            priority: 0,
            max_wait_ms: None,
            crawl_delay_ms: None,
            crawl_delay_fresh_ms: None,
            slots: one(),
            is_queued: false,
        }
    }
}

/// Whether a request is a first attempt or a retry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The first attempt.
    #[default]
    First,
    /// A retry: the request was sent before.
    Retry,
}

/// The answer to [`Acquire`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Acquired {
    /// With `"want": "all"`, one answer per item, in the order of the items. With `any`, only the
    /// items that are granted, refused or in error.
    pub items: Vec<Answer>,
    /// The time after which to ask again for items that were not granted, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_in_ms: Option<u64>,
    /// This worker's share while no coordinator answers. Absent: it has none, and waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<WorkerShare>,
}

/// The answer to one item.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Answer {
    /// The request can leave.
    Granted(Grant),
    /// The request cannot leave within the given time.
    Wait {
        /// The item's index in `items`.
        item: u32,
        /// The time after which to ask again, in milliseconds. With the same id, the item keeps its
        /// place in the queue.
        retry_in_ms: u64,
        /// The limit that the item waits for: `pace`, `in flight`, `byte budget`, `budget`,
        /// `hold, Retry-After`, `parked, …`, `breaker`, `quarantine`, `engine unavailable`, `others
        /// wait`.
        reason: String,
        /// The number of items before it in the key's queue.
        position: u32,
    },
    /// The item will not be granted.
    Refused {
        /// The item's index in `items`.
        item: u32,
        /// The machine-readable reason.
        code: RefusedCode,
        /// The human-readable reason.
        reason: String,
        /// The time after which the answer can be different, in milliseconds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_in_ms: Option<u64>,
    },
    /// The item is invalid.
    Error {
        /// The item's index in `items`.
        item: u32,
        /// The invalid field and the reason.
        error: Error,
    },
}

/// The reason why an item is not granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum RefusedCode {
    /// The id's permit was reported or cancelled, or it has expired. A new request needs a new id.
    IdUsed,
    /// The key's hold is longer than the longest wait that is allowed.
    Parked,
    /// The coordinator has no room for another key.
    Full,
    /// The key's queue is full.
    QueueFull,
    /// The coordinator is shutting down.
    Closing,
}

/// A granted permit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Grant {
    /// The item's index in `items`.
    pub item: u32,
    /// The permit's id, for `report`, `renew` and `cancel`.
    pub permit: String,
    /// The key whose limits the permit keeps.
    pub key: String,
    /// The start of the request, in milliseconds after the arrival of the answer.
    pub start_in_ms: u64,
    /// The time after its start within which the request must leave, in milliseconds; otherwise
    /// cancel the permit. If the answer is repeated, this is the remaining time: 0 if it has
    /// passed.
    pub valid_for_ms: u64,
    /// The time after its start at which the permit's slot is freed without a report, in
    /// milliseconds. Renew the permit of a request that takes longer, or abort the request.
    pub lease_ms: u64,
    /// The number of consecutive departures granted. Each is reported separately.
    #[cfg_attr(feature = "openapi", schema(maximum = 65535))]
    pub slots: u16,
    /// The time from one departure to the next, in milliseconds.
    pub interval_ms: f64,
    /// The responses that the policy's rules about answers read. Their reports need `body_start`,
    /// `""` if there is no body, and all headers except cookies. A report without the body that a
    /// rule reads is an error. Absent: there are no such rules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub send_bodies: Option<SendBodies>,
    /// The limit that a worker divides while no coordinator answers. Absent: such requests wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<KeyLimit>,
}

/// The limit of a key, as known at a grant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct KeyLimit {
    /// Requests per second.
    pub rate: f64,
    /// The maximum number of requests in flight.
    pub in_flight: u32,
}

/// The responses whose bodies rules read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum SendBodies {
    /// The bodies of answers with a status from 400 on, apart from 404 and 410.
    Errors,
    /// All.
    All,
}

/// An error in one item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Error {
    /// The invalid field.
    pub field: String,
    /// The reason.
    pub detail: String,
}

/// A report and then an acquire, in one call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Exchange {
    /// The worker's own name, as in [`Acquire`].
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 128))]
    pub client: String,
    /// The longest time to hold the call open, in milliseconds, as in [`Acquire`].
    #[serde(default, skip_serializing_if = "is_default", with = "whole")]
    pub wait_ms: u32,
    /// The number of items to answer, as in [`Acquire`].
    #[serde(default)]
    pub want: Want,
    /// The session that the permits belong to, as in [`Acquire`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Whether the worker may go on with a share while no coordinator answers, and the place that
    /// it was told last. Without it the worker waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<SharePlace>,
    /// The outcomes to report; may be empty.
    #[cfg_attr(feature = "openapi", schema(max_items = 4096))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub report: Vec<Told>,
    /// The permits to acquire; may be empty.
    #[cfg_attr(feature = "openapi", schema(max_items = 4096))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub acquire: Vec<Item>,
}

/// The answer to [`Exchange`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Exchanged {
    /// The answers to the reports, as in [`Reported`](super::Reported).
    pub report: Vec<ToldAnswer>,
    /// The answers to the items, as in [`Acquired`].
    pub acquire: Vec<Answer>,
    /// The time after which to ask again, in milliseconds, as in [`Acquired`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_in_ms: Option<u64>,
    /// This worker's share while no coordinator answers. Absent: it has none, and waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<WorkerShare>,
}

/// A worker's place among the live workers, each of which has every `workers`-th turn of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SharePlace {
    /// The number of live workers. 0: the worker was told no place yet.
    #[serde(default, with = "whole")]
    pub workers: u32,
    /// The number of the place, from 0.
    #[serde(default, with = "whole")]
    pub place: u32,
}

/// A worker's share of each key's limit while no coordinator answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WorkerShare {
    /// The number of live workers.
    pub workers: u32,
    /// The number of this worker's place, from 0.
    pub place: u32,
    /// The coordinator's clock, in microseconds. The k-th turn of a key is at k / `rate`.
    pub clock_us: u64,
    /// The time for which the share may be used, in milliseconds after the call was sent.
    pub lasts_ms: u64,
}

/// Permits whose leases are to be extended because their requests take long.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Permits {
    /// The worker's own name.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 128))]
    pub client: String,
    /// The ids of the permits, 1 to 4,096.
    #[cfg_attr(feature = "openapi", schema(min_items = 1, max_items = 4096))]
    pub permits: Vec<String>,
}

/// Permits that will not be used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Cancel {
    /// The worker's own name.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 128))]
    pub client: String,
    /// The ids of the permits, or the ids of their items.
    ///
    /// The id of an item whose answer never arrived gives back what it was granted. An item that
    /// arrives later under that id is refused.
    #[cfg_attr(feature = "openapi", schema(min_items = 1, max_items = 4096))]
    pub permits: Vec<String>,
    /// Whether the requests may have left. If true, their slots are freed and their tokens stay
    /// spent.
    #[serde(default, skip_serializing_if = "is_default")]
    pub sent: bool,
}

/// The answer to `renew`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Renewed {
    /// Permits whose leases were extended.
    pub renewed: Vec<RenewedPermit>,
    /// Permits whose leases have ended. Abort their requests.
    pub lost: Vec<String>,
}

/// An extended lease.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RenewedPermit {
    /// The permit's id.
    pub permit: String,
    /// The lease's length from now on, in milliseconds.
    pub lease_ms: u64,
}

/// The answer to `cancel`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Cancelled {
    /// Permits that were given back.
    pub cancelled: Vec<String>,
    /// Permits that are unknown or have ended already.
    pub lost: Vec<String>,
    /// Ids of acquire requests that this coordinator does not know, if it shares an engine. Another
    /// coordinator may have granted them: cancel them there. Otherwise their slots return with the
    /// leases.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<String>,
}

/// An error in a call (RFC 9457, `application/problem+json`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Problem {
    /// The kind of problem: `about:blank` if the status describes it completely.
    #[serde(rename = "type")]
    pub kind: String,
    /// The status in words.
    pub title: String,
    /// The HTTP status code.
    pub status: u16,
    /// The error in this call.
    pub detail: String,
    /// The invalid field, as a path: `items[3].url`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
}
