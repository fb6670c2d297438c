//! A client of the coordinator's API over HTTP, with TLS if the URL begins with `https`.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use politely_api::client::Client;
//!
//! let client = Client::new("http://127.0.0.1:7077,http://127.0.0.1:7078", None, None)?;
//! let fleet = client.at_each(Client::stats).await?;
//! println!("{} keys", fleet.keys);
//! # Ok(())
//! # }
//! ```
//!
//! # Failover
//!
//! Several coordinators that share their keys are listed with commas. A call goes to one of them.
//! If it cannot serve, the call fails and the *next* call goes to the next coordinator. A worker
//! that makes the call again, with the same ids, needs nothing else. A caller that has no ids to
//! keep uses [`Client::at_each`], which makes the call at one coordinator after another.

mod coordinators;
mod frontier;
mod locks;
pub mod transport;

use std::fmt::Write as _;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use serde::Serialize;
use serde::de::DeserializeOwned;
use url::Url;
use url::form_urlencoded::Serializer;

pub use self::locks::{ClientLock, LockFailure, LockWanted};

use self::coordinators::Coordinators;
use self::transport::{Pool, cause, pool};
use crate::wire::{
    Answer, Cancel, Cancelled, Exchange, Exchanged, FleetStats, ImportKeys, KeyDetail, KeyPage,
    KeyPatch, KeysChanged, KeysQuery, Permits, Problem, RefusedCode, Renewed, UsagePage,
    UsageQuery,
};

/// The timeout of an answer, in addition to the time for which the call may be held open.
const ANSWER_TIME: Duration = Duration::from_secs(10);
/// The timeout for a connection.
const CONNECT_TIME: Duration = Duration::from_secs(2);
/// The time for pages to be sent and stored.
const PUT_TIME: Duration = Duration::from_mins(1);
/// The longest answer that is read, in bytes.
const ANSWER_MAX: usize = 16 << 20;
/// The longest Retry-After of a coordinator that is followed.
const BUSY_MAX: Duration = Duration::from_mins(1);

/// Why a client cannot be created.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// The coordinator's URL is invalid. The fields are the URL and the reason.
    #[error("{0}: {1}")]
    Url(String, String),
    /// The token cannot be sent in a header.
    #[error("a token is visible ASCII characters")]
    Token,
    /// This machine's certificates cannot be read.
    #[error("no TLS: {0}")]
    Tls(String),
}

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The coordinator cannot be reached, the connection broke, or the answer did not come in time.
    #[error("{0}")]
    Unavailable(String),
    /// The coordinator cannot take the call now.
    #[error("{detail}")]
    Busy {
        /// The call may be made again after this time, a minute at most.
        retry_after: Duration,
        /// The reason that the coordinator gave.
        detail: String,
    },
    /// The coordinator rejects this call, and would reject it again.
    #[error("{status}{}", suffix(detail.as_deref()))]
    Rejected {
        /// The status of the answer.
        status: StatusCode,
        /// The reason, if the answer is a problem document of this API.
        detail: Option<String>,
    },
    /// The answer is not one of this API.
    #[error("cannot read its answer: {0}; is it a coordinator of this version?")]
    Unreadable(String),
}

/// A call under way. It borrows nothing.
pub type Calling<T> = Pin<Box<dyn Future<Output = Result<T, CallError>> + Send>>;

/// A client of one coordinator, or of several that share their keys. Clones share the connections.
#[derive(Clone, Debug)]
pub struct Client {
    pool: Pool,
    coordinators: Arc<Coordinators>,
    headers: HeaderMap,
}

/// One call, ready to be sent.
struct Outgoing {
    method: Method,
    /// The type of the body, if it is not JSON.
    content_type: Option<&'static str>,
    path: String,
    body: Vec<u8>,
    /// The coordinator may wait for this time before it answers.
    held: Duration,
}

impl Client {
    /// Creates a client of the coordinator at `urls`, or of several separated by commas.
    ///
    /// `token` is the coordinator's token. `ca` is a PEM file with certificates of authorities to
    /// trust, in addition to those of this machine.
    ///
    /// # Errors
    /// A URL or the token is invalid, or certificates cannot be read.
    pub fn new(urls: &str, token: Option<&str>, ca: Option<&Path>) -> Result<Self, ClientError> {
        if urls.contains(',') && urls.split(',').any(|url| url.trim().is_empty()) {
            let why = "a URL is missing beside a comma";
            return Err(ClientError::Url(urls.to_owned(), why.to_owned()));
        }
        let bases = urls.split(',').map(base).collect::<Result<_, _>>()?;
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(token) = token {
            let bearer = HeaderValue::try_from(format!("Bearer {}", token.trim()));
            let mut bearer = bearer.map_err(|_| ClientError::Token)?;
            bearer.set_sensitive(true);
            headers.insert(AUTHORIZATION, bearer);
        }
        Ok(Self {
            pool: pool(ca, CONNECT_TIME)?,
            coordinators: Arc::new(Coordinators::new(bases)),
            headers,
        })
    }

    /// Sends reports and acquire requests. The coordinator may hold the call open for its
    /// `wait_ms`.
    pub fn exchange(&self, call: &Exchange) -> Calling<Exchanged> {
        let held = Duration::from_millis(u64::from(call.wait_ms));
        let outgoing = Outgoing {
            held,
            ..post("/exchange", call)
        };
        let client = self.clone();
        Box::pin(async move {
            let is_closing = |said: &Exchanged| said.acquire.iter().any(is_closing);
            client.send(outgoing, is_closing).await
        })
    }

    /// Renews the leases of permits.
    pub fn renew(&self, call: &Permits) -> Calling<Renewed> {
        self.call(post("/renew", call))
    }

    /// Gives permits back without an outcome.
    pub fn cancel(&self, call: &Cancel) -> Calling<Cancelled> {
        self.call(post("/cancel", call))
    }

    /// Returns the fleet's numbers, without its workers.
    pub fn stats(&self) -> Calling<FleetStats> {
        self.call(get("/stats?workers=0".to_owned()))
    }

    /// Returns part of the table of keys.
    pub fn keys(&self, query: &KeysQuery) -> Calling<KeyPage> {
        self.call(get(format!("/keys?{}", query_string(query))))
    }

    /// Returns what workers did.
    pub fn usage(&self, query: &UsageQuery) -> Calling<UsagePage> {
        self.call(get(format!("/audit?{}", query_string(query))))
    }

    /// Creates keys, and changes their settings.
    pub fn import_keys(&self, call: &ImportKeys) -> Calling<KeysChanged> {
        self.call(post("/keys", call))
    }

    /// Returns the details of one key. The status 404 means that the coordinator does not know it.
    pub fn key(&self, key: &str) -> Calling<KeyDetail> {
        self.call(get(format!("/keys/{}", escaped(key))))
    }

    /// Applies `patch` to one key.
    pub fn patch_key(&self, key: &str, patch: &KeyPatch) -> Calling<KeyDetail> {
        self.call(Outgoing {
            method: Method::PATCH,
            path: format!("/keys/{}", escaped(key)),
            ..post("", patch)
        })
    }

    /// Makes a call at the current coordinator. While it fails because a coordinator cannot serve,
    /// makes it at each of the others once.
    ///
    /// # Errors
    /// The first coordinator's error, if none can serve.
    pub async fn at_each<T, F>(&self, call: impl Fn(&Self) -> F) -> Result<T, CallError>
    where
        F: Future<Output = Result<T, CallError>>,
    {
        let mut first = None;
        for _ in 0..self.coordinators.count() {
            match call(self).await {
                Err(why @ (CallError::Unavailable(_) | CallError::Busy { .. })) => {
                    first.get_or_insert(why);
                }
                answer => return answer,
            }
        }
        Err(first.unwrap_or_else(|| CallError::Unavailable("no coordinator".to_owned())))
    }

    fn call<T: DeserializeOwned + 'static>(&self, outgoing: Outgoing) -> Calling<T> {
        let client = self.clone();
        Box::pin(async move { client.send(outgoing, |_| false).await })
    }

    /// Makes one call at the current coordinator. Moves on for the next call if this coordinator
    /// cannot serve, or if `is_closing` is true for its answer.
    async fn send<T: DeserializeOwned>(
        &self,
        outgoing: Outgoing,
        is_closing: impl Fn(&T) -> bool,
    ) -> Result<T, CallError> {
        let (number, base) = self.coordinators.current();
        let answer = self.attempt(base, outgoing).await;
        let answer = answer.and_then(|body| {
            serde_json::from_slice(&body).map_err(|why| CallError::Unreadable(why.to_string()))
        });
        match answer {
            // The Retry-After concerns only the coordinator that sent it.
            Err(CallError::Busy { detail, .. }) if self.coordinators.leave(number) => {
                Err(CallError::Unavailable(detail))
            }
            Err(CallError::Unavailable(_)) => {
                self.coordinators.leave(number);
                answer
            }
            Ok(said) if is_closing(&said) => {
                self.coordinators.leave(number);
                Ok(said)
            }
            answer => answer,
        }
    }

    async fn attempt(&self, base: &str, outgoing: Outgoing) -> Result<Bytes, CallError> {
        let uri: Uri =
            format!("{base}{}", outgoing.path)
                .parse()
                .map_err(|why: http::uri::InvalidUri| CallError::Rejected {
                    status: StatusCode::BAD_REQUEST,
                    detail: Some(format!("{}: {why}", outgoing.path)),
                })?;
        let mut request = Request::new(Full::from(outgoing.body));
        *request.method_mut() = outgoing.method;
        *request.uri_mut() = uri;
        *request.headers_mut() = self.headers.clone();
        if let Some(kind) = outgoing.content_type {
            let kind = HeaderValue::from_static(kind);
            request.headers_mut().insert(CONTENT_TYPE, kind);
        }
        let answer = async {
            let response = self.pool.request(request).await;
            let response = response.map_err(|why| CallError::Unavailable(cause(&why)));
            let (head, body) = response?.into_parts();
            let body = Limited::new(body, ANSWER_MAX).collect().await;
            let body = body.map_err(|why| CallError::Unavailable(cause(&*why)))?;
            judge(head.status, &head.headers, body.to_bytes())
        };
        let limited = tokio::time::timeout(outgoing.held + ANSWER_TIME, answer).await;
        limited.unwrap_or_else(|_| Err(CallError::Unavailable("no answer in time".to_owned())))
    }
}

fn get(path: String) -> Outgoing {
    Outgoing {
        method: Method::GET,
        content_type: None,
        path,
        body: Vec::new(),
        held: Duration::ZERO,
    }
}

fn post(path: &str, body: &impl Serialize) -> Outgoing {
    Outgoing {
        method: Method::POST,
        content_type: None,
        path: path.to_owned(),
        body: serde_json::to_vec(body).unwrap_or_default(),
        held: Duration::ZERO,
    }
}

/// Returns whether the coordinator refused an acquire request because it is shutting down.
fn is_closing(answer: &Answer) -> bool {
    match answer {
        Answer::Refused { code, .. } => *code == RefusedCode::Closing,
        _ => false,
    }
}

/// Returns the base URL of the API of the coordinator at `url`.
fn base(url: &str) -> Result<String, ClientError> {
    let url = url.trim();
    let named = if url.is_empty() { "an empty URL" } else { url };
    let wrong = |why: &str| ClientError::Url(named.to_owned(), why.to_owned());
    let parsed = Url::parse(url).map_err(|why| match why {
        url::ParseError::RelativeUrlWithoutBase => wrong("must begin with http:// or https://"),
        why => wrong(&why.to_string()),
    })?;
    if !matches!(parsed.scheme(), "http" | "https") {
        return Err(wrong("use http or https"));
    }
    if !parsed.username().is_empty() || parsed.password().is_some() {
        let named = parsed.host_str().unwrap_or_default().to_owned();
        let why = "a coordinator takes a token, no user and password";
        return Err(ClientError::Url(named, why.to_owned()));
    }
    if parsed.query().is_some() || parsed.fragment().is_some() {
        return Err(wrong("a coordinator's URL ends before any `?` or `#`"));
    }
    Ok(format!("{}/api/v1", parsed.as_str().trim_end_matches('/')))
}

/// Returns the body of a successful answer, or the error that its status means.
fn judge(status: StatusCode, headers: &HeaderMap, body: Bytes) -> Result<Bytes, CallError> {
    if status.is_success() {
        return Ok(body);
    }
    let problem: Option<Problem> = serde_json::from_slice(&body).ok();
    let detail = problem.map(|problem| problem.detail);
    match status {
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => {
            let secs = headers
                .get(RETRY_AFTER)
                .and_then(|value| value.to_str().ok()?.parse().ok());
            Err(CallError::Busy {
                retry_after: Duration::from_secs(secs.unwrap_or(1)).min(BUSY_MAX),
                detail: detail.unwrap_or_else(|| format!("it is overloaded ({status})")),
            })
        }
        // A proxy in front of the coordinator may answer so while the coordinator starts.
        status if status.is_server_error() || status == StatusCode::REQUEST_TIMEOUT => {
            Err(CallError::Unavailable(status.to_string()))
        }
        status => Err(CallError::Rejected { status, detail }),
    }
}

fn suffix(detail: Option<&str>) -> String {
    detail.map_or_else(String::new, |detail| format!(": {detail}"))
}

/// Returns the set fields of `query`, encoded for a URL.
fn query_string(query: &impl Serialize) -> String {
    let fields = serde_json::to_value(query).unwrap_or_default();
    let mut pairs = Serializer::new(String::new());
    for (name, value) in fields.as_object().into_iter().flatten() {
        match value {
            serde_json::Value::Null => {}
            serde_json::Value::String(text) => _ = pairs.append_pair(name, text),
            other => _ = pairs.append_pair(name, &other.to_string()),
        }
    }
    pairs.finish()
}

/// Returns the key percent-encoded, as one segment of a path.
fn escaped(key: &str) -> String {
    key.bytes().fold(String::new(), |mut text, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            // Writing to a `String` cannot fail.
            let _ = write!(text, "%{byte:02X}");
        }
        text
    })
}

#[cfg(test)]
mod tests;
