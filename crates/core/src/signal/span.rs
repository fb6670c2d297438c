//! Reads the time from now until the time that a header names.
//!
//! Retry-After and the reset headers of all dialects are read here. No header names its unit, so
//! the shape of the value decides:
//!
//! | value | read as | seen at |
//! | --- | --- | --- |
//! | `120`, `12.5`, up to 10^9 | seconds from now | RFC 9110, drafts to -07, Reddit |
//! | over 10^9 (September 2001) | seconds since 1970 | GitHub, X, GitLab |
//! | over 10^12, 10^15, 10^18 | ms, µs, ns since 1970 | Linear |
//! | `4s`, `0m4s`, `1h2m3.5s`, `12ms`, `30 seconds` | a span with units | `OpenAI`, Go |
//! | `PT4S`, `P1DT2H` | an ISO 8601 duration; a month has 30 days, a year 365 | |
//! | `2026-11-20T10:44:37Z`, with fraction or offset | an ISO 8601 date-time | Anthropic |
//! | `Fri, 20 Nov 2026 10:44:37 GMT`, two older forms | an HTTP-date | RFC 9110 |
//!
//! A date-time without a zone is in UTC. The weekday of an HTTP-date is not checked. Blanks and
//! quotes around a value are ignored, and so is letter case. A zone is `Z`, `UT`, `UTC`, `GMT`, one
//! of RFC 822's American names, an offset, or a name with an offset. A time that has passed is a
//! span of zero. Signs, exponents, hexadecimal numbers and impossible dates say nothing.

use std::time::Duration;

use super::clock::WallClock;

/// Bytes of a value that are read. A longer text says nothing, and a longer number is too large
/// anyway.
const TEXT_MAX: usize = 128;
/// The most parts of a span, or words of a date.
const PARTS_MAX: usize = 10;

const EPOCH_SECS_MIN: u64 = 1_000_000_000;
const EPOCH_MILLIS_MIN: u64 = EPOCH_SECS_MIN * 1_000;
const EPOCH_MICROS_MIN: u64 = EPOCH_MILLIS_MIN * 1_000;
const EPOCH_NANOS_MIN: u64 = EPOCH_MICROS_MIN * 1_000;

const DAY_S: u64 = 86_400;

/// Returns how long it is from `now` until the time that `text` names, or `None` if it names no
/// time.
///
/// The span is not bounded: the caller does that. `now` is called only if the text names a point in
/// time.
pub(in crate::signal) fn from_now(text: &str, now: impl FnOnce() -> WallClock) -> Option<Duration> {
    let text = bare(text);
    if let Some(number) = seconds(text) {
        return Some(by_size(number, now));
    }
    if text.len() > TEXT_MAX {
        return None;
    }
    if let Some(span) = with_units(text).or_else(|| iso_duration(text)) {
        return Some(span);
    }
    let point = iso_date_time(text).or_else(|| date(text))?;
    Some(now().until(point))
}

/// Returns `text` without the blanks and quotes around it.
pub(in crate::signal) fn bare(text: &str) -> &str {
    text.trim_matches(|c: char| c.is_ascii_whitespace() || matches!(c, '"' | '\''))
}

/// Tells a span in seconds from a time since 1970 by its size.
fn by_size(number: Duration, now: impl FnOnce() -> WallClock) -> Duration {
    let whole = number.as_secs();
    let since_1970 = match whole {
        u64::MAX => return Duration::MAX,
        _ if whole > EPOCH_NANOS_MIN => Duration::from_nanos(whole),
        _ if whole > EPOCH_MICROS_MIN => Duration::from_micros(whole),
        _ if whole > EPOCH_MILLIS_MIN => Duration::from_millis(whole),
        _ if whole > EPOCH_SECS_MIN => number,
        _ => return number,
    };
    since_1970.saturating_sub(Duration::from_secs(now().as_unix_secs()))
}

/// Reads digits, or digits with a fraction. Too many digits saturate.
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

/// Returns the number of a text that is all digits. It saturates.
pub(in crate::signal) fn digits(text: &str) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.bytes().try_fold(0_u64, |number, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        Some(number.saturating_mul(10).saturating_add(digit))
    })
}

/// Reads the digits after a decimal point, rounded up to whole microseconds.
fn micros(fraction: &str) -> Option<Duration> {
    digits(fraction)?;
    let (kept, cut) = fraction.split_at(fraction.len().min(6));
    let scale = 10_u64.pow(6 - kept.len() as u32);
    let up = u64::from(cut.bytes().any(|byte| byte != b'0'));
    Some(Duration::from_micros(digits(kept)? * scale + up))
}

/// Splits a number with an optional fraction from what follows it.
fn number_first(text: &str) -> (&str, &str) {
    let end = text
        .find(|c: char| !(c.is_ascii_digit() || c == '.'))
        .unwrap_or(text.len());
    text.split_at(end)
}

/// Multiplies without a panic, and rounds up to whole microseconds.
fn times(number: Duration, nanos: u64) -> Duration {
    let total = number
        .as_nanos()
        .saturating_mul(u128::from(nanos))
        .div_ceil(1_000_000_000_000);
    Duration::from_micros(u64::try_from(total).unwrap_or(u64::MAX))
}

/// Reads `1h2m3.5s`, `12ms`, `4 s`, `2 minutes 30 seconds`.
fn with_units(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut sum = Duration::ZERO;
    let mut parts = 0;
    while !rest.is_empty() {
        let (number, after) = number_first(rest);
        let after = after.trim_start();
        let end = after
            .find(|c: char| !c.is_alphabetic())
            .unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        sum = sum.saturating_add(times(seconds(number)?, unit_nanos(unit)?));
        rest = after.trim_start_matches([' ', '\t', ',']);
        parts += 1;
        if parts > PARTS_MAX {
            return None;
        }
    }
    (parts > 0).then_some(sum)
}

/// Returns the nanoseconds of a unit.
fn unit_nanos(unit: &str) -> Option<u64> {
    const SECOND: u64 = 1_000_000_000;
    let is = |names: &[&str]| names.iter().any(|name| unit.eq_ignore_ascii_case(name));
    let units: [(&[&str], u64); 8] = [
        (&["s", "sec", "secs", "second", "seconds"], SECOND),
        (
            &["ms", "msec", "msecs", "millisecond", "milliseconds"],
            SECOND / 1_000,
        ),
        (&["m", "min", "mins", "minute", "minutes"], 60 * SECOND),
        (&["h", "hr", "hrs", "hour", "hours"], 3_600 * SECOND),
        (&["d", "day", "days"], DAY_S * SECOND),
        (&["w", "week", "weeks"], 7 * DAY_S * SECOND),
        (&["us", "µs", "μs", "microsecond", "microseconds"], 1_000),
        (&["ns", "nanosecond", "nanoseconds"], 1),
    ];
    let found = units.iter().find(|(names, _)| is(names));
    found.map(|(_, nanos)| *nanos)
}

/// Reads an ISO 8601 duration: `PT4S`, `P1DT2H30M`, `PT1,5S`, `P2W`.
fn iso_duration(text: &str) -> Option<Duration> {
    let mut rest = text.strip_prefix(['P', 'p'])?;
    let mut sum = Duration::ZERO;
    let (mut in_time, mut parts) = (false, 0);
    while !rest.is_empty() {
        if let Some(time) = rest.strip_prefix(['T', 't']) {
            if in_time || time.is_empty() {
                return None;
            }
            (rest, in_time) = (time, true);
            continue;
        }
        let end = rest.find(|c: char| c.is_ascii_alphabetic())?;
        let number = seconds(&rest[..end].replace(',', "."))?;
        let days = match (rest.as_bytes()[end].to_ascii_uppercase(), in_time) {
            (b'Y', false) => 365 * DAY_S,
            (b'M', false) => 30 * DAY_S,
            (b'W', false) => 7 * DAY_S,
            (b'D', false) => DAY_S,
            (b'H', true) => 3_600,
            (b'M', true) => 60,
            (b'S', true) => 1,
            _ => return None,
        };
        sum = sum.saturating_add(times(number, days * 1_000_000_000));
        rest = &rest[end + 1..];
        parts += 1;
    }
    (parts > 0).then_some(sum)
}

/// Reads `YYYY-MM-DDThh:mm[:ss[.f]][zone]`, rounded up to the next whole second.
fn iso_date_time(text: &str) -> Option<WallClock> {
    let field = |from: usize, to: usize| digits(text.get(from..to)?);
    let mark = |at: usize| text.as_bytes().get(at).copied();
    let (year, month, day) = (field(0, 4)?, field(5, 7)?, field(8, 10)?);
    let marks = [mark(4)?, mark(7)?, mark(10)?];
    if !matches!(marks, [b'-', b'-', b'T' | b't' | b' ']) {
        return None;
    }
    let rest = text.get(11..)?;
    let end = rest
        .find(|c: char| !(c.is_ascii_digit() || matches!(c, ':' | '.' | ',')))
        .unwrap_or(rest.len());
    let (clock, zone) = rest.split_at(end);
    point(year, month, day, time_of_day(clock)?, offset(zone.trim())?)
}

/// Reads the three forms of HTTP-date (RFC 9110 section 5.6.7) with any weekday or none.
fn date(text: &str) -> Option<WallClock> {
    let (mut day, mut month, mut year, mut time, mut zone) = (None, None, None, None, None);
    let mut words = 0;
    for word in text.split([' ', '\t', ',']).filter(|word| !word.is_empty()) {
        words += 1;
        if words > PARTS_MAX {
            return None;
        }
        // `06-Nov-94` is three words. A zone begins with its sign.
        let dashed = word.as_bytes()[0].is_ascii_digit() && word.contains('-');
        let parts = if dashed { word.split('-').count() } else { 1 };
        for part in word.splitn(parts, '-') {
            let number = digits(part);
            if part.contains(':') && part.as_bytes()[0].is_ascii_digit() && time.is_none() {
                time = Some(time_of_day(part)?);
            } else if let Some(number) = number {
                match part.len() {
                    1 | 2 if day.is_none() => day = Some(number),
                    2 if year.is_none() && number < 70 => year = Some(2_000 + number),
                    2 if year.is_none() => year = Some(1_900 + number),
                    4 if year.is_none() => year = Some(number),
                    _ => return None,
                }
            } else if let Some(found) = named(part, &MONTHS).filter(|_| month.is_none()) {
                month = Some(found + 1);
            } else if named(part, &WEEKDAYS).is_none() {
                zone = Some(offset(part).filter(|_| zone.is_none())?);
            }
        }
    }
    let zone = zone.unwrap_or((b'+', 0));
    point(year?, month?, day?, time?, zone)
}

const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];

const WEEKDAYS: [&str; 7] = [
    "monday",
    "tuesday",
    "wednesday",
    "thursday",
    "friday",
    "saturday",
    "sunday",
];

/// Returns the index of a name that is written in full or cut to at least three letters.
fn named(word: &str, names: &[&str]) -> Option<u64> {
    let begins = |name: &str| {
        name.get(..word.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(word))
    };
    let at = names.iter().position(|name| begins(name))?;
    (word.len() >= 3).then_some(at as u64)
}

/// Returns the seconds of `hh:mm[:ss[.f]]`, rounded up.
fn time_of_day(text: &str) -> Option<u64> {
    let mut fields = text.split(':');
    let (hour, minute) = (digits(fields.next()?)?, digits(fields.next()?)?);
    let (second, up) = match fields.next() {
        None => (0, 0),
        Some(text) => match text.split_once(['.', ',']) {
            None => (digits(text)?, 0),
            Some((whole, fraction)) => (digits(whole)?, u64::from(digits(fraction)? > 0)),
        },
    };
    let possible = fields.next().is_none() && hour < 24 && minute < 60 && second <= 60;
    possible.then(|| hour * 3_600 + minute * 60 + second + up)
}

/// Returns the sign and seconds of a zone: a name, an offset, or both.
fn offset(zone: &str) -> Option<(u8, u64)> {
    let end = zone
        .find(|c: char| !c.is_ascii_alphabetic())
        .unwrap_or(zone.len());
    let (name, rest) = zone.split_at(end);
    let named = match name.to_ascii_uppercase().as_str() {
        "" | "Z" | "UT" | "UTC" | "GMT" => (b'+', 0),
        "EDT" => (b'-', 4),
        "EST" | "CDT" => (b'-', 5),
        "CST" | "MDT" => (b'-', 6),
        "MST" | "PDT" => (b'-', 7),
        "PST" => (b'-', 8),
        _ => return None,
    };
    if rest.is_empty() {
        return Some((named.0, named.1 * 3_600));
    }
    let sign = rest
        .bytes()
        .next()
        .filter(|sign| matches!(sign, b'+' | b'-') && named.1 == 0)?;
    let rest = rest.get(1..)?;
    let (hours, minutes) = match rest.split_once(':') {
        Some(pair) => pair,
        None if rest.len() <= 2 => (rest, "0"),
        None => rest.split_at_checked(2)?,
    };
    let (hours, minutes) = (digits(hours)?, digits(minutes)?);
    (hours < 24 && minutes < 60).then(|| (sign, hours * 3_600 + minutes * 60))
}

/// Returns the point in time of these fields, if it exists and is not before 1970.
fn point(year: u64, month: u64, day: u64, time: u64, zone: (u8, u64)) -> Option<WallClock> {
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let days = match month {
        2 => 28 + u64::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if !(1_970..=9_999).contains(&year) || !(1..=days).contains(&day) {
        return None;
    }
    let local = days_since_1970(year, month, day) * DAY_S + time;
    let utc = match zone {
        (b'-', behind) => local + behind,
        (_, ahead) => local.checked_sub(ahead)?,
    };
    Some(WallClock::from_unix_secs(utc))
}

/// Returns the days since 1970-01-01 in the proleptic Gregorian calendar, for years from 1970.
///
/// The year starts in March, so that the leap day is last.
fn days_since_1970(year: u64, month: u64, day: u64) -> u64 {
    let year = if month <= 2 { year - 1 } else { year };
    let days_before_month = (153 * ((month + 9) % 12) + 2) / 5;
    let days_before_year = year * 365 + year / 4 - year / 100 + year / 400;
    // 719_468 days lie between 0000-03-01 and 1970-01-01.
    days_before_year + days_before_month + day - 1 - 719_468
}

#[cfg(test)]
#[path = "span_tests.rs"]
mod tests;
