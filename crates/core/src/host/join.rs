//! Merges two states of one key after an engine lost some writes and the key continued from older
//! ones.
//!
//! | part | result of the merge |
//! | --- | --- |
//! | leases | the union by id; for an id of both, the later end and the earlier stage |
//! | counts, refusals, strikes, last grant | the larger number of each |
//! | hold, event | the later |
//! | breaker, quarantine | open as long as either is |
//! | law, latencies | those of the slower side, without its probe; the lower in-flight caps |
//! | URLs that failed | the latest of both; a cut stays even if one side would undo it |
//! | operator's numbers, busy share | the tighter |
//! | Crawl-delay | the longer length and the later end |
//! | locks | the union of the claims, the larger fencing number |
//! | pace, byte budget | the fewer tokens |
//! | declared limits | the smaller remainder of each; the side with a later reset |
//! | the gaps of a rule | the later departure |
//! | stated quotas of units | the smaller remainder until the later reset |
//!
//! Permits that only one side granted are spent on that side only. If both sides granted the same
//! tokens, those tokens are spent twice, and the merge does not correct that.

use std::cmp::Reverse;
use std::time::Duration;

use super::request::Bounds;
use super::told::ToldBudget;
use super::{Host, OperatorNumbers, Rare};
use crate::budget::DeclaredLimits;
use crate::config::Config;
use crate::gate::Rate;
use crate::{Timestamp, join};

impl Host {
    /// Merges `other`, a state of the same key that was equal to this one until writes were lost.
    ///
    /// The result promises no more than either side. For the same requests from `now` on and no
    /// outcomes, neither side alone would have granted less by any time.
    ///
    /// The merge is commutative and idempotent. It is also associative, except for the last bits of
    /// a debt under rates that differ. `now` must be no earlier than the latest time of either
    /// state; see [`Host::thaw`].
    pub fn join(&mut self, other: &Self, now: Timestamp, config: &Config) {
        let mut other = other.clone();
        let mine = self.bring_up_to(now, config);
        let theirs = other.bring_up_to(now, config);

        self.leases.join(&other.leases);
        self.first_end = self.first_end.or(other.first_end);
        self.hold.join(&other.hold);
        self.law.join(&other.law, now, self.limits(config));
        self.latency.join(&other.latency);
        self.last_grant = self.last_grant.max(other.last_grant);
        self.is_awaited |= other.is_awaited;
        self.knowing = self.knowing.max(other.knowing);
        self.busy_rate = self.busy_rate.min(other.busy_rate);
        self.refused = self.refused.max(other.refused);
        self.strikes = self.strikes.max(other.strikes);
        if self.rare.is_some() || other.rare.is_some() {
            let absent = self.without_operator(config);
            let empty = Rare::default();
            let theirs = other.rare.as_deref().unwrap_or(&empty);
            let (mine, set) = (self.operator_numbers(), theirs.operator.unwrap_or_default());
            // A number that only one side has is no more than a bound.
            let differ = mine.rate.is_some() != set.rate.is_some()
                || mine.in_flight.is_some() != set.in_flight.is_some();
            self.rare().has_outcomes |= theirs.has_outcomes || differ;
            self.rare().join(theirs, absent);
        }

        if self.operator_numbers().law.is_some() || self.rule().is_some() {
            self.adopt_law(now, Duration::ZERO, config);
        }
        let rate = self.bounds(now, config).rate;
        let newest = self.last_grant;
        self.pace.change(now, &mine, &rate, newest);
        other.pace.change(now, &theirs, &rate, newest);
        self.pace.join(&other.pace);
    }

    /// Settles the pace and the byte budget until `now`, and returns the rate in force.
    fn bring_up_to(&mut self, now: Timestamp, config: &Config) -> Rate {
        self.expire(now);
        let (pause, Bounds { rate, .. }) = (self.pause(now), self.bounds(now, config));
        if let Some(rare) = &mut self.rare {
            rare.pause = pause;
        }
        self.pace.settle(now, &rate);
        if let Some((bytes, rate)) = self.bytes(now, config) {
            bytes.settle(now, &rate);
        }
        rate
    }

    /// Returns the numbers in force where an operator set none.
    fn without_operator(&self, config: &Config) -> OperatorNumbers {
        let start = self.limits(config).start();
        let learns = self.law.learns();
        OperatorNumbers {
            rate: Some(if learns { f64::INFINITY } else { start.rate }),
            burst: Some(start.burst),
            in_flight: Some(if learns { u32::MAX } else { start.in_flight }),
            ..OperatorNumbers::default()
        }
    }
}

impl Rare {
    fn join(&mut self, other: &Self, absent: OperatorNumbers) {
        self.cohort = self.cohort.min(other.cohort);
        self.breaker.join(&other.breaker);
        self.quarantine.join(&other.quarantine);
        join::least(&mut self.event, &other.event, |event| Reverse(event.at));
        self.operator = match (self.operator, other.operator) {
            (Some(mine), Some(theirs)) => Some(mine.tighter(theirs, absent)),
            (None, None) => None,
            (Some(set), None) | (None, Some(set)) => {
                Some(set.tighter(OperatorNumbers::default(), absent))
                    .filter(|left| *left != OperatorNumbers::default())
            }
        };
        self.evidence = match (self.evidence.take(), other.evidence.clone()) {
            (Some(mut mine), Some(theirs)) => {
                mine.join(&theirs);
                Some(mine)
            }
            (mine, theirs) => mine.or(theirs),
        };
        self.suspicion = match (self.suspicion.take(), other.suspicion.clone()) {
            (Some(mut mine), Some(theirs)) => {
                mine.join(&theirs);
                Some(mine)
            }
            (mine, theirs) => mine.or(theirs),
        };
        self.pause = match (self.pause, other.pause) {
            (Some(mine), Some(theirs)) => Some(mine.join(theirs)),
            (mine, theirs) => mine.or(theirs),
        };
        self.spent = match (self.spent.take(), other.spent.clone()) {
            (Some(mut mine), Some(theirs)) => {
                mine.join(&theirs);
                Some(mine)
            }
            (mine, theirs) => mine.or(theirs),
        };
        self.estimates.extend_from_slice(&other.estimates);
        // The sort is stable, so that of two estimates of a lease the own one stays.
        self.estimates.sort_by_key(|estimate| estimate.lease.0);
        self.estimates.dedup_by_key(|estimate| estimate.lease.0);
        // Both sides had the same limits before writes were lost. A tie has to end the same way on
        // every node.
        let text = |declared: &DeclaredLimits| declared.to_string();
        let is_theirs = match (&self.declared, &other.declared) {
            (Some(mine), Some(theirs)) => {
                (other.is_by_rule, text(theirs)) < (self.is_by_rule, text(mine))
            }
            (mine, _) => mine.is_none(),
        };
        if is_theirs {
            (self.declared, self.is_by_rule) = (other.declared.clone(), other.is_by_rule);
        }
        ToldBudget::join(&mut self.told, &other.told);
        self.rule = match (self.rule.take(), other.rule.clone()) {
            (Some(mut mine), Some(theirs)) => {
                mine.join(&theirs);
                Some(mine)
            }
            (mine, theirs) => mine.or(theirs),
        };
        if let Some(theirs) = &other.locks {
            self.locks.get_or_insert_default().join(theirs);
        }
        self.bytes = match (self.bytes, other.bytes) {
            (Some(mut mine), Some(theirs)) => {
                mine.join(&theirs);
                Some(mine)
            }
            (mine, theirs) => mine.or(theirs),
        };
    }
}

impl OperatorNumbers {
    /// Returns the lower of each number. A number that is not set counts as that of `absent`.
    fn tighter(self, other: Self, absent: Self) -> Self {
        Self {
            rate: lower(self.rate, other.rate, absent.rate),
            burst: lower(self.burst, other.burst, absent.burst),
            in_flight: lower(self.in_flight, other.in_flight, absent.in_flight),
            law: self.law.max(other.law),
            learn: self.learn.or(other.learn),
            crawl_delay_ms: self.crawl_delay_ms.max(other.crawl_delay_ms),
        }
    }
}

fn lower<T: PartialOrd + Copy>(mine: Option<T>, theirs: Option<T>, absent: Option<T>) -> Option<T> {
    match (mine, theirs) {
        (Some(mine), Some(theirs)) => Some(if theirs < mine { theirs } else { mine }),
        (mine, theirs) => mine.or(theirs).filter(|set| Some(*set) <= absent),
    }
}
