//! The declared limits of a key: which are in force, and what is spent of them.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::rule::RuleState;
use super::{AcquireRequest, HORIZON, Host, Reason, RestoreError, Wait};
use crate::Timestamp;
use crate::budget::{Cost, DeclaredLimit, DeclaredLimits, LimitUnit, Remainder, Spent, UnitCosts};
use crate::config::Config;
use crate::gate::LeaseId;
use crate::share::Charge;

/// The most estimates of ended leases that are kept.
const LATE_MAX: usize = 64;
/// The time from a departure in which its late report still finds the estimate: one hour.
pub const LATE: Duration = Duration::from_hours(1);

/// The estimated costs of a permit that is not settled. It outlives its lease, because a late
/// report owes what exceeds it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Estimate {
    pub(super) lease: LeaseId,
    at: Timestamp,
    pub(super) units: UnitCosts,
}

impl Host {
    /// Declares the limits of this key, in place of the configured ones. `None` restores those.
    ///
    /// What is spent of a window stays spent if the new limits have a window of the same length and
    /// unit.
    pub fn declare(&mut self, now: Timestamp, limits: Option<DeclaredLimits>, config: &Config) {
        let old = self.bounds(now, config).rate;
        if limits.is_some() || self.rare.is_some() {
            let has_learned = self.has_learned();
            let rare = self.rare();
            (rare.declared, rare.is_by_rule) = (limits, false);
            rare.has_outcomes |= has_learned;
        }
        let new = self.bounds(now, config).rate;
        self.pace.change(now, &old, &new);
    }

    /// Makes a declared limit whole, or all of them if `which` is `None`, because an operator knows
    /// that what is counted is wrong.
    ///
    /// Permits that are out keep their estimates, but give nothing back to the reset limit and owe
    /// it nothing. Later requests leave after them. A limit that is not in force stays as it is.
    pub fn reset_budgets(
        &mut self,
        now: Timestamp,
        which: Option<&DeclaredLimit>,
        config: &Config,
    ) {
        let Some(rare) = &mut self.rare else { return };
        let Some(spent) = &mut rare.spent else { return };
        let starts = self.leases.live().iter().map(|lease| lease.start);
        let starts = starts.chain(rare.estimates.iter().map(|estimate| estimate.at));
        let last = starts.fold(now, Timestamp::max);
        let declared = rare.declared.as_ref().unwrap_or(&config.declared);
        spent.reset(last + Duration::from_micros(1), which, declared);
    }

    /// Returns the limits that an operator or a rule declared for this key.
    pub fn own_limits(&self) -> Option<&DeclaredLimits> {
        self.rare.as_ref()?.declared.as_ref()
    }

    /// Returns whether the declared limits are this key's only ones: it has some of its own, and no
    /// outcome is reported to it, as with the key of an account.
    #[inline]
    pub(super) fn has_declared_alone(&self) -> bool {
        let rare = self.rare.as_ref();
        rare.is_some_and(|rare| rare.declared.is_some() && !rare.has_outcomes)
    }

    /// Returns the declared limits in force.
    #[inline]
    pub(super) fn declared<'a>(&'a self, config: &'a Config) -> &'a DeclaredLimits {
        self.own_limits().unwrap_or(&config.declared)
    }

    /// Returns how many of `slots` departures the declared limits allow now.
    #[inline]
    pub(super) fn budget_room(
        &self,
        now: Timestamp,
        ask: &AcquireRequest,
        slots: u32,
        config: &Config,
    ) -> Result<u32, Wait> {
        let declared = self.declared(config);
        if declared.windows().is_empty() {
            return Ok(slots);
        }
        let none = Spent::default();
        let spent = self.rare.as_ref().and_then(|rare| rare.spent.as_deref());
        let spent = spent.unwrap_or(&none);
        let at = spent.next_start(now, &cost_of(ask), declared);
        if at > now {
            let reason = Reason::Budget;
            return Err(Wait { at, reason });
        }
        Ok(match slots {
            1 => 1,
            slots => spent.room(now, slots, declared).max(1),
        })
    }

    /// Charges a run of `granted` departures from `start` on.
    #[inline]
    pub(super) fn charge_budgets(
        &mut self,
        now: Timestamp,
        start: Timestamp,
        ask: &AcquireRequest,
        granted: u32,
        interval: Duration,
        config: &Config,
    ) {
        if !self.declared(config).windows().is_empty() {
            self.charge(now, start, &cost_of(ask), config);
            for i in 1..granted {
                self.charge(now, start + interval * i, &Cost::requests(1), config);
            }
        }
    }

    #[inline]
    pub(super) fn charge_budget_bytes(&mut self, now: Timestamp, bytes: u64, config: &Config) {
        if bytes > 0 && !self.declared(config).windows().is_empty() {
            self.charge(now, now, &Cost::bytes(bytes), config);
        }
    }

    fn charge(&mut self, now: Timestamp, at: Timestamp, cost: &Cost, config: &Config) {
        let rare = self.rare();
        let declared = rare.declared.as_ref().unwrap_or(&config.declared);
        let spent = rare.spent.get_or_insert_default();
        spent.charge(now, at, cost, declared);
    }

    /// Takes back the charge of a request that did not leave at `start`.
    pub(super) fn refund_budgets(
        &mut self,
        start: Timestamp,
        cost: u16,
        bytes: u64,
        config: &Config,
    ) {
        if let Some(rare) = &mut self.rare
            && let Some(spent) = &mut rare.spent
        {
            let declared = rare.declared.as_ref().unwrap_or(&config.declared);
            let cost = Cost {
                requests: u64::from(cost),
                bytes,
                units: UnitCosts::NONE,
            };
            spent.put_back(start, &cost, declared);
        }
    }

    /// Returns the limit that a request of `ask` exceeds alone, so that it never leaves.
    pub fn never_fits(&self, ask: &AcquireRequest, config: &Config) -> Option<DeclaredLimit> {
        never_fits(self.declared(config), ask)
    }

    /// Keeps the estimate of a permit until it is settled, or until a late report is unlikely.
    #[inline]
    pub(super) fn note_estimate(
        &mut self,
        lease: LeaseId,
        at: Timestamp,
        ask: &AcquireRequest,
        config: &Config,
    ) {
        if has_named_units(self.declared(config)) || (!ask.units.is_empty() && self.has_told()) {
            self.keep_estimate(lease, at, ask.units.clone());
        }
    }

    pub(super) fn keep_estimate(&mut self, lease: LeaseId, at: Timestamp, units: UnitCosts) {
        self.rare().estimates.push(Estimate { lease, at, units });
    }

    /// Corrects the costs of a permit: the difference to its estimate returns, or is owed.
    ///
    /// Once the permit's lease has ended, nothing returns. A second call corrects the first.
    #[inline]
    pub fn settle(&mut self, now: Timestamp, lease: LeaseId, used: &UnitCosts, config: &Config) {
        if !used.is_empty() {
            self.correct(now, lease, used, config);
        }
    }

    #[cold]
    fn correct(&mut self, now: Timestamp, lease: LeaseId, used: &UnitCosts, config: &Config) {
        if !has_named_units(self.declared(config)) {
            return;
        }
        self.expire(now);
        let is_late = self.leases.ends(lease).is_none();
        let rare = self.rare.get_or_insert_default();
        let known = rare.estimates.iter().position(|known| known.lease == lease);
        if known.is_none() && is_late {
            return;
        }
        let place = known.unwrap_or_else(|| {
            let units = UnitCosts::NONE;
            let at = now;
            rare.estimates.push(Estimate { lease, at, units });
            rare.estimates.len() - 1
        });
        let Estimate { at, units, .. } = rare.estimates[place].clone();
        let declared = rare.declared.as_ref().unwrap_or(&config.declared);
        let spent = rare.spent.get_or_insert_default();
        for (name, truth) in used.iter() {
            let estimate = units.of(name).unwrap_or(0);
            let difference = Cost::units(UnitCosts::one(name, truth.abs_diff(estimate)));
            if truth >= estimate {
                spent.charge_later(now, now, at, &difference, declared);
            } else if is_late {
                continue;
            } else {
                spent.put_back(at, &difference, declared);
            }
            let known = &mut rare.estimates[place].units;
            *known = known.corrected(&UnitCosts::one(name, truth));
        }
    }

    /// Forgets the estimate of a permit, which stays spent.
    #[inline]
    pub(super) fn end_estimate(&mut self, lease: LeaseId) -> Option<Estimate> {
        let estimates = &mut self.rare.as_mut()?.estimates;
        let place = estimates.iter().position(|known| known.lease == lease)?;
        Some(estimates.remove(place))
    }

    /// Takes back the estimate of a request that did not leave.
    pub(super) fn refund_units(&mut self, estimate: &Estimate, config: &Config) {
        if let Some(rare) = &mut self.rare
            && let Some(spent) = &mut rare.spent
        {
            let declared = rare.declared.as_ref().unwrap_or(&config.declared);
            let units = estimate.units.clone();
            spent.put_back(estimate.at, &Cost::units(units), declared);
        }
    }

    /// Forgets estimates of leases that ended long ago, or that are too many. They stay spent.
    pub(super) fn forget_estimates(&mut self, now: Timestamp) {
        if let Some(rare) = &mut self.rare
            && !rare.estimates.is_empty()
        {
            let leases = &self.leases;
            let is_late = |estimate: &Estimate| leases.ends(estimate.lease).is_none();
            let late = rare.estimates.iter().filter(|each| is_late(each)).count();
            let mut surplus = late.saturating_sub(LATE_MAX);
            rare.estimates.retain(|estimate| {
                let is_forgotten = is_late(estimate) && (surplus > 0 || estimate.at + LATE <= now);
                surplus = surplus.saturating_sub(usize::from(is_forgotten));
                !is_forgotten
            });
        }
    }

    /// Returns the remainder of each declared limit.
    pub(super) fn remainders(&self, now: Timestamp, config: &Config) -> Vec<Remainder> {
        let declared = self.declared(config);
        let spent = self.rare.as_ref().and_then(|rare| rare.spent.as_deref());
        match spent {
            Some(spent) => spent.remainders(now, declared).collect(),
            None => Spent::default().remainders(now, declared).collect(),
        }
    }

    /// Returns whether nothing is spent of any declared limit.
    pub(super) fn has_whole_budgets(&self, now: Timestamp, config: &Config) -> bool {
        let spent = self.rare.as_ref().and_then(|rare| rare.spent.as_deref());
        spent.is_none_or(|spent| spent.is_clear(now, self.declared(config)))
    }

    /// Returns what was spent of the declared limits and of the gap that a rule sets, and the
    /// limits of that rule, as bytes for [`Host::join_spent`]. `None` for a key without any.
    pub fn spent(&self, config: &Config) -> Option<Vec<u8>> {
        let is_limited = !self.declared(config).windows().is_empty();
        if !is_limited && !self.is_spaced() {
            return None;
        }
        let rare = self.rare.as_ref()?;
        let by_rule = rare.declared.as_ref().filter(|_| rare.is_by_rule);
        postcard::to_stdvec(&(rare.spent.as_deref(), &rare.rule, by_rule)).ok()
    }

    /// Adds what this key spent since its state was written, after the process that kept it was
    /// killed: the smaller remainder of each limit and the later end of the gap hold (P10 in
    /// docs/reference/promises.md). The limits of the rule are in force again, so that permits of
    /// before the kill are settled before the next request brings them.
    ///
    /// # Errors
    /// The bytes are not those of [`Host::spent`]. Nothing is changed.
    pub fn join_spent(
        &mut self,
        now: Timestamp,
        bytes: &[u8],
        config: &Config,
    ) -> Result<(), RestoreError> {
        type Read = (Option<Spent>, Option<RuleState>);
        let read = postcard::take_from_bytes::<Read>(bytes).map_err(RestoreError::Damaged)?;
        let ((newer, gap), rest) = read;
        // Earlier versions wrote no limits.
        let by_rule: Option<DeclaredLimits> = match rest {
            [] => None,
            rest => postcard::from_bytes(rest).map_err(RestoreError::Damaged)?,
        };
        if newer.as_ref().is_some_and(|newer| !newer.is_plausible()) {
            return Err(RestoreError::Damaged(postcard::Error::SerdeDeCustom));
        }
        if by_rule.is_some() && !self.has_operators_limits() {
            self.declare(now, by_rule, config);
            self.rare().is_by_rule = true;
        }
        if let Some(mut newer) = newer {
            // A granted request may leave a little later. Later times mean that the clock was set
            // back.
            newer.rebase(now + HORIZON, self.declared(config));
            self.rare().spent.get_or_insert_default().join(&newer);
        }
        if let Some(gap) = gap {
            self.rare().rule.get_or_insert(gap.clone()).join(&gap);
            self.adopt_law(now, Duration::ZERO, config);
        }
        Ok(())
    }

    /// Charges `requests` that another copy of this state granted.
    pub fn charge_requests(&mut self, now: Timestamp, requests: u64, config: &Config) {
        if requests > 0 && !self.declared(config).windows().is_empty() {
            self.charge(now, now, &Cost::requests(requests), config);
        }
    }

    /// Charges what workers do without a grant.
    pub fn charge_share(&mut self, now: Timestamp, charge: &Charge, config: &Config) {
        match charge {
            Charge::Turns(turns) => {
                let rate = self.bounds(now, config).rate;
                self.pace.charge(now, &rate, *turns);
            }
            Charge::Sent(ask) => self.charge_budgets(now, now, ask, 1, Duration::ZERO, config),
        }
    }

    /// Returns whether anything was spent of a declared limit.
    pub fn has_spent(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.spent.is_some())
    }

    /// Forgets what was spent, because the caller adds it to another copy of this state.
    pub fn forget_spent(&mut self) {
        if let Some(rare) = &mut self.rare {
            rare.spent = None;
        }
    }
}

fn cost_of(ask: &AcquireRequest) -> Cost {
    Cost {
        requests: u64::from(ask.cost.max(1)),
        bytes: ask.bytes,
        units: ask.units.clone(),
    }
}

pub(super) fn has_named_units(declared: &DeclaredLimits) -> bool {
    let is_named = |limit: &DeclaredLimit| matches!(limit.unit(), LimitUnit::Named(_));
    declared.windows().iter().any(is_named)
}

/// Returns the limit that a request of `ask` exceeds alone.
pub fn never_fits(declared: &DeclaredLimits, ask: &AcquireRequest) -> Option<DeclaredLimit> {
    let cost = cost_of(ask);
    let exceeds = |limit: &&DeclaredLimit| cost.of(limit.unit()) > limit.quantity();
    declared.windows().iter().find(exceeds).cloned()
}
