//! The quotas of a provider in its headers.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName, HeaderValue};
use politely_core::budget::LimitUnit;

use super::Dialect;
use super::meter::Left;

/// Writes `limits` in the words of `dialect`.
pub(super) fn announce(headers: &mut HeaderMap, dialect: Dialect, limits: &[Left]) {
    let mut set = |name: String, value: String| {
        let name = HeaderName::try_from(name);
        if let (Ok(name), Ok(value)) = (name, HeaderValue::try_from(value)) {
            headers.insert(name, value);
        }
    };
    match dialect {
        Dialect::None => {}
        Dialect::XRateLimit | Dialect::RateLimit => {
            let of_requests = limits
                .iter()
                .filter(|left| left.unit == LimitUnit::Requests);
            let tightest = of_requests.min_by_key(|left| left.remaining);
            let Some(left) = tightest else { return };
            let prefix = if dialect == Dialect::RateLimit {
                "ratelimit"
            } else {
                "x-ratelimit"
            };
            let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            let reset = secs_up(since.unwrap_or_default() + left.reset);
            set(format!("{prefix}-limit"), left.quantity.to_string());
            set(format!("{prefix}-remaining"), left.remaining.to_string());
            set(format!("{prefix}-reset"), reset.to_string());
        }
        Dialect::OpenAi => {
            for (left, unit) in limits.iter().filter_map(with_name) {
                let name = |what: &str| format!("x-ratelimit-{what}-{unit}");
                let reset = format!("{}ms", left.reset.as_millis());
                set(name("limit"), left.quantity.to_string());
                set(name("remaining"), left.remaining.to_string());
                set(name("reset"), reset);
            }
        }
        Dialect::Anthropic => {
            for (left, unit) in limits.iter().filter_map(with_name) {
                let name = |what: &str| {
                    let unit = unit.replace('_', "-");
                    format!("anthropic-ratelimit-{unit}-{what}")
                };
                let at = SystemTime::now() + left.reset;
                set(name("limit"), left.quantity.to_string());
                set(name("remaining"), left.remaining.to_string());
                set(name("reset"), rfc3339(at));
            }
        }
    }
}

fn with_name(left: &Left) -> Option<(&Left, String)> {
    match left.unit {
        LimitUnit::Bytes => None,
        unit => Some((left, unit.to_string())),
    }
}

const fn secs_up(span: Duration) -> u64 {
    span.as_micros().div_ceil(1_000_000) as u64
}

/// Returns `2026-11-25T10:00:00Z`, rounded up to a second.
fn rfc3339(at: SystemTime) -> String {
    let since = at
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let secs = secs_up(since);
    let (days, rest) = (secs / 86_400, secs % 86_400);
    let (year, month, day) = civil(days);
    let (h, m, s) = (rest / 3_600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{h:02}:{m:02}:{s:02}Z")
}

/// Returns the date of a day since 1970 (Hinnant, "chrono-compatible low-level date algorithms").
const fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + if month <= 2 { 1 } else { 0 };
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_as_rfc_3339() {
        let at = |secs| rfc3339(SystemTime::UNIX_EPOCH + Duration::from_secs(secs));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_827_696), "2000-02-29T12:34:56Z");
        assert_eq!(at(1_795_564_800), "2026-11-25T00:00:00Z");
    }
}
