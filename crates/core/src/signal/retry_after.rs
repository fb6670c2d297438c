//! Reads the wait that a server asks for.
//!
//! Retry-After (RFC 9110 section 10.2.3) is whole seconds or an HTTP-date. Servers send many other
//! forms. `span.rs` reads every form, and the rules here bound it:
//!
//! | value | wait | why |
//! | --- | --- | --- |
//! | `120`, ` "120" `, `120s`, `2m`, `PT2M` | 120 s | only one meaning is possible |
//! | `12.5` | 12.5 s | the same |
//! | `1795171597`, `1795171597000` | until that second since 1970 | no server means 56 years |
//! | `0` | none | a zero asks for no wait, and must not disable our own backoff |
//! | `-5`, `+5` | none | a negative wait once disabled a peer's backoff |
//! | `.5`, `5.`, `1e3`, `0x10`, `soon` | none | the meaning is a guess |
//! | 27 or 65 digits, over `i64`, `u64` or ms | 1 day | a number too large is still a number |
//! | over 86400 | 1 day | the absolute bound, see [`WAIT_MAX`] |
//! | a date or date-time in the future | date − Date | both are the server's clock |
//! | the same without a readable Date | date − our clock | nothing better is known |
//! | a time that has passed, or equals Date | none | as `0` |
//! | an impossible date, an unknown zone, before 1970 | none | the meaning is a guess |
//! | empty, not text | none | it says nothing |
//! | several fields, or `60, 120` joined by a proxy | the longest valid | each asked for its own |
//! | `retry-after-ms: 1250`, `x-ms-retry-after-ms` | 1.25 s | `OpenAI` and Azure send it |
//!
//! Milliseconds replace a Retry-After that is less than a second longer. Otherwise the longer of
//! the two counts. A cached response's Date is old, so its wait is longer than needed, never
//! shorter.

use std::time::Duration;

use http::HeaderMap;
use http::header::RETRY_AFTER;

use super::clock::WallClock;
use super::span::{bare, from_now, seconds};

/// The longest wait that counts: one day.
///
/// It is a bound against nonsense, not a policy: after a day the server can ask again.
/// `StormCrawler` has the same bound. Peers that cut at 30, 60 or 300 s return early, into the next
/// refusal.
pub const WAIT_MAX: Duration = Duration::from_hours(24);

/// Fields that are read. One is legal, and one from each proxy of a chain has been seen.
const FIELDS_MAX: usize = 8;
/// Values that are read in one field.
const VALUES_MAX: usize = 16;

/// Fields that name a wait in milliseconds.
const IN_MILLIS: [&str; 2] = ["retry-after-ms", "x-ms-retry-after-ms"];

/// Returns the wait that a response's Retry-After asks for: more than zero, at most [`WAIT_MAX`].
///
/// `clock` is read only for a point in time in a response without a Date.
pub fn retry_after(headers: &HeaderMap, clock: WallClock) -> Option<Duration> {
    let coarse = longest(headers, RETRY_AFTER.as_str(), |text| {
        wait(text, || clock.at_server(headers))
    });
    let millis = |text: &str| {
        let thousandths = seconds(bare(text))?;
        Some(thousandths / 1_000)
    };
    let fine = IN_MILLIS
        .iter()
        .filter_map(|name| longest(headers, name, millis))
        .max();
    let asked = match (coarse, fine) {
        (Some(coarse), Some(fine)) if coarse.saturating_sub(fine) < Duration::from_secs(1) => {
            Some(fine)
        }
        (coarse, fine) => coarse.max(fine),
    };
    asked.map(|wait| wait.min(WAIT_MAX))
}

/// Returns the wait that a text outside the headers states, in any form of a Retry-After: more than
/// zero, at most [`WAIT_MAX`].
///
/// `headers` and `clock` are read only for a point in time.
pub fn stated_wait(text: &str, headers: &HeaderMap, clock: WallClock) -> Option<Duration> {
    let wait = wait(text, || clock.at_server(headers))?;
    (!wait.is_zero()).then(|| wait.min(WAIT_MAX))
}

/// Returns the longest wait above zero in the fields of one name.
fn longest(
    headers: &HeaderMap,
    name: &str,
    read: impl Fn(&str) -> Option<Duration>,
) -> Option<Duration> {
    headers
        .get_all(name)
        .iter()
        .take(FIELDS_MAX)
        .filter_map(|value| std::str::from_utf8(value.as_bytes()).ok())
        .filter_map(read)
        .filter(|wait| !wait.is_zero())
        .max()
}

/// Reads one field: a value, or several with commas between them. Dates contain commas themselves.
fn wait(text: &str, now: impl Fn() -> WallClock) -> Option<Duration> {
    if let Some(wait) = from_now(text, &now) {
        return Some(wait);
    }
    let mut longest = None;
    let mut rest = text;
    for _ in 0..VALUES_MAX {
        let (value, after) = rest.split_once(',').unwrap_or((rest, ""));
        let date = after
            .split_once(',')
            .map_or(rest, |(end, _)| &rest[..value.len() + 1 + end.len()]);
        let found = from_now(value, &now).or_else(|| from_now(date, &now));
        longest = longest.max(found);
        if after.is_empty() {
            break;
        }
        rest = after;
    }
    longest
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use http::header::DATE;
    use proptest::prelude::*;

    use super::*;

    /// Sun, 06 Nov 1994 08:49:37 GMT, the date of RFC 9110's examples.
    const NOW: WallClock = WallClock::from_unix_secs(784_111_777);

    fn asked(values: &[&str]) -> Option<Duration> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(
                RETRY_AFTER,
                HeaderValue::from_bytes(value.as_bytes()).expect("a value"),
            );
        }
        retry_after(&headers, NOW)
    }

    #[expect(clippy::unnecessary_wraps, reason = "compared with options")]
    fn secs(secs: u64) -> Option<Duration> {
        Some(Duration::from_secs(secs))
    }

    #[test]
    fn row_seconds_and_white_space() {
        assert_eq!(asked(&["120"]), secs(120));
        assert_eq!(asked(&["  120 "]), secs(120));
        assert_eq!(asked(&["007"]), secs(7));
    }

    #[test]
    fn trap_zero_is_no_wait_and_leaves_our_own_backoff_on() {
        for zero in ["0", "00", "0.0"] {
            assert_eq!(asked(&[zero]), None, "{zero}");
        }
    }

    #[test]
    fn trap_negative_disabled_a_peers_backoff() {
        for value in ["-5", "-0", "+5", "-9223372036854775808"] {
            assert_eq!(asked(&[value]), None, "{value}");
        }
    }

    #[test]
    fn trap_fraction_is_kept_and_never_cut_short() {
        assert_eq!(asked(&["12.5"]), Some(Duration::from_millis(12_500)));
        assert_eq!(asked(&["0.25"]), Some(Duration::from_millis(250)));
        assert_eq!(asked(&["0.0000001"]), Some(Duration::from_micros(1)));
        assert_eq!(asked(&["1.9999999999999999999999999"]), secs(2));
    }

    #[test]
    fn row_other_texts_say_nothing() {
        for value in [
            "", " ", ".5", "5.", ".", "1e3", "0x10", "soon", "1 2", "NaN", "inf", "١٢",
        ] {
            assert_eq!(asked(&[value]), None, "{value}");
        }
    }

    #[test]
    fn trap_too_many_digits_saturate() {
        for value in [
            "9".repeat(65),
            "123456789012345678901234567".into(),
            "3687950425865536959".into(),
            i64::MAX.to_string(),
            u64::MAX.to_string(),
            "18446744073709552".into(), // Overflows u64 in milliseconds.
            "86401".into(),
            format!("{}.9999999", u64::MAX),
        ] {
            assert_eq!(asked(&[&value]), Some(WAIT_MAX), "{value}");
        }
        assert_eq!(asked(&[&format!("{}7", "0".repeat(70))]), secs(7));
    }

    #[test]
    fn row_future_dates_in_all_three_forms() {
        assert_eq!(asked(&["Sun, 06 Nov 1994 08:51:37 GMT"]), secs(120));
        assert_eq!(asked(&["Sunday, 06-Nov-94 08:51:37 GMT"]), secs(120));
        assert_eq!(asked(&["Sun Nov  6 08:51:37 1994"]), secs(120));
        assert_eq!(asked(&["Fri, 31 Dec 9999 23:59:59 GMT"]), Some(WAIT_MAX));
    }

    #[test]
    fn trap_past_date_is_no_wait() {
        assert_eq!(asked(&["Sun, 06 Nov 1994 08:49:36 GMT"]), None);
        assert_eq!(asked(&["Sun, 06 Nov 1994 08:49:37 GMT"]), None);
        assert_eq!(asked(&["Thu, 01 Jan 1970 00:00:00 GMT"]), None);
    }

    #[test]
    fn trap_clock_skew_the_servers_date_decides() {
        // This machine is an hour behind, then an hour ahead. The wait is 120 s in both cases.
        for skewed in [NOW.as_unix_secs() - 3_600, NOW.as_unix_secs() + 3_600] {
            let mut headers = HeaderMap::new();
            headers.insert(
                DATE,
                HeaderValue::from_static("Sun, 06 Nov 1994 08:49:37 GMT"),
            );
            headers.insert(
                RETRY_AFTER,
                HeaderValue::from_static("Sun, 06 Nov 1994 08:51:37 GMT"),
            );
            assert_eq!(
                retry_after(&headers, WallClock::from_unix_secs(skewed)),
                secs(120)
            );
        }
    }

    #[test]
    fn an_unreadable_date_leaves_our_own_clock() {
        let mut headers = HeaderMap::new();
        headers.insert(DATE, HeaderValue::from_static("yesterday"));
        headers.insert(
            RETRY_AFTER,
            HeaderValue::from_static("Sun, 06 Nov 1994 08:51:37 GMT"),
        );
        assert_eq!(retry_after(&headers, NOW), secs(120));
    }

    #[test]
    fn row_impossible_dates() {
        for value in [
            "Sun, 31 Feb 1995 08:49:37 GMT",
            "Sun, 06 Nov 1994 25:49:37 GMT",
            "Sun, 06 Nov 1994 08:51:37 XYZ",
            "Mon, 01 Jan 1900 00:00:00 GMT",
            "1994-11-06T08:61:37Z",
        ] {
            assert_eq!(asked(&[value]), None, "{value}");
        }
    }

    #[test]
    fn row_several_values_the_longest_valid_one() {
        assert_eq!(asked(&["60", "120", "soon"]), secs(120));
        assert_eq!(asked(&["60, 120"]), secs(120));
        assert_eq!(asked(&["-5, 7"]), secs(7));
        assert_eq!(asked(&["60", "Sun, 06 Nov 1994 08:51:37 GMT"]), secs(120));
        assert_eq!(asked(&[]), None);
    }

    #[test]
    fn row_forms_outside_the_grammar_with_one_meaning() {
        for value in [
            "\"120\"",
            "120s",
            "2m0s",
            "0h2m",
            "PT2M",
            "1994-11-06T08:51:37Z",
            "1994-11-06T10:51:37+02:00",
            "Sun, 06 Nov 1994 08:51:37 UTC",
            "Fri, 06 Nov 1994 08:51:37 GMT",
            "60, Sun, 06 Nov 1994 08:51:37 GMT, 90",
        ] {
            assert_eq!(asked(&[value]), secs(120), "{value}");
        }
    }

    #[test]
    fn row_times_since_1970() {
        let now = WallClock::from_unix_secs(1_795_171_477);
        for (value, wait) in [
            ("1795171481", secs(4)),
            ("1795171481.5", Some(Duration::from_millis(4_500))),
            ("1795171481000", secs(4)),
            ("1795171477", None),
            ("1795171400000", None),
            ("1895171481", Some(WAIT_MAX)),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, HeaderValue::from_static(value));
            assert_eq!(retry_after(&headers, now), wait, "{value}");
        }
    }

    #[test]
    fn row_milliseconds() {
        for (coarse, fine, wait) in [
            (None, "1250", Some(1_250)),
            (Some("2"), "1250", Some(1_250)),
            (Some("60"), "1250", Some(60_000)),
            (Some("1"), "90000", Some(90_000)),
            (Some("3"), "-1", Some(3_000)),
            (None, "0", None),
            (None, "soon", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert("retry-after-ms", HeaderValue::from_static(fine));
            if let Some(coarse) = coarse {
                headers.insert(RETRY_AFTER, HeaderValue::from_static(coarse));
            }
            let wait = wait.map(Duration::from_millis);
            assert_eq!(retry_after(&headers, NOW), wait, "{coarse:?} {fine}");
        }
    }

    #[test]
    fn row_not_text() {
        let mut headers = HeaderMap::new();
        headers.insert(
            RETRY_AFTER,
            HeaderValue::from_bytes(b"\xff\xfe").expect("a value"),
        );
        assert_eq!(retry_after(&headers, NOW), None);
    }

    proptest! {
        #[test]
        fn any_bytes_give_none_or_a_wait_in_bounds(value in any::<Vec<u8>>(), now in any::<u64>()) {
            if let Ok(value) = HeaderValue::from_bytes(&value) {
                let mut headers = HeaderMap::new();
                headers.insert(RETRY_AFTER, value);
                if let Some(wait) = retry_after(&headers, WallClock::from_unix_secs(now)) {
                    prop_assert!(!wait.is_zero() && wait <= WAIT_MAX);
                }
            }
        }

        #[test]
        fn a_wait_is_never_undercut(secs in 1_u64..=86_400, fraction in "[0-9]{0,12}") {
            let text = if fraction.is_empty() { secs.to_string() } else { format!("{secs}.{fraction}") };
            let exact: f64 = text.parse().expect("a number");
            let wait = asked(&[&text]).expect("a wait");
            prop_assert!(wait == WAIT_MAX || wait.as_secs_f64() >= exact - 1e-9);
        }

        #[test]
        fn every_date_ahead_is_waited_for(ahead in 1_u64..=86_400, now in 0_u64..250_000_000_000) {
            let date = std::time::UNIX_EPOCH + Duration::from_secs(now + ahead);
            let mut headers = HeaderMap::new();
            let text = httpdate::fmt_http_date(date);
            headers.insert(RETRY_AFTER, HeaderValue::from_str(&text).expect("a value"));
            let wait = retry_after(&headers, WallClock::from_unix_secs(now));
            prop_assert_eq!(wait, Some(Duration::from_secs(ahead)));
        }
    }
}
