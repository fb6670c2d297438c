//! What became of a request, and what to do next.

use std::collections::BTreeMap;

use politely_core::signal::{Failure, Signal};
use serde::{Deserialize, Serialize};

use super::absent::{is_false, is_one, is_zero_16, is_zero_64, one};
use super::permits::Error;
use super::whole::{maybe, whole};

/// What happened.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// Who reports.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 128))]
    pub client: String,
    /// What happened to each, 1 to 4,096.
    #[cfg_attr(feature = "openapi", schema(min_items = 1, max_items = 4096))]
    pub items: Vec<Told>,
}

/// What happened to one request: a `status`, or an `error` where none came.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Told {
    /// The permit it left with.
    pub permit: String,
    /// Which of the permit's departures, from 0.
    #[cfg_attr(feature = "openapi", schema(maximum = 65535))]
    #[serde(
        default,
        skip_serializing_if = "is_zero_16",
        deserialize_with = "whole"
    )]
    pub slot: u16,
    /// The response's status.
    #[cfg_attr(feature = "openapi", schema(maximum = 65535))]
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "maybe"
    )]
    pub status: Option<u16>,
    /// Why there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorKind>,
    /// The response's headers, all of them or those that matter: Retry-After, Date, `RateLimit` and its dialects,
    /// Server, Content-Type.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// The beginning of the body, by which block pages are told; at most 16 KiB are looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_start: Option<String>,
    /// From sending to the response's head.
    #[serde(default)]
    pub latency_ms: f64,
    /// Bytes received.
    #[serde(
        default,
        skip_serializing_if = "is_zero_64",
        deserialize_with = "whole"
    )]
    pub bytes: u64,
    /// The body is still coming: what the head says is learned now, and the slot stays taken until the permit is reported
    /// again without this.
    #[serde(default, skip_serializing_if = "is_false")]
    pub body_coming: bool,
    /// The request's method. Default GET. Only a method that is safe to repeat is told to retry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// How many times this request was sent, this time included. Default 1.
    #[cfg_attr(feature = "openapi", schema(maximum = 65535))]
    #[serde(
        default = "one",
        skip_serializing_if = "is_one",
        deserialize_with = "whole"
    )]
    pub attempt: u16,
    /// How many of the times before were refused: were told to retry after 0 ms.
    #[cfg_attr(feature = "openapi", schema(maximum = 65535))]
    #[serde(
        default,
        skip_serializing_if = "is_zero_16",
        deserialize_with = "whole"
    )]
    pub refused: u16,
    /// The URL that was requested, or its hash as 16 hexadecimal digits. With it, the trouble of one URL slows no other;
    /// reports without one count as reports about different URLs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// What the worker made of the answer, if it judges answers itself: then status, error, headers and body are
    /// not looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meaning: Option<Meaning>,
}

/// What an outcome means for its key, as its worker judged it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Meaning {
    /// In one word.
    pub signal: Heard,
    /// How long the server asked to be left alone.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "maybe"
    )]
    pub retry_after_ms: Option<u64>,
    /// The quotas it named. More than four are cut to the four tightest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", schema(max_items = 64))]
    pub quotas: Vec<ToldQuota>,
}

/// A quota that a server named: at most `limit` of `unit` per window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ToldQuota {
    /// What it counts. Default requests, the only unit that paces requests.
    #[serde(default)]
    pub unit: QuotaUnit,
    /// How many are allowed per window.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "maybe"
    )]
    pub limit: Option<u64>,
    /// The window.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "maybe"
    )]
    pub window_ms: Option<u64>,
    /// How many are left.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "maybe"
    )]
    pub remaining: Option<u64>,
    /// Until the quota is whole again.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "maybe"
    )]
    pub reset_ms: Option<u64>,
}

/// What a quota counts.
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
    /// Requests under way at once.
    Concurrency,
}

impl From<QuotaUnit> for politely_core::signal::Unit {
    fn from(unit: QuotaUnit) -> Self {
        match unit {
            QuotaUnit::Requests => Self::Requests,
            QuotaUnit::Tokens => Self::Tokens,
            QuotaUnit::Bytes => Self::Bytes,
            QuotaUnit::Points => Self::Points,
            QuotaUnit::Concurrency => Self::Concurrency,
        }
    }
}

impl From<politely_core::signal::Unit> for QuotaUnit {
    fn from(unit: politely_core::signal::Unit) -> Self {
        use politely_core::signal::Unit;
        match unit {
            Unit::Requests => Self::Requests,
            Unit::Tokens => Self::Tokens,
            Unit::Bytes => Self::Bytes,
            Unit::Points => Self::Points,
            Unit::Concurrency => Self::Concurrency,
        }
    }
}

/// An outcome in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Heard {
    /// Served.
    Ok,
    /// The server limits us.
    RateLimited,
    /// The server is in trouble.
    Overloaded,
    /// Nobody answers.
    Unreachable,
    /// A challenge or block page.
    Blocked,
    /// This URL is at fault, not the host.
    UrlError,
}

impl From<Heard> for Signal {
    fn from(heard: Heard) -> Self {
        match heard {
            Heard::Ok => Self::Ok,
            Heard::RateLimited => Self::RateLimited,
            Heard::Overloaded => Self::Overloaded,
            Heard::Unreachable => Self::Unreachable,
            Heard::Blocked => Self::Blocked,
            Heard::UrlError => Self::UrlError,
        }
    }
}

impl From<Signal> for Heard {
    fn from(signal: Signal) -> Self {
        match signal {
            Signal::Ok => Self::Ok,
            Signal::RateLimited => Self::RateLimited,
            Signal::Overloaded => Self::Overloaded,
            Signal::Unreachable => Self::Unreachable,
            Signal::Blocked => Self::Blocked,
            Signal::UrlError => Self::UrlError,
        }
    }
}

/// Why no response came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// The name does not exist.
    NoSuchHost,
    /// The resolver failed for now.
    Resolver,
    /// No connection: refused, no route.
    Connect,
    /// The certificate or handshake is bad.
    Tls,
    /// No answer in time.
    Timeout,
    /// The connection broke before the response was whole.
    Reset,
    /// The response was not HTTP, too long, or could not be decoded.
    Malformed,
}

impl From<ErrorKind> for Failure {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::NoSuchHost => Self::NoSuchHost,
            ErrorKind::Resolver => Self::Resolver,
            ErrorKind::Connect => Self::Connect,
            ErrorKind::Tls => Self::Tls,
            ErrorKind::Timeout => Self::Timeout,
            ErrorKind::Reset => Self::Reset,
            ErrorKind::Malformed => Self::Malformed,
        }
    }
}

impl From<Failure> for ErrorKind {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::NoSuchHost => Self::NoSuchHost,
            Failure::Resolver => Self::Resolver,
            Failure::Connect => Self::Connect,
            Failure::Tls => Self::Tls,
            Failure::Timeout => Self::Timeout,
            Failure::Reset => Self::Reset,
            Failure::Malformed => Self::Malformed,
        }
    }
}

/// The answer to [`Report`], one per item in their order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Reported {
    /// In the order of the items.
    pub items: Vec<ToldAnswer>,
}

/// What to do next, and the key's directions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ToldAnswer {
    /// The permit.
    pub permit: String,
    /// What becomes of the request.
    pub next: Next,
    /// The permit is unknown, its lease had expired or it was reported before: no rate was moved.
    #[serde(default, skip_serializing_if = "is_false")]
    pub late: bool,
    /// Requests per second for its key from now on.
    pub rate: f64,
    /// Nothing leaves for its key this long.
    #[serde(default, skip_serializing_if = "is_zero_64")]
    pub hold_ms: u64,
    /// The failure counts against its URL only: the key's rate, breaker and hold did not change.
    #[serde(default, skip_serializing_if = "is_false")]
    pub url_fault: bool,
    /// `false`: the hold or the breaker that this report brought is in force, but is neither on
    /// disk nor in the engine yet. A kill of the coordinator may lose it. Absent: it is kept, or
    /// there is nothing to keep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durable: Option<bool>,
    /// What is wrong with the report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Error>,
}

/// What becomes of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Next {
    /// It was served, or there is nothing to say.
    #[default]
    Done,
    /// Send it again: acquire a new permit, not before so long.
    Retry {
        /// How long the request waits beyond its key's hold.
        after_ms: u64,
    },
    /// It would be answered alike.
    GiveUp {
        /// Why.
        reason: String,
    },
}
