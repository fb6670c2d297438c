//! Answers with a good status that may not be a page.

use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, StatusCode};

use super::answer::Answer;

/// A text of this size, in bytes, is a page. Shorter ones are compared: refusals have little text,
/// and may have much style.
pub(crate) const TEXT_MAX: usize = 64 * 1024;

/// Returns whether an answer with a good status may be a refusal: a challenge, a block page
/// or that of a limit.
pub(super) fn may_hide_block(answer: &Answer) -> bool {
    let length = answer.headers.get(CONTENT_LENGTH);
    let length = length.and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    answer.status == StatusCode::ACCEPTED
        || is_text(&answer.headers) && length.is_none_or(|length| length < TEXT_MAX)
}

/// Returns whether the body is a text, as far as its head says.
pub(crate) fn is_text(headers: &HeaderMap) -> bool {
    let Some(kind) = headers.get(CONTENT_TYPE) else {
        return true;
    };
    let kind = String::from_utf8_lossy(kind.as_bytes()).to_ascii_lowercase();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    kind.starts_with("text/") || kind.ends_with("json") || kind.ends_with("xml")
}
