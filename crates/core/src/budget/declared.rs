//! Limits as operators declare them.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use serde::de::{self, Deserializer};
use serde::{Deserialize, Serialize, Serializer};

use super::calendar::{Period, Zone};
use super::unit::UnitName;

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    pub(super) fn new(text: &str, why: impl Into<String>) -> Self {
        Self {
            text: shown(text),
            why: why.into(),
        }
    }
}

/// Returns the beginning of a text on one line.
pub(super) fn shown(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN_MAX).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown.escape_debug().to_string()
}

impl DeclaredLimit {
    pub(super) fn new(quantity: u64, unit: LimitUnit, window: LimitWindow) -> Self {
        let id = hash(&format!("{unit}/{window}"));
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

/// Returns a hash of a text (FNV-1a), the same on every machine.
fn hash(text: &str) -> u32 {
    let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
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

#[derive(Clone, Debug)]
struct All {
    windows: Box<[DeclaredLimit]>,
    in_flight: Option<u32>,
    /// How many requests each request counts as.
    weight: u32,
    author: Author,
}

/// The one that declares the limits of a key. Limits that replace others of their author are those
/// others, changed: what leaves under them also counts for the others, if they come back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum Author {
    /// The configuration of all keys.
    #[default]
    Configuration,
    /// A rule, by a hash of its pattern. Requests of one key may follow several rules in turn, and
    /// count for their own rule alone.
    Rule(u32),
    /// An operator, for this key. These limits replace those of anybody.
    Operator,
}

impl PartialEq for All {
    /// Equal limits are equal, whoever declared them.
    fn eq(&self, other: &Self) -> bool {
        let of = |all: &Self| (all.in_flight, all.weight);
        self.windows == other.windows && of(self) == of(other)
    }
}

impl Eq for All {}

impl Author {
    /// Returns whether limits of `self` replace those of `other`, or the other way round.
    pub(super) fn replaces(self, other: Self) -> bool {
        self == other || self == Self::Operator || other == Self::Operator
    }
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
                author: Author::default(),
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
        self.edited(|all| all.weight = all.weight.saturating_mul(parts.max(1)))
    }

    /// Returns these limits as those of the rule with this `pattern`.
    #[must_use]
    pub fn of_rule(&self, pattern: &str) -> Self {
        self.edited(|all| all.author = Author::Rule(hash(pattern)))
    }

    /// Returns these limits as those that an operator set for one key.
    pub(crate) fn of_operator(&self) -> Self {
        self.edited(|all| all.author = Author::Operator)
    }

    fn edited(&self, edit: impl Fn(&mut All)) -> Self {
        Self(self.0.as_deref().map(|all| {
            let mut all = all.clone();
            edit(&mut all);
            Arc::new(all)
        }))
    }

    /// Returns the text of each limit.
    pub fn texts(&self) -> Vec<String> {
        self.all().map(|limit| limit.to_string()).collect()
    }

    pub(super) fn weight(&self) -> u64 {
        self.0.as_deref().map_or(1, |all| u64::from(all.weight))
    }

    pub(super) fn author(&self) -> Author {
        self.0
            .as_deref()
            .map_or(Author::default(), |all| all.author)
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
