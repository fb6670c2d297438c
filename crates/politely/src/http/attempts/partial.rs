//! Responses that are a part of a page.

use http::header::CONTENT_RANGE;
use http::{HeaderMap, StatusCode};

/// Maximum number of characters of a Content-Range in an error message.
const SHOWN_MAX: usize = 60;

/// The error of a 206 response to a request without a Range header. The response is not a page.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("partial content ({range}) that was not requested; the page is not complete")]
pub struct PartialContent {
    /// The response's Content-Range, shortened.
    pub range: String,
}

impl PartialContent {
    /// Returns the error of a response with `status` and `headers`, if no part was requested.
    /// Returns `None` if the response is no part, or if its part is the whole (`bytes 0-9/10`).
    pub fn of(status: StatusCode, headers: &HeaderMap) -> Option<Self> {
        if status != StatusCode::PARTIAL_CONTENT {
            return None;
        }
        let range = headers
            .get(CONTENT_RANGE)
            .and_then(|value| value.to_str().ok());
        let range = range.map(str::trim).unwrap_or_default();
        (is_whole(range) != Some(true)).then(|| Self {
            range: range.chars().take(SHOWN_MAX).collect(),
        })
    }
}

fn is_whole(range: &str) -> Option<bool> {
    let (unit, numbers) = range.split_once(' ')?;
    let (part, whole) = numbers.split_once('/')?;
    let (first, last) = part.split_once('-')?;
    let number = |text: &str| text.trim().parse::<u64>().ok();
    let reaches_end = number(last)?.checked_add(1) == Some(number(whole)?);
    Some(unit.eq_ignore_ascii_case("bytes") && number(first)? == 0 && reaches_end)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_part_that_was_not_requested_is_a_page_only_if_it_is_the_whole() {
        let wrong = |status: u16, range: Option<&'static str>| {
            let mut headers = HeaderMap::new();
            if let Some(range) = range {
                headers.insert(CONTENT_RANGE, HeaderValue::from_static(range));
            }
            let status = StatusCode::from_u16(status).expect("a status");
            PartialContent::of(status, &headers).is_some()
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
