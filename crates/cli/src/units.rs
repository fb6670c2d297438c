//! Numbers with units as people write them: `30s`, `500ms`, `16MiB`, `512MB`.

use std::time::Duration;

use politely::core::budget::LimitUnit;
use politely::{DeclaredLimit, LimitError};
use serde::Deserialize;
use serde::de::{self, Deserializer};

/// A length of time: `30` and `30s` are seconds; also `500ms`, `2m`, `1h`. At least a millisecond,
/// at most a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span(pub(crate) Duration);

/// An age: as [`Span`], but also `7d`, and at most ten years.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Age(pub(crate) Duration);

/// A number of bytes: `1000`, `16MiB`, `10MB`, `2GB`. A bare number is bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) u64);

/// An amount of memory: as [`Size`], but a bare number is megabytes, and 1 GB is 1024 MB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Memory(pub(crate) u64);

/// A rate: `2.5` is requests per second, `5000/h` is that many in any hour, evenly spread.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RateText {
    pub(crate) per_s: f64,
    /// The limit that no window exceeds, if the text has a window.
    pub(crate) limit: Option<DeclaredLimit>,
}

/// The shortest length of time.
const SPAN_MIN: Duration = Duration::from_millis(1);
/// The longest length of time. It exceeds any sensible time-out, so a larger number has a wrong
/// unit.
const SPAN_MAX: Duration = Duration::from_hours(24);
/// The highest age. A larger number has a wrong unit.
const AGE_MAX: Duration = Duration::from_hours(10 * 365 * 24);

impl std::str::FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (number, unit) = split(text)?;
        let secs =
            seconds(number, unit).ok_or(format!("unknown unit `{unit}`: use ms, s, m or h"))?;
        if (SPAN_MIN.as_secs_f64()..=SPAN_MAX.as_secs_f64()).contains(&secs) {
            Ok(Self(Duration::from_secs_f64(secs)))
        } else {
            Err(format!("`{text}` must be at least 1ms and at most 24h"))
        }
    }
}

impl std::str::FromStr for Age {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (number, unit) = split(text)?;
        let secs = match unit {
            "d" | "day" | "days" => Some(number * 86_400.0),
            unit => seconds(number, unit),
        };
        let secs = secs.ok_or(format!("unknown unit `{unit}`: use s, m, h or d"))?;
        if (SPAN_MIN.as_secs_f64()..=AGE_MAX.as_secs_f64()).contains(&secs) {
            Ok(Self(Duration::from_secs_f64(secs)))
        } else {
            Err(format!("`{text}` must be at least 1ms and at most 3650d"))
        }
    }
}

/// Returns a length of time in seconds, or `None` for an unknown unit.
fn seconds(number: f64, unit: &str) -> Option<f64> {
    let length = match unit {
        "" | "s" => 1.0,
        "ms" => 0.001,
        "m" | "min" => 60.0,
        "h" => 3_600.0,
        _ => return None,
    };
    Some(number * length)
}

impl std::str::FromStr for RateText {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(per_s) = number(text) {
            return Ok(Self { per_s, limit: None });
        }
        if !text.contains('/') && !text.contains(" per ") {
            return Err("is not a number, nor a rate such as 5000/h".to_owned());
        }
        let limit: DeclaredLimit = text.parse().map_err(|why: LimitError| why.to_string())?;
        let per_s = limit.per_second();
        let per_s = per_s.filter(|_| limit.unit() == LimitUnit::Requests);
        let per_s = per_s.ok_or("is no rate; give a day of a calendar or bytes with --limits")?;
        Ok(Self {
            per_s,
            limit: Some(limit),
        })
    }
}

impl std::str::FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        bytes(text, 1.0, 1e3).map(Self)
    }
}

impl std::str::FromStr for Memory {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        bytes(text, 1024.0 * 1024.0, 1024.0).map(Self)
    }
}

/// Parses a number of bytes. `bare` is the unit of a number without one, and `kb` the length of a
/// kilobyte.
fn bytes(text: &str, bare: f64, kb: f64) -> Result<u64, String> {
    let (number, unit) = split(text)?;
    let scale = match unit.to_ascii_lowercase().as_str() {
        "" => bare,
        "b" => 1.0,
        "k" | "kb" => kb,
        "kib" => 1024.0,
        "m" | "mb" => kb * kb,
        "mib" => 1024.0 * 1024.0,
        "g" | "gb" => kb * kb * kb,
        "gib" => 1024.0 * 1024.0 * 1024.0,
        _ => {
            return Err(format!(
                "unknown unit `{unit}`: use kB, MB, GB, KiB, MiB or GiB"
            ));
        }
    };
    let total = number * scale;
    if (1.0..=1e18).contains(&total) {
        Ok(total as u64)
    } else {
        Err(format!("`{text}` must be at least one byte"))
    }
}

/// Parses a number. The error says why the text is not a number.
pub(crate) fn number(text: &str) -> Result<f64, String> {
    text.trim()
        .parse()
        .map_err(|_| "is not a number".to_owned())
}

/// Parses a whole number.
pub(crate) fn whole(text: &str) -> Result<u32, String> {
    let number = number(text)?;
    if number.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&number) {
        Ok(number as u32)
    } else {
        Err(format!("must be a whole number from 0 to {}", u32::MAX))
    }
}

fn split(text: &str) -> Result<(f64, &str), String> {
    let text = text.trim();
    let end = text
        .find(|c: char| !(c.is_ascii_digit() || "-.".contains(c)))
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number = number
        .parse::<f64>()
        .map_err(|_| format!("`{text}` is not a number with a unit"))?;
    Ok((number, unit.trim()))
}

/// Deserializes a value of `politely.toml`: a string with a unit, or a bare number.
macro_rules! from_toml {
    ($($unit:ty),*) => {$(
        impl<'de> Deserialize<'de> for $unit {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                #[derive(Deserialize)]
                #[serde(untagged)]
                enum Written { Text(String), Number(f64) }
                let text = match Written::deserialize(from)? {
                    Written::Text(text) => text,
                    Written::Number(number) => number.to_string(),
                };
                text.parse().map_err(de::Error::custom)
            }
        }
    )*};
}
from_toml!(Span, Age, Size, Memory, RateText);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_and_sizes_are_read_as_people_write_them() {
        assert_eq!("1.5s".parse(), Ok(Span(Duration::from_millis(1_500))));
        assert_eq!("500 ms".parse(), Ok(Span(Duration::from_millis(500))));
        assert_eq!("7d".parse(), Ok(Age(Duration::from_hours(7 * 24))));
        assert_eq!("90m".parse(), Ok(Age(Duration::from_mins(90))));
        assert_eq!("16MiB".parse(), Ok(Size(16 << 20)));
        assert_eq!("1000".parse(), Ok(Size(1_000)));
        assert_eq!("512".parse(), Ok(Memory(512 << 20)));
        assert_eq!("1GB".parse(), "1024MB".parse::<Memory>());
    }

    #[test]
    fn a_rate_may_have_a_window() {
        let rate = |text: &str| text.parse::<RateText>();
        let hourly = rate("7200/h").unwrap();
        assert!((hourly.per_s - 2.0).abs() < 1e-9);
        assert_eq!(hourly.limit.unwrap().to_string(), "7200/h");
        assert_eq!(rate("0.5").unwrap().limit, None);
        for (text, part) in [
            ("fast", "is not a number, nor a rate"),
            ("0/h", "from 1 to 2^53"),
            ("5/0s", "at least 1s"),
            ("5/day@UTC", "--limits"),
            ("5MB/s", "--limits"),
        ] {
            let error = rate(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn nonsense_is_refused_with_a_reason() {
        for text in [
            "",
            "-1",
            "0",
            "abc",
            "3 parsecs",
            "1e400",
            "25h",
            "0.5ms",
            "NaN",
            "inf",
        ] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
        for text in ["", "0", "-1d", "5000d", "2 weeks", "1e9d", "d"] {
            assert!(text.parse::<Age>().is_err(), "{text}");
        }
        for text in ["", "0", "-5MB", "5 XB", "99999999999GB99"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }
}
