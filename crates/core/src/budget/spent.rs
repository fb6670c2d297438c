//! The quantities that a key spent of its declared limits.
//!
//! A charge is returned to the logs that it was taken from, and to no other: each log has the
//! *terms* in which departures were charged to it. A term goes on when its author replaces the
//! limit: if the limit comes back, no window of it has more departures than it allows.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::log::{Log, Term};
use super::unit::UnitCosts;
use super::{DeclaredLimit, DeclaredLimits, LimitUnit};
use crate::Timestamp;

/// The most logs of limits that are not in force.
const OTHERS_MAX: usize = 8;

/// The quantities that a key spent, one log per limit, in the order of their declaration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Spent {
    /// Grows with each change. It is at least the time of the change, so that it also grows if a
    /// key is forgotten and begins anew.
    version: u64,
    logs: Vec<Log>,
}

/// The cost of a request, by unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cost {
    pub(crate) requests: u64,
    pub(crate) bytes: u64,
    pub(crate) units: UnitCosts,
}

/// The remainder of one limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remainder {
    /// The limit.
    pub limit: DeclaredLimit,
    /// The quantity that may still be spent in the present window.
    pub remaining: u64,
    /// When the oldest spent quantity counts no more. The time of the call if nothing is spent.
    pub resets: Timestamp,
}

impl Cost {
    /// Returns the cost of `requests` requests whose bytes are not known.
    pub(crate) const fn requests(requests: u64) -> Self {
        Self {
            requests,
            bytes: 0,
            units: UnitCosts::NONE,
        }
    }

    /// Returns a cost of bytes alone.
    pub(crate) const fn bytes(bytes: u64) -> Self {
        Self {
            requests: 0,
            bytes,
            units: UnitCosts::NONE,
        }
    }

    /// Returns a cost of named units alone.
    pub(crate) const fn units(units: UnitCosts) -> Self {
        Self {
            requests: 0,
            bytes: 0,
            units,
        }
    }

    pub(crate) fn of(&self, unit: LimitUnit) -> u64 {
        match unit {
            LimitUnit::Requests => self.requests,
            LimitUnit::Bytes => self.bytes,
            LimitUnit::Named(name) => self.units.of(name).unwrap_or(0),
        }
    }

    /// Returns the quantity that must be free. A request of unknown size needs one byte.
    fn needs(&self, unit: LimitUnit) -> u64 {
        self.of(unit).max(u64::from(unit == LimitUnit::Bytes))
    }
}

impl Spent {
    /// Returns when a request of `cost` may leave by all limits, not before `now`.
    ///
    /// Returns [`Timestamp::NEVER`] if the request costs more than a whole limit.
    pub(crate) fn next_start(
        &self,
        now: Timestamp,
        cost: &Cost,
        declared: &DeclaredLimits,
    ) -> Timestamp {
        let weight = declared.weight();
        let mut start = now;
        for (i, limit) in declared.windows().iter().enumerate() {
            let cost = cost.needs(limit.unit()).saturating_mul(weight);
            if cost == 0 {
                continue;
            }
            let next = match self.log(i, limit) {
                Some(log) => log.next_start(now, cost, limit),
                None => Log::new(limit).next_start(now, cost, limit),
            };
            start = start.max(next);
        }
        start
    }

    /// Returns how many requests of cost 1 have room at `now`, at most `wanted`.
    pub(crate) fn room(&self, now: Timestamp, wanted: u32, declared: &DeclaredLimits) -> u32 {
        let requests = self.remainders(now, declared);
        let requests = requests.filter(|left| left.limit.unit() == LimitUnit::Requests);
        let room = requests.map(|left| left.remaining).min();
        let room = room.unwrap_or(u64::MAX) / declared.weight();
        u32::try_from(room).unwrap_or(u32::MAX).min(wanted)
    }

    /// Returns whether the declared limits are those in force, so that [`Spent::follow`] would
    /// change nothing.
    pub(crate) fn follows(&self, declared: &DeclaredLimits) -> bool {
        let windows = declared.windows();
        let (weight, author) = (declared.weight(), declared.author());
        self.logs.len() >= windows.len() && {
            let (first, others) = self.logs.split_at(windows.len());
            let is_its = |(log, limit): (&Log, &DeclaredLimit)| {
                let is_of_it = |term: &Term| term.is_of(weight, author);
                log.id == limit.id() && log.present().is_some_and(is_of_it)
            };
            first.iter().zip(windows).all(is_its)
                && others.iter().all(|log| !log.is_over_under(declared))
        }
    }

    /// Puts the declared limits in force at `now`. `departed` is the latest departure that other
    /// limits were charged for.
    ///
    /// Their logs come first, in their order. The logs of other limits stay behind them, the latest
    /// ones first, because permits of their terms are out, and because those limits may come back:
    /// an operator corrects a mistake, or requests of a key follow two rules in turn.
    pub(crate) fn follow(
        &mut self,
        now: Timestamp,
        departed: Timestamp,
        declared: &DeclaredLimits,
    ) {
        self.change(now);
        let windows = declared.windows();
        let (weight, author) = (declared.weight(), declared.author());
        let from = now.max(departed + Duration::from_micros(1));
        let in_force = windows.iter().map(|limit| {
            let known = self.log(0, limit).cloned();
            let mut log = known.unwrap_or_else(|| Log::new(limit));
            let is_of_it = |term: &Term| term.is_of(weight, author);
            if !log.present().is_some_and(is_of_it) {
                log.begin_term(now, from, declared);
                log.charge(now, from, 0, Some(limit)); // the period of a calendar begins
            }
            log
        });
        let in_force: Vec<Log> = in_force.collect();
        let is_other = |log: &&mut Log| windows.iter().all(|limit| limit.id() != log.id);
        let others = self.logs.iter_mut().filter(is_other).map(|log| {
            if log.is_over_under(declared) {
                log.end_term(now);
            }
            log.clone()
        });
        let others = others.filter(|log| log.present().is_some() || log.counts(now));
        let others = others.take(OTHERS_MAX);
        self.logs = in_force.into_iter().chain(others).collect();
    }

    /// Charges a request of `cost` that is granted at `now` and leaves at `at`, now or later. The
    /// declared limits are in force.
    pub(crate) fn charge(
        &mut self,
        now: Timestamp,
        at: Timestamp,
        cost: &Cost,
        declared: &DeclaredLimits,
    ) {
        self.change(now);
        let weight = declared.weight();
        let mut logs = self.logs.iter_mut();
        for (limit, log) in declared.windows().iter().zip(logs.by_ref()) {
            let cost = cost.of(log.unit).saturating_mul(weight);
            log.charge(now, at, cost, Some(limit));
        }
        for log in logs {
            if let Some(weight) = log.present().map(|term| term.weight) {
                log.charge(now, at, cost.of(log.unit).saturating_mul(weight), None);
            }
        }
    }

    /// Charges at `now` what a request that left at `departed` cost beyond its estimate, to the
    /// limits that were in force then and were not reset since.
    pub(crate) fn charge_later(
        &mut self,
        now: Timestamp,
        departed: Timestamp,
        cost: &Cost,
        declared: &DeclaredLimits,
    ) {
        self.change(now);
        for (i, log) in self.logs.iter_mut().enumerate() {
            if let Some(term) = log.term_of(departed) {
                let cost = cost.of(log.unit).saturating_mul(term.weight);
                log.charge(now, now, cost, declared.windows().get(i));
            }
        }
    }

    /// Takes back the charge of a request that did not leave at `at`.
    pub(crate) fn put_back(&mut self, now: Timestamp, at: Timestamp, cost: &Cost) {
        self.change(now);
        for log in &mut self.logs {
            let Some(term) = log.term_of(at) else {
                continue;
            };
            let cost = cost.of(log.unit).saturating_mul(term.weight);
            log.put_back(at, cost);
        }
    }

    /// Makes a declared limit whole, or all of them if `which` is `None`. Requests that leave
    /// before `end` are charged no more.
    pub(crate) fn reset(
        &mut self,
        now: Timestamp,
        end: Timestamp,
        which: Option<&DeclaredLimit>,
        declared: &DeclaredLimits,
    ) {
        self.change(now);
        if which.is_none() {
            self.logs.truncate(declared.windows().len());
        }
        for (log, limit) in self.logs.iter_mut().zip(declared.windows()) {
            if which.is_none_or(|which| which.id() == limit.id()) {
                log.reset(limit, end);
            }
        }
    }

    fn change(&mut self, now: Timestamp) {
        self.version = now.as_micros().max(self.version + 1);
    }

    /// Returns the remainder of each limit.
    pub(crate) fn remainders(
        &self,
        now: Timestamp,
        declared: &DeclaredLimits,
    ) -> impl Iterator<Item = Remainder> {
        let limits = declared.windows().iter().enumerate();
        limits.map(move |(i, limit)| {
            let log = self.log(i, limit);
            let (spent, resets) = log.map_or((0, now), |log| log.spent(now, limit));
            Remainder {
                limit: limit.clone(),
                remaining: limit.quantity().saturating_sub(spent),
                resets: if spent == 0 { now } else { resets },
            }
        })
    }

    /// Returns whether no limit has a spent quantity at `now`.
    pub(crate) fn is_clear(&self, now: Timestamp, declared: &DeclaredLimits) -> bool {
        let mut limits = declared.windows().iter().enumerate();
        limits.all(|(i, limit)| {
            let log = self.log(i, limit);
            log.is_none_or(|log| log.spent(now, limit).0 == 0)
        })
    }

    /// Takes the later of two states of one history.
    pub(crate) fn join_later(&mut self, other: Self) {
        if other.version > self.version {
            *self = other;
        }
    }

    /// Merges two states that went on apart. The smaller remainder of each limit counts, and a
    /// term counts as far as both sides had it. If one side has a later reset, that side counts.
    pub(crate) fn join(&mut self, other: &Self) {
        self.version = self.version.max(other.version);
        for theirs in &other.logs {
            let is_its = |mine: &&mut Log| mine.id == theirs.id;
            let Some(mine) = self.logs.iter_mut().find(is_its) else {
                self.logs.push(theirs.clone());
                continue;
            };
            mine.join(theirs);
        }
        self.logs.sort_by_key(|log| log.id);
    }

    /// Brings all times within reach of `now` after the clock was set back.
    pub(crate) fn rebase(&mut self, now: Timestamp) {
        self.logs.iter_mut().for_each(|log| log.rebase(now));
    }

    /// Returns whether calls of this type's methods could have led to this state.
    pub(crate) fn is_plausible(&self) -> bool {
        self.logs.iter().all(Log::is_plausible)
    }

    /// Returns the log of a limit, which is nearly always at the limit's own place.
    fn log(&self, place: usize, limit: &DeclaredLimit) -> Option<&Log> {
        let is_its = |log: &&Log| log.id == limit.id();
        let there = self.logs.get(place).filter(is_its);
        there.or_else(|| self.logs.iter().find(is_its))
    }
}
