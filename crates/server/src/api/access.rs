//! Who may call: whoever knows the token; without one, only this machine.
//!
//! A browser on this machine is everybody's: pages of strangers may send requests to loopback, and names of
//! strangers may point at it. So without a token the Host must be a loopback name, and a call that a page of another
//! origin made is refused with or without one.

use std::net::IpAddr;

use axum::http::{HeaderMap, StatusCode, header};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use subtle::ConstantTimeEq;

use super::problem::Wrong;

/// Who may call.
pub(crate) enum Access {
    /// This machine.
    Loopback,
    /// Whoever knows the token.
    Token(Box<[u8]>),
}

/// May a call with these headers be made? HTTP/2 says the host as its URI's `authority`.
pub(super) fn allowed(
    access: &Access,
    authority: Option<&str>,
    headers: &HeaderMap,
) -> Result<(), Wrong> {
    let host = text(headers, header::HOST).or(authority).unwrap_or("");
    match access {
        Access::Loopback if !is_loopback(host) => {
            let detail = "without a token only a loopback host is answered";
            return Err(Wrong::new(StatusCode::FORBIDDEN, detail));
        }
        Access::Loopback => {}
        Access::Token(token) => {
            let known =
                given(headers).is_some_and(|given| bool::from(given.as_slice().ct_eq(token)));
            if !known {
                let detail = "the header Authorization must carry the coordinator's token";
                return Err(Wrong::new(StatusCode::UNAUTHORIZED, detail));
            }
        }
    }
    let same = |origin: &str| {
        origin
            .split_once("://")
            .is_some_and(|(_, origin)| origin == host)
    };
    if text(headers, header::ORIGIN).is_some_and(|origin| !same(origin)) {
        let detail = "pages of other origins may not call";
        return Err(Wrong::new(StatusCode::FORBIDDEN, detail));
    }
    Ok(())
}

/// The token a call carries: as a bearer's, or as a password, which browsers ask for.
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

    #[test]
    fn a_token_is_taken_from_its_header_only() {
        let access = Access::Token((*b"s3cret").into());
        let with = |value: &str| {
            allowed(&access, None, &headers(&[(header::AUTHORIZATION, value)])).is_ok()
        };
        assert!(with("Bearer s3cret") && with("bearer s3cret"));
        assert!(with(&format!(
            "Basic {}",
            BASE64_STANDARD.encode("me:s3cret")
        )));
        for wrong in [
            "Bearer s3cre",
            "Bearer s3cret2",
            "Bearer",
            "s3cret",
            "Basic s3cret",
            "Basic !",
            "Digest s3cret",
        ] {
            assert!(!with(wrong), "{wrong}");
        }
        assert!(allowed(&access, None, &headers(&[])).is_err());
    }

    #[test]
    fn pages_of_others_may_not_call() {
        let call = |host: &str, origin: &str| {
            let headers = headers(&[(header::HOST, host), (header::ORIGIN, origin)]);
            allowed(&Access::Loopback, None, &headers).is_ok()
        };
        assert!(call("127.0.0.1:7077", "http://127.0.0.1:7077"));
        assert!(!call("127.0.0.1:7077", "http://evil.example"));
        assert!(!call("evil.example:7077", "http://evil.example:7077"));
        assert!(!call("127.0.0.1:7077", "null"));
    }
}
