//! The callers that may use the proxy.
//!
//! With tokens, each request carries one. Without tokens the proxy listens on loopback, and refuses
//! requests for other host names: a web page whose name was made to mean 127.0.0.1 sends them.

use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{HOST, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, WWW_AUTHENTICATE};
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Request, StatusCode};
use politely_server::{Role, Tokens};

use super::problem::Problem;
use super::way::Kind;

/// The header with the token, for callers that cannot set Proxy-Authorization.
const TOKEN: &str = "x-politely-token";

pub(super) struct Access {
    tokens: Option<Tokens>,
}

impl Access {
    pub(super) const fn new(tokens: Option<Tokens>) -> Self {
        Self { tokens }
    }

    /// Checks that the caller of a request of this kind may use the proxy.
    pub(super) fn check<B>(&self, request: &Request<B>, kind: Kind) -> Result<(), Problem> {
        let Some(tokens) = &self.tokens else {
            return if kind == Kind::Gateway && !is_for_this_machine(request) {
                let detail = "the Host of a request to this proxy must be an address or localhost";
                Err(Problem::new(StatusCode::MISDIRECTED_REQUEST, detail))
            } else {
                Ok(())
            };
        };
        let role = given(request.headers()).and_then(|token| tokens.role(&token));
        if role.is_some_and(|role| role >= Role::Worker) {
            return Ok(());
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

fn is_for_this_machine<B>(request: &Request<B>) -> bool {
    let named = request.headers().get(HOST).map(HeaderValue::as_bytes);
    let named = named.and_then(|host| Authority::try_from(host).ok());
    let authority = request.uri().authority().cloned().or(named);
    authority.is_none_or(|authority| {
        let host = authority.host().trim_matches(['[', ']']);
        host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok()
    })
}
