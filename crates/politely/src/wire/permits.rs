//! Leave to send.

use serde::{Deserialize, Serialize};

use super::absent::{is_false, is_one, is_zero, is_zero_8, is_zero_64, one};
use super::reports::{Told, ToldAnswer};
use super::whole::{maybe, whole};

/// May I send?
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Acquire {
    /// Who asks: a name of the worker's own, 1 to 128 characters; what it does is booked under it.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 128))]
    pub client: String,
    /// The call may be held open this long for permits to come free, at most 60,000. Default 0: at once.
    #[serde(default, skip_serializing_if = "is_zero", deserialize_with = "whole")]
    pub wait_ms: u32,
    /// Every item is answered, or the first n that may leave. Where some must wait, the call is held open until the first
    /// of them may leave, and answered then: a permit that waits for others grows old.
    #[serde(default)]
    pub want: Want,
    /// What is asked for, 1 to 4,096.
    #[cfg_attr(feature = "openapi", schema(min_items = 1, max_items = 4096))]
    pub items: Vec<Item>,
}

/// How many of the items are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Want {
    /// Each is answered.
    #[default]
    All,
    /// The first so many that may leave; nothing is taken of the others, and they are not answered.
    Any(#[serde(deserialize_with = "whole")] u32),
}

/// One permit wanted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Item {
    /// The caller's name for this item, unique for this client.
    ///
    /// Asked again under the same id, the same permit is answered and charged once, and a place in
    /// line is kept for a minute. Another key, cost or slot count under the same id is an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// What will be requested: the coordinator derives the key. Either this or `key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The key itself: `example.com`, `example.com:8080`, `site/example.co.uk`, `address/192.0.2.1`,
    /// `egress/proxy-1/example.com`, `custom/account-7`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Further keys whose limits this request must keep: an account, a site. Only the first hears the outcome.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<String>,
    /// A first try pays into the key's retry budget when it is served.
    #[serde(default)]
    pub kind: Kind,
    /// Tokens it costs, 1 to 1,000.
    #[cfg_attr(feature = "openapi", schema(maximum = 65535))]
    #[serde(
        default = "one",
        skip_serializing_if = "is_one",
        deserialize_with = "whole"
    )]
    pub cost: u16,
    /// Bytes it will send, charged to the key's byte budget at once.
    #[serde(
        default,
        skip_serializing_if = "is_zero_64",
        deserialize_with = "whole"
    )]
    pub bytes: u64,
    /// 0 (default) to 9: each step is worth ten seconds of waiting in line, so that nobody starves.
    #[cfg_attr(feature = "openapi", schema(maximum = 255))]
    #[serde(default, skip_serializing_if = "is_zero_8", deserialize_with = "whole")]
    pub priority: u8,
    /// Its request may start no later than this from now; otherwise the answer is `wait`. Beyond `wait_ms` it
    /// is a reservation ahead, of at most 2,000. Default: `wait_ms`.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "maybe"
    )]
    pub max_wait_ms: Option<u32>,
    /// The Crawl-delay in the host's robots.txt: 1 to 86,400,000 (a day).
    ///
    /// Once this item is granted, the key's requests leave one at a time, and the next waits for so
    /// long after each, for all workers. The largest fresh delay counts; the key's own limits, if
    /// slower, stay. Send it with every item.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 86_400_000))]
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "maybe"
    )]
    pub crawl_delay_ms: Option<u64>,
    /// How much longer that robots.txt is gone by before it is read again: 1 to 86,400,000 (24 hours, the default).
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 86_400_000))]
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "maybe"
    )]
    pub crawl_delay_fresh_ms: Option<u64>,
    /// Consecutive departures wanted, 1 to 1,024; granted are as many as are free and leave within two seconds.
    #[cfg_attr(feature = "openapi", schema(maximum = 65535))]
    #[serde(
        default = "one",
        skip_serializing_if = "is_one",
        deserialize_with = "whole"
    )]
    pub slots: u16,
}

/// What absent fields mean: one departure of one token. Such an item still has to name a `url` or a `key`.
impl Default for Item {
    fn default() -> Self {
        Self {
            id: None,
            url: None,
            key: None,
            also: Vec::new(),
            kind: Kind::First,
            cost: one(),
            bytes: 0,
            priority: 0,
            max_wait_ms: None,
            crawl_delay_ms: None,
            crawl_delay_fresh_ms: None,
            slots: one(),
        }
    }
}

/// Is it sent for the first time?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Yes.
    #[default]
    First,
    /// It was sent before.
    Retry,
}

/// The answer to [`Acquire`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Acquired {
    /// With `"want": "all"` one per item, in their order; with `any`, those granted, refused or in error.
    pub items: Vec<Answer>,
    /// When it is worth asking again for what was not granted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_in_ms: Option<u64>,
}

/// The answer to one item.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Answer {
    /// It may leave.
    Granted(Grant),
    /// Not within the time that was given.
    Wait {
        /// Its place in `items`.
        item: u32,
        /// Ask again then; with the same id, its place in line is kept.
        retry_in_ms: u64,
        /// What is in the way: `pace`, `in flight`, `byte budget`, `hold, Retry-After`, `parked, …`,
        /// `breaker`, `quarantine`, `engine away`, `others wait`.
        reason: String,
        /// How many are before it in the key's line.
        position: u32,
    },
    /// It will not be granted.
    Refused {
        /// Its place in `items`.
        item: u32,
        /// Why, for programs.
        code: RefusedCode,
        /// Why, for people.
        reason: String,
        /// When it may be different.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_in_ms: Option<u64>,
    },
    /// It cannot be understood.
    Error {
        /// Its place in `items`.
        item: u32,
        /// Which field is wrong, and why.
        error: Error,
    },
}

/// Why an item is not granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum RefusedCode {
    /// The id's permit was reported, cancelled or has expired: a new request needs a new id.
    IdUsed,
    /// The key is on hold for longer than anybody should wait.
    Parked,
    /// No room for another key.
    Full,
    /// As many wait for the key as may.
    LineFull,
    /// The coordinator is ending.
    Closing,
}

/// Leave to send.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Grant {
    /// Its place in `items`.
    pub item: u32,
    /// The permit's name, for report, renew and cancel.
    pub permit: String,
    /// The key whose limits it keeps.
    pub key: String,
    /// The request may leave this long after the answer came.
    pub start_in_ms: u64,
    /// … and must have left this long after its start, or be cancelled. Told once more, it is what is left of that: none, if its
    /// time has passed.
    pub valid_for_ms: u64,
    /// Its slot returns by itself this long after its start: whatever takes longer is renewed, or aborted.
    pub lease_ms: u64,
    /// Departures granted, one after the other; each is reported on its own.
    #[cfg_attr(feature = "openapi", schema(maximum = 65535))]
    pub slots: u16,
    /// From one departure to the next.
    pub interval_ms: f64,
}

/// What is wrong with one item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Error {
    /// The field.
    pub field: String,
    /// Why.
    pub detail: String,
}

/// A report, then an acquire.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Exchange {
    /// Who.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 128))]
    pub client: String,
    /// As in [`Acquire`].
    #[serde(default, skip_serializing_if = "is_zero", deserialize_with = "whole")]
    pub wait_ms: u32,
    /// As in [`Acquire`].
    #[serde(default)]
    pub want: Want,
    /// What happened; may be empty.
    #[cfg_attr(feature = "openapi", schema(max_items = 4096))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub report: Vec<Told>,
    /// What is asked for; may be empty.
    #[cfg_attr(feature = "openapi", schema(max_items = 4096))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub acquire: Vec<Item>,
}

/// The answer to [`Exchange`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Exchanged {
    /// As in [`Reported`](super::Reported).
    pub report: Vec<ToldAnswer>,
    /// As in [`Acquired`].
    pub acquire: Vec<Answer>,
    /// As in [`Acquired`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_in_ms: Option<u64>,
}

/// Permits whose requests take long.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Permits {
    /// Who.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 128))]
    pub client: String,
    /// Their names.
    #[cfg_attr(feature = "openapi", schema(min_items = 1, max_items = 4096))]
    pub permits: Vec<String>,
}

/// Permits that will not be used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Cancel {
    /// Who.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 128))]
    pub client: String,
    /// Their names, or the ids under which they were asked for.
    ///
    /// An id whose answer never arrived gives back what it was granted. An item that arrives under
    /// it later is refused.
    #[cfg_attr(feature = "openapi", schema(min_items = 1, max_items = 4096))]
    pub permits: Vec<String>,
    /// The requests may have left: their slots return, their tokens stay spent.
    #[serde(default, skip_serializing_if = "is_false")]
    pub sent: bool,
}

/// The answer to `renew`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Renewed {
    /// Their leases last longer.
    pub renewed: Vec<RenewedPermit>,
    /// Their leases are gone: the requests must be aborted.
    pub lost: Vec<String>,
}

/// A lease that lasts longer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RenewedPermit {
    /// The permit.
    pub permit: String,
    /// From now on.
    pub lease_ms: u64,
}

/// The answer to `cancel`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Cancelled {
    /// Given back.
    pub cancelled: Vec<String>,
    /// Not known, or gone already.
    pub lost: Vec<String>,
}

/// What is wrong with a call (RFC 9457, `application/problem+json`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Problem {
    /// The kind of problem: `about:blank` where the status says it all.
    #[serde(rename = "type")]
    pub kind: String,
    /// The status in words.
    pub title: String,
    /// The status.
    pub status: u16,
    /// What is wrong with this call.
    pub detail: String,
    /// The field that is wrong, as a path: `items[3].url`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
}
