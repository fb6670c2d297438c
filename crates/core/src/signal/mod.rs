//! What did the server say?
//!
//! [`classify`] turns what happened to a request (an [`Outcome`]) into what it means for its key (a
//! [`Report`]): one [`Signal`], how long the server asked to be left alone, and the
//! quotas it named.
//!
//! | file | the question it answers |
//! | --- | --- |
//! | `classify.rs` | what does an outcome mean? the decision table |
//! | `retry_after.rs` | how long does the server ask to be left alone? |
//! | `limit_headers/` | what does it say is left of its limits? |
//! | `quota.rs` | what is a quota, and which of several is the tightest? |
//! | `span.rs` | how long is it until the time that a header names? |
//! | `block.rs` | is the door shut? |
//! | `limit_text.rs` | do the words of an error page state a limit? |
//! | `resource.rs` | which URL was it about? |
//! | `clock.rs` | what time is it for the server? |
//!
//! Everything here reads what strangers wrote: nothing panics, work and numbers are bounded, what is malformed is
//! ignored.

mod block;
mod classify;
mod clock;
mod limit_headers;
mod limit_text;
mod quota;
mod resource;
mod retry_after;
mod span;

use std::time::Duration;

use http::{HeaderMap, StatusCode};

pub use block::{BODY_SCANNED, block_page};
pub use classify::{Classifier, classify};
pub use clock::WallClock;
pub use limit_headers::{COUNT_MAX, SPAN_MAX, quotas};
pub use quota::{QUOTAS_MAX, Quota, Quotas, Unit};
pub use resource::Resource;
pub use retry_after::{WAIT_MAX, retry_after};

/// What an outcome means for the key it was sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum Signal {
    /// Served: 2xx, 3xx, 304, 404, 410. Says nothing against the present rate.
    Ok,
    /// The server limits us: 420, 429, 999, or another error that names a wait, a spent quota or a limit in words.
    RateLimited,
    /// The server is in trouble: 502, 503, 504, 520 to 524, 529, no answer within the time-out, or a broken connection.
    Overloaded,
    /// Nobody answers: name, connection or TLS failed.
    Unreachable,
    /// A challenge or block page: not a limit to be ridden, a door that is shut.
    Blocked,
    /// This URL is at fault, not the host: any other 4xx or 5xx, or what is not HTTP.
    UrlError,
}

impl Signal {
    /// Whether the server refused to serve: by a limit, or by a challenge or block page.
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

    /// The name that metrics and pages show.
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

/// What happened to a request.
#[derive(Clone, Copy, Debug)]
pub enum Outcome<'a> {
    /// A response came.
    Answered {
        /// Its status.
        status: StatusCode,
        /// Its headers.
        headers: &'a HeaderMap,
        /// The beginning of its body, as far as the caller looked (empty is fine): block pages are told by it.
        body_start: &'a [u8],
    },
    /// No response came.
    Failed(Failure),
}

/// What a worker tells a key about one request.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// What the outcome means.
    pub signal: Signal,
    /// The status, if a response came.
    pub status: Option<u16>,
    /// The failure, if none came.
    pub failure: Option<Failure>,
    /// From sending to the response's head.
    pub latency: Duration,
    /// Bytes received.
    pub bytes: u64,
    /// How long the server asked to be left alone, made relative: more than zero, at most [`WAIT_MAX`].
    ///
    /// Its Retry-After; for [`Signal::RateLimited`] without one, the reset of a spent quota.
    pub retry_after: Option<Duration>,
    /// How long the target of a redirect is to be left alone: the Retry-After of a 3xx (RFC 9110 section 10.2.3).
    /// It delays the next hop of this request alone, at most [`WAIT_MAX`].
    pub target_after: Option<Duration>,
    /// What the server said is left of its quotas.
    pub quotas: Quotas,
    /// The URL that was requested, if the caller knows it. With it, the trouble of one URL slows no other.
    ///
    /// Reports without one count as reports about different URLs: each refusal and each failure
    /// is evidence against the host at once, even if all of them are about one bad URL.
    pub resource: Option<Resource>,
}

impl Report {
    /// A report that says `signal` and nothing more.
    pub const fn of(signal: Signal) -> Self {
        Self {
            signal,
            status: None,
            failure: None,
            latency: Duration::ZERO,
            bytes: 0,
            retry_after: None,
            target_after: None,
            quotas: Quotas::NONE,
            resource: None,
        }
    }
}
