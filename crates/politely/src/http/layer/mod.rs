//! The tower layer, which makes a client polite without further code.
//!
//! ```
//! use politely::{Limiter, layer::PoliteLayer};
//! use tower::ServiceBuilder;
//! # fn client() -> impl tower_service::Service<http::Request<String>, Response = http::Response<String>,
//! #     Error = std::convert::Infallible, Future: Send> + Clone + Send + 'static {
//! #     tower::service_fn(|_| async { Ok(http::Response::new(String::new())) })
//! # }
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let limiter = Limiter::builder().build()?;
//! let client = ServiceBuilder::new()
//!     .layer(PoliteLayer::new(limiter))
//!     .service(client());
//! # let _: &dyn std::any::Any = &client;
//! # Ok(()) }
//! ```
//!
//! # Why the call waits
//! `poll_ready` is called before there is a request, so a limiter that waits there cannot know the
//! host. A slow host would stop all others. (For that reason tower's own `RateLimit` has one limit
//! for all.) This layer is therefore ready at once and waits in the call's future, in the queue of
//! the request's keys. The length of the queue ([`crate::Builder::queue_max`]) bounds memory, not
//! readiness: a full queue is an error at once.
//!
//! The inner service is polled for readiness after the permit was granted, so a request that waits
//! for a host does not occupy its capacity. Place a concurrency limit outside this layer: inside,
//! it would delay requests whose departure is due. A time-out inside bounds an attempt and is
//! reported as one. A time-out outside bounds the waiting too, and cancels the call.
//!
//! For attempts, retries, cancellation and fairness, see [`mod@crate::attempts`].

use std::borrow::Cow;
use std::error::Error;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::uri::{PathAndQuery, Scheme};
use http::{Extensions, HeaderMap, Method, Request, Response, header};
use http_body::Body;
use politely_core::fault::machine::Trouble;
use politely_core::key::KeyError;
use politely_core::signal::Failure;
use tower_layer::Layer;
use tower_service::Service;
use url::Url;

use crate::http::attempts::{
    Attempts, Ended, Exchange, PacedBody, Unprocessed, failure_of, trouble_of, unprocessed,
};

type BoxError = Box<dyn Error + Send + Sync>;

/// A layer that makes services polite. `R` says how a request's body is copied for a retry:
/// [`Cloned`] or [`Once`].
#[derive(Debug)]
pub struct PoliteLayer<R = Cloned> {
    attempts: Arc<Attempts>,
    replay: PhantomData<fn() -> R>,
}

/// A service that paces, classifies, reports and retries around `S`. The body of its response holds
/// the in-flight slot until it is read or dropped.
#[derive(Debug)]
pub struct PoliteService<S, R = Cloned> {
    inner: S,
    attempts: Arc<Attempts>,
    replay: PhantomData<fn() -> R>,
}

/// The way in which a body is copied.
pub trait Replay<B> {
    /// Returns a copy of the body, or `None` if its request can be sent only once.
    fn replay(body: &B) -> Option<B>;
}

/// Clones bodies, which are in memory anyway.
#[derive(Clone, Copy, Debug)]
pub struct Cloned;

/// Does not copy bodies, because they are streams. No request is sent again.
#[derive(Clone, Copy, Debug)]
pub struct Once;

impl<B: Clone> Replay<B> for Cloned {
    fn replay(body: &B) -> Option<B> {
        Some(body.clone())
    }
}

impl<B> Replay<B> for Once {
    fn replay(_: &B) -> Option<B> {
        None
    }
}

impl PoliteLayer {
    /// Creates a layer that sends through a [`crate::Limiter`], or through [`Attempts`] with
    /// further settings.
    pub fn new(attempts: impl Into<Attempts>) -> Self {
        Self::of(Arc::new(attempts.into()))
    }

    /// Accepts bodies that cannot be cloned: their requests are paced and reported, but never sent
    /// again.
    #[must_use]
    pub fn once(self) -> PoliteLayer<Once> {
        self.replayed_by()
    }

    /// Copies bodies as `R` says. A request whose body it does not copy is sent once.
    #[must_use]
    pub fn replayed_by<R>(self) -> PoliteLayer<R> {
        PoliteLayer::of(self.attempts)
    }
}

impl<R> PoliteLayer<R> {
    fn of(attempts: Arc<Attempts>) -> Self {
        Self {
            attempts,
            replay: PhantomData,
        }
    }
}

impl<R> Clone for PoliteLayer<R> {
    fn clone(&self) -> Self {
        Self::of(Arc::clone(&self.attempts))
    }
}

impl<S, R> Layer<S> for PoliteLayer<R> {
    type Service = PoliteService<S, R>;

    fn layer(&self, inner: S) -> Self::Service {
        PoliteService {
            inner,
            attempts: Arc::clone(&self.attempts),
            replay: PhantomData,
        }
    }
}

impl<S: Clone, R> Clone for PoliteService<S, R> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            attempts: Arc::clone(&self.attempts),
            replay: PhantomData,
        }
    }
}

impl<S, R, B, A> Service<Request<B>> for PoliteService<S, R>
where
    S: Service<Request<B>, Response = Response<A>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    R: Replay<B> + 'static,
    B: Send + 'static,
    A: Body<Data: Send, Error: Send> + Send + 'static,
{
    type Response = Response<PacedBody<A>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    /// Returns ready at once.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    /// Waits in the queue of the request's keys and sends the request, as often as necessary. For
    /// cancellation and fairness, see [`mod@crate::attempts`]. The error is the inner service's
    /// own, a [`crate::attempts::NotSent`] or a [`crate::attempts::PartialContent`].
    fn call(&mut self, request: Request<B>) -> Self::Future {
        let attempts = Arc::clone(&self.attempts);
        let mut exchange = Through::<S, R, B, A> {
            inner: self.inner.clone(),
            types: PhantomData,
        };
        Box::pin(async move {
            attempts
                .run(&mut exchange, request)
                .await
                .map_err(|ended| match ended {
                    Ended::NotSent(not_sent) => not_sent.into(),
                    Ended::Failed(error) => error,
                    Ended::Partial(part) => part.into(),
                })
        })
    }
}

struct Through<S, R, B, A> {
    inner: S,
    types: PhantomData<fn(B) -> (R, A)>,
}

impl<S, R, B, A> Exchange for Through<S, R, B, A>
where
    S: Service<Request<B>, Response = Response<A>> + Send,
    S::Error: Into<BoxError>,
    S::Future: Send,
    R: Replay<B>,
    B: Send,
    A: Body,
{
    type Request = Request<B>;
    type Body = A;
    type Error = BoxError;

    fn method(request: &Request<B>) -> &Method {
        request.method()
    }

    /// Returns the request's URI. The Host header completes it if it is only a path.
    fn url(request: &Request<B>) -> Result<Cow<'_, Url>, KeyError> {
        let uri = request.uri();
        if uri.authority().is_some() {
            return Ok(Cow::Owned(Url::parse(&uri.to_string())?));
        }
        let host = request
            .headers()
            .get(header::HOST)
            .and_then(|host| host.to_str().ok())
            .ok_or(KeyError::Empty)?;
        let scheme = uri.scheme().unwrap_or(&Scheme::HTTP);
        // `OPTIONS *` concerns the whole server.
        let path = uri.path_and_query().map_or("/", PathAndQuery::as_str);
        let path = if path == "*" { "/" } else { path };
        Ok(Cow::Owned(Url::parse(&format!("{scheme}://{host}{path}"))?))
    }

    fn headers(request: &Request<B>) -> &HeaderMap {
        request.headers()
    }

    fn headers_mut(request: &mut Request<B>) -> &mut HeaderMap {
        request.headers_mut()
    }

    fn extensions<'a>(&'a self, request: &'a Request<B>) -> &'a Extensions {
        request.extensions()
    }

    fn copy(request: &Request<B>) -> Option<Request<B>> {
        let mut copy = Request::new(R::replay(request.body())?);
        copy.method_mut().clone_from(request.method());
        copy.uri_mut().clone_from(request.uri());
        *copy.version_mut() = request.version();
        copy.headers_mut().clone_from(request.headers());
        copy.extensions_mut().clone_from(request.extensions());
        Some(copy)
    }

    fn failure(error: &BoxError) -> Option<Failure> {
        failure_of(&**error)
    }

    fn trouble(error: &BoxError, failure: Failure) -> Option<Trouble> {
        trouble_of(&**error, failure)
    }

    fn unprocessed(error: &BoxError) -> Option<Unprocessed> {
        unprocessed(&**error)
    }

    async fn ready(&mut self) -> Result<(), BoxError> {
        poll_fn(|cx| self.inner.poll_ready(cx))
            .await
            .map_err(Into::into)
    }

    async fn send(&mut self, request: Request<B>) -> Result<Response<A>, BoxError> {
        self.inner.call(request).await.map_err(Into::into)
    }
}
