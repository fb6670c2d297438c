//! One request as the transport sends it.

use std::path::Path;

use bytes::Bytes;
use http::{HeaderMap, Method};
use url::Url;

/// A request.
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
    pub(crate) method: &'a Method,
    pub(crate) url: &'a Url,
    /// The fields beside those of every request.
    pub(crate) headers: &'a HeaderMap,
    /// The body of the request.
    pub(crate) content: &'a Bytes,
    /// Whether the request may be sent again although it may have reached the server.
    pub(crate) may_repeat: bool,
    pub(crate) body: Body<'a>,
    /// Whether the URL may be valid for one request only. A request that may have reached the
    /// server is not repeated then.
    pub(crate) is_once: bool,
    /// Whether the beginning of the body is needed, whatever the status.
    pub(crate) needs_start: bool,
    /// Whether the links of the answer are read, if it is a page of HTML.
    pub(crate) reads_links: bool,
}

/// The use of a body.
#[derive(Clone, Copy)]
pub(crate) enum Body<'a> {
    /// Count it.
    Count,
    /// Count it and write it below this folder. The number is that of a request that is not a GET
    /// without a body.
    Save(&'a Path, Option<u128>),
    /// Keep up to this many bytes and read no further.
    Keep(usize),
    /// Read up to this many bytes into [`Content`](super::content::Content), and no further.
    Read(u64),
}
