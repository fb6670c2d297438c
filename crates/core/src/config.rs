//! The configuration of a key.
//!
//! There are two profiles. [`Config::crawler`] is the default and is polite to unknown hosts.
//! [`Config::api`] has no politeness limits, so the law uses all that the server allows.
//! [`Config::validate`] checks every number. An operator's number is always an upper bound of a
//! learned one.

use std::sync::Arc;
use std::time::Duration;

use crate::budget::DeclaredLimits;
use crate::control::{LawConfig, Setpoint};
use crate::gate::{BreakerConfig, Rate, Refill};

/// The shortest backoff. It keeps a fast host from being asked again within one round trip.
pub(crate) const BACKOFF_MIN: Duration = Duration::from_millis(100);

/// The in-flight cap for a host whose own limit is not known.
const IN_FLIGHT_STRANGER: u32 = 4;
/// The in-flight cap under a law that learns how many requests a host serves at once.
const IN_FLIGHT_LEARNED: u32 = 64;

/// The configuration of one key's state machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The bounds within which the law may move.
    pub limits: Limits,
    /// The law and its constants.
    pub law: LawConfig,
    /// Declared limits of each key, beside its pace: `1000/h; 10000/day@UTC`. Default none.
    pub declared: DeclaredLimits,
    /// Time after which the lease of a permit expires and its slot is free again. Default 120 s. It
    /// must be longer than the longest request, or the lease must be renewed: a request whose lease
    /// has expired no longer counts as in flight.
    pub lease: Duration,
    /// The longest backoff, for refusals that name no time. A backoff begins at two request
    /// intervals and doubles with each consecutive refusal. Default 60 s.
    pub backoff_max: Duration,
    /// A hold longer than this parks the key. A parked key keeps its state, and
    /// [`crate::host::Reason::Parked`] tells callers not to wait for it. The server's wait itself
    /// is never shortened. Default 1 h.
    pub hold_max: Duration,
    /// The breaker for a host in trouble. Default: 5 consecutive failures, 1 s doubling to 60 s.
    pub breaker: BreakerConfig,
    /// The breaker for a host that shows block pages. Default: 2 consecutive block pages, 60 s
    /// doubling to 6 h.
    pub quarantine: BreakerConfig,
    /// The limits of keys that existed before a change for new keys only. Default none.
    pub cohorts: Cohorts,
}

/// The limits of keys by the time of their creation.
///
/// Each change for new keys only begins a cohort. A key keeps the number of its cohort in its
/// state, so it has the limits of its cohort after a restart too.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cohorts {
    /// The number of the cohort of keys that are created from now on.
    current: u32,
    /// The number of the last cohort with these limits, in ascending order.
    earlier: Vec<(u32, Limits)>,
}

impl Cohorts {
    /// Creates the cohorts up to number `current`. Those up to the number in `earlier` have the
    /// limits beside it, and later ones have [`Config::limits`].
    pub fn new(current: u32, mut earlier: Vec<(u32, Limits)>) -> Self {
        earlier.sort_by_key(|(last, _)| *last);
        Self { current, earlier }
    }

    /// Returns the number that a new key keeps. Without earlier limits, all keys are in cohort 0.
    pub(crate) const fn of_new_key(&self) -> u32 {
        if self.earlier.is_empty() {
            0
        } else {
            self.current
        }
    }
}

/// The bounds of one key's law.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// The first rate for an unknown host, requests per second. Crawler 1, API 2.
    pub rate_start: f64,
    /// The highest rate, requests per second. Crawler 10, API unbounded.
    pub rate_max: f64,
    /// Requests that may leave back to back after a rest. Default 1, because a server's own burst
    /// is its reserve.
    pub burst: f64,
    /// When tokens are added to the bucket. Default continuously.
    pub refill: Refill,
    /// The most requests in flight. Crawler 4; API 64, of which [`crate::control::Discover`] uses
    /// as many as the host serves at once.
    pub in_flight: u32,
    /// The largest share of time that this key may keep its host busy: rate x median latency stays
    /// at or below it. Crawler 1, API unbounded.
    pub busy_share: f64,
    /// Bytes received per second. Default unbounded.
    pub bytes_per_s: f64,
}

/// An invalid number in a configuration.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{name} must be {rule}, not {value}")]
pub struct InvalidConfig {
    name: &'static str,
    rule: &'static str,
    value: f64,
}

impl InvalidConfig {
    /// Returns the number's name.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the rule and the value that breaks it.
    pub fn rule(&self) -> String {
        format!("must be {}, not {}", self.rule, self.value)
    }
}

impl Config {
    /// Returns the profile that is polite to unknown hosts: 1 request/s at first, 10 at most, and
    /// four in flight. Its busy share is 1: rate x median latency stays at or below 1.
    pub fn crawler() -> Self {
        Self {
            limits: Limits {
                rate_start: 1.0,
                rate_max: 10.0,
                burst: 1.0,
                refill: Refill::Continuous,
                in_flight: IN_FLIGHT_STRANGER,
                busy_share: 1.0,
                bytes_per_s: f64::INFINITY,
            },
            law: LawConfig::Discover(Arc::default()),
            declared: DeclaredLimits::default(),
            lease: Duration::from_mins(2),
            backoff_max: Duration::from_mins(1),
            hold_max: Duration::from_hours(1),
            breaker: BreakerConfig {
                trip_after: 5,
                rest_min: Duration::from_secs(1),
                rest_max: Duration::from_mins(1),
            },
            quarantine: BreakerConfig {
                trip_after: 2,
                rest_min: Duration::from_mins(1),
                rest_max: Duration::from_hours(6),
            },
            cohorts: Cohorts::default(),
        }
    }

    /// Returns the profile for an API whose limit may be used in full. It has no politeness limits.
    pub fn api() -> Self {
        let crawler = Self::crawler();
        let limits = Limits {
            rate_start: 2.0,
            rate_max: f64::INFINITY,
            busy_share: f64::INFINITY,
            in_flight: IN_FLIGHT_LEARNED,
            ..crawler.limits
        };
        Self { limits, ..crawler }
    }

    /// Returns this configuration with another law. A law that does not learn how many requests a
    /// host serves at once is limited to four in flight.
    #[must_use]
    pub fn with_law(mut self, law: LawConfig) -> Self {
        if !matches!(law, LawConfig::Discover(_)) {
            self.limits.in_flight = self.limits.in_flight.min(IN_FLIGHT_STRANGER);
        }
        self.law = law;
        self
    }

    /// Returns a fixed rate in requests per second, with any number in flight. Nothing is learned.
    pub fn fixed(rate: f64, burst: f64) -> Self {
        let api = Self::api();
        let limits = Limits {
            rate_start: rate,
            rate_max: rate,
            burst,
            in_flight: u32::MAX,
            ..api.limits
        };
        Self {
            limits,
            law: LawConfig::Fixed,
            ..api
        }
    }

    /// Checks every number.
    ///
    /// # Errors
    /// The first number that breaks its rule.
    pub fn validate(&self) -> Result<(), InvalidConfig> {
        self.limits.validate()?;
        for (_, limits) in &self.cohorts.earlier {
            limits.validate()?;
        }
        check("lease", self.lease.as_secs_f64(), "above 0 s", |x| x > 0.0)?;
        check(
            "backoff_max",
            self.backoff_max.as_secs_f64(),
            "at least 0.1 s",
            |x| x >= BACKOFF_MIN.as_secs_f64(),
        )?;
        if let LawConfig::Advice(advice) = &self.law {
            let (low, high) = (advice.rate_min, advice.rate_max);
            check("rate_min", low, "a number above 0", |x| x > 0.0)?;
            check("rate_max", high, "at least rate_min", |x| x >= low)?;
            check("step", advice.step, "a finite number above 0", |x| {
                x > 0.0 && x.is_finite()
            })?;
        }
        if let LawConfig::Discover(discover) = &self.law {
            check("margin", discover.margin, "at least 0 and below 1", |x| {
                (0.0..1.0).contains(&x)
            })?;
        }
        if let LawConfig::Aimd(aimd) = &self.law {
            check("cut", aimd.cut, "above 0 and below 1", |x| {
                x > 0.0 && x < 1.0
            })?;
            check("step", aimd.step, "above 0 and at most 1", |x| {
                x > 0.0 && x <= 1.0
            })?;
            check("rate_min", aimd.rate_min, "a finite number above 0", |x| {
                x > 0.0 && x.is_finite()
            })?;
        }
        Ok(())
    }

    /// Returns the limits of the keys in `cohort`.
    #[inline]
    pub fn limits_of(&self, cohort: u32) -> &Limits {
        if self.cohorts.earlier.is_empty() {
            return &self.limits;
        }
        let mut earlier = self.cohorts.earlier.iter();
        let found = earlier.find(|(last, _)| cohort <= *last);
        found.map_or(&self.limits, |(_, limits)| limits)
    }

    /// Returns this configuration with `limits` for keys that are created from now on. Known keys
    /// keep their limits.
    #[must_use]
    pub fn for_new_keys(mut self, limits: Limits) -> Self {
        let before = std::mem::replace(&mut self.limits, limits);
        let Cohorts { current, earlier } = &mut self.cohorts;
        earlier.push((*current, before));
        *current = current.saturating_add(1);
        self
    }
}

impl Limits {
    /// Checks every number.
    ///
    /// # Errors
    /// The first that breaks its rule.
    fn validate(&self) -> Result<(), InvalidConfig> {
        let limits = self;
        check("rate_start", limits.rate_start, "a number above 0", |x| {
            x > 0.0
        })?;
        check("rate_max", limits.rate_max, "a number above 0", |x| x > 0.0)?;
        check(
            "burst",
            limits.burst,
            "a finite number of at least 1",
            |x| x >= 1.0 && x.is_finite(),
        )?;
        check(
            "in_flight",
            f64::from(limits.in_flight),
            "at least 1",
            |x| x >= 1.0,
        )?;
        check("busy_share", limits.busy_share, "a number above 0", |x| {
            x > 0.0
        })?;
        check("bytes_per_s", limits.bytes_per_s, "a number above 0", |x| {
            x > 0.0
        })?;
        if let Refill::Interval(period) = limits.refill {
            check("refill interval", period.as_secs_f64(), "above 0 s", |x| {
                x > 0.0
            })?;
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn byte_rate(&self) -> Option<Rate> {
        let per_s = self.bytes_per_s;
        per_s.is_finite().then_some(Rate {
            per_s,
            burst: per_s,
            refill: Refill::Continuous,
        })
    }

    /// Returns the first setpoint of every law. A law that does not learn keeps it.
    #[inline]
    pub fn start(&self) -> Setpoint {
        Setpoint {
            rate: self.rate_start.min(self.rate_max),
            burst: self.burst,
            in_flight: self.in_flight,
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self::crawler()
    }
}

pub(crate) fn check(
    name: &'static str,
    value: f64,
    rule: &'static str,
    holds: impl Fn(f64) -> bool,
) -> Result<(), InvalidConfig> {
    if holds(value) {
        Ok(())
    } else {
        Err(InvalidConfig { name, rule, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::AimdConfig;

    #[test]
    fn the_profiles_are_valid() {
        for config in [Config::crawler(), Config::api(), Config::fixed(0.5, 3.0)] {
            assert_eq!(config.validate(), Ok(()));
        }
    }

    #[test]
    fn every_bad_number_is_named_with_its_rule() {
        type Spoil = fn(&mut Limits);
        let bad: [(&str, Spoil); 6] = [
            ("rate_start", |limits| limits.rate_start = 0.0),
            ("rate_max", |limits| limits.rate_max = f64::NAN),
            ("burst", |limits| limits.burst = 0.5),
            ("in_flight", |limits| limits.in_flight = 0),
            ("busy_share", |limits| limits.busy_share = -1.0),
            ("bytes_per_s", |limits| limits.bytes_per_s = 0.0),
        ];
        for (name, spoil) in bad {
            let mut config = Config::crawler();
            spoil(&mut config.limits);
            let error = config.validate().unwrap_err().to_string();
            assert!(error.starts_with(name), "{error}");
        }
    }

    #[test]
    fn bad_constants_of_a_law_are_named() {
        let mut config = Config::crawler();
        config.law = LawConfig::Aimd(Arc::new(AimdConfig {
            cut: 1.0,
            ..AimdConfig::default()
        }));
        assert_eq!(
            config.validate().unwrap_err().to_string(),
            "cut must be above 0 and below 1, not 1"
        );
    }
}
