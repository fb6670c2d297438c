//! Answers with a good status that may not be a page: parts and challenges.

use http::StatusCode;
use http::header::{CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE};
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

/// Returns the error of a 206, since no part was requested. A part that is the whole
/// (`bytes 0-9/10`) is a page.
pub(super) fn unasked_part(answer: &Answer) -> Option<String> {
    if answer.status != StatusCode::PARTIAL_CONTENT {
        return None;
    }
    let range = answer.headers.get(CONTENT_RANGE);
    let range = range.and_then(|value| value.to_str().ok());
    let range = range.map(str::trim).unwrap_or_default();
    let is_whole = || {
        let (unit, numbers) = range.split_once(' ')?;
        let (part, whole) = numbers.split_once('/')?;
        let (first, last) = part.split_once('-')?;
        let number = |text: &str| text.trim().parse::<u64>().ok();
        let reaches_end = number(last)?.checked_add(1) == Some(number(whole)?);
        Some(unit.eq_ignore_ascii_case("bytes") && number(first)? == 0 && reaches_end)
    };
    let shown: String = range.chars().take(60).collect();
    (is_whole() != Some(true)).then(|| {
        format!("partial content ({shown}) that was not requested; the page is not complete")
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use http::HeaderMap;

    use super::*;

    #[test]
    fn a_part_that_was_not_requested_is_a_page_only_if_it_is_the_whole() {
        let wrong = |status: u16, range: Option<&'static str>| {
            let mut headers = HeaderMap::new();
            if let Some(range) = range {
                headers.insert(CONTENT_RANGE, http::HeaderValue::from_static(range));
            }
            let answer = Answer {
                status: StatusCode::from_u16(status).expect("a status"),
                headers,
                latency: Duration::ZERO,
                bytes: 0,
                start: Bytes::new(),
                spoiled: None,
            };
            unasked_part(&answer).is_some()
        };
        for part in [
            "bytes 0-4/10",
            "bytes 1-9/10",
            "bytes 0-9/*",
            "bytes 0-9/11",
            "lines 0-9/10",
            "bytes */10",
            "",
            "bytes 0-18446744073709551615/0",
        ] {
            assert!(wrong(206, Some(part)), "{part}");
        }
        assert!(wrong(206, None));
        assert!(!wrong(206, Some("bytes 0-9/10")));
        assert!(!wrong(200, Some("bytes 0-4/10")));
    }
}
