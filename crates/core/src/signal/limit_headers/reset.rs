//! When is a quota whole again?
//!
//! Every dialect has its own unit and none says which. By the shape of the value:
//!
//! | value | read as | seen at |
//! | --- | --- | --- |
//! | up to 10^9, fractions too | seconds from now | drafts to -07, Reddit |
//! | over 10^9 (September 2001) | seconds since 1970 | GitHub, X, GitLab |
//! | over 10^12 | milliseconds since 1970 | |
//! | 10^15 and over | nothing | |
//! | `2026-11-20T10:44:37Z`, with fraction or offset | ISO-8601; UTC if no zone is named | |
//! | an HTTP-date | that | |
//!
//! Points in time are held against the server's Date where there is one (or this machine's clock, if that is a second ahead). One that has passed is a reset of zero;
//! spans over [`SPAN_MAX`] are ignored.

use std::time::Duration;

use super::super::clock::WallClock;
use super::super::retry_after::{digits, seconds};
use super::SPAN_MAX;

const EPOCH_SECS_MIN: u64 = 1_000_000_000;
const EPOCH_MILLIS_MIN: u64 = 1_000_000_000_000;
const EPOCH_MILLIS_END: u64 = 1_000_000_000_000_000;

pub(super) fn from_now(text: &str, now: impl FnOnce() -> WallClock) -> Option<Duration> {
    let text = text.trim();
    let span = if let Some(number) = seconds(text) {
        match number.as_secs() {
            whole if whole >= EPOCH_MILLIS_END => return None,
            whole if whole > EPOCH_MILLIS_MIN => Duration::from_millis(
                whole.saturating_sub(now().as_unix_secs().saturating_mul(1_000)),
            ),
            whole if whole > EPOCH_SECS_MIN => {
                number.saturating_sub(Duration::from_secs(now().as_unix_secs()))
            }
            _ => number,
        }
    } else if let Ok(date) = httpdate::parse_http_date(text) {
        now().until(WallClock::from(date))
    } else {
        now().until(iso_8601(text)?)
    };
    (span <= SPAN_MAX).then_some(span)
}

/// `YYYY-MM-DDThh:mm:ss[.f][Z|±hh:mm|±hhmm]`, up to the next whole second.
fn iso_8601(text: &str) -> Option<WallClock> {
    let field = |from: usize, to: usize| digits(text.get(from..to)?);
    let mark = |at: usize| text.as_bytes().get(at).copied();
    let (year, month, day) = (field(0, 4)?, field(5, 7)?, field(8, 10)?);
    let (hour, minute, second) = (field(11, 13)?, field(14, 16)?, field(17, 19)?);
    let marks = [mark(4)?, mark(7)?, mark(10)?, mark(13)?, mark(16)?];
    let in_range = matches!(marks, [b'-', b'-', b'T' | b't' | b' ', b':', b':'])
        && (1970..=9999).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second <= 60;
    if !in_range {
        return None;
    }
    let (up, zone) = match text.get(19..)?.strip_prefix('.') {
        Some(rest) => {
            let end = rest
                .find(|c: char| !c.is_ascii_digit())
                .unwrap_or(rest.len());
            (u64::from(digits(&rest[..end])? > 0), &rest[end..])
        }
        None => (0, text.get(19..)?),
    };
    let local =
        days_since_1970(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second + up;
    let utc = match offset(zone)? {
        (b'-', behind) => local + behind,
        (_, ahead) => local.checked_sub(ahead)?,
    };
    Some(WallClock::from_unix_secs(utc))
}

/// The sign and seconds of a zone.
fn offset(zone: &str) -> Option<(u8, u64)> {
    if matches!(zone, "" | "Z" | "z") {
        return Some((b'+', 0));
    }
    let sign = zone
        .bytes()
        .next()
        .filter(|sign| matches!(sign, b'+' | b'-'))?;
    let rest = zone.get(1..)?;
    let (hours, minutes) = match rest.split_once(':') {
        Some(pair) => pair,
        None => rest.split_at_checked(2)?,
    };
    let (hours, minutes) = (digits(hours)?, digits(minutes)?);
    (hours < 24 && minutes < 60).then_some((sign, hours * 3_600 + minutes * 60))
}

/// The proleptic Gregorian calendar, the year begun in March so that the leap day comes last. For years from 1970.
fn days_since_1970(year: u64, month: u64, day: u64) -> u64 {
    let year = if month <= 2 { year - 1 } else { year };
    let days_before_month = (153 * ((month + 9) % 12) + 2) / 5;
    let days_before_year = year * 365 + year / 4 - year / 100 + year / 400;
    // 719_468 days lie between 0000-03-01 and 1970-01-01.
    days_before_year + days_before_month + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// 2026-11-20T10:44:37Z
    const NOW: WallClock = WallClock::from_unix_secs(1_795_171_477);

    fn reset(text: &str) -> Option<Duration> {
        from_now(text, || NOW)
    }

    #[expect(clippy::unnecessary_wraps, reason = "compared with options")]
    fn secs(secs: u64) -> Option<Duration> {
        Some(Duration::from_secs(secs))
    }

    #[test]
    fn row_seconds_from_now() {
        assert_eq!(reset("30"), secs(30));
        assert_eq!(reset("0"), secs(0));
        assert_eq!(reset("338.5"), Some(Duration::from_millis(338_500)));
        assert_eq!(reset("1000000000"), None, "31 years are no window");
    }

    #[test]
    fn row_seconds_since_1970() {
        assert_eq!(reset("1795171537"), secs(60));
        assert_eq!(reset("1795171537.25"), Some(Duration::from_millis(60_250)));
        assert_eq!(reset("1795171400"), secs(0), "passed");
        assert_eq!(reset("99999999999"), None, "centuries ahead");
    }

    #[test]
    fn row_milliseconds_since_1970() {
        assert_eq!(reset("1795171537250"), Some(Duration::from_millis(60_250)));
        assert_eq!(reset("1795171400000"), secs(0), "passed");
        assert_eq!(reset("1795171537250000"), None, "microseconds");
    }

    #[test]
    fn row_iso_8601() {
        for text in [
            "2026-11-20T10:45:37Z",
            "2026-11-20 10:45:37",
            "2026-11-20T11:45:37+01:00",
            "2026-11-20T05:15:37-0530",
            "2026-11-20T10:45:36.001Z",
        ] {
            assert_eq!(reset(text), secs(60), "{text}");
        }
    }

    #[test]
    fn row_http_date() {
        assert_eq!(reset("Fri, 20 Nov 2026 10:45:37 GMT"), secs(60));
    }

    #[test]
    fn other_texts_say_nothing() {
        for text in [
            "",
            "soon",
            "-1",
            "1m30s",
            "1e3",
            "2026-11-20",
            "2026-13-20T10:45:37Z",
            "2026-11-20T10:45:37X",
            "2026-11-20T10:45:37+1",
            "1969-12-31T23:59:59Z",
            "1970-01-01T00:00:00+01:00",
            "２026-11-20T10:45:37Z",
            "2026-11-20T10:45:37+ä:ö",
        ] {
            assert_eq!(reset(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn the_calendar_is_httpdates(secs in 0_u64..253_402_300_800) {
            let date = httpdate::HttpDate::from(std::time::UNIX_EPOCH + Duration::from_secs(secs)).to_string();
            let month = 1 + "JanFebMarAprMayJunJulAugSepOctNovDec".find(&date[8..11]).expect("a month") / 3;
            let text = format!("{}-{month:02}-{}T{}Z", &date[12..16], &date[5..7], &date[17..25]);
            prop_assert_eq!(iso_8601(&text), Some(WallClock::from_unix_secs(secs)), "{}", text);
        }

        #[test]
        fn any_text_gives_none_or_a_span_in_bounds(text in "\\PC{0,40}|[0-9:.+TZ -]{0,40}", now in any::<u64>()) {
            let span = from_now(&text, || WallClock::from_unix_secs(now));
            prop_assert!(span.is_none_or(|span| span <= SPAN_MAX));
        }
    }
}
