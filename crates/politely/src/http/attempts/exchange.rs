//! The parts of sending that differ between the client integrations.

use std::borrow::Cow;

use http::{Extensions, HeaderMap, Method, Response};
use http_body::Body;
use politely_core::fault::machine::Trouble;
use politely_core::key::KeyError;
use politely_core::signal::Failure;
use url::Url;

use super::{NotSent, PartialContent, Unprocessed};

/// A client: its types, and how it sends.
pub(crate) trait Exchange {
    type Request;
    type Body: Body;
    type Error;

    fn method(request: &Self::Request) -> &Method;
    fn url(request: &Self::Request) -> Result<Cow<'_, Url>, KeyError>;
    fn headers(request: &Self::Request) -> &HeaderMap;
    fn headers_mut(request: &mut Self::Request) -> &mut HeaderMap;
    /// Returns the extensions of the request.
    fn extensions<'a>(&'a self, request: &'a Self::Request) -> &'a Extensions;
    /// Returns a copy of the request, if its body can be copied.
    fn copy(request: &Self::Request) -> Option<Self::Request>;
    /// Returns the failure behind the error. `None` means that the error says nothing about the
    /// host, and the request is not sent again.
    fn failure(error: &Self::Error) -> Option<Failure>;
    /// Returns what may be wrong with this machine after an error, which means `failure`.
    fn trouble(error: &Self::Error, failure: Failure) -> Option<Trouble>;
    /// Returns the reason to repeat the request at once, from an error before the head of a
    /// response.
    fn unprocessed(error: &Self::Error) -> Option<Unprocessed>;
    fn ready(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send;
    fn send(
        &mut self,
        request: Self::Request,
    ) -> impl Future<Output = Result<Response<Self::Body>, Self::Error>> + Send;
}

/// The end of the attempts without a response.
#[derive(Debug)]
pub(crate) enum Ended<E> {
    NotSent(NotSent),
    Failed(E),
    /// The response is a part of a page, and no part was requested.
    Partial(PartialContent),
}

impl<E> From<NotSent> for Ended<E> {
    fn from(not_sent: NotSent) -> Self {
        Self::NotSent(not_sent)
    }
}
