//! HTTP/1.1 for servers that require it.

use std::fmt;

use async_trait::async_trait;
use http::Extensions;
use reqwest::{Client, Request, Response};
use reqwest_middleware::{Middleware, Next, Result};

use super::polite::cause;
use crate::http::attempts::{Origins, Unprocessed, unprocessed};

/// A middleware that repeats a request over HTTP/1.1 after the error `HTTP_1_1_REQUIRED` (RFC 9113,
/// section 7). Further requests to that origin use HTTP/1.1 at once. Put it last.
///
/// Only idempotent requests whose body can be copied are repeated. The error of any other request
/// reaches the caller.
///
/// Dropping its future cancels the request.
pub struct Http1Fallback {
    client: Client,
    origins: Origins,
}

impl Http1Fallback {
    /// Creates a middleware that sends through `client`, which must use HTTP/1.1 only
    /// ([`reqwest::ClientBuilder::http1_only`]).
    pub fn new(client: Client) -> Self {
        Self {
            client,
            origins: Origins::default(),
        }
    }
}

#[async_trait]
impl Middleware for Http1Fallback {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<Response> {
        let origin = self.origins.origin(request.url());
        if self.origins.has(origin) {
            return Ok(self.client.execute(request).await?);
        }
        let is_repeatable = request.method().is_idempotent();
        let copy = is_repeatable.then(|| request.try_clone()).flatten();
        let error = match next.run(request, extensions).await {
            Ok(response) => return Ok(response),
            Err(error) => error,
        };
        if unprocessed(cause(&error)) != Some(Unprocessed::Http1Required) {
            return Err(error);
        }
        self.origins.add(origin);
        let Some(copy) = copy else {
            return Err(error);
        };
        tracing::debug!(host = copy.url().host_str(), "repeated over HTTP/1.1");
        Ok(self.client.execute(copy).await?)
    }
}

impl fmt::Debug for Http1Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http1Fallback").finish_non_exhaustive()
    }
}
