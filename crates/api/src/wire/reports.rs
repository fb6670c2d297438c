//! Bodies of `report`: the outcome of a request, and the answer to it.

use std::collections::BTreeMap;

use politely_core::signal::{Failure, Scope, ScopeName, Signal, Unit};
use serde::{Deserialize, Serialize};

use super::absent::{is_default, is_one, one};
use super::cost::amounts;
use super::permits::{Error, Item};
use super::whole::{self, maybe};

/// Converts between an enum of the wire and one of the core that has the same variants.
macro_rules! same_variants {
    ($wire:ident, $core:ident: $($variant:ident),+) => {
        impl From<$wire> for $core {
            fn from(wire: $wire) -> Self {
                match wire { $($wire::$variant => Self::$variant),+ }
            }
        }

        impl From<$core> for $wire {
            fn from(core: $core) -> Self {
                match core { $($core::$variant => Self::$variant),+ }
            }
        }
    };
}

/// A report of outcomes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// The worker's own name, 1 to 128 characters.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 128))]
    pub client: String,
    /// The outcomes, 1 to 4,096.
    #[cfg_attr(feature = "openapi", schema(min_items = 1, max_items = 4096))]
    pub items: Vec<Told>,
}

/// The outcome of one request: a `status`, or an `error` if no response came.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Told {
    /// The id of the permit under which the request was sent.
    pub permit: String,
    /// The request itself, if it left on a share while no coordinator answered. `permit` is then an
    /// id of the worker's own, under which a repeated report counts once. Without `status` and
    /// `error` the request is counted, and its outcome is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent: Option<Box<Item>>,
    /// The index of the departure within the permit, from 0.
    #[cfg_attr(feature = "openapi", schema(maximum = 65535))]
    #[serde(default, skip_serializing_if = "is_default", with = "whole")]
    pub slot: u16,
    /// The status code of the response.
    #[cfg_attr(feature = "openapi", schema(maximum = 65535))]
    #[serde(default, skip_serializing_if = "Option::is_none", with = "maybe")]
    pub status: Option<u16>,
    /// The reason why no response came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorKind>,
    /// The headers of the response, all of them or the relevant ones: Retry-After, Date,
    /// `RateLimit` and its dialects, Server, Content-Type.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// The beginning of the body, which identifies block pages. At most 16 KiB are examined.
    /// `send_bodies` of a grant names the responses whose bodies are needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_start: Option<String>,
    /// The time from sending the request to the response's head, in milliseconds.
    #[serde(default)]
    pub latency_ms: f64,
    /// The number of bytes received.
    #[serde(default, skip_serializing_if = "is_default", with = "whole")]
    pub bytes: u64,
    /// The amounts of units that the request used, as in `{"tokens": 340}`. They replace the
    /// estimates of the item's `cost`; what was estimated too much returns, and what was estimated
    /// too little is owed. A unit that is not named here counts as estimated.
    #[serde(
        default,
        skip_serializing_if = "BTreeMap::is_empty",
        deserialize_with = "amounts"
    )]
    pub used: BTreeMap<String, u64>,
    /// Whether the body is still arriving. If true, the coordinator learns from the head now and
    /// keeps the slot taken. Report the permit again without this field when the body has ended.
    #[serde(default, skip_serializing_if = "is_default")]
    pub body_coming: bool,
    /// The request's method. Default GET. The coordinator recommends a retry only for a method that
    /// is safe to repeat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// The number of times that this request was sent, including this one. Default 1.
    #[cfg_attr(feature = "openapi", schema(maximum = 65535))]
    #[serde(default = "one", skip_serializing_if = "is_one", with = "whole")]
    pub attempt: u16,
    /// The number of earlier attempts that did not count: their answers were retries that are
    /// `free`.
    #[cfg_attr(feature = "openapi", schema(maximum = 65535))]
    #[serde(default, skip_serializing_if = "is_default", with = "whole")]
    pub free: u16,
    /// The requested URL, or its hash as 16 hexadecimal digits. With it, failures of one URL do not
    /// slow other URLs. Default: the `url` of the permit's item, if the permit has one departure.
    /// Reports without either count as reports about different URLs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// The worker's own judgement of the response, for workers that classify responses. If present,
    /// only the policy's rules about answers read `status`, `error`, `headers` and the body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meaning: Option<Meaning>,
}

/// The meaning of an outcome for its key, as the worker judged it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Meaning {
    /// The signal.
    pub signal: ReportedSignal,
    /// The time for which the server asked for no requests, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "maybe")]
    pub retry_after_ms: Option<u64>,
    /// The quotas that the server announced. Of more than four, the four tightest are kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", schema(max_items = 64))]
    pub quotas: Vec<ToldQuota>,
    /// The part of the host that the quotas are about, if the server named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<ToldScope>,
    /// Whether the server said that the request may be sent again (`x-should-retry`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub may_retry: Option<bool>,
}

/// A part of a host with quotas of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ToldScope {
    /// A class of calls, as in `x-ratelimit-resource`.
    Resource(String),
    /// A group of routes, as in `x-ratelimit-bucket`.
    Bucket(String),
}

impl ToldScope {
    /// Returns the scope, or `None` if its name is not one.
    pub fn read(&self) -> Option<Scope> {
        match self {
            Self::Resource(name) => ScopeName::read(name).map(Scope::Resource),
            Self::Bucket(name) => ScopeName::read(name).map(Scope::Bucket),
        }
    }
}

impl From<&Scope> for ToldScope {
    fn from(scope: &Scope) -> Self {
        let name = scope.name().as_str().to_owned();
        match scope {
            Scope::Resource(_) => Self::Resource(name),
            Scope::Bucket(_) => Self::Bucket(name),
        }
    }
}

/// A quota that a server announced: at most `limit` of `unit` per window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ToldQuota {
    /// The unit that the quota counts. Default `requests`, the only unit that paces requests.
    #[serde(default)]
    pub unit: QuotaUnit,
    /// The number of units allowed per window.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "maybe")]
    pub limit: Option<u64>,
    /// The length of the window, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "maybe")]
    pub window_ms: Option<u64>,
    /// The number of units left.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "maybe")]
    pub remaining: Option<u64>,
    /// The time until the quota is full again, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "maybe")]
    pub reset_ms: Option<u64>,
    /// Whether the quota counts one account of several on the host, such as a project of `OpenAI`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub of_account: bool,
}

/// The unit of a quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum QuotaUnit {
    /// Requests.
    #[default]
    Requests,
    /// Tokens of a language model.
    Tokens,
    /// Bytes.
    Bytes,
    /// Points, credits or another measure of cost.
    Points,
    /// Concurrent requests.
    Concurrency,
    /// Tokens that a language model reads.
    InputTokens,
    /// Tokens that a language model writes.
    OutputTokens,
}

same_variants!(
    QuotaUnit, Unit: Requests, Tokens, Bytes, Points, Concurrency, InputTokens, OutputTokens
);

/// The meaning of an outcome in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ReportedSignal {
    /// The host served the request.
    Ok,
    /// The host refused the request because of a rate limit.
    RateLimited,
    /// The host is overloaded.
    Overloaded,
    /// The host does not respond.
    Unreachable,
    /// The host sent a challenge or block page.
    Blocked,
    /// The failure concerns this URL and not the host.
    UrlError,
}

same_variants!(
    ReportedSignal, Signal: Ok, RateLimited, Overloaded, Unreachable, Blocked, UrlError
);

/// The reason why no response came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// The host name does not exist.
    NoSuchHost,
    /// The resolver failed temporarily.
    Resolver,
    /// No connection: it was refused, or there is no route.
    Connect,
    /// The certificate or the TLS handshake is invalid.
    Tls,
    /// No response came in time.
    Timeout,
    /// The connection broke before a response came.
    Reset,
    /// A response began, and its body broke off or stalled.
    CutOff,
    /// The response was not HTTP, was too long, or could not be decoded.
    Malformed,
}

same_variants!(
    ErrorKind, Failure: NoSuchHost, Resolver, Connect, Tls, Timeout, Reset, CutOff, Malformed
);

/// The answer to [`Report`]: one per item, in the order of the items.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Reported {
    /// The answers, in the order of the items.
    pub items: Vec<ToldAnswer>,
}

/// The next step for the request, and the state of its key.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ToldAnswer {
    /// The permit's id.
    pub permit: String,
    /// The next step for the request.
    pub next: Next,
    /// The meaning of the answer, if a rule of the policy gave it, or if the answer proved to be a
    /// limit of its host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<ReportedSignal>,
    /// Whether the permit is unknown, its lease had expired, or it was reported before. Such a
    /// report does not change a rate.
    #[serde(default, skip_serializing_if = "is_default")]
    pub late: bool,
    /// The key's rate from now on, in requests per second.
    pub rate: f64,
    /// The remaining hold of the key, in milliseconds. Nothing leaves for the key until then.
    #[serde(default, skip_serializing_if = "is_default")]
    pub hold_ms: u64,
    /// Whether the failure counts against its URL only. The key's rate, breaker and hold did not
    /// change.
    #[serde(default, skip_serializing_if = "is_default")]
    pub url_fault: bool,
    /// The wait that a redirect named for its target, in milliseconds (RFC 9110, section 10.2.3).
    /// It delays the next request for that target alone.
    #[serde(default, skip_serializing_if = "is_default")]
    pub target_after_ms: u64,
    /// `false` if the hold or the breaker of this report is in force, but is neither on disk nor in
    /// the engine yet. A crash of the coordinator can lose it then. Absent if it is stored, or if
    /// there is nothing to store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durable: Option<bool>,
    /// The error in this report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Error>,
}

/// The next step for a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Next {
    /// No further step: the request was served, or the report calls for no step.
    #[default]
    Done,
    /// Send the request again, after the delay and with a new permit.
    Retry {
        /// The delay beyond the key's hold, in milliseconds.
        after_ms: u64,
        /// Whether the attempt does not count, because the host refused it or is down.
        #[serde(default, skip_serializing_if = "is_default")]
        free: bool,
    },
    /// Do not send the request again: the result would be the same.
    GiveUp {
        /// The reason.
        reason: String,
    },
}
