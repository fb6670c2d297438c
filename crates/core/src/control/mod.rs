//! What should the limits be?
//!
//! A [`Law`] hears of every outcome ([`Sample`]) and asks for a [`Setpoint`]. It never sends, waits
//! or looks at a clock; whether its wish is granted is for the gates, the profile and the operator
//! to say.
//!
//! | law | what it does |
//! | --- | --- |
//! | [`Discover`] | finds the limit nobody publishes and rides just below it: the default |
//! | [`Fixed`] | keeps the rate it was given |
//! | [`Aimd`] | climbs by small steps, cuts once per congestion event |
//! | [`Advice`] | keeps the rate it was given and says what it would suggest |

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

/// What a law asks for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setpoint {
    /// Requests per second.
    pub rate: f64,
    /// Requests that may leave back to back after a rest.
    pub burst: f64,
    /// Requests under way at once.
    pub in_flight: u32,
}

/// One outcome, as a law sees it.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// When the outcome became known.
    pub now: Timestamp,
    /// When its request was sent. A law that reacts to an event ignores what was sent before its
    /// reaction.
    pub sent: Timestamp,
    /// What it means.
    pub signal: Signal,
    /// Whether no limit refuses in this way: a gateway's status, a broken connection or a time-out.
    pub is_trouble: bool,
    /// The first outcome of its congestion event: its permit was granted after the last one was
    /// noticed.
    pub fresh: bool,
    /// When the last event was noticed.
    pub last_event: Timestamp,
    /// Events just before this one with no success in between.
    pub refused_in_a_row: u16,
    /// Whether the key was not application-limited since the request was sent: the limit, not the
    /// demand, set the pace. A key that idles learns nothing.
    pub pressed: bool,
    /// From sending to the response's head.
    pub latency: Duration,
    /// Requests under way beside it when it was sent.
    pub beside: u16,
    /// How long the server asked to be left alone.
    pub retry_after: Option<Duration>,
    /// What the server said of its quotas.
    pub quotas: &'a [Quota],
    /// This key's latencies so far, this one included.
    pub latencies: &'a Latency,
}

/// What a law would show on a page or plot.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Metrics {
    /// The learned ceiling, requests per second, if one is known.
    pub ceiling: Option<f64>,
    /// The rate it would suggest to an operator.
    pub suggested: Option<f64>,
    /// Cuts so far.
    pub cuts: u32,
}

/// A control law: object-safe, pure, one per key.
pub trait Law: fmt::Debug + Send {
    /// Hears what happened.
    fn on_sample(&mut self, sample: &Sample<'_>);

    /// What it asks for at `now`. What it has no opinion of is what `limits` starts with.
    fn setpoint(&mut self, now: Timestamp, limits: &Limits) -> Setpoint;

    /// After a refusal that named no time: when the one request goes that asks whether it is over.
    /// `None` leaves it to the host's backoff.
    fn rest_until(&self) -> Option<Timestamp> {
        None
    }

    /// What it would show.
    fn metrics(&self) -> Metrics;
}

/// Which law, with its constants.
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

    /// The law's name, as [`LawConfig`] parses it; `None` for the configured one.
    pub fn name(self) -> Option<&'static str> {
        let mut all = Self::ALL.into_iter();
        all.find(|(law, _)| *law == self).map(|(_, name)| name)
    }

    /// Its number in a state; 0 is the configured one.
    pub(crate) const fn number(self) -> u8 {
        self as u8
    }

    pub(crate) fn of_number(number: u8) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|(law, _)| law.number() == number)
            .map(|(law, _)| law)
    }

    /// The chosen law: with the constants of `configured` where that is the same law.
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

/// No law has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown law {0:?}: choose discover, aimd, fixed or advice")]
pub struct UnknownLaw(String);

/// The law of one key, with its state inline: a million keys are a million small values, not a
/// million allocations.
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
    /// The configured law, at its beginning.
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

    /// Does what happens move its setpoint? If not, somebody's number is the rate.
    pub(crate) const fn learns(&self) -> bool {
        match self {
            Self::Fixed(_) | Self::Advice(_) => false,
            Self::Aimd(_) | Self::Discover(_) => true,
        }
    }

    /// The law's name, as [`LawConfig`] parses it.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Fixed(_) => "fixed",
            Self::Aimd(_) => "aimd",
            Self::Advice(_) => "advice",
            Self::Discover(_) => "discover",
        }
    }

    /// Whether a quota of requests stops the key until its reset, with so many requests under way
    /// that the server may not have counted yet.
    pub(crate) fn stops_at(&self, quota: &Quota, under_way: u64) -> bool {
        match self {
            Self::Discover(law) => law.stops_at(quota, under_way),
            _ => (quota.remaining).is_some_and(|left| left <= under_way),
        }
    }

    /// After a restore: what was learned stands under today's constants, which are no part of the
    /// state; a state of another law than the configured one, or an impossible one, is of no use.
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

    /// The slower of two that were one until some outcomes were lost.
    pub(crate) fn join(&mut self, other: &Self, now: Timestamp, limits: &Limits) {
        if let (Self::Discover(mine), Self::Discover(theirs)) = (&mut *self, other) {
            return mine.join(theirs, now);
        }
        // No rate is below zero, and the bits of such numbers have their order.
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

    /// A fresh, pressed sample sent just before it was heard of.
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
