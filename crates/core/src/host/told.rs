//! Quotas of tokens and points that a server states in its headers.
//!
//! Each is a budget until its reset, beside the declared ones, so the smaller remainder counts. The
//! next answer that states the same unit replaces it: a server that contradicts itself is believed
//! at its last word. Quotas of requests pace the law and hold the key
//! (`control/discover/quota.rs`).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{AcquireRequest, Host, Reason, Wait};
use crate::Timestamp;
use crate::budget::UnitCosts;
use crate::gate::LeaseId;
use crate::signal::{Quotas, Unit};

/// The quota that a server stated for one unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ToldBudget {
    unit: Unit,
    remaining: u64,
    until: Timestamp,
}

/// Returns the amount of `unit` in the costs of a request. `None` if the request does not say.
fn cost_in(unit: Unit, costs: &UnitCosts) -> Option<u64> {
    let is_it = |name: &str| match unit {
        Unit::Tokens => name == "tokens",
        Unit::Points => matches!(name, "points" | "credits"),
        Unit::Requests | Unit::Bytes | Unit::Concurrency => false,
    };
    let named = costs.iter().find(|(name, _)| is_it(&name.to_string()));
    named.map(|(_, amount)| amount)
}

impl ToldBudget {
    /// Moves the reset back after the clock was set back by `set_back`.
    pub(super) fn rebase(&mut self, set_back: Duration) {
        self.until = self.until - set_back;
    }

    pub(super) fn join(mine: &mut Vec<Self>, theirs: &[Self]) {
        for other in theirs {
            match mine.iter_mut().find(|known| known.unit == other.unit) {
                Some(known) => {
                    known.remaining = known.remaining.min(other.remaining);
                    known.until = known.until.max(other.until);
                }
                None => mine.push(*other),
            }
        }
        mine.sort_by_key(|told| told.unit);
    }
}

impl Host {
    /// Takes the quotas of an answer to the request of `lease`.
    #[cold]
    pub(super) fn hear_quotas(&mut self, now: Timestamp, lease: LeaseId, quotas: &Quotas) {
        for unit in [Unit::Tokens, Unit::Points] {
            let of_unit = quotas.iter().filter(|quota| quota.unit == unit);
            let stated = of_unit.filter_map(|quota| quota.remaining.zip(quota.reset));
            let Some((remaining, reset)) = stated.min_by_key(|(remaining, _)| *remaining) else {
                continue;
            };
            let rare = self.rare.get_or_insert_default();
            rare.told.retain(|told| told.unit != unit);
            if reset.is_zero() {
                continue;
            }
            // The server has not counted the requests that are under way.
            let is_under_way = |other| other != lease && self.leases.ends(other).is_some();
            let others = rare
                .estimates
                .iter()
                .filter(|known| is_under_way(known.lease));
            let under_way = others.filter_map(|known| cost_in(unit, &known.units)).sum();
            rare.told.push(ToldBudget {
                unit,
                remaining: remaining.saturating_sub(under_way),
                until: now + reset,
            });
        }
    }

    /// Returns whether a stated quota still counts at `now`.
    pub(super) fn has_told_at(&self, now: Timestamp) -> bool {
        let rare = self.rare.as_ref();
        rare.is_some_and(|rare| rare.told.iter().any(|told| told.until > now))
    }

    /// Returns whether a server stated a quota of tokens or points. Its reset may be over.
    #[inline]
    pub(super) fn has_told(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| !rare.told.is_empty())
    }

    /// Returns the wait of a request that costs more than what a server said is left.
    #[cold]
    pub(super) fn told_wait(&self, now: Timestamp, ask: &AcquireRequest) -> Option<Wait> {
        let told = self.rare.as_ref()?.told.iter();
        let lacks = told.filter(|told| {
            let cost = cost_in(told.unit, &ask.units).unwrap_or(0);
            told.until > now && cost > told.remaining
        });
        let at = lacks.map(|told| told.until).max()?;
        let reason = Reason::Budget;
        Some(Wait { at, reason })
    }

    /// Charges a granted request to what a server said is left.
    #[cold]
    pub(super) fn charge_told(&mut self, now: Timestamp, units: &UnitCosts) {
        let told = &mut self.rare().told;
        told.retain(|told| told.until > now);
        for told in told {
            let cost = cost_in(told.unit, units).unwrap_or(0);
            told.remaining = told.remaining.saturating_sub(cost);
        }
    }
}
