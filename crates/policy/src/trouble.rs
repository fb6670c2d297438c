//! How a key and its requests meet trouble: backoff, jitter, retry budget, breaker and cut.
//!
//! The same values are read from a rule of a policy, from a settings file and from flags. In a
//! file a value with several parts is a table, `{ base = "1s", factor = 2 }`, and in a flag it is
//! a list, `base=1s,factor=2`.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use politely_core::gate::BreakerConfig;
use politely_core::host::TroubleNumbers;
use politely_core::retry::{BudgetRule, InvalidBudget, Jitter, Policy};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::{Table, Value};

/// The longest time of a setting: a day, as for a Retry-After.
const SPAN_MAX: Duration = Duration::from_hours(24);
/// The shortest longest delay. It keeps a fast host from being asked again within one round trip.
const BACKOFF_MAX_MIN: Duration = Duration::from_millis(100);
/// The longest rest of a breaker, where a setting names none.
const OPEN_MAX: Duration = Duration::from_mins(1);

/// How a key and its requests meet trouble. The default changes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TroubleSettings {
    /// The delays before retries.
    pub backoff: Option<BackoffSetting>,
    /// The random part of these delays.
    pub jitter: Option<JitterSetting>,
    /// The share of retries in all requests.
    pub retry_budget: Option<RetryBudgetSetting>,
    /// When a host in trouble gets no requests.
    pub breaker: Option<BreakerSetting>,
    /// The share of the rate that remains after a congestion event under the law AIMD.
    pub cut: Option<f64>,
}

/// `{ base = "1s", factor = 2, max = "60s" }`. A part that is absent stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(
    deny_unknown_fields,
    default,
    expecting = "parts such as `base`, `factor` and `max`"
)]
pub struct BackoffSetting {
    base: Option<Span>,
    factor: Option<f64>,
    max: Option<Span>,
}

/// The kind of jitter, see [`Jitter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JitterSetting {
    /// The whole delay.
    None,
    /// From zero to the delay.
    Full,
    /// From half of the delay to the delay.
    Equal,
    /// From the base to three times the delay before.
    Decorrelated,
}

/// `{ ratio = 0.2, per_second = 1, burst = 10 }`, which are also the defaults.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(
    deny_unknown_fields,
    default,
    expecting = "parts such as `ratio`, `per_second` and `burst`"
)]
pub struct RetryBudgetSetting {
    ratio: f64,
    per_second: f64,
    burst: f64,
}

/// `{ failures = 5, open = "1s", open_max = "60s" }`, which are also the defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(
    deny_unknown_fields,
    default,
    expecting = "parts such as `failures`, `open` and `open_max`"
)]
pub struct BreakerSetting {
    failures: u16,
    open: Span,
    open_max: Option<Span>,
}

/// `500ms`, `60s`, `5min` or `1h`.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Value")]
struct Span(Duration);

impl TroubleSettings {
    /// Checks that all numbers are within their bounds.
    ///
    /// # Errors
    /// The first number that is not, and its bounds, on one line.
    pub fn check(&self) -> Result<(), String> {
        let BackoffSetting { base, factor, max } = self.backoff.unwrap_or_default();
        let breaker = self.breaker.unwrap_or_default();
        let least = BACKOFF_MAX_MIN.max(base.map_or(Duration::ZERO, |base| base.0));
        let wrong = if factor.is_some_and(|factor| !(1.0..=100.0).contains(&factor)) {
            "backoff: `factor` must be from 1 to 100"
        } else if max.is_some_and(|max| max.0 < least) {
            "backoff: `max` must be at least 100ms, and at least `base`"
        } else if breaker.open_max.is_some_and(|max| max.0 < breaker.open.0) {
            "breaker: `open_max` must be at least `open`"
        } else if self.cut.is_some_and(|cut| !(cut > 0.0 && cut < 1.0)) {
            "cut: the share that remains must be above 0 and below 1"
        } else {
            let budget = self.retry_budget.map(RetryBudgetSetting::rule).transpose();
            return budget.map(|_| ()).map_err(|why| why.to_string());
        };
        Err(wrong.to_owned())
    }

    /// Returns what a key follows.
    pub fn of_key(&self) -> TroubleNumbers {
        TroubleNumbers {
            cut: self.cut,
            breaker: self.breaker.map(BreakerSetting::config),
            backoff_max: self.backoff.and_then(|backoff| Some(backoff.max?.0)),
        }
    }

    /// Returns `policy` with these delays, this jitter and this budget.
    pub fn over<'p>(&self, policy: &'p Policy) -> Cow<'p, Policy> {
        if (self.backoff, self.jitter, self.retry_budget) == (None, None, None) {
            return Cow::Borrowed(policy);
        }
        let BackoffSetting { base, factor, max } = self.backoff.unwrap_or_default();
        let jitter = self.jitter.map(Jitter::from);
        let [base, max] = [base, max].map(|span| span.map(|span| span.0));
        let budget = self.retry_budget.and_then(|budget| budget.rule().ok());
        Cow::Owned(Policy {
            backoff: policy.backoff.with(base, factor, max, jitter),
            budget: budget.or(policy.budget),
            ..policy.clone()
        })
    }
}

/// Writes all that is set, each part after a comma.
impl fmt::Display for TroubleSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(BackoffSetting { base, factor, max }) = self.backoff {
            f.write_str(", backoff")?;
            base.map_or(Ok(()), |base| write!(f, " from {base:?}"))?;
            factor.map_or(Ok(()), |factor| write!(f, " times {factor}"))?;
            max.map_or(Ok(()), |max| write!(f, " up to {max:?}"))?;
        }
        if let Some(jitter) = self.jitter {
            write!(f, ", {} jitter", format!("{jitter:?}").to_lowercase())?;
        }
        if let Some(budget) = self.retry_budget {
            let (ratio, burst) = (budget.ratio, budget.burst);
            write!(
                f,
                ", retry budget {ratio} and {}/s, burst {burst}",
                budget.per_second
            )?;
        }
        match self.breaker {
            None => {}
            Some(breaker) if breaker.failures == 0 => f.write_str(", no breaker")?,
            Some(breaker) => {
                let (failures, config) = (breaker.failures, breaker.config());
                let (open, most) = (config.rest_min, config.rest_max);
                write!(
                    f,
                    ", breaker after {failures} failures, open {open:?} to {most:?}"
                )?;
            }
        }
        self.cut
            .map_or(Ok(()), |cut| write!(f, ", aimd, cut to {cut}"))
    }
}

impl From<JitterSetting> for Jitter {
    fn from(setting: JitterSetting) -> Self {
        match setting {
            JitterSetting::None => Self::None,
            JitterSetting::Full => Self::Full,
            JitterSetting::Equal => Self::Equal,
            JitterSetting::Decorrelated => Self::Decorrelated,
        }
    }
}

impl RetryBudgetSetting {
    fn rule(self) -> Result<BudgetRule, InvalidBudget> {
        BudgetRule::new(self.ratio, self.per_second, self.burst)
    }
}

impl Default for RetryBudgetSetting {
    fn default() -> Self {
        Self {
            ratio: 0.2,
            per_second: 1.0,
            burst: 10.0,
        }
    }
}

impl BreakerSetting {
    fn config(self) -> BreakerConfig {
        BreakerConfig {
            trip_after: self.failures,
            rest_min: self.open.0,
            rest_max: self.open_max.map_or(OPEN_MAX.max(self.open.0), |max| max.0),
        }
    }
}

impl Default for BreakerSetting {
    fn default() -> Self {
        Self {
            failures: 5,
            open: Span(Duration::from_secs(1)),
            open_max: None,
        }
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl TryFrom<Value> for Span {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        let text = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        let shown = text.escape_debug();
        let why =
            || format!("`{shown}`: write it as `500ms`, `60s`, `5min` or `1h`, at most a day");
        span(&text).map(Self).ok_or_else(why)
    }
}

/// A setting that a flag may have as its value.
pub trait FlagValue: DeserializeOwned {
    /// A value, as it is written in a flag.
    const EXAMPLE: &str;
}

impl FlagValue for BackoffSetting {
    const EXAMPLE: &str = "base=1s,factor=2,max=60s";
}

impl FlagValue for JitterSetting {
    const EXAMPLE: &str = "full";
}

impl FlagValue for RetryBudgetSetting {
    const EXAMPLE: &str = "ratio=0.2,per_second=1,burst=10";
}

impl FlagValue for BreakerSetting {
    const EXAMPLE: &str = "failures=5,open=1s,open_max=60s";
}

/// Reads the value of a flag: a word, or `name=value,…`.
///
/// # Errors
/// Why it is no such value, on one line.
pub fn of_flag<T: FlagValue>(text: &str) -> Result<T, String> {
    let one = |text: &str| {
        let text = text.trim();
        let number = (text.parse().map(Value::Integer)).or_else(|_| text.parse().map(Value::Float));
        number.unwrap_or_else(|_| Value::from(text))
    };
    let part = |part: &str| {
        let (name, value) = part.split_once('=')?;
        Some((name.trim().to_owned(), one(value)))
    };
    let parts: Option<Table> = text.split(',').map(part).collect();
    let value = parts.map_or_else(|| one(text), Value::Table);
    let wrong = |why: toml::de::Error| match why.message() {
        why if why.starts_with("invalid") => format!("{why}; write it as `{}`", T::EXAMPLE),
        why => why.to_owned(),
    };
    value.try_into().map_err(wrong)
}

/// Reads `500ms`, `60s`, `5min` or `1h`: at least a millisecond, at most a day.
pub(super) fn span(text: &str) -> Option<Duration> {
    let is_digit = |byte: &u8| byte.is_ascii_digit() || *byte == b'.';
    let digits = text.bytes().take_while(is_digit).count();
    let (number, unit) = text.split_at(digits);
    let secs = match unit.trim() {
        "ms" => 0.001,
        "s" | "sec" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3_600.0,
        _ => return None,
    };
    let length = Duration::try_from_secs_f64(number.parse::<f64>().ok()? * secs).ok()?;
    (length <= SPAN_MAX && length >= Duration::from_millis(1)).then_some(length)
}

#[cfg(test)]
#[path = "trouble_tests.rs"]
mod tests;
