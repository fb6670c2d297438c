//! Redirects, hop by hop through the middlewares below: each hop is a request like any other, paced under its
//! own key.
//!
//! | status | next request (RFC 9110, section 15.4) |
//! | --- | --- |
//! | 303 | GET without a body; HEAD stays HEAD |
//! | 301, 302 | POST becomes GET without a body, as every client does; others stay |
//! | 307, 308 | the same method and body; if the body comes only once, the redirect itself is the answer |
//! | other 3xx, or no Location | none: it is the answer |
//!
//! What was meant for one host is not told to another: Authorization, Cookie, Proxy-Authorization and Host go
//! no further than the origin (scheme, host, port) they were set for.

use async_trait::async_trait;
use http::header::{
    AUTHORIZATION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LENGTH, CONTENT_LOCATION,
    CONTENT_TYPE, COOKIE, HOST, LOCATION, PROXY_AUTHORIZATION, TRANSFER_ENCODING, WWW_AUTHENTICATE,
};
use http::{Extensions, HeaderName, Method, StatusCode};
use reqwest::{Request, Response};
use reqwest_middleware::{Error, Middleware, Next, Result};
use url::Url;

/// Hops followed for one request: reqwest's default (the Fetch standard allows 20).
pub const HOPS_MAX: usize = 10;

/// Visits of one URL: a page that sets a cookie may redirect to itself.
const VISITS_MAX: usize = 2;

/// Known to one origin only.
const PRIVATE: [HeaderName; 5] = [
    AUTHORIZATION,
    COOKIE,
    PROXY_AUTHORIZATION,
    WWW_AUTHENTICATE,
    HOST,
];
/// About a body that is not sent any more.
const OF_BODY: [HeaderName; 6] = [
    CONTENT_TYPE,
    CONTENT_LENGTH,
    CONTENT_ENCODING,
    CONTENT_LANGUAGE,
    CONTENT_LOCATION,
    TRANSFER_ENCODING,
];

/// Follows up to [`HOPS_MAX`] redirects. Put it before [`super::PoliteMiddleware`].
///
/// Dropping its future cancels the hop under way, no more.
#[derive(Clone, Copy, Debug, Default)]
pub struct Redirects;

/// Why a redirect was not followed; found in [`Error::Middleware`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RedirectError {
    /// More than [`HOPS_MAX`].
    #[error("more than {HOPS_MAX} redirects, the last to {0}")]
    TooMany(Url),
    /// Back to where it was twice.
    #[error("a redirect loop at {0}")]
    Loop(Url),
    /// Not to http or https, or not readable.
    #[error("a redirect to nowhere: {0:?}")]
    Nowhere(String),
}

#[async_trait]
impl Middleware for Redirects {
    async fn handle(
        &self,
        mut request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<Response> {
        let mut been = Vec::new();
        loop {
            // Methods and headers outlive a body that comes only once.
            let body_again = request.try_clone();
            let headless = without_body(&request);
            been.push((request.method().clone(), request.url().clone()));
            let response = next.clone().run(request, extensions).await?;
            let Some(method) = method_after(response.status(), headless.method()) else {
                return Ok(response);
            };
            let Some(url) = target(&response, headless.url()).map_err(Error::middleware)? else {
                return Ok(response);
            };
            let keeps_body = method == *headless.method();
            let Some(mut hop) = (if keeps_body {
                body_again
            } else {
                Some(headless)
            }) else {
                return Ok(response);
            };
            if !keeps_body {
                forget(&mut hop, &OF_BODY);
            }
            let step = (method, url);
            let visits = been.iter().filter(|visit| **visit == step).count();
            if visits >= VISITS_MAX {
                return Err(Error::middleware(RedirectError::Loop(step.1)));
            }
            if been.len() > HOPS_MAX {
                return Err(Error::middleware(RedirectError::TooMany(step.1)));
            }
            if step.1.origin() != hop.url().origin() {
                forget(&mut hop, &PRIVATE);
            }
            // Hosts only: the rest of a URL may be a secret.
            tracing::debug!(
                from = hop.url().host_str(),
                to = step.1.host_str(),
                "redirect"
            );
            (*hop.method_mut(), *hop.url_mut()) = step;
            request = hop;
            // The slot returns with the response, before the next host is waited for.
            drop(response);
        }
    }
}

/// The method of the next hop; `None`: the status is no redirect to be followed.
fn method_after(status: StatusCode, method: &Method) -> Option<Method> {
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

/// Where the response points to; a fragment is inherited (RFC 9110, section 10.2.2).
fn target(response: &Response, from: &Url) -> std::result::Result<Option<Url>, RedirectError> {
    let Some(location) = response.headers().get(LOCATION) else {
        return Ok(None);
    };
    let nowhere = || RedirectError::Nowhere(String::from_utf8_lossy(location.as_bytes()).into());
    let text = std::str::from_utf8(location.as_bytes()).map_err(|_| nowhere())?;
    let mut url = from.join(text).map_err(|_| nowhere())?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(nowhere());
    }
    if url.fragment().is_none() {
        url.set_fragment(from.fragment());
    }
    Ok(Some(url))
}

fn forget(request: &mut Request, names: &[HeaderName]) {
    for name in names {
        request.headers_mut().remove(name);
    }
}

fn without_body(request: &Request) -> Request {
    let mut copy = Request::new(request.method().clone(), request.url().clone());
    copy.headers_mut().clone_from(request.headers());
    *copy.timeout_mut() = request.timeout().copied();
    *copy.version_mut() = request.version();
    copy
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(status: u16, method: &Method) -> Option<Method> {
        method_after(StatusCode::from_u16(status).unwrap(), method)
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

    fn to(location: &'static str) -> std::result::Result<Option<Url>, RedirectError> {
        let response = http::Response::builder()
            .status(302)
            .header(LOCATION, location)
            .body("")
            .unwrap();
        let from = Url::parse("http://a.example/x/y?q#f").unwrap();
        target(&response.into(), &from)
    }

    #[test]
    fn locations_are_joined_and_inherit_the_fragment() {
        let url = |text| Ok(Some(Url::parse(text).unwrap()));
        assert_eq!(to("z"), url("http://a.example/x/z#f"));
        assert_eq!(to("//b.example/#g"), url("http://b.example/#g"));
        assert_eq!(to("https://b.example"), url("https://b.example/#f"));
    }

    #[test]
    fn only_http_is_followed() {
        for location in ["ftp://a.example/", "file:///etc/passwd", "http://"] {
            assert_eq!(to(location), Err(RedirectError::Nowhere(location.into())));
        }
    }
}
