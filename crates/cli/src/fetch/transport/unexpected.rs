//! Answers with a good status that may not be a page.

use http::StatusCode;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use politely::core::signal::BODY_SCANNED;

use super::client::Answer;

/// Returns whether an answer with a good status may be a challenge or block page.
pub(super) fn may_hide_block(answer: &Answer) -> bool {
    let length = answer.headers.get(CONTENT_LENGTH);
    let length = length.and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    let kind = answer.headers.get(CONTENT_TYPE);
    let is_html = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/html"));
    answer.status == StatusCode::ACCEPTED
        || is_html && length.is_none_or(|length| length < BODY_SCANNED)
}
