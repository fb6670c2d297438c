//! State that few keys have at a time: trouble, an operator's number, a byte budget.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::budgets::Estimate;
use super::crawl_delay::{CRAWL_DELAY_MAX, Pause};
use super::evidence::Evidence;
use super::rule::RuleState;
use super::suspicion::{RESTS, Suspicion};
use super::told::ToldBudget;
use super::{Event, Host, Reason};
use crate::budget::{DeclaredLimits, Spent};
use crate::config::{Config, InvalidConfig, Limits, check};
use crate::control::LawChoice;
use crate::gate::{Breaker, BreakerConfig, Pace, Rate};
use crate::lock::{LockOp, Locks, SessionId};
use crate::signal::Signal;
use crate::{Rng, Timestamp};

/// The numbers that an operator set for one key, or is about to set. In a new setting, infinity and
/// a cap of [`u32::MAX`] remove a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OperatorNumbers {
    /// Requests per second, above 0.
    pub rate: Option<f64>,
    /// Requests that may leave back to back after a rest, at least 1.
    pub burst: Option<f64>,
    /// Requests in flight at once, at least 1.
    pub in_flight: Option<u32>,
    /// The key's own law. [`LawChoice::Configured`] removes it.
    #[serde(skip)]
    pub law: Option<LawChoice>,
    /// `false` freezes the law; `true` removes that setting.
    #[serde(skip)]
    pub learn: Option<bool>,
    /// The Crawl-delay in place of the one that workers report, milliseconds. Zero means no delay;
    /// [`u32::MAX`] removes the number.
    #[serde(skip)]
    pub crawl_delay_ms: Option<u32>,
}

impl OperatorNumbers {
    /// Returns a rate and a burst.
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

    /// Checks the numbers. [`Host::set`] clamps invalid ones without an error.
    ///
    /// # Errors
    /// The first invalid number.
    pub fn validate(self) -> Result<(), InvalidConfig> {
        let (rate, burst) = (self.rate.unwrap_or(1.0), self.burst.unwrap_or(1.0));
        check("rate", rate, "a number above 0", |x| x > 0.0)?;
        check("burst", burst, "at least 1", |x| x >= 1.0)?;
        let in_flight = f64::from(self.in_flight.unwrap_or(1));
        check("in_flight", in_flight, "at least 1", |x| x >= 1.0)
    }

    /// Returns these numbers, with those of `before` where one is absent. Returns `None` if all
    /// were removed.
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

/// The lowest rate that an operator can set, requests per second: one in twelve days.
const RATE_MIN: f64 = 1e-6;

/// State that few keys have at a time. It is boxed, so that most keys stay small.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Rare {
    pub(super) breaker: Breaker,
    pub(super) quarantine: Breaker,
    pub(super) event: Event,
    pub(super) operator: Option<OperatorNumbers>,
    pub(super) bytes: Option<Pace>,
    /// The quantities spent of the declared limits, since the first request under one.
    pub(super) spent: Option<Box<Spent>>,
    /// The estimates of permits that are not settled.
    pub(super) estimates: Vec<Estimate>,
    /// The limits that an operator declared for this key, in place of the configured ones.
    /// Serialised like `pause`.
    #[serde(skip)]
    pub(super) declared: Option<DeclaredLimits>,
    /// Whether a rule of a policy declared them, and no operator. Serialised with them.
    #[serde(skip)]
    pub(super) is_by_rule: bool,
    /// Whether the key learns, and its gaps, if a rule says so. Serialised like `pause`.
    #[serde(skip)]
    pub(super) rule: Option<RuleState>,
    /// Failures of single URLs, since the first report of one. Serialised like `pause`.
    #[serde(skip)]
    pub(super) evidence: Option<Box<Evidence>>,
    /// Whether the host refuses everything, since the first odd answer. Serialised like `pause`.
    #[serde(skip)]
    pub(super) suspicion: Option<Box<Suspicion>>,
    /// The Crawl-delay. Serialised before the other fields, see [`super::Host::snapshot`].
    #[serde(skip)]
    pub(super) pause: Option<Pause>,
    /// The quotas of tokens, points and the like that the server stated. Serialised like `pause`.
    #[serde(skip)]
    pub(super) told: Vec<ToldBudget>,
    /// Whether outcomes of requests are reported to this key. Serialised before the other fields
    /// too.
    #[serde(skip)]
    pub(super) has_outcomes: bool,
    /// The cohort of keys that this key belongs to. Serialised before the other fields too.
    #[serde(skip)]
    pub(super) cohort: u32,
    /// The locks of the key, since the first one. Serialised before the other fields too.
    #[serde(skip)]
    pub(super) locks: Option<Box<Locks>>,
}

impl Rare {
    /// Returns whether this request is the probe of the breaker or of the quarantine.
    ///
    /// # Errors
    /// When to ask again, and which of the two is open.
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

    /// Updates the breaker and the quarantine after a failure. A refusal lowers the rate and fails
    /// a probe, but it is no failure to the breaker. A block page counts for the quarantine alone.
    pub(super) fn trouble(
        &mut self,
        now: Timestamp,
        probe: bool,
        signal: Signal,
        config: &Config,
        rng: &mut Rng,
    ) {
        let is_suspected = self.is_suspected();
        let breaker = &self.breaker_config(config);
        let quarantine = if is_suspected {
            &RESTS
        } else {
            &config.quarantine
        };
        if self.breaker.listens(probe) {
            match signal {
                Signal::RateLimited => self.breaker.probe_refused(now, breaker, rng),
                Signal::Blocked => self.breaker.probe_lost(),
                _ => _ = self.breaker.failure(now, breaker, rng),
            }
        }
        if self.quarantine.listens(probe) {
            match signal {
                Signal::RateLimited => self.quarantine.probe_refused(now, quarantine, rng),
                Signal::Blocked => _ = self.quarantine.failure(now, quarantine, rng),
                // The suspicion has decided.
                Signal::Ok | Signal::UrlError if is_suspected => {}
                // The host answered, though with an error, so it does not block.
                Signal::Ok | Signal::UrlError => self.quarantine.success(),
                Signal::Overloaded | Signal::Unreachable => self.quarantine.probe_lost(),
            }
        }
    }

    /// Returns when the breaker trips, and how long it rests.
    pub(super) fn breaker_config(&self, config: &Config) -> BreakerConfig {
        let by_rule = (self.rule.as_ref()).and_then(|rule| rule.trouble().breaker);
        by_rule.unwrap_or(config.breaker)
    }

    /// Returns whether the host is suspected of refusing everything.
    fn is_suspected(&self) -> bool {
        (self.suspicion.as_ref()).is_some_and(|suspicion| suspicion.is_active())
    }

    pub(super) fn success(&mut self, probe: bool) {
        if self.breaker.listens(probe) {
            self.breaker.success();
        }
        if self.quarantine.listens(probe) && !self.is_suspected() {
            self.quarantine.success();
        }
    }

    pub(super) fn is_forgettable(&self) -> bool {
        self.breaker.open_until().is_none()
            && self.quarantine.open_until().is_none()
            && self.operator.is_none()
            && (self.declared.is_none() || self.is_by_rule)
    }
}

impl Host {
    /// Changes the key's locks at `now`.
    pub fn lock(&mut self, now: Timestamp, op: &LockOp) {
        let has_locks = self.locks().is_some();
        if has_locks || matches!(op, LockOp::Claim { .. }) {
            let locks = self.rare().locks.get_or_insert_default();
            locks.apply(now, op);
        }
    }

    /// Returns the key's locks, or `None` if it never had one.
    pub fn locks(&self) -> Option<&Locks> {
        self.rare.as_ref()?.locks.as_deref()
    }

    /// Ends all locks of the key. Later fencing numbers are larger.
    pub fn forget_locks(&mut self) {
        self.resume_locks(Timestamp::ZERO, |_| None);
    }

    /// Continues the key's locks after a restart, see [`Locks::resume`].
    pub fn resume_locks(
        &mut self,
        now: Timestamp,
        lasts: impl FnMut(SessionId) -> Option<Duration>,
    ) {
        let locks = self.rare.as_mut().and_then(|rare| rare.locks.as_mut());
        if let Some(locks) = locks {
            locks.resume(now, lasts);
        }
    }

    /// Switches from `old` to `new`, at the rate that is in force from now on. The law keeps what
    /// it learned, or starts anew if it is another law.
    pub fn reconfigure(&mut self, now: Timestamp, old: &Config, new: &Config) {
        if old.law == new.law && self.limits(old) == self.limits(new) {
            return;
        }
        let before = self.bounds(now, old).rate;
        let was_full = self.pace.is_full(now, &before);
        self.adopt_law(now, Duration::ZERO, new);
        let evidence = self.rare.as_mut().and_then(|rare| rare.evidence.as_mut());
        if let Some(evidence) = evidence {
            evidence.keep_cuts();
        }
        let after = self.bounds(now, new).rate;
        self.pace.change(now, &before, &after, self.last_grant);
        if was_full {
            self.pace.fill(now, &after);
        }
    }

    /// Returns the number of the key's cohort.
    #[inline]
    pub(super) fn cohort(&self) -> u32 {
        self.rare.as_ref().map_or(0, |rare| rare.cohort)
    }

    /// Returns the limits of the key's cohort.
    #[inline]
    pub fn limits<'a>(&self, config: &'a Config) -> &'a Limits {
        config.limits_of(self.cohort())
    }

    /// Switches to the law of this key under `config`.
    pub(super) fn adopt_law(&mut self, now: Timestamp, set_back: Duration, config: &Config) {
        let law = self.law_config(config);
        let limits = config.limits_of(self.cohort());
        self.law.adopt(&law, limits, now, set_back);
        let evidence = self.rare.as_mut().and_then(|rare| rare.evidence.as_mut());
        if let Some(evidence) = evidence {
            evidence.adopt(|before| before.adopt(&law, limits, now, set_back));
        }
    }

    /// Returns whether outcomes move this key's limits. If not, an operator's number is the limit
    /// itself.
    #[inline]
    pub(super) fn learns(&self) -> bool {
        let rare = self.rare.as_ref();
        self.law.learns()
            && rare.is_none_or(|rare| {
                let is_frozen = rare.operator.is_some_and(|set| set.learn == Some(false));
                rare.has_outcomes && !is_frozen
            })
    }

    /// Notes a request whose outcome this key will learn from. From now on the operator's numbers
    /// are bounds of the law.
    #[inline]
    pub(super) fn expect_outcomes(&mut self, now: Timestamp, config: &Config) {
        if let Some(rare) = &self.rare
            && (rare.operator.is_some() || rare.declared.is_some())
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
        self.pace.change(now, &old, &new, self.last_grant);
    }

    /// Returns whether outcomes were reported to this key, as far as its state shows.
    pub(super) fn has_learned(&self) -> bool {
        let event = self.rare.as_ref().map(|rare| rare.event);
        self.latency.p50().is_some() || event.is_some_and(|event| event != Event::default())
    }

    /// Charges the bytes of a response.
    #[inline]
    pub(super) fn charge_bytes(&mut self, now: Timestamp, bytes: u64, config: &Config) {
        self.charge_budget_bytes(now, bytes, config);
        self.charge_byte_rate(now, bytes, config);
    }

    #[inline]
    pub(super) fn charge_byte_rate(&mut self, now: Timestamp, bytes: u64, config: &Config) {
        if let Some((pace, rate)) = self.bytes(now, config) {
            pace.charge(now, &rate, bytes as f64);
        }
    }

    #[inline]
    pub(super) fn bytes(&mut self, now: Timestamp, config: &Config) -> Option<(&mut Pace, Rate)> {
        let rate = self.limits(config).byte_rate()?;
        let full = || Pace::full(now, &rate);
        Some((self.rare().bytes.get_or_insert_with(full), rate))
    }

    /// Returns how often the quarantine was opened since it was last closed.
    pub(super) fn quarantines(&self) -> u8 {
        self.rare.as_ref().map_or(0, |rare| rare.quarantine.rests())
    }

    pub(super) fn probe_returned(&mut self) {
        if !self.leases.probing() {
            self.probe_lost();
        }
    }

    /// Notes that no probe is under way. After a [`Host::join`] another one may be; check before
    /// the call.
    pub(super) fn probe_lost(&mut self) {
        if let Some(rare) = &mut self.rare {
            rare.breaker.probe_lost();
            rare.quarantine.probe_lost();
        }
    }
}
