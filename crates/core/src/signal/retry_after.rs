//! How long does the server ask to be left alone?
//!
//! Retry-After (RFC 9110 section 10.2.3) is whole seconds or an HTTP-date. Servers send more than that; each form and
//! what becomes of it:
//!
//! | value | wait | why |
//! | --- | --- | --- |
//! | `120`, `  120 ` | 120 s | white space around a field value is not part of it |
//! | `0` | none | no wait was asked for; a zero must not switch our own backoff off |
//! | `-5`, `+5` | none | not in the grammar; a negative one once disabled a peer's backoff |
//! | `12.5` | 12.5 s | not in the grammar, but only one meaning is possible |
//! | `.5`, `5.`, `1e3`, `0x10`, `120s`, `"120"`, `soon` | none | not in the grammar, meaning guessed |
//! | 27 or 65 digits, over `i64`, `u64` or milliseconds | 1 day | a number too large is still a number: no overflow, no zero |
//! | over 86400 | 1 day | the absolute bound, see [`WAIT_MAX`] |
//! | future date (IMF-fixdate, RFC 850, asctime) | date − Date | the server's clock against the server's clock |
//! | the same without a readable Date | date − our clock | nothing better is known |
//! | past date, date = Date | none | as `0` |
//! | impossible date, other zone, before 1970 | none | not in the grammar |
//! | empty, not text | none | nothing was said |
//! | several fields, or `60, 120` joined by a proxy | the longest that is valid | each party asked for its own |
//!
//! A cached response's Date is old, so its wait comes out longer than needed, never shorter.

use std::time::Duration;

use http::HeaderMap;
use http::header::RETRY_AFTER;

use super::clock::WallClock;

/// The longest wait a server is believed to mean: one day.
///
/// A bound against nonsense, not a policy: after a day the server can say so again. `StormCrawler` bounds at the same;
/// peers that cut at 30, 60 or 300 s return early, into the next refusal.
pub const WAIT_MAX: Duration = Duration::from_hours(24);

/// Fields looked at; one is legal, and one from each of a chain of proxies has been seen.
const FIELDS_MAX: usize = 8;

/// The wait a response's Retry-After asks for: more than zero, at most [`WAIT_MAX`].
///
/// `clock` is read only for a date without a Date beside it.
pub fn retry_after(headers: &HeaderMap, clock: WallClock) -> Option<Duration> {
    headers
        .get_all(RETRY_AFTER)
        .iter()
        .take(FIELDS_MAX)
        .filter_map(|value| value.to_str().ok())
        .filter_map(|text| wait(text, || clock.at_server(headers)))
        .max()
}

fn wait(text: &str, now: impl FnOnce() -> WallClock) -> Option<Duration> {
    let text = text.trim();
    let asked = text
        .split(',')
        .filter_map(|part| seconds(part.trim()))
        .max()
        .or_else(|| {
            let date = httpdate::parse_http_date(text).ok()?;
            Some(now().until(WallClock::from(date)))
        });
    asked
        .filter(|wait| !wait.is_zero())
        .map(|wait| wait.min(WAIT_MAX))
}

/// Digits, or digits with a fraction; too many digits saturate.
pub(in crate::signal) fn seconds(text: &str) -> Option<Duration> {
    let (whole, fraction) = match text.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (text, None),
    };
    let whole = Duration::from_secs(digits(whole)?);
    let fraction = match fraction {
        Some(fraction) => micros(fraction)?,
        None => Duration::ZERO,
    };
    Some(whole.saturating_add(fraction))
}

/// The number of a text that is all digits, saturating.
pub(in crate::signal) fn digits(text: &str) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.bytes().try_fold(0_u64, |number, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        Some(number.saturating_mul(10).saturating_add(digit))
    })
}

/// The digits behind a decimal point, up: to whole microseconds.
fn micros(fraction: &str) -> Option<Duration> {
    digits(fraction)?;
    let (kept, cut) = fraction.split_at(fraction.len().min(6));
    let scale = 10_u64.pow(6 - kept.len() as u32);
    let up = u64::from(cut.bytes().any(|byte| byte != b'0'));
    Some(Duration::from_micros(digits(kept)? * scale + up))
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
            "", " ", ".5", "5.", ".", "1e3", "0x10", "120s", "\"120\"", "soon", "1 2", "NaN",
            "inf", "١٢",
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
            "18446744073709552".into(), // overflows u64 milliseconds
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
        // This machine is an hour behind, then an hour ahead: 120 s were asked for either way.
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
            "Sun, 06 Nov 1994 08:51:37 PST",
            "Mon, 01 Jan 1900 00:00:00 GMT",
            "1994-11-06T08:51:37Z",
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
