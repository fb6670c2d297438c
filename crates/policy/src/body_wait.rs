//! The place of a wait that a host states in the body of an answer.
//!
//! | text | the wait |
//! | --- | --- |
//! | `body:/parameters/retry_after` | the value at a JSON pointer (RFC 6901) |
//! | `body:/error/details/*/retryDelay` | `*`: the first element in which the rest is found |
//! | `body:try again in ([0-9.]+m?s)` | the group of a pattern, or all of it without a group |
//! | `body:"retry_ms":(?<ms>[0-9]+)` | the same in the unit that names the group |
//!
//! A number is in seconds, and a text has one of the forms of a Retry-After header. Any other value
//! states no wait.

use std::time::Duration;

use http::HeaderMap;
use politely_core::signal::{WallClock, stated_wait};
use regex::bytes::Regex;
use serde_json::Value;

use super::answer::pattern;

/// The most segments of a pointer.
const SEGMENTS_MAX: usize = 32;

/// Where the body of an answer states a wait.
#[derive(Clone, Debug)]
pub(super) struct BodyWait {
    text: String,
    place: Place,
}

#[derive(Clone, Debug)]
enum Place {
    Pointer(Vec<String>),
    Pattern(Regex),
}

impl PartialEq for BodyWait {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl BodyWait {
    /// Reads a place.
    ///
    /// # Errors
    /// The reason, which names the text.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("retry_after `{}`: {why}", text.escape_debug());
        let place = match text.strip_prefix("body:") {
            None | Some("") => {
                let why = "write it as `body:/JSON/POINTER` or `body:PATTERN`";
                return Err(wrong(why));
            }
            Some(pointer) if pointer.starts_with('/') => {
                let segments = pointer.split('/').skip(1).map(segment);
                let segments: Option<Vec<String>> = segments.collect();
                let segments = segments.ok_or_else(|| wrong("write `~` as `~0`, `/` as `~1`"))?;
                if segments.len() > SEGMENTS_MAX {
                    return Err(wrong(&format!("more than {SEGMENTS_MAX} segments")));
                }
                Place::Pointer(segments)
            }
            Some(words) => {
                let known = pattern(words).map_err(|why| wrong(&why))?;
                if known.captures_len() > 2 {
                    return Err(wrong("more than one group; write the others as `(?:…)`"));
                }
                if let Some(unit) = unit(&known)
                    && in_seconds(&format!("1{unit}")).is_none()
                {
                    let why = "the group's name is no unit; use ms, s, min or h";
                    return Err(wrong(why));
                }
                Place::Pattern(known)
            }
        };
        let text = text.to_owned();
        Ok(Self { text, place })
    }

    /// Returns the wait that the beginning of a body states, bounded as that of a Retry-After.
    pub(super) fn wait(
        &self,
        body_start: &[u8],
        headers: &HeaderMap,
        clock: WallClock,
    ) -> Option<Duration> {
        let text = match &self.place {
            Place::Pointer(segments) => {
                let body: Value = serde_json::from_slice(body_start).ok()?;
                match find(&body, segments)? {
                    Value::Number(number) => number.to_string(),
                    Value::String(text) => text.clone(),
                    _ => return None,
                }
            }
            Place::Pattern(words) => {
                let found = words.captures(body_start)?;
                let value = found.get(1).or_else(|| found.get(0))?;
                // The full stop of a sentence belongs to no number.
                let value = std::str::from_utf8(value.as_bytes()).ok()?;
                let value = value.trim_end_matches('.');
                format!("{value}{}", unit(words).unwrap_or_default())
            }
        };
        stated_wait(&text, headers, clock)
    }
}

/// Returns the name of the pattern's group.
fn unit(words: &Regex) -> Option<&str> {
    words.capture_names().nth(1).flatten()
}

fn in_seconds(text: &str) -> Option<Duration> {
    stated_wait(text, &HeaderMap::new(), WallClock::from_unix_secs(0))
}

/// Unescapes a segment of a pointer. Returns `None` if a tilde escapes nothing.
fn segment(text: &str) -> Option<String> {
    let is_escaped = |rest: &str| rest.starts_with(['0', '1']);
    let all = text.split('~').skip(1).all(is_escaped);
    all.then(|| text.replace("~1", "/").replace("~0", "~"))
}

/// Returns the value at a pointer. Each value of the body is looked at once at most.
fn find<'a>(value: &'a Value, segments: &[String]) -> Option<&'a Value> {
    let Some((first, rest)) = segments.split_first() else {
        return Some(value);
    };
    match value {
        Value::Object(fields) => find(fields.get(first)?, rest),
        Value::Array(all) if first == "*" => all.iter().find_map(|value| find(value, rest)),
        Value::Array(all) => find(all.get(first.parse::<usize>().ok()?)?, rest),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// 2026-11-20T10:44:37Z.
    const NOW: WallClock = WallClock::from_unix_secs(1_795_171_477);

    fn wait(place: &str, body: &str) -> Option<f64> {
        let place = BodyWait::read(place).expect("a place");
        let wait = place.wait(body.as_bytes(), &HeaderMap::new(), NOW);
        wait.map(|wait| wait.as_secs_f64())
    }

    #[test]
    fn waits_of_known_providers_are_found() {
        let gemini = r#"{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","details":[
            {"@type":"type.googleapis.com/google.rpc.Help","links":[]},
            {"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"34.5s"}]}}"#;
        let telegram = r#"{"ok":false,"error_code":429,"parameters":{"retry_after":35}}"#;
        let discord = r#"{"message":"You are being rate limited.","retry_after":64.57}"#;
        for (place, body, secs) in [
            ("body:/error/details/*/retryDelay", gemini, 34.5),
            ("body:/error/details/1/retryDelay", gemini, 34.5),
            (r#"body:"retryDelay":\s*"([0-9.]+s)""#, gemini, 34.5),
            ("body:/parameters/retry_after", telegram, 35.0),
            ("body:/retry_after", discord, 64.57),
            (
                "body:try again in ([0-9hms.]+)",
                "Please try again in 6m0s.",
                360.0,
            ),
            ("body:[0-9]+ minutes", "Wait 2 minutes, please", 120.0),
            (r#"body:"wait":(?<ms>[0-9]+)"#, r#"{"wait":1500}"#, 1.5),
            ("body:/a~1b/~0", r#"{"a/b":{"~":3}}"#, 3.0),
        ] {
            assert_eq!(wait(place, body), Some(secs), "{place}");
        }
    }

    #[test]
    fn values_have_the_forms_and_bounds_of_a_retry_after() {
        for (value, secs) in [
            ("120", Some(120.0)),
            ("0.25", Some(0.25)),
            (r#""1500ms""#, Some(1.5)),
            (r#""2m""#, Some(120.0)),
            (r#""1h""#, Some(3_600.0)),
            ("1795171481", Some(4.0)),
            (r#""2026-11-20T10:44:41Z""#, Some(4.0)),
            (r#""Fri, 20 Nov 2026 10:44:41 GMT""#, Some(4.0)),
            ("999999", Some(86_400.0)),
            ("18446744073709551615", Some(86_400.0)),
            ("0", None),
            ("-5", None),
            ("1e300", None),
            (r#""soon""#, None),
            (r#""""#, None),
            ("null", None),
            ("true", None),
            ("[5]", None),
            (r#"{"a":5}"#, None),
        ] {
            let body = format!(r#"{{"wait":{value}}}"#);
            assert_eq!(wait("body:/wait", &body), secs, "{value}");
        }
        for body in ["", "{", r#"{"wait":5"#, "[]", "5", "\u{feff}"] {
            assert_eq!(wait("body:/wait", body), None, "{body}");
        }
    }

    #[test]
    fn a_wrong_place_is_an_error_that_names_it() {
        for (text, part) in [
            ("", "write it as"),
            ("header:x", "`header:x`"),
            ("body:", "write it as"),
            ("/parameters/retry_after", "write it as"),
            ("body:/a~2", "`body:/a~2`"),
            ("body:(a", "unclosed group"),
            ("body:(a)(b)", "more than one group"),
            ("body:(?<apples>[0-9]+)", "no unit"),
            (&format!("body:{}", "/a".repeat(33)), "more than 32"),
        ] {
            let why = BodyWait::read(text).expect_err(text);
            assert!(why.contains(part) && why.lines().count() == 1, "{why}");
        }
    }

    proptest! {
        #[test]
        fn any_body_is_read_without_harm_at_any_place(
            place in "(body:)?(/|[/*0-9a~]{0,12}|\\PC{0,20})",
            json in "[\\[\\]{}\":,a0-9*. ]{0,80}",
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let Ok(place) = BodyWait::read(&place) else {
                return Ok(());
            };
            for body in [json.as_bytes(), &bytes[..], &b"[".repeat(16_384)] {
                let wait = place.wait(body, &HeaderMap::new(), NOW);
                let max = politely_core::signal::WAIT_MAX;
                prop_assert!(wait.is_none_or(|wait| !wait.is_zero() && wait <= max));
            }
        }

        #[test]
        fn a_number_at_a_place_is_the_wait_in_seconds(
            depth in 0_usize..6,
            index in 0_usize..5,
            secs in 1_u32..86_400,
        ) {
            let mut body = format!(r#"{{"wait":{secs}}}"#);
            let mut place = "/wait".to_owned();
            for level in 0..depth {
                let (others, step) = if level % 2 == 0 { (index, "*") } else { (0, "0") };
                body = format!("[{}{body}]", "{\"x\":1},".repeat(others));
                place = format!("/{step}{place}");
            }
            prop_assert_eq!(wait(&format!("body:{place}"), &body), Some(f64::from(secs)));
        }
    }
}
