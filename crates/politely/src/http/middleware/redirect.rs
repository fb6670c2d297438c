//! Redirects, followed hop by hop through the middlewares below.
//!
//! Each hop is a request of its own, paced under its own key. [`mod@crate::redirect`] defines the
//! targets. A 307 or 308 whose body cannot be copied, and a redirect without a Location, are
//! returned as the answer.
//!
//! Authorization, Cookie, Proxy-Authorization and Host are sent only to the origin (scheme, host,
//! port) for which they were set.

use async_trait::async_trait;
use http::header::{
    AUTHORIZATION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LENGTH, CONTENT_LOCATION,
    CONTENT_TYPE, COOKIE, HOST, PROXY_AUTHORIZATION, TRANSFER_ENCODING, WWW_AUTHENTICATE,
};
use http::{Extensions, HeaderName};
use reqwest::{Request, Response};
use reqwest_middleware::{Error, Middleware, Next, Result};

use crate::http::redirect::{HOPS_MAX, RedirectError, method_after, target};

/// Headers that are sent to one origin only.
const PRIVATE: [HeaderName; 5] = [
    AUTHORIZATION,
    COOKIE,
    PROXY_AUTHORIZATION,
    WWW_AUTHENTICATE,
    HOST,
];
/// Headers that describe a body that is no longer sent.
const OF_BODY: [HeaderName; 6] = [
    CONTENT_TYPE,
    CONTENT_LENGTH,
    CONTENT_ENCODING,
    CONTENT_LANGUAGE,
    CONTENT_LOCATION,
    TRANSFER_ENCODING,
];

/// A middleware that follows up to [`HOPS_MAX`] redirects. Put it before
/// [`super::PoliteMiddleware`].
///
/// The error of a redirect that is not followed is a [`RedirectError`] in [`Error::Middleware`].
///
/// Dropping its future cancels only the hop in flight.
#[derive(Clone, Copy, Debug, Default)]
pub struct Redirects;

#[async_trait]
impl Middleware for Redirects {
    async fn handle(
        &self,
        mut request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<Response> {
        let mut hops = 0;
        loop {
            // The next hop may need the method and the headers even if the body cannot be copied.
            let body_again = request.try_clone();
            let headless = without_body(&request);
            let response = next.clone().run(request, extensions).await?;
            let Some(method) = method_after(response.status(), headless.method()) else {
                return Ok(response);
            };
            let url = match target(response.headers(), headless.url()) {
                Err(RedirectError::NoLocation) => return Ok(response),
                url => url.map_err(Error::middleware)?,
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
            if hops >= HOPS_MAX {
                let (to, max) = (url, HOPS_MAX);
                return Err(Error::middleware(RedirectError::TooMany { to, max }));
            }
            if url.origin() != hop.url().origin() {
                forget(&mut hop, &PRIVATE);
            }
            // Only the hosts are logged, because the rest of a URL may be secret.
            tracing::debug!(from = hop.url().host_str(), to = url.host_str(), "redirect");
            (*hop.method_mut(), *hop.url_mut()) = (method, url);
            request = hop;
            // Frees the slot together with the response, before the request waits for the next
            // host.
            drop(response);
            hops += 1;
        }
    }
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
