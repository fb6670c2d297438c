//! A request as its keys are chosen, and why it was not sent.

use http::{HeaderMap, Method};
use politely_core::key::KeyError;
use url::Url;

use super::Waited;
use crate::error::AcquireError;

/// The parts of a request from which its keys can be chosen.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The method.
    pub method: &'a Method,
    /// The whole URL.
    pub url: &'a Url,
    /// The request's headers, as far as they are known before it is sent.
    pub headers: &'a HeaderMap,
}

/// The reason why a request was not sent, or not sent again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotSent {
    /// The request has no host or other name to derive a key from.
    #[error("a request without a key: {0}")]
    Key(#[from] KeyError),
    /// The limiter returned no permit for the request.
    #[error("no permit: {0}")]
    Acquire(#[from] AcquireError),
    /// The request waited as long as its [`Terms`](super::Terms) allow.
    #[error("no permit in time: {0}")]
    Late(Waited),
}
