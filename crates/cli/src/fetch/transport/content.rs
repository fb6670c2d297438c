//! Bodies that are read after their answer: sitemaps, and pages whose links are followed.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue};
use tempfile::SpooledTempFile;

use super::answer::Answer;
use super::call::{Body, Call};

/// A whole body. A long one is in a temporary file.
pub(crate) type Content = Box<SpooledTempFile>;

/// The bytes of a body that are in memory.
pub(crate) const IN_MEMORY_MAX: usize = 256 * 1024;

/// Returns room for the body of a good answer, if it is read later.
pub(super) fn of(call: Call<'_>, answer: &Answer) -> Option<Content> {
    let is_read = match call.body {
        Body::Read(_) => true,
        _ => call.reads_links && answer.status.is_success() && is_html(&answer.headers),
    };
    is_read.then(|| Box::new(SpooledTempFile::new(IN_MEMORY_MAX)))
}

/// Returns whether an answer is a page of HTML. One without a type may be.
fn is_html(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    let kind = kind.unwrap_or(b"text/html").trim_ascii_start();
    let is = |known: &[u8]| {
        let begin = kind.get(..known.len());
        begin.is_some_and(|begin| begin.eq_ignore_ascii_case(known))
    };
    is(b"text/html") || is(b"application/xhtml+xml")
}
