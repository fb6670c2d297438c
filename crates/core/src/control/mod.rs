//! Control laws: they compute a key's limits from the outcomes of its requests.
//!
//! A [`Law`] receives every outcome as a [`Sample`] and returns a [`Setpoint`]. It never sends,
//! waits or reads a clock. The gates, the profile and the operator may allow less than the
//! setpoint.
//!
//! | law | what it does |
//! | --- | --- |
//! | [`Discover`] | finds an unpublished limit and stays just below it: the default |
//! | [`Fixed`] | keeps the configured rate |
//! | [`Aimd`] | raises the rate in small steps and cuts it once per congestion event |
//! | [`Advice`] | keeps the configured rate and computes a suggestion |

mod advice;
mod aimd;
mod discover;
mod fixed;
mod latency;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use advice::{Advice, AdviceConfig};
pub use aimd::{Aimd, AimdConfig};
pub use discover::{Discover, DiscoverConfig, Mechanism};
pub use fixed::Fixed;
pub use latency::Latency;

use crate::config::Limits;
use crate::signal::{Quota, Signal};
use crate::{Timestamp, join};

/// The limits that a law asks for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setpoint {
    /// Requests per second.
    pub rate: f64,
    /// Requests that may leave back to back after an idle time.
    pub burst: f64,
    /// The most requests in flight.
    pub in_flight: u32,
}

/// One outcome, as a law sees it.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// When the outcome became known.
    pub now: Timestamp,
    /// When the request was sent. A law that has reacted to an event ignores requests that were
    /// sent before its reaction.
    pub sent: Timestamp,
    /// The meaning of the outcome.
    pub signal: Signal,
    /// Whether the failure is of a kind that no limit causes: a gateway's status, a broken
    /// connection or a time-out.
    pub is_trouble: bool,
    /// Whether this is the first outcome of a new congestion event: its permit was granted after
    /// the previous event was noticed.
    pub fresh: bool,
    /// When the last event was noticed.
    pub last_event: Timestamp,
    /// Number of events since the last success, this one not included.
    pub refused_in_a_row: u16,
    /// Whether the law's rate set the pace, not the demand or another limit. An application-limited
    /// key learns nothing.
    pub pressed: bool,
    /// Time from sending the request to the head of the response.
    pub latency: Duration,
    /// Number of other requests in flight when the request was sent.
    pub beside: u16,
    /// The server's Retry-After.
    pub retry_after: Option<Duration>,
    /// The quotas that the response announced.
    pub quotas: &'a [Quota],
    /// The key's latencies so far, including this one.
    pub latencies: &'a Latency,
}

/// The values of a law for pages and plots.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Metrics {
    /// The learned ceiling, requests per second, if one is known.
    pub ceiling: Option<f64>,
    /// The rate that the law suggests to an operator, in requests per second.
    pub suggested: Option<f64>,
    /// Number of cuts so far.
    pub cuts: u32,
    /// The share of requests that fail whatever the rate, 0 to 1, if any do.
    pub noise: Option<f64>,
}

/// A control law: object-safe and pure, with one instance per key.
pub trait Law: fmt::Debug + Send {
    /// Learns from one outcome.
    fn on_sample(&mut self, sample: &Sample<'_>);

    /// Returns the setpoint at `now`. `limits` provides the values that the law does not control.
    fn setpoint(&mut self, now: Timestamp, limits: &Limits) -> Setpoint;

    /// Returns the time of the next canary, after a refusal without a Retry-After. The canary is
    /// the single request that tests whether the host serves again. `None` leaves the time to the
    /// host's backoff.
    fn rest_until(&self) -> Option<Timestamp> {
        None
    }

    /// Returns the values for pages and plots.
    fn metrics(&self) -> Metrics;
}

/// The choice of a law, with its constants.
#[derive(Clone, Debug, PartialEq)]
pub enum LawConfig {
    /// [`Fixed`] at the configured start rate.
    Fixed,
    /// [`Aimd`].
    Aimd(Arc<AimdConfig>),
    /// [`Advice`].
    Advice(Arc<AdviceConfig>),
    /// [`Discover`].
    Discover(Arc<DiscoverConfig>),
}

impl FromStr for LawConfig {
    type Err = UnknownLaw;

    fn from_str(name: &str) -> Result<Self, UnknownLaw> {
        match name {
            "fixed" => Ok(Self::Fixed),
            "aimd" => Ok(Self::Aimd(Arc::default())),
            "discover" => Ok(Self::Discover(Arc::default())),
            "advice" => Ok(Self::Advice(Arc::default())),
            _ => (name.strip_prefix("discover-without-"))
                .and_then(|without| Mechanism::ALL.iter().find(|(known, _)| *known == without))
                .map(|&(_, mechanism)| {
                    Self::Discover(Arc::new(DiscoverConfig {
                        without: Some(mechanism),
                        ..DiscoverConfig::default()
                    }))
                })
                .ok_or_else(|| UnknownLaw(name.to_owned())),
        }
    }
}

/// An operator's choice of a law for one key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LawChoice {
    /// The law that is configured for all keys.
    #[default]
    Configured,
    /// [`Discover`].
    Discover,
    /// [`Aimd`].
    Aimd,
    /// [`Advice`].
    Advice,
    /// [`Fixed`].
    Fixed,
}

impl LawChoice {
    const ALL: [(Self, &str); 4] = [
        (Self::Discover, "discover"),
        (Self::Aimd, "aimd"),
        (Self::Advice, "advice"),
        (Self::Fixed, "fixed"),
    ];

    /// Returns the law's name, as [`LawConfig`] parses it; `None` for the configured one.
    pub fn name(self) -> Option<&'static str> {
        let mut all = Self::ALL.into_iter();
        all.find(|(law, _)| *law == self).map(|(_, name)| name)
    }

    /// Returns the choice's number in an encoded state. 0 is the configured law.
    pub(crate) const fn number(self) -> u8 {
        self as u8
    }

    pub(crate) fn of_number(number: u8) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|(law, _)| law.number() == number)
            .map(|(law, _)| law)
    }

    /// Returns the chosen law. It has the constants of `configured` if that is the same law.
    pub(crate) fn config(self, configured: &LawConfig) -> LawConfig {
        match (self, configured) {
            (Self::Configured, _)
            | (Self::Discover, LawConfig::Discover(_))
            | (Self::Aimd, LawConfig::Aimd(_))
            | (Self::Advice, LawConfig::Advice(_)) => configured.clone(),
            (Self::Discover, _) => LawConfig::Discover(Arc::default()),
            (Self::Aimd, _) => LawConfig::Aimd(Arc::default()),
            (Self::Advice, _) => LawConfig::Advice(Arc::default()),
            (Self::Fixed, _) => LawConfig::Fixed,
        }
    }
}

impl FromStr for LawChoice {
    type Err = UnknownLaw;

    fn from_str(name: &str) -> Result<Self, UnknownLaw> {
        let mut all = Self::ALL.into_iter();
        let known = all.find(|(_, known)| *known == name);
        known
            .map(|(law, _)| law)
            .ok_or_else(|| UnknownLaw(name.to_owned()))
    }
}

/// The error for a name that no law has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown law {0:?}: choose discover, aimd, fixed or advice")]
pub struct UnknownLaw(String);

/// The law of one key. Its state is stored inline, so that most keys need no allocation for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum KeyLaw {
    /// See [`Fixed`].
    Fixed(Fixed),
    /// See [`Aimd`].
    Aimd(Aimd),
    /// See [`Advice`].
    Advice(Advice),
    /// See [`Discover`].
    Discover(Discover),
}

impl KeyLaw {
    /// Creates the configured law in its initial state.
    pub fn new(config: &LawConfig, limits: &Limits, now: Timestamp) -> Self {
        let start = limits.start();
        match config {
            LawConfig::Fixed => Self::Fixed(Fixed),
            LawConfig::Aimd(config) => Self::Aimd(Aimd::new(Arc::clone(config), start.rate, now)),
            LawConfig::Advice(config) => Self::Advice(Advice::new(Arc::clone(config), start.rate)),
            LawConfig::Discover(config) => {
                Self::Discover(Discover::new(Arc::clone(config), start.rate, now))
            }
        }
    }

    /// Returns whether outcomes change the setpoint. If not, the rate is a configured number.
    pub(crate) const fn learns(&self) -> bool {
        match self {
            Self::Fixed(_) | Self::Advice(_) => false,
            Self::Aimd(_) | Self::Discover(_) => true,
        }
    }

    /// Returns the law's name, as [`LawConfig`] parses it.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Fixed(_) => "fixed",
            Self::Aimd(_) => "aimd",
            Self::Advice(_) => "advice",
            Self::Discover(_) => "discover",
        }
    }

    /// Returns whether a quota of requests stops the key until the quota's reset. The server may
    /// not have counted the `under_way` requests yet.
    pub(crate) fn stops_at(&self, quota: &Quota, under_way: u64) -> bool {
        match self {
            Self::Discover(law) => law.stops_at(quota, under_way),
            _ => (quota.remaining).is_some_and(|left| left <= under_way),
        }
    }

    /// Adapts a restored law to `config`, because the constants are not part of the state. All its
    /// times move back by `set_back`, the time by which the clock was set back.
    ///
    /// If the state is implausible or belongs to another law, the configured law starts anew.
    pub fn adopt(
        &mut self,
        config: &LawConfig,
        limits: &Limits,
        now: Timestamp,
        set_back: Duration,
    ) {
        match (&mut *self, config) {
            (Self::Aimd(law), LawConfig::Aimd(config)) if law.plausible() => {
                law.adopt(config, set_back);
            }
            (Self::Advice(law), LawConfig::Advice(config)) if law.plausible() => law.adopt(config),
            (Self::Discover(law), LawConfig::Discover(config)) if law.plausible() => {
                law.adopt(config, set_back);
            }
            (Self::Fixed(_), LawConfig::Fixed) => {}
            _ => *self = Self::new(config, limits, now),
        }
    }

    /// Merges `other`, a continuation of the same earlier state. The slower law wins.
    pub(crate) fn join(&mut self, other: &Self, now: Timestamp, limits: &Limits) {
        if let (Self::Discover(mine), Self::Discover(theirs)) = (&mut *self, other) {
            return mine.join(theirs, now);
        }
        // Rates are not negative. The bits of such floats have the same order as their values.
        join::least(self, other, |law| {
            law.clone().setpoint(now, limits).rate.to_bits()
        });
    }
}

impl Law for KeyLaw {
    #[inline]
    fn on_sample(&mut self, sample: &Sample<'_>) {
        match self {
            Self::Fixed(law) => law.on_sample(sample),
            Self::Aimd(law) => law.on_sample(sample),
            Self::Advice(law) => law.on_sample(sample),
            Self::Discover(law) => law.on_sample(sample),
        }
    }

    #[inline(always)]
    fn setpoint(&mut self, now: Timestamp, limits: &Limits) -> Setpoint {
        match self {
            Self::Fixed(law) => law.setpoint(now, limits),
            Self::Aimd(law) => law.setpoint(now, limits),
            Self::Advice(law) => law.setpoint(now, limits),
            Self::Discover(law) => law.setpoint(now, limits),
        }
    }

    fn rest_until(&self) -> Option<Timestamp> {
        match self {
            Self::Discover(law) => law.rest_until(),
            _ => None,
        }
    }

    fn metrics(&self) -> Metrics {
        match self {
            Self::Fixed(law) => law.metrics(),
            Self::Aimd(law) => law.metrics(),
            Self::Advice(law) => law.metrics(),
            Self::Discover(law) => law.metrics(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the outcome of a request that was sent at `now_s` and answered at once. It is the
    /// first of its congestion event, and the key is not application-limited.
    pub(super) fn sample(now_s: f64, signal: Signal) -> Sample<'static> {
        let now = Timestamp::from_secs_f64(now_s);
        Sample {
            now,
            sent: now,
            signal,
            is_trouble: false,
            fresh: true,
            last_event: Timestamp::ZERO,
            refused_in_a_row: 0,
            pressed: true,
            latency: Duration::ZERO,
            beside: 0,
            retry_after: None,
            quotas: &[],
            latencies: Box::leak(Box::default()),
        }
    }

    #[test]
    fn an_unknown_law_is_named() {
        assert_eq!(
            "vegas".parse::<LawConfig>().unwrap_err().to_string(),
            "unknown law \"vegas\": choose discover, aimd, fixed or advice"
        );
    }
}
