//! The answers of the proxy itself, as problem documents (RFC 9457).

use std::error::Error;
use std::io;
use std::iter::successors;
use std::time::Duration;

use http::header::{CONTENT_TYPE, HeaderName, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use politely::attempts::{NotSent, PartialContent, Waited, failure_of, trouble_of};
use politely::{AcquireError, Failure};
use serde_json::{Map, Value};

use super::body::{self, Answer, BoxError, CallerGone};
use crate::fetch::innermost;

/// The time after which to ask again, if it is not known.
const AGAIN: Duration = Duration::from_secs(1);

/// Why there is no answer of a host.
#[derive(Debug)]
pub(super) struct Problem(Box<Parts>);

#[derive(Debug)]
struct Parts {
    status: StatusCode,
    members: Map<String, Value>,
    headers: HeaderMap,
    waited: Option<Waited>,
}

impl Problem {
    pub(super) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        let parts = Parts {
            status,
            members: Map::new(),
            headers: HeaderMap::new(),
            waited: None,
        };
        Self(Box::new(parts))
            .member("type", "about:blank")
            .member("title", status.canonical_reason().unwrap_or("error"))
            .member("status", status.as_u16())
            .member("detail", detail.into())
    }

    /// Returns a 400.
    pub(super) fn bad(detail: &str) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    pub(super) fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.0.headers.insert(name, value);
        self
    }

    fn member(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.0.members.insert(name.to_owned(), value.into());
        self
    }

    fn again(self, after: Duration) -> Self {
        // Rounded up, so that nobody asks too early.
        let secs = after.as_millis().div_ceil(1000).max(1) as u64;
        self.header(RETRY_AFTER, secs.into())
            .member("retry_after_ms", after.as_millis() as u64)
    }

    /// Returns the problem of a request that the layer did not send, or whose host failed.
    pub(super) fn of(error: &BoxError) -> Self {
        if let Some(not_sent) = error.downcast_ref() {
            return Self::of_limits(not_sent);
        }
        match error.downcast_ref() {
            Some(CallerGone::Left) => return Self::bad(&error.to_string()),
            Some(CallerGone::Slow) => {
                return Self::new(StatusCode::REQUEST_TIMEOUT, error.to_string());
            }
            None => {}
        }
        if error.is::<PartialContent>() {
            return Self::of_host(&error.to_string());
        }
        let mut causes = successors(Some(&**error as &(dyn Error + 'static)), |&at| at.source());
        if causes.any(is_forbidden) {
            return Self::forbidden(&innermost(&**error));
        }
        let failure = failure_of(&**error);
        let status = match failure {
            Some(Failure::Timeout) => StatusCode::GATEWAY_TIMEOUT,
            _ => StatusCode::BAD_GATEWAY,
        };
        let of_machine = failure.is_some_and(|failure| trouble_of(&**error, failure).is_some());
        let fault = if of_machine && failure != Some(Failure::Timeout) {
            "machine"
        } else {
            "host"
        };
        Self::new(
            status,
            format!("{}: {}", words(failure), innermost(&**error)),
        )
        .member("fault", fault)
    }

    /// Returns the problem of an address that callers may not reach.
    pub(super) fn forbidden(why: &str) -> Self {
        Self::new(StatusCode::FORBIDDEN, why)
    }

    /// Returns the problem of an answer that cannot be passed on.
    pub(super) fn of_host(why: &str) -> Self {
        Self::new(StatusCode::BAD_GATEWAY, why).member("fault", "host")
    }

    fn of_limits(not_sent: &NotSent) -> Self {
        let new = |status| Self::new(status, not_sent.to_string());
        match not_sent {
            NotSent::Late(waited) => {
                let again = waited.again.unwrap_or(AGAIN);
                let mut problem = new(StatusCode::TOO_MANY_REQUESTS)
                    .member("key", waited.key.as_str())
                    .member("reason", waited.reason.clone())
                    .again(again);
                problem.0.waited = Some(waited.clone());
                problem
            }
            NotSent::Acquire(AcquireError::Parked(key, rest)) => new(StatusCode::TOO_MANY_REQUESTS)
                .member("key", key.as_str())
                .member("reason", "parked")
                .again(*rest),
            NotSent::Acquire(AcquireError::QueueFull(key)) => new(StatusCode::TOO_MANY_REQUESTS)
                .member("key", key.as_str())
                .member("reason", "queue full")
                .again(AGAIN),
            NotSent::Acquire(AcquireError::Coordinator(_)) => {
                new(StatusCode::BAD_GATEWAY).member("fault", "coordinator")
            }
            NotSent::Acquire(AcquireError::Unavailable(_)) => new(StatusCode::SERVICE_UNAVAILABLE)
                .member("fault", "coordinator")
                .again(AGAIN),
            NotSent::Acquire(AcquireError::Closed | AcquireError::Full) => {
                new(StatusCode::SERVICE_UNAVAILABLE).again(AGAIN)
            }
            // The request itself cannot be sent: no key, a missing label, or too high a cost.
            NotSent::Key(_) | NotSent::Acquire(_) => new(StatusCode::BAD_REQUEST),
        }
    }

    pub(super) fn into_response(self) -> Response<Answer> {
        let Parts {
            status,
            members,
            headers,
            waited,
        } = *self.0;
        let mut response = Response::new(body::whole(Value::Object(members).to_string()));
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        let problem = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(CONTENT_TYPE, problem);
        if let Some(waited) = waited {
            response.extensions_mut().insert(waited);
        }
        response
    }
}

/// Returns whether an error is that of a private address.
fn is_forbidden(error: &(dyn Error + 'static)) -> bool {
    let io = error.downcast_ref::<io::Error>();
    io.is_some_and(|io| io.kind() == io::ErrorKind::PermissionDenied)
}

fn words(failure: Option<Failure>) -> &'static str {
    match failure {
        Some(Failure::NoSuchHost) => "the host has no address",
        Some(Failure::Resolver) => "the resolver failed",
        Some(Failure::Connect) => "no connection to the host",
        Some(Failure::Tls) => "no TLS with the host",
        Some(Failure::Timeout) => "no answer of the host in time",
        Some(Failure::Reset) => "the host closed the connection",
        Some(Failure::CutOff) => "the host's answer broke off",
        Some(Failure::Malformed) => "the host's answer is not HTTP",
        None => "the request could not be sent",
    }
}
