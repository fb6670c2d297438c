//! Reads the meaning of a response, or of a failure.
//!
//! [`classify`] turns the [`Outcome`] of a request into a [`Report`] for its key. A report has one
//! [`Signal`], the wait that the server asks for, and the quotas that it names.
//!
//! | file | its part |
//! | --- | --- |
//! | `classify.rs` | the decision table from outcomes to signals |
//! | `retry_after.rs` | the wait that the server asks for |
//! | `limit_headers/` | the quotas in the headers |
//! | `quota.rs` | a quota, and the order of several by tightness |
//! | `scope.rs` | the part of a host that quotas are about |
//! | `span.rs` | the time from now to the time that a header names |
//! | `block.rs` | challenge and block pages |
//! | `alike.rs` | the likeness of answers that may be refusals, although no list has them |
//! | `limit_text.rs` | limits and spent accounts, stated in the words of an error page |
//! | `words.rs` | a search for many words in one pass |
//! | `usage.rs` | the tokens that an answer of a language model states |
//! | `resource.rs` | the URL that a report is about |
//! | `clock.rs` | the server's clock |
//!
//! All this code reads untrusted input. Nothing panics, work and numbers are bounded, and malformed
//! input is ignored.

mod alike;
mod block;
mod classify;
mod clock;
mod limit_headers;
mod limit_text;
mod quota;
mod resource;
mod retry_after;
mod scope;
mod span;
mod usage;
mod words;

use std::fmt;
use std::time::Duration;

use http::{HeaderMap, StatusCode};

use crate::budget::UnitCosts;

pub use alike::{Alike, are_alike};
pub use block::{BODY_SCANNED, block_page};
pub use classify::{Classifier, classify};
pub use clock::WallClock;
pub use limit_headers::{COUNT_MAX, SPAN_MAX, quotas};
pub use quota::{QUOTAS_MAX, Quota, Quotas, Unit};
pub use resource::Resource;
pub use retry_after::{WAIT_MAX, retry_after, stated_wait};
pub use scope::{Scope, ScopeName};
pub use usage::UsageReader;

/// The meaning of an outcome for the key of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum Signal {
    /// Served: 2xx, 3xx, 304, 404, 410. No evidence against the present rate.
    Ok,
    /// The server limits this client: a status that means that (420, 429, 430, 508, 509, 999), or
    /// another error that names a wait, a spent quota or a limit in words.
    RateLimited,
    /// The server is in trouble: 502, 503, 504, 520 to 524, 529, no answer in time, or a broken
    /// connection.
    Overloaded,
    /// The host cannot be reached: name, connection or TLS failed.
    Unreachable,
    /// A challenge or block page. This is not a limit to slow down for: the host is shut.
    Blocked,
    /// The URL is at fault, not the host: any other 4xx or 5xx, or a response that is not HTTP.
    UrlError,
}

impl Signal {
    /// Returns whether the server refused to serve, by a limit or by a challenge or block page.
    pub const fn is_refusal(self) -> bool {
        matches!(self, Self::RateLimited | Self::Blocked)
    }

    /// All signals.
    pub const ALL: [Self; 6] = [
        Self::Ok,
        Self::RateLimited,
        Self::Overloaded,
        Self::Unreachable,
        Self::Blocked,
        Self::UrlError,
    ];

    /// Returns the name that metrics and pages show.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::RateLimited => "rate_limited",
            Self::Overloaded => "overloaded",
            Self::Unreachable => "unreachable",
            Self::Blocked => "blocked",
            Self::UrlError => "url_error",
        }
    }
}

/// Why no response came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum Failure {
    /// The name does not exist.
    NoSuchHost,
    /// The resolver failed for now.
    Resolver,
    /// No connection: refused, or no route.
    Connect,
    /// The certificate or handshake is bad.
    Tls,
    /// No answer came in time.
    Timeout,
    /// The connection broke before a response came.
    Reset,
    /// A response began, and its body broke off or stalled.
    CutOff,
    /// The response was not HTTP, too long, or could not be decoded.
    Malformed,
}

impl fmt::Display for Failure {
    /// Writes the failure in words for a user: `no connection`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoSuchHost => "no such host",
            Self::Resolver => "name not resolved",
            Self::Connect => "no connection",
            Self::Tls => "TLS",
            Self::Timeout => "time-out",
            Self::Reset => "connection broken",
            Self::CutOff => "answer broke off",
            Self::Malformed => "malformed answer",
        })
    }
}

/// Returns whether a body with this status may be a block page or state a limit. Missing pages are
/// ordinary, and the bodies of statuses below 400 say nothing about the host.
pub const fn is_error_page(status: u16) -> bool {
    status >= 400 && !is_missing(status)
}

/// Returns whether a page with this status is missing: 404 or 410.
pub(crate) const fn is_missing(status: u16) -> bool {
    matches!(status, 404 | 410)
}

/// The outcome of a request: a response, or a failure.
#[derive(Clone, Copy, Debug)]
pub enum Outcome<'a> {
    /// A response came.
    Answered {
        /// Its status.
        status: StatusCode,
        /// Its headers.
        headers: &'a HeaderMap,
        /// The beginning of its body, as far as the caller read it. Block pages are recognised by
        /// it. It may be empty.
        body_start: &'a [u8],
    },
    /// No response came.
    Failed(Failure),
}

/// A worker's report to a key about one request.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The meaning of the outcome.
    pub signal: Signal,
    /// The status, if a response came.
    pub status: Option<u16>,
    /// The failure, if no response came.
    pub failure: Option<Failure>,
    /// Time from sending to the response's head.
    pub latency: Duration,
    /// Bytes received.
    pub bytes: u64,
    /// The wait that the server asks for, from now: more than zero, at most [`WAIT_MAX`].
    ///
    /// It is the Retry-After. For [`Signal::RateLimited`] without one, it is the reset of a spent
    /// quota.
    pub retry_after: Option<Duration>,
    /// The wait for the target of a redirect: the Retry-After of a 3xx (RFC 9110 section 10.2.3).
    /// It delays the next hop of this request alone, at most [`WAIT_MAX`].
    pub target_after: Option<Duration>,
    /// Whether the server said that the request may be sent again (`x-should-retry`, as `OpenAI`
    /// and Anthropic do). `None`: it said nothing. An account without credit is a no.
    pub may_retry: Option<bool>,
    /// The quotas that the server named.
    pub quotas: Quotas,
    /// The part of the host that the quotas are about, if the server named one. See
    /// [`Report::narrow`].
    pub scope: Option<Scope>,
    /// Whether a limit of one part of the host refused the request, and the caller holds that part.
    /// The refusal then says nothing about the key.
    pub of_scope: bool,
    /// The URL that was requested, if the caller knows it. With it, the trouble of one URL slows no
    /// other.
    ///
    /// Reports without one count as reports about different URLs. Each refusal and each failure is
    /// then evidence against the host at once, even if all of them are about one bad URL.
    pub resource: Option<Resource>,
    /// What the answer shares with others that may be refusals.
    pub alike: Alike,
    /// Whether the caller keeps refused pages of this host, and asks for one of them next if this
    /// request is served. It then tells whether they were refused by a limit.
    pub can_check: bool,
    /// Whether this page failed before while its host served others
    /// ([`crate::fault::Failures::own`]). A further failure then says nothing about the host.
    pub failed_before: bool,
    /// The costs in named units, such as tokens, as they turned out. They replace the estimates of
    /// [`crate::host::AcquireRequest::units`]; a unit that is not named here costs what was
    /// estimated.
    pub used: UnitCosts,
}

impl Report {
    /// Returns a report that holds only `signal`.
    pub const fn of(signal: Signal) -> Self {
        Self {
            signal,
            status: None,
            failure: None,
            latency: Duration::ZERO,
            bytes: 0,
            retry_after: None,
            target_after: None,
            may_retry: None,
            quotas: Quotas::NONE,
            scope: None,
            of_scope: false,
            resource: None,
            alike: Alike::Status,
            can_check: false,
            failed_before: false,
            used: UnitCosts::NONE,
        }
    }

    /// Returns the report of a page that failed before while its host served others, without
    /// [`Self::failed_before`]. A further failure is then the page's alone.
    pub(crate) fn of_page(&self) -> Self {
        let first = Self {
            failed_before: false,
            ..self.clone()
        };
        if matches!(self.signal, Signal::Overloaded | Signal::UrlError)
            && self.retry_after.is_none()
        {
            Self {
                signal: Signal::UrlError,
                status: None,
                failure: None,
                // The host may refuse this page as it refuses others.
                alike: (self.odd().or(self.trouble())).map_or(Alike::Nothing, Alike::Of),
                ..first
            }
        } else {
            first
        }
    }
}
