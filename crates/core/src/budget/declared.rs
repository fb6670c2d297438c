//! Limits as operators declare them.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use serde::de::{self, Deserializer};
use serde::{Deserialize, Serialize, Serializer};

use super::calendar::{Period, Zone};
use super::unit::UnitName;

/// The largest quantity, 2^53: every whole number up to it is exact in JSON.
const QUANTITY_MAX: u64 = 1 << 53;
/// The longest rolling window: 366 days.
const WINDOW_MAX: Duration = Duration::from_hours(366 * 24);
/// The most limits of a key. Each costs time with every request.
const LIMITS_MAX: usize = 8;
/// The most characters of a wrong text that an error repeats.
const SHOWN_MAX: usize = 60;

/// A quantity of a unit in a window.
///
/// ```
/// use politely_core::budget::DeclaredLimit;
///
/// let limit: DeclaredLimit = "5000 requests/2h".parse()?;
/// assert_eq!(limit.to_string(), "5000/2h");
/// # Ok::<(), politely_core::budget::LimitError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredLimit {
    quantity: u64,
    unit: LimitUnit,
    window: LimitWindow,
    /// A hash of unit and window. The spent quantities are kept under it.
    id: u32,
}

/// The unit of a [`DeclaredLimit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitUnit {
    /// Requests. A request that costs more than one token counts as that many.
    Requests,
    /// Bytes sent and received. They are known afterwards, so the last request may exceed the
    /// quantity; later ones wait for it.
    Bytes,
    /// A unit that requests state in [`crate::host::AcquireRequest::units`], such as tokens. A
    /// request that does not state it is not limited by it.
    Named(UnitName),
}

/// The window of a [`DeclaredLimit`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LimitWindow {
    /// Any window of this length, whichever way the server aligns its own.
    Rolling(Duration),
    /// A day, week or month of a calendar. Correct when a day has 23 or 25 hours.
    Calendar(Period, Zone),
    /// No window: the quantity may be in flight at once.
    InFlight,
}

/// A text that is not a limit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("limit `{text}`: {why}")]
pub struct LimitError {
    text: String,
    why: String,
}

impl LimitError {
    fn new(text: &str, why: impl Into<String>) -> Self {
        Self {
            text: shown(text),
            why: why.into(),
        }
    }
}

/// Returns the beginning of a text on one line.
fn shown(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN_MAX).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown.escape_debug().to_string()
}

impl DeclaredLimit {
    fn new(quantity: u64, unit: LimitUnit, window: LimitWindow) -> Self {
        let id = id(unit, &window);
        Self {
            quantity,
            unit,
            window,
            id,
        }
    }

    /// Returns the quantity, 1 to 2^53.
    pub const fn quantity(&self) -> u64 {
        self.quantity
    }

    /// Returns the unit.
    pub const fn unit(&self) -> LimitUnit {
        self.unit
    }

    /// Returns the window.
    pub const fn window(&self) -> &LimitWindow {
        &self.window
    }

    /// Returns the quantity per second of a rolling window, evenly spread.
    pub fn per_second(&self) -> Option<f64> {
        match &self.window {
            LimitWindow::Rolling(length) => Some(self.quantity as f64 / length.as_secs_f64()),
            LimitWindow::Calendar(..) | LimitWindow::InFlight => None,
        }
    }

    pub(super) const fn id(&self) -> u32 {
        self.id
    }
}

/// Returns a hash of unit and window (FNV-1a), the same on every machine.
fn id(unit: LimitUnit, window: &LimitWindow) -> u32 {
    let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    let text = format!("{unit}/{window}");
    text.bytes().fold(0x811c_9dc5, step)
}

impl fmt::Display for LimitUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Requests => f.write_str("requests"),
            Self::Bytes => f.write_str("bytes"),
            Self::Named(name) => name.fmt(f),
        }
    }
}

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
        "kB" | "KB" | "kb" => (1_000, LimitUnit::Bytes),
        "MB" | "mb" => (1_000_000, LimitUnit::Bytes),
        "GB" | "gb" => (1_000_000_000, LimitUnit::Bytes),
        "TB" | "tb" => (1_000_000_000_000, LimitUnit::Bytes),
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
    let name = amount
        .trim()
        .trim_start_matches(|char: char| char.is_ascii_digit());
    let is_usual = match limit.unit {
        LimitUnit::Requests => {
            let name = name.strip_prefix(['k', 'K', 'M']).unwrap_or(name);
            matches!(name.trim(), "" | "requests" | "request")
        }
        LimitUnit::Bytes => !name
            .trim()
            .starts_with(|first: char| first.is_ascii_lowercase()),
        LimitUnit::Named(_) => true,
    };
    let is_usual = is_usual || matches!(name.trim(), "bytes" | "byte" | "kB");
    (!is_usual).then(|| {
        format!(
            "`{}` is read as {limit}, in the unit {}",
            shown(text),
            limit.unit
        )
    })
}

/// Returns whether a text can name a unit that requests state. Short and numbered texts are likely
/// mistakes, such as `ops`, `qps` or `e6`, and bits per second are no unit at all.
fn is_a_word(text: &str) -> bool {
    const BITS: [&str; 4] = ["bit", "bits", "bps", "Bps"];
    let is_long = text.len() >= 4 && text.starts_with(|first: char| first.is_ascii_alphabetic());
    is_long && !BITS.iter().any(|bits| text.ends_with(bits))
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

impl fmt::Display for DeclaredLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            quantity, window, ..
        } = self;
        match (window, self.unit) {
            (LimitWindow::InFlight, _) => write!(f, "{quantity} concurrent"),
            (_, LimitUnit::Requests) => write!(f, "{quantity}/{window}"),
            (_, unit) => write!(f, "{quantity} {unit}/{window}"),
        }
    }
}

impl fmt::Display for LimitWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rolling(length) => {
                let secs = length.as_secs();
                let units = [(86_400, "day"), (3_600, "h"), (60, "min")];
                let whole = units.into_iter().find(|(unit, _)| secs % unit == 0);
                match whole.unwrap_or((1, "s")) {
                    (unit, name) if unit == secs => f.write_str(name),
                    (unit, name) => write!(f, "{}{name}", secs / unit),
                }
            }
            Self::Calendar(period, zone) => write!(f, "{period}@{zone}"),
            Self::InFlight => f.write_str("at once"),
        }
    }
}

/// The declared limits of a key. The default is none.
///
/// A text separates them by `;` or `,`: `10/s; 1000/day@UTC; 100 concurrent`. Serde reads and
/// writes that text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeclaredLimits(Option<Arc<All>>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct All {
    windows: Box<[DeclaredLimit]>,
    in_flight: Option<u32>,
    /// How many requests each request counts as.
    weight: u32,
}

impl DeclaredLimits {
    /// Returns limits that all apply.
    ///
    /// # Errors
    /// There are more than eight, or two have the same unit and window.
    pub fn new(limits: impl IntoIterator<Item = DeclaredLimit>) -> Result<Self, LimitError> {
        let mut windows: Vec<DeclaredLimit> = Vec::new();
        for limit in limits {
            if let Some(other) = windows.iter().find(|other| other.id == limit.id) {
                let why = format!("the same window as `{other}`; keep one of them");
                return Err(LimitError::new(&limit.to_string(), why));
            }
            windows.push(limit);
            if windows.len() > LIMITS_MAX {
                let why = format!("more than {LIMITS_MAX} limits; remove some");
                let last = windows.last().map(ToString::to_string);
                return Err(LimitError::new(&last.unwrap_or_default(), why));
            }
        }
        Ok(Self::of(windows))
    }

    fn of(mut windows: Vec<DeclaredLimit>) -> Self {
        let is_cap = |limit: &DeclaredLimit| limit.window == LimitWindow::InFlight;
        let cap = windows.iter().find(|limit| is_cap(limit));
        let in_flight = cap.map(|cap| u32::try_from(cap.quantity).unwrap_or(u32::MAX));
        windows.retain(|limit| !is_cap(limit));
        let is_empty = windows.is_empty() && in_flight.is_none();
        Self((!is_empty).then(|| {
            Arc::new(All {
                windows: windows.into(),
                in_flight,
                weight: 1,
            })
        }))
    }

    /// Returns whether no limit is declared.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Returns the limits that have a window, in the order of their declaration.
    pub fn windows(&self) -> &[DeclaredLimit] {
        self.0.as_deref().map_or(&[], |all| &all.windows)
    }

    /// Returns the most requests in flight, if that is declared.
    #[inline]
    pub fn in_flight(&self) -> Option<u32> {
        self.0.as_deref().and_then(|all| all.in_flight)
    }

    /// Returns these limits and `limit`. Of two limits with the same unit and window the smaller
    /// one stays.
    #[must_use]
    pub fn with(&self, limit: DeclaredLimit) -> Self {
        let mut all: Vec<DeclaredLimit> = self.all().collect();
        match all.iter_mut().find(|other| other.id == limit.id) {
            Some(other) if other.quantity <= limit.quantity => {}
            Some(other) => *other = limit,
            None => all.push(limit),
        }
        Self::of(all)
    }

    /// Returns the share of one of `parts` processes that cannot see each other: each request
    /// counts as that many.
    #[must_use]
    pub fn share(&self, parts: u32) -> Self {
        Self(self.0.as_deref().map(|all| {
            let weight = all.weight.saturating_mul(parts.max(1));
            Arc::new(All {
                weight,
                ..all.clone()
            })
        }))
    }

    /// Returns the text of each limit.
    pub fn texts(&self) -> Vec<String> {
        self.all().map(|limit| limit.to_string()).collect()
    }

    pub(super) fn weight(&self) -> u64 {
        self.0.as_deref().map_or(1, |all| u64::from(all.weight))
    }

    fn all(&self) -> impl Iterator<Item = DeclaredLimit> {
        let cap = self.in_flight().map(|cap| {
            DeclaredLimit::new(u64::from(cap), LimitUnit::Requests, LimitWindow::InFlight)
        });
        self.windows().iter().cloned().chain(cap)
    }
}

impl FromStr for DeclaredLimits {
    type Err = LimitError;

    fn from_str(text: &str) -> Result<Self, LimitError> {
        let parts = text.split([';', ',']).map(str::trim);
        let parts = parts.filter(|part| !part.is_empty());
        let limits = parts
            .map(str::parse)
            .collect::<Result<Vec<DeclaredLimit>, _>>()?;
        if limits.is_empty() {
            let why = "write it as `1000/h`, `1000/day@UTC` or `100 concurrent`";
            return Err(LimitError::new(text, why));
        }
        Self::new(limits)
    }
}

impl fmt::Display for DeclaredLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, limit) in self.all().enumerate() {
            let between = if i > 0 { "; " } else { "" };
            write!(f, "{between}{limit}")?;
        }
        Ok(())
    }
}

impl Serialize for DeclaredLimits {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for DeclaredLimits {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match String::deserialize(from)?.as_str() {
            "" => Ok(Self::default()),
            text => text.parse().map_err(de::Error::custom),
        }
    }
}

#[cfg(test)]
#[path = "declared_tests.rs"]
mod tests;
