//! Parsing of `Crawl-delay` and `Request-rate`, two spellings of one setting that the RFC does not
//! contain.
//!
//! The site's owner writes the number, so every form of it is handled here. Long delays are obeyed.
//! Other crawlers lost pages because they dropped those above some cap, or hit hosts too hard
//! because they read `0.5` as 0.

use std::time::Duration;

/// Longest delay that is obeyed: a day. A longer one counts as a day.
///
/// A file is read again every day, so a longer delay has no further effect.
pub const MAX_CRAWL_DELAY: Duration = politely_core::host::CRAWL_DELAY_MAX;

/// Returns the delay of a `Crawl-delay` value: `10`, `0.05`, `10 seconds`, `10s`.
pub(super) fn crawl_delay(value: &[u8]) -> Option<Duration> {
    sane(number(value)?)
}

/// Returns the time per request of a `Request-rate` value: `1/5`, `100/15m`, `1/10s 0600-0845`.
pub(super) fn request_rate(value: &[u8]) -> Option<Duration> {
    let slash = value.iter().position(|&byte| byte == b'/')?;
    let (requests, span) = (number(&value[..slash])?, value[slash + 1..].trim_ascii());
    let unit = match span
        .iter()
        .find(|byte| !matches!(byte, b'0'..=b'9' | b'.' | b' '))
    {
        Some(b'm' | b'M') => 60.0,
        Some(b'h' | b'H') => 3600.0,
        Some(b'd' | b'D') => 86_400.0,
        _ => 1.0,
    };
    // A negative count would turn a negative span into a delay.
    (requests > 0.0).then(|| sane(number(span)? * unit / requests))?
}

/// Returns the number at the beginning of a value. The text after it is a unit or a mistake.
fn number(value: &[u8]) -> Option<f64> {
    let end = value
        .iter()
        .position(|byte| !matches!(byte, b'0'..=b'9' | b'.' | b'+' | b'-' | b'e' | b'E'));
    let word = std::str::from_utf8(&value[..end.unwrap_or(value.len())]).ok()?;
    word.parse().ok()
}

/// Returns a finite positive delay within bounds. Zero, negative values and NaN are no delay. An
/// infinity can only come from too many digits (the word `inf` is no number here), so it counts as
/// the longest delay.
fn sane(secs: f64) -> Option<Duration> {
    if secs.is_nan() || secs <= 0.0 {
        return None;
    }
    let delay = Duration::from_secs_f64(secs.min(MAX_CRAWL_DELAY.as_secs_f64()));
    (!delay.is_zero()).then_some(delay)
}
