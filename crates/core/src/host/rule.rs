//! What a rule of a policy sets for a key: declared limits, whether the law learns, the gaps
//! between departures, and the numbers with which the key meets trouble.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{AcquireRequest, Host, Reason, Wait};
use crate::budget::{DeclaredLimit, DeclaredLimits, LimitUnit};
use crate::config::{BACKOFF_MIN, Config};
use crate::control::{AimdConfig, LawChoice, LawConfig};
use crate::gate::{BreakerConfig, LeaseId, Rate};
use crate::{Rng, Timestamp};

/// The longest interval: that of the slowest declared limit.
const INTERVAL_MAX: Duration = Duration::from_hours(366 * 24);

/// What a rule of a policy sets for a key. The default changes nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyRule {
    /// The declared limits, in place of the configured ones.
    pub limits: Option<DeclaredLimits>,
    /// Whether outcomes move the limits. If not, the declared limits are the only ones; holds,
    /// breakers and the in-flight cap after a refusal still apply.
    pub learn: bool,
    /// The gaps between departures, in place of a burst.
    pub spacing: Option<Spacing>,
    /// The numbers with which the key meets trouble.
    pub trouble: TroubleNumbers,
}

/// The numbers with which a key meets trouble, in place of those of its [`Config`]. The default
/// changes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TroubleNumbers {
    /// The share of the rate that remains after a congestion event, above 0 and below 1. The law of
    /// the key is then AIMD, unless an operator chose another one for it.
    pub cut: Option<f64>,
    /// The breaker.
    pub breaker: Option<BreakerConfig>,
    /// The longest backoff of the key, at least 100 ms.
    pub backoff_max: Option<Duration>,
}

/// The gaps between the departures of a key that is always asked. The interval is that of the rate
/// in force, or of the tightest rolling limit of requests if that is longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Spacing {
    /// Each gap is the interval.
    Fixed,
    /// A gap is between one and two intervals, with uniform distribution.
    Uniform,
    /// The interval is the mean gap of an exponential distribution, as in a Poisson process.
    Exponential,
}

/// The part of a [`KeyRule`] that few rules have, and the next departure under its spacing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct RuleState {
    learn: bool,
    spacing: Option<Spacing>,
    /// The numbers with which the key meets trouble, if there are some.
    trouble: Option<Box<TroubleNumbers>>,
    next: Timestamp,
}

impl Default for KeyRule {
    fn default() -> Self {
        Self {
            limits: None,
            learn: true,
            spacing: None,
            trouble: TroubleNumbers::default(),
        }
    }
}

impl TroubleNumbers {
    /// Puts these numbers into a configuration of all keys. The cut has an effect under the law
    /// AIMD alone.
    pub fn put(&self, config: &mut Config) {
        config.breaker = self.breaker.unwrap_or(config.breaker);
        config.backoff_max = self.backoff_max.unwrap_or(config.backoff_max);
        if let LawConfig::Aimd(_) = config.law {
            config.law = self.law(config.law.clone(), LawChoice::Configured);
        }
    }

    /// Returns the law with this cut, in place of `law`, which is by `choice`.
    fn law(&self, law: LawConfig, choice: LawChoice) -> LawConfig {
        let Some(cut) = self.cut else { return law };
        let constants = match &law {
            LawConfig::Aimd(known) => **known,
            _ if choice == LawChoice::Configured => AimdConfig::default(),
            _ => return law,
        };
        LawConfig::Aimd(Arc::new(AimdConfig { cut, ..constants }))
    }
}

impl From<DeclaredLimits> for KeyRule {
    fn from(limits: DeclaredLimits) -> Self {
        Self {
            limits: Some(limits),
            ..Self::default()
        }
    }
}

impl Spacing {
    /// All ways.
    pub const ALL: [Self; 3] = [Self::Fixed, Self::Uniform, Self::Exponential];

    /// Returns the name in a policy.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fixed => "fixed",
            Self::Uniform => "uniform",
            Self::Exponential => "exponential",
        }
    }

    /// Returns one gap. The same lease and start give the same gap in every process.
    fn gap(self, interval: Duration, lease: LeaseId, start: Timestamp) -> Duration {
        let unit = Rng::new(lease.0 ^ start.as_micros().rotate_left(32)).unit();
        match self {
            Self::Fixed => interval,
            Self::Uniform => interval + interval.mul_f64(unit),
            Self::Exponential => interval.mul_f64(-libm::log(1.0 - unit)),
        }
    }
}

impl RuleState {
    /// Returns the state of a key that leaves `set_back` earlier.
    pub(super) fn rebase(&mut self, set_back: Duration) {
        self.next = self.next - set_back;
    }

    /// Merges two states: the later departure counts.
    pub(super) fn join(&mut self, other: &Self) {
        self.next = self.next.max(other.next);
    }

    /// Returns whether a departure at `now` would break no gap.
    pub(super) fn is_past(&self, now: Timestamp) -> bool {
        self.next <= now
    }

    fn settings(&self) -> (bool, Option<Spacing>, TroubleNumbers) {
        (self.learn, self.spacing, self.trouble())
    }

    pub(super) fn trouble(&self) -> TroubleNumbers {
        self.trouble.as_deref().copied().unwrap_or_default()
    }

    /// Returns whether the numbers are within their bounds. Restored bytes may be anything.
    pub(super) fn is_plausible(&self) -> bool {
        self.trouble().cut.is_none_or(|cut| cut > 0.0 && cut < 1.0)
    }
}

impl Host {
    /// Follows the rule that a policy has for this key. `None` if no rule matches it.
    ///
    /// Limits that an operator declared for the key stay.
    pub fn follow_rule(&mut self, now: Timestamp, rule: Option<&KeyRule>, config: &Config) {
        if !self.is_new_rule(rule) {
            return;
        }
        let none = KeyRule::default();
        let KeyRule {
            limits,
            learn,
            spacing,
            trouble,
        } = rule.unwrap_or(&none);
        let is_free = !self.has_operators_limits();
        if is_free && self.own_limits() != limits.as_ref() {
            self.replace_limits(now, limits.clone(), config);
        }
        let has_trouble = *trouble != TroubleNumbers::default();
        if limits.is_none() && spacing.is_none() && *learn && !has_trouble && self.rare.is_none() {
            return;
        }
        let old = self.bounds(now, config).rate;
        let cut = self.trouble_numbers().cut;
        let rare = self.rare();
        if is_free {
            rare.is_by_rule = limits.is_some();
        }
        let next = (rare.rule.as_ref()).map_or(Timestamp::ZERO, |rule| rule.next);
        rare.rule = (spacing.is_some() || !learn || has_trouble).then(|| RuleState {
            learn: *learn,
            spacing: *spacing,
            trouble: has_trouble.then(|| Box::new(*trouble)),
            next,
        });
        if cut != trouble.cut {
            self.adopt_law(now, Duration::ZERO, config);
        }
        let new = self.bounds(now, config).rate;
        self.pace.change(now, &old, &new, self.last_grant);
    }

    /// Returns whether [`Host::follow_rule`] would change anything.
    pub fn is_new_rule(&self, rule: Option<&KeyRule>) -> bool {
        let limits = rule.and_then(|rule| rule.limits.as_ref());
        let none = (true, None, TroubleNumbers::default());
        let told = rule.map_or(none, |rule| (rule.learn, rule.spacing, rule.trouble));
        let known = self.rule().map_or(none, RuleState::settings);
        told != known || !self.has_operators_limits() && self.own_limits() != limits
    }

    /// Returns whether an operator declared limits for this key, and not a rule.
    pub(super) fn has_operators_limits(&self) -> bool {
        let rare = self.rare.as_ref();
        rare.is_some_and(|rare| rare.declared.is_some() && !rare.is_by_rule)
    }

    #[inline]
    pub(super) fn rule(&self) -> Option<&RuleState> {
        self.rare.as_ref()?.rule.as_ref()
    }

    /// Returns the numbers that a rule sets for trouble.
    #[inline]
    fn trouble_numbers(&self) -> TroubleNumbers {
        self.rule()
            .map_or_else(TroubleNumbers::default, RuleState::trouble)
    }

    /// Returns the longest backoff of this key.
    pub(super) fn backoff_max(&self, config: &Config) -> Duration {
        let by_rule = self.trouble_numbers().backoff_max;
        by_rule.unwrap_or(config.backoff_max).max(BACKOFF_MIN)
    }

    /// Returns the law of this key: the operator's choice, that of its rule, or the configured one.
    pub(super) fn law_config(&self, config: &Config) -> LawConfig {
        let choice = self.operator_numbers().law.unwrap_or_default();
        self.trouble_numbers()
            .law(choice.config(&config.law), choice)
    }

    /// Returns whether a rule says that only the declared limits hold.
    #[inline]
    pub(super) fn is_frozen_by_rule(&self) -> bool {
        self.rule().is_some_and(|rule| !rule.learn)
    }

    /// Returns whether a rule sets the gaps between departures.
    #[inline]
    pub(super) fn is_spaced(&self) -> bool {
        self.rule().is_some_and(|rule| rule.spacing.is_some())
    }

    /// Reserves the departure of a spaced key, as [`Pace::reserve`](crate::gate::Pace::reserve)
    /// does without a spacing.
    #[cold]
    pub(super) fn reserve_spaced(
        &mut self,
        now: Timestamp,
        rate: &Rate,
        ask: &AcquireRequest,
    ) -> Result<Timestamp, Wait> {
        let next = self.rule().map_or(now, |rule| rule.next).max(now);
        let paced = self.next_by_pace(now, rate, f64::from(ask.cost.max(1)));
        let start = next.max(paced);
        if start == Timestamp::NEVER || start > now + ask.horizon {
            let at = if start == Timestamp::NEVER {
                start
            } else {
                start - ask.horizon
            };
            let reason = Reason::Pace;
            return Err(Wait { at, reason });
        }
        self.pace.take(f64::from(ask.cost.max(1)));
        Ok(start)
    }

    /// Returns when the next request of a spaced key may leave, not before `now`.
    pub(super) fn next_spaced(&mut self, now: Timestamp, rate: &Rate) -> Timestamp {
        let next = self.rule().map_or(now, |rule| rule.next).max(now);
        next.max(self.next_by_pace(now, rate, 1.0))
    }

    /// Under an exponential spacing only the gaps count: half of them are shorter than the bucket
    /// of the same rate allows.
    fn next_by_pace(&mut self, now: Timestamp, rate: &Rate, cost: f64) -> Timestamp {
        let spacing = self.rule().and_then(|rule| rule.spacing);
        if spacing == Some(Spacing::Exponential) {
            self.pace.settle(now, rate);
            return now;
        }
        self.pace.next_start(now, rate, cost)
    }

    /// Sets the earliest departure after one that starts at `start`.
    #[cold]
    pub(super) fn space(
        &mut self,
        start: Timestamp,
        lease: LeaseId,
        cost: u16,
        rate: &Rate,
        config: &Config,
    ) {
        let limits = self.declared(config).windows().iter();
        let of_requests = limits.filter(|limit| limit.unit() == LimitUnit::Requests);
        let slowest = of_requests.filter_map(DeclaredLimit::per_second);
        let per_s = slowest.fold(rate.per_s, f64::min);
        let interval = Rate::per_second(per_s).interval().min(INTERVAL_MAX);
        let interval = interval * u32::from(cost.max(1));
        let Some(rule) = self.rare.as_mut().and_then(|rare| rare.rule.as_mut()) else {
            return;
        };
        let Some(spacing) = rule.spacing else { return };
        // A caller that came a little late must not lengthen the mean.
        let is_late = spacing == Spacing::Exponential && start.since(rule.next) < interval;
        let from = if is_late { rule.next.min(start) } else { start };
        rule.next = from + spacing.gap(interval, lease, start);
    }
}
