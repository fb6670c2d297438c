//! The callers that may use the proxy.
//!
//! With tokens, each request carries one. Without tokens the proxy listens on loopback, and refuses
//! requests for other host names: a web page whose name was made to mean 127.0.0.1 sends them. The
//! gateway refuses web pages of other origins always, as `serve` does.

use std::net::IpAddr;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{HOST, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, WWW_AUTHENTICATE};
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Request, StatusCode, Version};
use politely_server::{Role, Tokens, is_of_other_origin};

use tokio::time::sleep;

use super::problem::Problem;
use super::way::Kind;

/// The header with the token, for callers that cannot set Proxy-Authorization.
const TOKEN: &str = "x-politely-token";

/// The time that a wrong token costs its caller.
const WRONG_TOKEN_TIME: Duration = Duration::from_secs(1);

pub(super) struct Access {
    tokens: RwLock<Option<Tokens>>,
}

impl Access {
    pub(super) const fn new(tokens: Option<Tokens>) -> Self {
        Self {
            tokens: RwLock::new(tokens),
        }
    }

    /// Puts `tokens` into force, in place of those before.
    pub(super) fn replace(&self, tokens: Tokens) {
        *self.tokens.write().unwrap_or_else(PoisonError::into_inner) = Some(tokens);
    }

    /// Returns whether a request has a token that is not right. `None`: no token is needed.
    fn is_wrong(&self, given: Option<&[u8]>) -> Option<bool> {
        let tokens = self.tokens.read().unwrap_or_else(PoisonError::into_inner);
        let role = given.map(|given| tokens.as_ref()?.role(given));
        let is_right = role.flatten().is_some_and(|role| role >= Role::Worker);
        tokens.is_some().then_some(!is_right)
    }

    /// Checks that the caller of a request of this kind may use the proxy.
    pub(super) async fn check<B>(&self, request: &Request<B>, kind: Kind) -> Result<(), Problem> {
        check_host(request)?;
        if kind == Kind::Gateway && is_of_another_page(request) {
            let detail = "web pages may not use the gateway";
            return Err(Problem::new(StatusCode::FORBIDDEN, detail));
        }
        let given = given(request.headers());
        let Some(is_wrong) = self.is_wrong(given.as_deref()) else {
            return if kind == Kind::Gateway && !is_for_this_machine(request) {
                let detail = "the Host of a request to this proxy must be an address or localhost";
                Err(Problem::new(StatusCode::MISDIRECTED_REQUEST, detail))
            } else {
                Ok(())
            };
        };
        if !is_wrong {
            return Ok(());
        }
        if given.is_some() {
            sleep(WRONG_TOKEN_TIME).await;
        }
        let basic = HeaderValue::from_static("Basic realm=\"politely\"");
        let detail = "a token is missing or wrong: send it as the password of Proxy-Authorization, \
                      or as X-Politely-Token";
        Err(match kind {
            Kind::Gateway => Problem::new(StatusCode::UNAUTHORIZED, detail)
                .header(WWW_AUTHENTICATE, HeaderValue::from_static("Politely-Token")),
            Kind::Forward | Kind::Tunnel => {
                Problem::new(StatusCode::PROXY_AUTHENTICATION_REQUIRED, detail)
                    .header(PROXY_AUTHENTICATE, basic)
            }
        })
    }
}

/// Returns the token of a request.
fn given(headers: &HeaderMap) -> Option<Vec<u8>> {
    if let Some(token) = headers.get(TOKEN) {
        return Some(token.as_bytes().to_vec());
    }
    let (scheme, rest) = headers
        .get(PROXY_AUTHORIZATION)?
        .to_str()
        .ok()?
        .split_once(' ')?;
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(rest.trim().as_bytes().to_vec());
    }
    let login = STANDARD.decode(rest.trim()).ok()?;
    let colon = login.iter().position(|byte| *byte == b':')?;
    Some(login[colon + 1..].to_vec())
}

/// Checks that HTTP/1 names one host, as RFC 9112, section 3.2 demands.
fn check_host<B>(request: &Request<B>) -> Result<(), Problem> {
    let mut hosts = request.headers().get_all(HOST).into_iter();
    let is_named = match (hosts.next(), hosts.next()) {
        (None, _) => request.version() != Version::HTTP_11,
        (Some(host), None) => {
            Authority::try_from(host.as_bytes()).is_ok_and(|host| !host.as_str().contains('@'))
        }
        _ => false,
    };
    let wrong = || Problem::bad("the header Host must name one host");
    is_named.then_some(()).ok_or_else(wrong)
}

/// Returns whether a web page sent this request to the gateway, or a browser would show the answer
/// as a page, whose scripts could then use all routes.
fn is_of_another_page<B>(request: &Request<B>) -> bool {
    let headers = request.headers();
    let own = authority(request);
    let own = own.as_ref().map_or("", Authority::as_str);
    let is = |name: &str, allowed: &[&str]| {
        let mut values = headers.get_all(name).into_iter();
        values.all(|value| allowed.iter().any(|allowed| value == allowed))
    };
    is_of_other_origin(headers, own)
        || !is("sec-fetch-site", &["same-origin", "none"])
        || !is("sec-fetch-dest", &["empty"])
}

/// Returns the name under which the caller reached the proxy.
fn authority<B>(request: &Request<B>) -> Option<Authority> {
    let named = request.headers().get(HOST).map(HeaderValue::as_bytes);
    let named = named.and_then(|host| Authority::try_from(host).ok());
    request.uri().authority().cloned().or(named)
}

fn is_for_this_machine<B>(request: &Request<B>) -> bool {
    let Some(authority) = authority(request) else {
        // No browser speaks HTTP/1.0.
        return request.version() == Version::HTTP_10;
    };
    let host = authority.host().trim_matches(['[', ']']);
    host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok()
}
