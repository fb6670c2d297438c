//! Access control: a token names a role, and without tokens only this machine may call.
//!
//! A web page of another origin can send requests to loopback from a browser on this machine. A
//! foreign domain name can resolve to loopback as well. A call without tokens must therefore name a
//! loopback host. A call from a page of another origin is refused, with or without tokens.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use parking_lot::RwLock;
use tokio::time::Instant;

#[cfg(feature = "grpc")]
use super::grpc;
use super::logins::{Logins, Peer};
use super::problem::Wrong;
use crate::tokens::{Role, Tokens};
use crate::watch::SEPARATOR;

/// The calls of a worker, apart from read-only calls.
const WORKER_CALLS: [&str; 8] = [
    "/api/v1/acquire",
    "/api/v1/report",
    "/api/v1/exchange",
    "/api/v1/renew",
    "/api/v1/cancel",
    "/api/v1/sessions",
    "/api/v1/locks",
    "/api/v1/locks/release",
];
/// Prefix of the paths of the frontier, and the calls of a worker about a crawl.
const FRONTIER: &str = "/api/v1/frontier/";
const FRONTIER_WORKER_CALLS: [&str; 4] = ["put", "take", "done", "exchange"];
/// Prefix of the paths of single sessions. A worker renews and ends its own.
const SESSION: &str = "/api/v1/sessions/";
/// Prefix of the paths of the audits. Their entries contain the addresses and tokens of operators.
const AUDIT: &str = "/api/v1/audit";

/// The rule that decides which callers are answered.
pub(crate) enum Access {
    /// Callers on this machine.
    Loopback,
    /// Callers with a token. The set of tokens can be replaced while the coordinator runs.
    Tokens(RwLock<Arc<Tokens>>),
}

/// The authenticated caller of an HTTP call.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// The name of the caller's token. It is empty for a single unnamed token, and without tokens.
    pub(crate) token: Arc<str>,
    pub(crate) role: Role,
    pub(crate) peer: IpAddr,
}

impl Caller {
    /// Returns the name that the permits of `client` are bound to. It differs between tokens, even
    /// for the same client name.
    pub(crate) fn worker<'a>(&self, client: &'a str) -> Cow<'a, str> {
        if self.token.is_empty() {
            return client.into();
        }
        format!("{}{SEPARATOR}{client}", self.token).into()
    }

    /// Returns whether a session of `worker` belongs to this caller. An operator owns all.
    pub(crate) fn owns(&self, worker: &str) -> bool {
        let token = worker.split_once(SEPARATOR).map_or("", |(token, _)| token);
        self.role == Role::Operator || token == &*self.token
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Wrong;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Wrong> {
        let missing = || Wrong::new(StatusCode::INTERNAL_SERVER_ERROR, "the caller is not known");
        parts.extensions.remove::<Self>().ok_or_else(missing)
    }
}

/// Authenticates a call and returns its caller. HTTP/2 names the host as `authority`.
///
/// # Errors
/// 400 for a header that must not be repeated. 401 for a missing or wrong token. 403 for a host,
/// origin or role that does not allow the call. 429 after too many wrong tokens.
pub(super) fn admit(
    access: &Access,
    logins: &Logins,
    peer: &Peer,
    authority: Option<&str>,
    headers: &HeaderMap,
) -> Result<Caller, Wrong> {
    for name in [header::HOST, header::ORIGIN, header::AUTHORIZATION] {
        if headers.get_all(&name).iter().nth(1).is_some() {
            let detail = format!("the header {name} is repeated; send it once");
            return Err(Wrong::new(StatusCode::BAD_REQUEST, detail));
        }
    }
    let named = text(headers, header::HOST);
    if let (Some(host), Some(authority)) = (named, authority)
        && !host.eq_ignore_ascii_case(authority)
    {
        let detail = "the header Host and the URL name different hosts";
        return Err(Wrong::new(StatusCode::BAD_REQUEST, detail));
    }
    let host = named.or(authority).unwrap_or("");
    let caller = match access {
        Access::Loopback if !is_loopback(host) => {
            let detail = "without a token only a loopback host is answered";
            return Err(Wrong::new(StatusCode::FORBIDDEN, detail));
        }
        Access::Loopback => Caller {
            token: "".into(),
            role: Role::Operator,
            peer: peer.address(),
        },
        Access::Tokens(tokens) => {
            let tokens = Arc::clone(&tokens.read());
            login(&tokens, logins, peer, headers)?
        }
    };
    if is_of_other_origin(headers, host) {
        let detail = "pages of other origins may not call";
        return Err(Wrong::new(StatusCode::FORBIDDEN, detail));
    }
    Ok(caller)
}

/// Returns whether a web page of another origin than `host`, a name with its port, sent a request.
pub fn is_of_other_origin(headers: &HeaderMap, host: &str) -> bool {
    let is_own = |origin: &HeaderValue| {
        let origin = origin.to_str().ok().and_then(|it| it.split_once("://"));
        origin.is_some_and(|(_, origin)| origin.eq_ignore_ascii_case(host))
    };
    !headers.get_all(header::ORIGIN).iter().all(is_own)
}

fn login(
    tokens: &Tokens,
    logins: &Logins,
    peer: &Peer,
    headers: &HeaderMap,
) -> Result<Caller, Wrong> {
    let detail = "the header Authorization must carry a token of the coordinator";
    let refused = || Wrong::new(StatusCode::UNAUTHORIZED, detail);
    if !headers.contains_key(header::AUTHORIZATION) {
        return Err(refused());
    }
    let too_many = || {
        let detail = "too many calls with a wrong token; the next is answered in a second";
        Wrong::new(StatusCode::TOO_MANY_REQUESTS, detail)
    };
    let now = Instant::now();
    let given = given(headers).unwrap_or_default();
    match tokens.find(&given) {
        Some((known, mark)) if logins.is_let_in(peer, mark, now) => Ok(Caller {
            token: Arc::clone(&known.name),
            role: known.role,
            peer: peer.address(),
        }),
        None if logins.fail(peer, now) => Err(refused()),
        Some(_) | None => Err(too_many()),
    }
}

/// Checks that the role of `caller` allows the call. A call that changes state and is not listed
/// here needs the role operator.
pub(super) fn permit(caller: &Caller, method: &Method, path: &str) -> Result<(), Wrong> {
    let reads = method == Method::GET || method == Method::HEAD;
    #[cfg(feature = "grpc")]
    let grpc = path.strip_prefix(grpc::PREFIX).map(grpc::role);
    #[cfg(not(feature = "grpc"))]
    let grpc = None;
    let needed = if let Some(role) = grpc {
        role
    } else if reads && path.starts_with(AUDIT) {
        Role::Operator
    } else if reads {
        Role::Read
    } else if method == Method::POST && is_of_worker(path)
        || (method == Method::PUT || method == Method::DELETE) && path.starts_with(SESSION)
    {
        Role::Worker
    } else {
        Role::Operator
    };
    if caller.role >= needed {
        return Ok(());
    }
    let detail = format!(
        "the token \"{}\" has the role {}; {method} {path} needs the role {}",
        caller.token,
        caller.role.as_str(),
        needed.as_str(),
    );
    Err(Wrong::new(StatusCode::FORBIDDEN, detail))
}

/// Returns whether a call that changes state is a worker's.
fn is_of_worker(path: &str) -> bool {
    let about_crawl = || path.strip_prefix(FRONTIER)?.split_once('/');
    WORKER_CALLS.contains(&path)
        || about_crawl().is_some_and(|(_, call)| FRONTIER_WORKER_CALLS.contains(&call))
}

/// Returns the token of a call: a bearer token, or the password of basic authentication.
fn given(headers: &HeaderMap) -> Option<Vec<u8>> {
    let (scheme, value) = text(headers, header::AUTHORIZATION)?.split_once(' ')?;
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(value.trim().as_bytes().to_vec());
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let pair = BASE64_STANDARD.decode(value.trim()).ok()?;
    let colon = pair.iter().position(|byte| *byte == b':')?;
    Some(pair[colon + 1..].to_vec())
}

fn is_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost")
        || name
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn headers(pairs: &[(header::HeaderName, &str)]) -> HeaderMap {
        let pair = |(name, value): &(header::HeaderName, &str)| {
            (name.clone(), HeaderValue::from_str(value).unwrap())
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn loopback_names_are_told_from_others() {
        for host in [
            "localhost",
            "LocalHost:7077",
            "127.0.0.1:80",
            "127.9.9.9",
            "[::1]:7077",
        ] {
            assert!(is_loopback(host), "{host}");
        }
        for host in [
            "",
            "evil.example:7077",
            "127.0.0.1.evil.example",
            "192.168.0.1:7077",
            "[::2]:1",
        ] {
            assert!(!is_loopback(host), "{host}");
        }
    }

    /// Checks a call from a new peer, so that no test uses up the budget of another.
    fn allowed(access: &Access, headers: &HeaderMap) -> Result<Caller, Wrong> {
        let peer = Peer::new(IpAddr::from([127, 0, 0, 1]));
        admit(access, &Logins::default(), &peer, None, headers)
    }

    fn tokens(text: &str) -> Access {
        Access::Tokens(RwLock::new(Arc::new(Tokens::parse(text).unwrap())))
    }

    #[test]
    fn a_token_is_taken_from_its_header_only() {
        let access = tokens("s3cret-of-16-chars");
        let with =
            |value: &str| allowed(&access, &headers(&[(header::AUTHORIZATION, value)])).is_ok();
        assert!(with("Bearer s3cret-of-16-chars") && with("bearer s3cret-of-16-chars"));
        assert!(with(&format!(
            "Basic {}",
            BASE64_STANDARD.encode("me:s3cret-of-16-chars")
        )));
        for wrong in [
            "Bearer s3cret-of-16-char",
            "Bearer s3cret-of-16-chars2",
            "Bearer",
            "s3cret-of-16-chars",
            "Basic s3cret-of-16-chars",
            "Basic !",
            "Digest s3cret-of-16-chars",
        ] {
            assert!(!with(wrong), "{wrong}");
        }
        assert!(allowed(&access, &headers(&[])).is_err());
    }

    #[test]
    fn pages_of_others_may_not_call() {
        let call = |host: &str, origin: &str| {
            let headers = headers(&[(header::HOST, host), (header::ORIGIN, origin)]);
            allowed(&Access::Loopback, &headers).is_ok()
        };
        assert!(call("127.0.0.1:7077", "http://127.0.0.1:7077"));
        assert!(!call("127.0.0.1:7077", "http://evil.example"));
        assert!(!call("evil.example:7077", "http://evil.example:7077"));
        assert!(!call("127.0.0.1:7077", "null"));
    }

    #[test]
    fn a_header_that_must_be_single_is_refused_when_repeated() {
        for name in [header::HOST, header::ORIGIN, header::AUTHORIZATION] {
            let mut twice = headers(&[(header::HOST, "localhost")]);
            twice.append(name.clone(), HeaderValue::from_static("localhost"));
            twice.append(name.clone(), HeaderValue::from_static("localhost"));
            let refused = allowed(&Access::Loopback, &twice).unwrap_err();
            assert_eq!(refused.status(), StatusCode::BAD_REQUEST, "{name}");
        }
        let peer = Peer::new(IpAddr::from([127, 0, 0, 1]));
        let one = headers(&[(header::HOST, "localhost")]);
        let other = Some("127.0.0.1");
        let refused = admit(&Access::Loopback, &Logins::default(), &peer, other, &one);
        assert_eq!(refused.unwrap_err().status(), StatusCode::BAD_REQUEST);
    }

    #[test]
    fn each_role_has_its_calls() {
        let calls = [
            ("GET", "/api/v1/keys", Role::Read),
            ("HEAD", "/metrics", Role::Read),
            ("POST", "/api/v1/acquire", Role::Worker),
            ("POST", "/api/v1/exchange", Role::Worker),
            ("POST", "/api/v1/locks", Role::Worker),
            ("PUT", "/api/v1/sessions/0", Role::Worker),
            ("DELETE", "/api/v1/sessions/0", Role::Worker),
            ("PATCH", "/api/v1/sessions/0", Role::Operator),
            ("GET", "/api/v1/locks", Role::Read),
            ("POST", "/api/v1/acquire/", Role::Operator),
            ("PATCH", "/api/v1/config", Role::Operator),
            ("POST", "/api/v1/config", Role::Operator),
            ("DELETE", "/api/v1/keys/h.example", Role::Operator),
            ("GET", "/api/v1/audit/changes", Role::Operator),
            ("GET", "/api/v1/audit", Role::Operator),
        ];
        for (method, path, needed) in calls {
            for role in [Role::Read, Role::Worker, Role::Operator] {
                let caller = Caller {
                    token: "t".into(),
                    role,
                    peer: IpAddr::from([127, 0, 0, 1]),
                };
                let method = method.parse().unwrap();
                let said = permit(&caller, &method, path);
                assert_eq!(said.is_ok(), role >= needed, "{method} {path} {role:?}");
            }
        }
    }
}
