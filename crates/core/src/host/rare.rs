//! What few keys have at a time: trouble, an operator's number, a byte budget.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::crawl_delay::{CRAWL_DELAY_MAX, Pause};
use super::evidence::Evidence;
use super::{Event, Host, Reason};
use crate::config::{Config, InvalidConfig, check};
use crate::control::LawChoice;
use crate::gate::{Breaker, Pace, Rate};
use crate::signal::Signal;
use crate::{Rng, Timestamp};

/// What an operator set for one key, or sets: then infinity, and [`u32::MAX`] in flight, take a number back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OperatorNumbers {
    /// Requests per second, above 0.
    pub rate: Option<f64>,
    /// Requests that may leave back to back after a rest, at least 1.
    pub burst: Option<f64>,
    /// Requests under way at once, at least 1.
    pub in_flight: Option<u32>,
    /// The key's own law; [`LawChoice::Configured`] takes it back.
    #[serde(skip)]
    pub law: Option<LawChoice>,
    /// `false` keeps the law where it stands; `true` takes that back.
    #[serde(skip)]
    pub learn: Option<bool>,
    /// The Crawl-delay in place of the one that workers tell, milliseconds. Zero is none;
    /// [`u32::MAX`] takes it back.
    #[serde(skip)]
    pub crawl_delay_ms: Option<u32>,
}

impl OperatorNumbers {
    /// A rate and a burst.
    pub const fn rate(rate: f64, burst: f64) -> Self {
        Self {
            rate: Some(rate),
            burst: Some(burst),
            in_flight: None,
            law: None,
            learn: None,
            crawl_delay_ms: None,
        }
    }

    /// [`Host::set`] clamps what makes no sense; who would rather be told asks here.
    ///
    /// # Errors
    /// The first number that makes no sense.
    pub fn validate(self) -> Result<(), InvalidConfig> {
        let (rate, burst) = (self.rate.unwrap_or(1.0), self.burst.unwrap_or(1.0));
        check("rate", rate, "a number above 0", |x| x > 0.0)?;
        check("burst", burst, "at least 1", |x| x >= 1.0)?;
        let in_flight = f64::from(self.in_flight.unwrap_or(1));
        check("in_flight", in_flight, "at least 1", |x| x >= 1.0)
    }

    /// These, and where one is absent that of `before`; nothing if all were taken back.
    pub(super) fn over(self, before: Self) -> Option<Self> {
        let number = |set: Option<f64>, before: Option<f64>, least: f64| {
            let set = set.filter(|number| !number.is_nan()).or(before);
            let set = set.filter(|number| *number < f64::INFINITY);
            set.map(|number| number.max(least))
        };
        let in_flight = self.in_flight.or(before.in_flight);
        let now = Self {
            rate: number(self.rate, before.rate, RATE_MIN),
            burst: number(self.burst, before.burst, 1.0),
            in_flight: in_flight
                .filter(|cap| *cap < u32::MAX)
                .map(|cap| cap.max(1)),
            law: (self.law.or(before.law)).filter(|law| *law != LawChoice::Configured),
            learn: self.learn.or(before.learn).filter(|learn| !learn),
            crawl_delay_ms: (self.crawl_delay_ms.or(before.crawl_delay_ms))
                .filter(|ms| *ms < u32::MAX)
                .map(|ms| ms.min(CRAWL_DELAY_MAX.as_millis() as u32)),
        };
        (now != Self::default()).then_some(now)
    }
}

/// Nobody means a slower one, requests per second: one in twelve days.
const RATE_MIN: f64 = 1e-6;

/// What few keys have at a time: kept apart, so that the many stay small.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Rare {
    pub(super) breaker: Breaker,
    pub(super) quarantine: Breaker,
    pub(super) event: Event,
    pub(super) operator: Option<OperatorNumbers>,
    pub(super) bytes: Option<Pace>,
    /// Failures of single URLs, since the first report of one. Written as `pause` is.
    #[serde(skip)]
    pub(super) evidence: Option<Box<Evidence>>,
    /// Written before the other fields, see [`super::Host::snapshot`].
    #[serde(skip)]
    pub(super) pause: Option<Pause>,
    /// Outcomes of requests are reported to this key. Written before the other fields too.
    #[serde(skip)]
    pub(super) has_outcomes: bool,
}

impl Rare {
    /// Is this request the probe of a breaker or of the quarantine?
    pub(super) fn check(&self, now: Timestamp) -> Result<bool, (Timestamp, Reason)> {
        let quarantine = self
            .quarantine
            .check(now)
            .map_err(|at| (at, Reason::Quarantine))?;
        let breaker = self
            .breaker
            .check(now)
            .map_err(|at| (at, Reason::Breaker))?;
        Ok(quarantine || breaker)
    }

    pub(super) fn probe_sent(&mut self) {
        for breaker in [&mut self.quarantine, &mut self.breaker] {
            if breaker.open_until().is_some() {
                breaker.probe_sent();
            }
        }
    }

    /// A refusal lowers the rate and fails a probe, but is no failure; a block page is the quarantine's.
    pub(super) fn trouble(
        &mut self,
        now: Timestamp,
        probe: bool,
        signal: Signal,
        config: &Config,
        rng: &mut Rng,
    ) {
        if self.breaker.listens(probe) {
            match signal {
                Signal::RateLimited => self.breaker.probe_refused(now, &config.breaker, rng),
                Signal::Blocked => self.breaker.probe_lost(),
                _ => _ = self.breaker.failure(now, &config.breaker, rng),
            }
        }
        if self.quarantine.listens(probe) {
            match signal {
                Signal::RateLimited => self.quarantine.probe_refused(now, &config.quarantine, rng),
                Signal::Blocked => _ = self.quarantine.failure(now, &config.quarantine, rng),
                // Answered, if badly: not blocked.
                Signal::Ok | Signal::UrlError => self.quarantine.success(),
                Signal::Overloaded | Signal::Unreachable => self.quarantine.probe_lost(),
            }
        }
    }

    pub(super) fn success(&mut self, probe: bool) {
        for breaker in [&mut self.quarantine, &mut self.breaker] {
            if breaker.listens(probe) {
                breaker.success();
            }
        }
    }

    pub(super) fn is_forgettable(&self) -> bool {
        self.breaker.open_until().is_none()
            && self.quarantine.open_until().is_none()
            && self.operator.is_none()
    }
}

impl Host {
    /// Goes on under `new` instead of `old`, at the rate that is due from now on; its law goes on with what it learned, or begins
    /// anew if it is another.
    pub fn reconfigure(&mut self, now: Timestamp, old: &Config, new: &Config) {
        let before = self.bounds(now, old).rate;
        let was_full = self.pace.is_full(now, &before);
        self.adopt_law(now, Duration::ZERO, new);
        let evidence = self.rare.as_mut().and_then(|rare| rare.evidence.as_mut());
        if let Some(evidence) = evidence {
            evidence.keep_cuts();
        }
        let after = self.bounds(now, new).rate;
        self.pace.change(now, &before, &after);
        if was_full {
            self.pace.fill(now, &after);
        }
    }

    /// The law of this key under `config`: the operator's choice, or the configured one.
    pub(super) fn adopt_law(&mut self, now: Timestamp, set_back: Duration, config: &Config) {
        let choice = self.operator_numbers().law.unwrap_or_default();
        let law = choice.config(&config.law);
        self.law.adopt(&law, &config.limits, now, set_back);
    }

    /// Whether outcomes move this key's limits. If not, an operator's number is the limit itself.
    #[inline]
    pub(super) fn learns(&self) -> bool {
        let rare = self.rare.as_ref();
        self.law.learns()
            && rare.is_none_or(|rare| {
                let frozen = rare.operator.is_some_and(|set| set.learn == Some(false));
                rare.has_outcomes && !frozen
            })
    }

    /// A request whose outcome this key will learn from: the operator's numbers bound its law from now on.
    #[inline]
    pub(super) fn expect_outcomes(&mut self, now: Timestamp, config: &Config) {
        if let Some(rare) = &self.rare
            && rare.operator.is_some()
            && !rare.has_outcomes
        {
            self.begin_to_learn(now, config);
        }
    }

    #[cold]
    fn begin_to_learn(&mut self, now: Timestamp, config: &Config) {
        let old = self.bounds(now, config).rate;
        self.rare().has_outcomes = true;
        let new = self.bounds(now, config).rate;
        self.pace.change(now, &old, &new);
    }

    /// Whether outcomes were reported to this key, as far as its state tells.
    pub(super) fn has_learned(&self) -> bool {
        let event = self.rare.as_ref().map(|rare| rare.event);
        self.latency.p50().is_some() || event.is_some_and(|event| event != Event::default())
    }

    #[inline]
    pub(super) fn charge_bytes(&mut self, now: Timestamp, bytes: u64, config: &Config) {
        if let Some((pace, rate)) = self.bytes(now, config) {
            pace.charge(now, &rate, bytes as f64);
        }
    }

    #[inline]
    pub(super) fn bytes(&mut self, now: Timestamp, config: &Config) -> Option<(&mut Pace, Rate)> {
        let rate = config.byte_rate()?;
        let full = || Pace::full(now, &rate);
        Some((self.rare().bytes.get_or_insert_with(full), rate))
    }

    pub(super) fn probe_returned(&mut self) {
        if !self.leases.probing() {
            self.probe_lost();
        }
    }

    /// Call it if no other is under way, as one may be after a [`Host::join`].
    pub(super) fn probe_lost(&mut self) {
        if let Some(rare) = &mut self.rare {
            rare.breaker.probe_lost();
            rare.quarantine.probe_lost();
        }
    }
}
