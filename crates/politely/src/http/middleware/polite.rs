//! The attempts of a reqwest client.

use std::borrow::Cow;

use async_trait::async_trait;
use http::{Extensions, HeaderMap, Method};
use politely_core::fault::machine::Trouble;
use politely_core::key::KeyError;
use politely_core::signal::Failure;
use reqwest::{Body, Request, Response, ResponseBuilderExt};
use reqwest_middleware::{Error, Middleware, Next, Result};
use url::Url;

use crate::http::attempts::{
    Attempts, Ended, Exchange, Unprocessed, failure_of, trouble_of, unprocessed,
};

/// A middleware that paces, classifies, reports and retries every request of a client. Put it after
/// the middlewares that should see a request once, and before the middlewares that should see every
/// attempt.
///
/// An error that does not come from the request itself is [`Error::Middleware`] around a
/// [`crate::attempts::NotSent`].
#[derive(Clone, Debug)]
pub struct PoliteMiddleware(Attempts);

impl PoliteMiddleware {
    /// Creates a middleware that sends through a [`crate::Limiter`], or through [`Attempts`] with
    /// further settings.
    pub fn new(attempts: impl Into<Attempts>) -> Self {
        Self(attempts.into())
    }
}

#[async_trait]
impl Middleware for PoliteMiddleware {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<Response> {
        let mut exchange = Onward { next, extensions };
        let response = self
            .0
            .run(&mut exchange, request)
            .await
            .map_err(|ended| match ended {
                Ended::NotSent(not_sent) => Error::middleware(not_sent),
                Ended::Failed(error) => error,
                Ended::Partial(part) => Error::middleware(part),
            })?;
        Ok(response.map(Body::wrap).into())
    }
}

/// Returns `response` with its `url`, which reqwest drops on the way through `http::Response`
/// otherwise.
pub(super) fn keep_url<B>(mut response: http::Response<B>, url: Url) -> http::Response<B> {
    if let Ok(with_url) = http::Response::builder().url(url).body(()) {
        response
            .extensions_mut()
            .extend(with_url.into_parts().0.extensions);
    }
    response
}

/// Returns the error of the client or middleware.
pub(super) fn cause(error: &Error) -> &(dyn std::error::Error + 'static) {
    match error {
        Error::Reqwest(error) => error,
        Error::Middleware(error) => {
            let error: &(dyn std::error::Error + Send + Sync + 'static) = error.as_ref();
            error
        }
    }
}

struct Onward<'a> {
    next: Next<'a>,
    extensions: &'a mut Extensions,
}

impl Exchange for Onward<'_> {
    type Request = Request;
    type Body = Body;
    type Error = Error;

    fn method(request: &Request) -> &Method {
        request.method()
    }

    fn url(request: &Request) -> std::result::Result<Cow<'_, Url>, KeyError> {
        Ok(Cow::Borrowed(request.url()))
    }

    fn headers(request: &Request) -> &HeaderMap {
        request.headers()
    }

    fn headers_mut(request: &mut Request) -> &mut HeaderMap {
        request.headers_mut()
    }

    fn extensions<'a>(&'a self, _: &'a Request) -> &'a Extensions {
        self.extensions
    }

    fn copy(request: &Request) -> Option<Request> {
        request.try_clone()
    }

    fn failure(error: &Error) -> Option<Failure> {
        failure_of(cause(error))
    }

    fn trouble(error: &Error, failure: Failure) -> Option<Trouble> {
        trouble_of(cause(error), failure)
    }

    fn unprocessed(error: &Error) -> Option<Unprocessed> {
        unprocessed(cause(error))
    }

    async fn ready(&mut self) -> Result<()> {
        Ok(())
    }

    async fn send(&mut self, request: Request) -> Result<http::Response<Body>> {
        let response = self.next.clone().run(request, self.extensions).await?;
        let url = response.url().clone();
        Ok(keep_url(response.into(), url))
    }
}
