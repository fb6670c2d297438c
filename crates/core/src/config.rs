//! What a user may set for a key.
//!
//! Two profiles are ready made, [`Config::crawler`] (polite to strangers, the default) and
//! [`Config::api`] (no politeness cap: the law rides the limit). Every number is checked by
//! [`Config::validate`]; an operator's number always bounds a learned one from above.

use std::sync::Arc;
use std::time::Duration;

use crate::control::{LawConfig, Setpoint};
use crate::gate::{BreakerConfig, Rate, Refill};

/// The shortest backoff, so that a fast host is not asked again within its own round trip.
pub(crate) const BACKOFF_MIN: Duration = Duration::from_millis(100);

/// What a host that tells nothing is asked to do at once.
const IN_FLIGHT_STRANGER: u32 = 4;
/// How far a law may go that learns how much a host bears.
const IN_FLIGHT_LEARNED: u32 = 64;

/// All that one key's state machine is told.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The bounds within which the law may move.
    pub limits: Limits,
    /// The law and its constants.
    pub law: LawConfig,
    /// A permit's slot returns by itself after this long. Default 120 s; longer than the longest
    /// request, or renewed as long as it takes, since what outlives its lease is no longer counted
    /// in flight.
    pub lease: Duration,
    /// The longest hold after a refusal that named no time; holds grow from two request intervals,
    /// doubling with each refusal in a row. Default 60 s.
    pub backoff_max: Duration,
    /// A hold longer than this parks the key: it is kept, but [`crate::host::Reason::Parked`] tells
    /// callers not to wait for it. The server's floor itself is never shortened. Default 1 h.
    pub hold_max: Duration,
    /// Rest from a host in trouble. Default: 5 failures in a row, 1 s doubling to 60 s.
    pub breaker: BreakerConfig,
    /// Rest from a host that blocks us. Default: 2 block pages in a row, 60 s doubling to 6 h.
    pub quarantine: BreakerConfig,
}

/// Bounds, per key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// What a stranger is asked first, requests per second. Crawler 1, API 2.
    pub rate_start: f64,
    /// Never more, requests per second. Crawler 10, API unbounded.
    pub rate_max: f64,
    /// Requests that may leave back to back after a rest. Default 1: a server's own burst is its
    /// reserve, not ours.
    pub burst: f64,
    /// When the bucket fills. Default continuously.
    pub refill: Refill,
    /// Requests under way at once, at most. Crawler 4; API 64, of which
    /// [`crate::control::Discover`] takes as many as the host bears.
    pub in_flight: u32,
    /// The share of a host's time we may keep it busy: rate x median latency stays at or below it.
    /// Crawler 1, API unbounded.
    pub busy_share: f64,
    /// Bytes received per second. Default unbounded.
    pub bytes_per_s: f64,
}

/// A number that makes no sense.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{name} must be {rule}, not {value}")]
pub struct InvalidConfig {
    name: &'static str,
    rule: &'static str,
    value: f64,
}

impl InvalidConfig {
    /// The number's name.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// What it must be, and what it is.
    pub fn rule(&self) -> String {
        format!("must be {}, not {}", self.rule, self.value)
    }
}

impl Config {
    /// Polite to strangers: 1 request/s at first, never more than 10, four in flight, and never
    /// busier with us than with everybody else.
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
        }
    }

    /// For an API whose limit is ours to use: no politeness cap.
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

    /// Under another law, with as many in flight as suit it: one that does not learn how many a
    /// host takes at once is held to four.
    #[must_use]
    pub fn with_law(mut self, law: LawConfig) -> Self {
        if !matches!(law, LawConfig::Discover(_)) {
            self.limits.in_flight = self.limits.in_flight.min(IN_FLIGHT_STRANGER);
        }
        self.law = law;
        self
    }

    /// A fixed rate, requests per second, any number under way, and nothing learned.
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
    /// The first that breaks its rule.
    pub fn validate(&self) -> Result<(), InvalidConfig> {
        let limits = &self.limits;
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
        check("lease", self.lease.as_secs_f64(), "above 0 s", |x| x > 0.0)?;
        check(
            "backoff_max",
            self.backoff_max.as_secs_f64(),
            "at least 0.1 s",
            |x| x >= BACKOFF_MIN.as_secs_f64(),
        )?;
        if let Refill::Interval(period) = limits.refill {
            check("refill interval", period.as_secs_f64(), "above 0 s", |x| {
                x > 0.0
            })?;
        }
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

    #[inline]
    pub(crate) fn byte_rate(&self) -> Option<Rate> {
        let per_s = self.limits.bytes_per_s;
        per_s.is_finite().then_some(Rate {
            per_s,
            burst: per_s,
            refill: Refill::Continuous,
        })
    }
}

impl Limits {
    /// What a law begins with, and all that one without an opinion asks for.
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
