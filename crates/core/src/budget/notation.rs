//! The notation of limits: `1000/h`, `10r/s`, `1000/day@UTC`, `100 concurrent`.

use std::str::FromStr;
use std::time::Duration;

use super::calendar::{Period, Zone};
use super::declared::{DeclaredLimit, LimitError, LimitUnit, LimitWindow, shown};

/// The largest quantity, 2^53: every whole number up to it is exact in JSON.
const QUANTITY_MAX: u64 = 1 << 53;
/// The longest rolling window: 366 days.
const WINDOW_MAX: Duration = Duration::from_hours(366 * 24);

impl FromStr for DeclaredLimit {
    type Err = LimitError;

    fn from_str(text: &str) -> Result<Self, LimitError> {
        let text = text.trim();
        let wrong = |why: String| LimitError::new(text, why);
        let form = || wrong("write it as `1000/h`, `1000/day@UTC` or `100 concurrent`".to_owned());
        let parts = text.split_once('/').or_else(|| text.split_once(" per "));
        let Some((amount, window)) = parts else {
            let number = text.strip_suffix("concurrent");
            let number = number.or_else(|| text.strip_suffix("in flight"));
            let number = number.ok_or_else(form)?.trim_end();
            let (quantity, unit) = split_quantity(number).map_err(wrong)?;
            if !unit.is_empty() || quantity > u64::from(u32::MAX) - 1 {
                return Err(form());
            }
            let window = LimitWindow::InFlight;
            return Ok(Self::new(quantity, LimitUnit::Requests, window));
        };
        let (quantity, unit) = quantity_of(amount.trim()).map_err(wrong)?;
        let window = window_of(window.trim()).map_err(wrong)?;
        Ok(Self::new(quantity, unit, window))
    }
}

/// Reads `5000`, `200k requests`, `2M` or `5MB`.
fn quantity_of(text: &str) -> Result<(u64, LimitUnit), String> {
    let (number, name) = split_quantity(text)?;
    let (scale, unit) = match name {
        "" | "requests" | "request" | "reqs" | "req" | "r" | "rq" | "calls" | "call" | "hits"
        | "hit" => (1, LimitUnit::Requests),
        "B" | "b" | "bytes" | "byte" => (1, LimitUnit::Bytes),
        "kB" | "KB" | "kb" | "kbytes" | "kbyte" | "kilobytes" | "kilobyte" => {
            (1_000, LimitUnit::Bytes)
        }
        "MB" | "mb" | "mbytes" | "mbyte" | "megabytes" | "megabyte" => {
            (1_000_000, LimitUnit::Bytes)
        }
        "GB" | "gb" | "gbytes" | "gbyte" | "gigabytes" | "gigabyte" => {
            (1_000_000_000, LimitUnit::Bytes)
        }
        "TB" | "tb" | "tbytes" | "tbyte" | "terabytes" | "terabyte" => {
            (1_000_000_000_000, LimitUnit::Bytes)
        }
        "KiB" | "kib" => (1 << 10, LimitUnit::Bytes),
        "MiB" | "mib" => (1 << 20, LimitUnit::Bytes),
        "GiB" | "gib" => (1 << 30, LimitUnit::Bytes),
        other => {
            let name = other.parse().ok().filter(|_| is_a_word(other));
            let Some(name) = name else {
                let other = shown(other);
                return Err(format!(
                    "unknown unit `{other}`; use requests, bytes, MB, or a name such as tokens"
                ));
            };
            (1, LimitUnit::Named(name))
        }
    };
    Ok((bounded(number.checked_mul(scale))?, unit))
}

/// Returns how the text of a limit was understood, if its unit or quantity is written in an unusual
/// way.
pub fn understood_as(text: &str) -> Option<String> {
    let limit: DeclaredLimit = text.parse().ok()?;
    let (amount, _) = text.split_once('/').or_else(|| text.split_once(" per "))?;
    let is_digit = |char: char| char.is_ascii_digit();
    let name = amount.trim().trim_start_matches(is_digit);
    let scaled = name.strip_prefix(['k', 'K', 'M']).unwrap_or(name).trim();
    let name = name.trim();
    let is_usual = match limit.unit() {
        LimitUnit::Requests => matches!(scaled, "" | "requests" | "request"),
        LimitUnit::Bytes => {
            let is_lower = name.starts_with(|first: char| first.is_ascii_lowercase());
            !is_lower || matches!(name, "bytes" | "byte" | "kB")
        }
        LimitUnit::Named(_) => true,
    };
    (!is_usual).then(|| {
        format!(
            "`{}` is read as {limit}, in the unit {}",
            shown(text),
            limit.unit()
        )
    })
}

/// Returns whether a text can name a unit that requests state. Short and numbered texts are likely
/// mistakes, such as `ops`, `qps` or `e6`, and bits per second are no unit at all.
fn is_a_word(text: &str) -> bool {
    const BITS: [&str; 4] = ["bit", "bits", "bps", "Bps"];
    let is_long = text.len() >= 4 && text.starts_with(|first: char| first.is_ascii_alphabetic());
    // `5 mibytes` means bytes, and `5 MBYTES` is no name.
    is_long && !text.ends_with("bytes") && !BITS.iter().any(|bits| text.ends_with(bits))
}

/// Splits `200k requests` into 200,000 and `requests`.
fn split_quantity(text: &str) -> Result<(u64, &str), String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, mut rest) = text.split_at(digits);
    if number.is_empty() {
        let what = if rest.is_empty() { "nothing" } else { rest };
        let what = shown(what);
        return Err(format!("begin with a whole number, not with `{what}`"));
    }
    let mut exponent = None;
    if let Some(power) = rest.strip_prefix(['e', 'E']) {
        let digits = power.bytes().take_while(u8::is_ascii_digit).count();
        if digits > 0 {
            exponent = Some(power[..digits].parse::<u32>().ok());
            rest = &power[digits..];
        }
    }
    let word = rest.split_whitespace().next().unwrap_or_default();
    let scale = match word {
        _ if exponent.is_some() || rest.starts_with(char::is_whitespace) => None,
        "k" | "K" => Some(1_000),
        "M" => Some(1_000_000),
        _ => None,
    };
    let unit = if scale.is_some() { &rest[1..] } else { rest }.trim();
    let number = number.parse::<u64>().ok();
    let scale = match exponent {
        None => scale,
        Some(power) => power
            .and_then(|power| 10_u64.checked_pow(power))
            .or(Some(u64::MAX)),
    };
    let number = number.and_then(|number| number.checked_mul(scale.unwrap_or(1)));
    Ok((bounded(number)?, unit))
}

fn bounded(number: Option<u64>) -> Result<u64, String> {
    let number = number.filter(|number| (1..=QUANTITY_MAX).contains(number));
    number.ok_or_else(|| "the quantity must be a whole number from 1 to 2^53".to_owned())
}

/// Reads `h`, `2 hours` or `day@Europe/Berlin`.
fn window_of(text: &str) -> Result<LimitWindow, String> {
    let (length, zone) = match text.split_once('@') {
        Some((length, zone)) => (length.trim(), Some(zone.trim())),
        None => (text, None),
    };
    let digits = length.bytes().take_while(u8::is_ascii_digit).count();
    let (count, unit) = (&length[..digits], length[digits..].trim());
    let calendar = || {
        "write a calendar window as `/day@UTC`, `/week@UTC` or `/month@Europe/Berlin`".to_owned()
    };
    if let Some(zone) = zone {
        let period = Period::named(unit).filter(|_| count.is_empty());
        let period = period.ok_or_else(calendar)?;
        let named = Zone::named(zone).ok_or_else(|| {
            let zone = shown(zone);
            if cfg!(feature = "calendar") {
                format!("unknown time zone `{zone}`; use a name like UTC or Europe/Berlin")
            } else {
                format!("the window of `{zone}` needs the feature `calendar` of this library")
            }
        })?;
        return Ok(LimitWindow::Calendar(period, named));
    }
    let secs: u64 = match unit {
        "s" | "sec" | "second" | "seconds" => 1,
        "m" | "min" | "minute" | "minutes" => 60,
        "h" | "hour" | "hours" => 3_600,
        "d" | "day" | "days" => 86_400,
        "w" | "week" | "weeks" => 7 * 86_400,
        "month" | "months" => return Err(calendar()),
        other => {
            let other = shown(other);
            return Err(format!(
                "unknown window `{other}`; use s, min, h, day, week or month@ZONE"
            ));
        }
    };
    let count = match count {
        "" => Some(1),
        count => count.parse::<u64>().ok(),
    };
    let length = count.and_then(|count| count.checked_mul(secs));
    let length = length.map(Duration::from_secs);
    let length = length.filter(|length| (Duration::from_secs(1)..=WINDOW_MAX).contains(length));
    length
        .map(LimitWindow::Rolling)
        .ok_or_else(|| "the window must be at least 1s and at most 366 days".to_owned())
}
