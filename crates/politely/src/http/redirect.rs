//! The rule for redirects (RFC 9110, section 15.4): the target and the method of the next request.
//!
//! | status | next request |
//! | --- | --- |
//! | 303 | GET without a body; HEAD stays HEAD |
//! | 301, 302 | POST becomes GET without a body, as in every client; other methods stay |
//! | 307, 308 | the same method and body |
//! | other 3xx | none: the response is the answer |
//!
//! The number of hops is the only limit on a chain: at most [`HOPS_MAX`]. A URL may occur twice in
//! it. A page that sets a cookie redirects to itself, and a page that is being prepared does so for
//! a while.

use std::fmt::Write as _;

use http::header::LOCATION;
use http::{HeaderMap, Method, StatusCode};
use url::Url;

/// Maximum number of hops for one request: reqwest's default (the Fetch standard allows 20).
pub const HOPS_MAX: usize = 10;

/// Maximum number of bytes of a Location in an error message.
const SHOWN_MAX: usize = 200;

/// The reason why a redirect was not followed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RedirectError {
    /// The chain has more hops than the caller follows.
    #[error("cannot follow the redirect to {to}: it is hop {} of at most {max}", .max + 1)]
    TooMany {
        /// The target of the last hop.
        to: Url,
        /// The maximum number of hops.
        max: usize,
    },
    /// The target is not an http or https URL with a host.
    #[error("cannot follow the redirect to {0:?}: it is not an http or https URL")]
    Nowhere(String),
    /// The response has no Location.
    #[error("cannot follow the redirect: it has no Location")]
    NoLocation,
}

/// Returns the method of the next hop, or `None` if a redirect with `status` is not followed.
pub fn method_after(status: StatusCode, method: &Method) -> Option<Method> {
    let became_get = match status {
        StatusCode::SEE_OTHER => *method != Method::HEAD,
        StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND => *method == Method::POST,
        StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT => false,
        _ => return None,
    };
    Some(if became_get {
        Method::GET
    } else {
        method.clone()
    })
}

/// Returns the target of a redirect with these `headers`, which answered a request to `from`.
///
/// A Location that is not UTF-8 is decoded byte by byte, as browsers do. A target without a
/// fragment inherits the fragment of `from` (RFC 9110, section 10.2.2). A target in the origin of
/// `from` inherits its user and password; they never leave the origin.
///
/// # Errors
/// Fails if there is no Location, or if it is not an http or https URL.
pub fn target(headers: &HeaderMap, from: &Url) -> Result<Url, RedirectError> {
    let location = headers.get(LOCATION).ok_or(RedirectError::NoLocation)?;
    let location = location.as_bytes();
    let joined = match std::str::from_utf8(location) {
        Ok(to) => from.join(to),
        Err(_) => from.join(&location.iter().copied().fold(String::new(), escaped)),
    };
    let mut url = match joined {
        Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => url,
        _ => {
            let shown = String::from_utf8_lossy(location);
            return Err(RedirectError::Nowhere(
                shown.chars().take(SHOWN_MAX).collect(),
            ));
        }
    };
    if url.fragment().is_none() {
        url.set_fragment(from.fragment());
    }
    let has_login = |url: &Url| !url.username().is_empty() || url.password().is_some();
    if has_login(from) && !has_login(&url) && url.origin() == from.origin() {
        // These calls fail only for URLs without a host.
        let _ = url.set_username(from.username());
        let _ = url.set_password(from.password());
    }
    Ok(url)
}

/// Returns the target of a response with `status` and `headers` after `hops` hops, or `None` if it
/// is not a redirect.
///
/// # Errors
/// Fails if the redirect has no valid target, or if it is one hop more than `hops_max`.
pub fn follow(
    status: StatusCode,
    headers: &HeaderMap,
    from: &Url,
    hops: usize,
    hops_max: usize,
) -> Option<Result<Url, RedirectError>> {
    method_after(status, &Method::GET)?;
    Some(target(headers, from).and_then(|to| {
        if hops < hops_max {
            Ok(to)
        } else {
            Err(RedirectError::TooMany { to, max: hops_max })
        }
    }))
}

/// Returns `text` with one more byte, written as `%XX` unless it is ASCII.
fn escaped(mut text: String, byte: u8) -> String {
    if byte.is_ascii() {
        text.push(char::from(byte));
    } else {
        // Writing to a `String` cannot fail.
        let _ = write!(text, "%{byte:02X}");
    }
    text
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn after(status: u16, method: &Method) -> Option<Method> {
        method_after(StatusCode::from_u16(status).unwrap(), method)
    }

    #[test]
    fn a_login_stays_within_its_origin() {
        let from = Url::parse("http://user:secret@a.example/docs").unwrap();
        let to = |location: &'static str| {
            let headers = HeaderMap::from_iter([(LOCATION, HeaderValue::from_static(location))]);
            target(&headers, &from).unwrap().to_string()
        };
        for (location, leads_to) in [
            ("/docs/", "http://user:secret@a.example/docs/"),
            (
                "http://a.example/docs/",
                "http://user:secret@a.example/docs/",
            ),
            (
                "http://a.example:80/docs/",
                "http://user:secret@a.example/docs/",
            ),
            (
                "http://other@a.example/docs/",
                "http://other@a.example/docs/",
            ),
            ("https://a.example/docs/", "https://a.example/docs/"),
            ("http://a.example:81/docs/", "http://a.example:81/docs/"),
            ("//b.example/docs/", "http://b.example/docs/"),
        ] {
            assert_eq!(to(location), leads_to, "{location}");
        }
    }

    #[test]
    fn methods_follow_rfc_9110() {
        let (get, head, post, put) = (Method::GET, Method::HEAD, Method::POST, Method::PUT);
        for status in [301, 302] {
            assert_eq!(after(status, &post), Some(Method::GET));
            assert_eq!(after(status, &put), Some(Method::PUT));
            assert_eq!(after(status, &head), Some(Method::HEAD));
        }
        for status in [307, 308] {
            for method in [&get, &head, &post, &put] {
                assert_eq!(after(status, method).as_ref(), Some(method));
            }
        }
        assert_eq!(after(303, &put), Some(Method::GET));
        assert_eq!(after(303, &head), Some(Method::HEAD));
        for status in [200, 300, 304, 305, 306, 399, 404] {
            assert_eq!(after(status, &get), None, "{status}");
        }
    }

    fn to(location: &[u8]) -> Result<Url, RedirectError> {
        let value = HeaderValue::from_bytes(location).unwrap();
        let from = Url::parse("http://a.example/x/y?q#f").unwrap();
        target(&HeaderMap::from_iter([(LOCATION, value)]), &from)
    }

    #[test]
    fn locations_are_joined_and_inherit_the_fragment() {
        let url = |text| Ok(Url::parse(text).unwrap());
        assert_eq!(to(b"z"), url("http://a.example/x/z#f"));
        assert_eq!(to(b"//b.example/#g"), url("http://b.example/#g"));
        assert_eq!(to(b"https://b.example"), url("https://b.example/#f"));
        assert_eq!(to(b"caf\xe9"), url("http://a.example/x/caf%E9#f"));
    }

    #[test]
    fn only_http_is_followed() {
        for location in ["ftp://a.example/", "file:///etc/passwd", "http://"] {
            let nowhere = RedirectError::Nowhere(location.to_owned());
            assert_eq!(to(location.as_bytes()), Err(nowhere));
        }
        let from = Url::parse("http://a.example/").unwrap();
        let missing = follow(StatusCode::FOUND, &HeaderMap::new(), &from, 0, HOPS_MAX);
        assert_eq!(missing, Some(Err(RedirectError::NoLocation)));
    }

    #[test]
    fn only_hops_are_counted() {
        let from = Url::parse("http://a.example/").unwrap();
        let itself = HeaderMap::from_iter([(LOCATION, HeaderValue::from_static("/"))]);
        let hop = |hops| follow(StatusCode::FOUND, &itself, &from, hops, 3);
        for hops in 0..3 {
            assert_eq!(hop(hops), Some(Ok(from.clone())));
        }
        let (to, max) = (from.clone(), 3);
        assert_eq!(hop(3), Some(Err(RedirectError::TooMany { to, max })));
        assert_eq!(follow(StatusCode::OK, &itself, &from, 9, 3), None);
    }
}
