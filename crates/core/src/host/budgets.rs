//! The declared limits of a key: which are in force, and what is spent of them.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::rule::RuleState;
use super::{AcquireRequest, HORIZON, Host, Rare, Reason, RestoreError, Unused, Wait};
use crate::Timestamp;
use crate::budget::{Cost, DeclaredLimit, DeclaredLimits, LimitUnit, Remainder, Spent, UnitCosts};
use crate::config::Config;
use crate::gate::LeaseId;
use crate::share::Charge;

/// The most estimates of ended leases that are kept: an account over many hosts has hundreds when
/// its workers stall. Each takes about 40 bytes of a key's state.
const LATE_MAX: usize = 4_096;
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
        let limits = limits.map(|limits| limits.of_operator());
        self.replace_limits(now, limits, config);
    }

    /// Puts `limits` in force, or the configured ones if it is `None`.
    pub(super) fn replace_limits(
        &mut self,
        now: Timestamp,
        limits: Option<DeclaredLimits>,
        config: &Config,
    ) {
        let old = self.bounds(now, config).rate;
        if limits.is_some() || self.rare.is_some() {
            let has_learned = self.has_learned();
            let rare = self.rare();
            (rare.declared, rare.is_by_rule) = (limits, false);
            rare.has_outcomes |= has_learned;
        }
        let new = self.bounds(now, config).rate;
        self.pace.change(now, &old, &new, self.last_grant);
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
        if !self.has_spent() {
            return;
        }
        self.follow_limits(now, config);
        let end = self.last_departure().max(now) + Duration::from_micros(1);
        if let Some((spent, declared)) = self.spent_of(config) {
            spent.reset(now, end, which, declared);
        }
    }

    /// Returns the latest start of a permit that may still be cancelled or settled.
    fn last_departure(&self) -> Timestamp {
        let estimates = self.rare.iter().flat_map(|rare| &rare.estimates);
        let starts = self.leases.live().iter().map(|lease| lease.start);
        let starts = starts.chain(estimates.map(|estimate| estimate.at));
        starts.max().unwrap_or_default()
    }

    /// Returns what was spent, and the declared limits in force.
    fn spent_of<'a>(
        &'a mut self,
        config: &'a Config,
    ) -> Option<(&'a mut Spent, &'a DeclaredLimits)> {
        let Rare {
            spent, declared, ..
        } = self.rare.as_deref_mut()?;
        Some((
            spent.as_deref_mut()?,
            declared.as_ref().unwrap_or(&config.declared),
        ))
    }

    /// Notes which limits later departures are charged to. Call it before a lease is taken.
    #[inline]
    pub(super) fn follow_limits(&mut self, now: Timestamp, config: &Config) {
        if self.has_spent() || !self.declared(config).windows().is_empty() {
            self.follow_changed_limits(now, config);
        }
    }

    fn follow_changed_limits(&mut self, now: Timestamp, config: &Config) {
        let declared = self.declared(config);
        let spent = self.rare.as_ref().and_then(|rare| rare.spent.as_deref());
        if !spent.is_some_and(|spent| spent.follows(declared)) {
            let (declared, departed) = (declared.clone(), self.last_departure());
            let spent = self.rare().spent.get_or_insert_default();
            spent.follow(now, departed, &declared);
        }
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

    /// Charges a run of `granted` departures from `start` on, after [`Host::follow_limits`].
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
        if let Some((spent, declared)) = self.spent_of(config) {
            spent.charge(now, start, &cost_of(ask), declared);
            for i in 1..granted {
                let start = start + interval * i;
                spent.charge(now, start, &Cost::requests(1), declared);
            }
        }
    }

    #[inline]
    pub(super) fn charge_budget_bytes(&mut self, now: Timestamp, bytes: u64, config: &Config) {
        if bytes > 0 {
            self.charge(now, &Cost::bytes(bytes), config);
        }
    }

    fn charge(&mut self, now: Timestamp, cost: &Cost, config: &Config) {
        self.follow_limits(now, config);
        if let Some((spent, declared)) = self.spent_of(config) {
            spent.charge(now, now, cost, declared);
        }
    }

    /// Takes back the charge of a request that did not leave at `start`, and its estimate.
    pub(super) fn refund_budgets(
        &mut self,
        now: Timestamp,
        start: Timestamp,
        unused: Unused,
        estimate: Option<Estimate>,
    ) {
        if let Some(spent) = self.rare.as_mut().and_then(|rare| rare.spent.as_mut()) {
            let cost = Cost {
                requests: u64::from(unused.cost),
                bytes: unused.bytes,
                units: estimate.map_or(UnitCosts::NONE, |estimate| estimate.units),
            };
            spent.put_back(now, start, &cost);
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
        // A server may state what is left of the units only later.
        if !ask.units.is_empty() || has_named_units(self.declared(config)) {
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

    /// Returns whether a report of these costs takes more from the declared limits than its permit
    /// did. Such a report must not be lost.
    pub fn owes(&self, lease: LeaseId, used: &UnitCosts, bytes: u64, config: &Config) -> bool {
        let windows = self.declared(config).windows();
        if windows.is_empty() || (bytes == 0 && used.is_empty()) {
            return false;
        }
        let estimates = self.rare.iter().flat_map(|rare| &rare.estimates);
        let known = estimates.filter(|known| known.lease == lease);
        let taken = |name| known.clone().find_map(|known| known.units.of(name));
        windows.iter().any(|limit| match limit.unit() {
            LimitUnit::Named(name) => used.of(name) > Some(taken(name).unwrap_or(0)),
            LimitUnit::Bytes => bytes > 0,
            LimitUnit::Requests => false,
        })
    }

    #[cold]
    fn correct(&mut self, now: Timestamp, lease: LeaseId, used: &UnitCosts, config: &Config) {
        self.expire(now);
        let live = self.leases.live().iter().find(|live| live.id == lease);
        let (start, is_late) = (live.map(|live| live.start), live.is_none());
        let Some(rare) = &mut self.rare else { return };
        let Some(spent) = &mut rare.spent else { return };
        let known = rare.estimates.iter().position(|known| known.lease == lease);
        let place = match (known, start) {
            (Some(place), _) => place,
            (None, None) => return,
            (None, Some(at)) => {
                let units = UnitCosts::NONE;
                rare.estimates.push(Estimate { lease, at, units });
                rare.estimates.len() - 1
            }
        };
        let Estimate { at, units, .. } = &mut rare.estimates[place];
        let declared = rare.declared.as_ref().unwrap_or(&config.declared);
        for (name, truth) in used.iter() {
            let estimate = units.of(name).unwrap_or(0);
            let difference = Cost::units(UnitCosts::one(name, truth.abs_diff(estimate)));
            if truth >= estimate {
                spent.charge_later(now, *at, &difference, declared);
            } else if is_late {
                continue;
            } else {
                spent.put_back(now, *at, &difference);
            }
            *units = units.corrected(&UnitCosts::one(name, truth));
        }
    }

    /// Forgets the estimate of a permit, which stays spent.
    #[inline]
    pub(super) fn end_estimate(&mut self, lease: LeaseId) -> Option<Estimate> {
        let estimates = &mut self.rare.as_mut()?.estimates;
        let place = estimates.iter().position(|known| known.lease == lease)?;
        Some(estimates.remove(place))
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
    pub fn spent(&self) -> Option<Vec<u8>> {
        let rare = self.rare.as_ref()?;
        if rare.spent.is_none() && !self.is_spaced() {
            return None;
        }
        let by_rule = rare.declared.as_ref().filter(|_| rare.is_by_rule);
        postcard::to_stdvec(&(rare.spent.as_deref(), &rare.rule, by_rule)).ok()
    }

    /// Adds what this key spent since its state was written, after the process that kept it was
    /// killed: the later state of the limits and the later end of the gap hold (P10 in
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
        type Read = (Option<Spent>, Option<RuleState>, Option<DeclaredLimits>);
        let (later, gap, by_rule): Read =
            postcard::from_bytes(bytes).map_err(RestoreError::Damaged)?;
        if later.as_ref().is_some_and(|later| !later.is_plausible()) {
            return Err(RestoreError::Damaged(postcard::Error::SerdeDeCustom));
        }
        if by_rule.is_some() && !self.has_operators_limits() {
            self.replace_limits(now, by_rule, config);
            self.rare().is_by_rule = true;
        }
        if let Some(mut later) = later {
            // A granted request may leave a little later. Later times mean that the clock was set
            // back.
            later.rebase(now + HORIZON);
            self.rare().spent.get_or_insert_default().join_later(later);
        }
        if let Some(gap) = gap {
            self.rare().rule.get_or_insert(gap.clone()).join(&gap);
            self.adopt_law(now, Duration::ZERO, config);
        }
        Ok(())
    }

    /// Charges `requests` that another copy of this state granted.
    pub fn charge_requests(&mut self, now: Timestamp, requests: u64, config: &Config) {
        if requests > 0 {
            self.charge(now, &Cost::requests(requests), config);
        }
    }

    /// Charges what workers do without a grant.
    pub fn charge_share(&mut self, now: Timestamp, charge: &Charge, config: &Config) {
        match charge {
            Charge::Turns(turns) => {
                let rate = self.bounds(now, config).rate;
                self.pace.charge(now, &rate, *turns);
            }
            Charge::Sent(ask) => self.charge(now, &cost_of(ask), config),
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
