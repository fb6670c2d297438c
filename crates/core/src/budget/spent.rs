//! The quantities that a key spent of its declared limits.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

use super::calendar::Calendar;
use super::rolling::Rolling;
use super::unit::UnitCosts;
use super::{DeclaredLimit, DeclaredLimits, LimitUnit, LimitWindow};
use crate::Timestamp;

/// The most logs of limits that are not in force.
const OTHERS_MAX: usize = 8;

/// The quantities that a key spent, one log per limit, in the order of their declaration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Spent(Vec<Log>);

/// The quantity that was spent of one limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Log {
    /// Unit and window. A limit with another unit or window starts full.
    id: u32,
    /// The departure of the first request that was charged here. What earlier ones give back was
    /// taken from other windows. [`Timestamp::NEVER`]: none was charged yet.
    since: Timestamp,
    /// The end of the operator's last reset, zero without one. Departures before it are not
    /// charged here, neither now nor when they are settled. Later requests leave after it.
    reset: Timestamp,
    of: LogOf,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum LogOf {
    Rolling(Rolling),
    Calendar(Calendar),
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

impl Log {
    fn new(limit: &DeclaredLimit) -> Self {
        Self {
            id: limit.id(),
            since: Timestamp::NEVER,
            reset: Timestamp::ZERO,
            of: match limit.window() {
                LimitWindow::Calendar(..) => LogOf::Calendar(Calendar::default()),
                _ => LogOf::Rolling(Rolling::default()),
            },
        }
    }

    fn next_start(&self, now: Timestamp, cost: u64, limit: &DeclaredLimit) -> Timestamp {
        let (quantity, now) = (limit.quantity(), now.max(self.reset));
        match (&self.of, limit.window()) {
            _ if cost > quantity => Timestamp::NEVER,
            (LogOf::Rolling(log), LimitWindow::Rolling(length)) => {
                log.next_start(now, cost, quantity, *length)
            }
            (LogOf::Calendar(log), LimitWindow::Calendar(period, zone)) => {
                log.next_start(now, cost, quantity, *period, zone)
            }
            _ => now,
        }
    }

    fn spent(&self, now: Timestamp, limit: &DeclaredLimit) -> (u64, Timestamp) {
        match (&self.of, limit.window()) {
            (LogOf::Rolling(log), LimitWindow::Rolling(length)) => log.spent(now, *length),
            (LogOf::Calendar(log), LimitWindow::Calendar(period, zone)) => {
                log.spent(now, *period, zone)
            }
            _ => (0, now),
        }
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

    /// Charges a request of `cost` that is granted at `now` and leaves at `at`, now or later.
    pub(crate) fn charge(
        &mut self,
        now: Timestamp,
        at: Timestamp,
        cost: &Cost,
        declared: &DeclaredLimits,
    ) {
        self.charge_later(now, at, Timestamp::NEVER, cost, declared);
    }

    /// Charges at `at` what a request cost that left at `departed`. Limits that were reset after
    /// its departure stay as they are.
    pub(crate) fn charge_later(
        &mut self,
        now: Timestamp,
        at: Timestamp,
        departed: Timestamp,
        cost: &Cost,
        declared: &DeclaredLimits,
    ) {
        self.align(declared);
        let weight = declared.weight();
        for (log, limit) in self.0.iter_mut().zip(declared.windows()) {
            if departed < log.reset {
                continue;
            }
            let cost = cost.of(limit.unit()).saturating_mul(weight);
            log.since = log.since.min(at);
            match (&mut log.of, limit.window()) {
                (LogOf::Rolling(log), LimitWindow::Rolling(length)) => {
                    log.charge(now, at, cost, *length);
                }
                (LogOf::Calendar(log), LimitWindow::Calendar(period, zone)) => {
                    log.charge(at, cost, *period, zone);
                }
                _ => {}
            }
        }
    }

    /// Takes back the charge of a request that did not leave at `at`.
    pub(crate) fn put_back(&mut self, at: Timestamp, cost: &Cost, declared: &DeclaredLimits) {
        self.align(declared);
        let weight = declared.weight();
        for (log, limit) in self.0.iter_mut().zip(declared.windows()) {
            if at < log.since.max(log.reset) {
                continue;
            }
            let cost = cost.of(limit.unit()).saturating_mul(weight);
            match (&mut log.of, limit.window()) {
                (LogOf::Rolling(log), LimitWindow::Rolling(length)) => {
                    log.put_back(at, cost, *length);
                }
                (LogOf::Calendar(log), _) => log.put_back(at, cost),
                _ => {}
            }
        }
    }

    /// Makes a limit whole, or all limits if `which` is `None`. Requests that leave before `end`
    /// are charged no more.
    pub(crate) fn reset(
        &mut self,
        end: Timestamp,
        which: Option<&DeclaredLimit>,
        declared: &DeclaredLimits,
    ) {
        self.align(declared);
        for (log, limit) in self.0.iter_mut().zip(declared.windows()) {
            if which.is_none_or(|which| which.id() == limit.id()) {
                *log = Log {
                    reset: end.max(log.reset),
                    ..Log::new(limit)
                };
            }
        }
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

    /// Keeps the smaller remainder of each limit. If one side has a later reset of it, that side
    /// counts.
    pub(crate) fn join(&mut self, other: &Self) {
        for theirs in &other.0 {
            let mine = self.0.iter_mut().find(|mine| mine.id == theirs.id);
            let Some(mine) = mine else {
                self.0.push(theirs.clone());
                continue;
            };
            match mine.reset.cmp(&theirs.reset) {
                Ordering::Less => *mine = theirs.clone(),
                Ordering::Greater => continue,
                Ordering::Equal => {}
            }
            mine.since = mine.since.min(theirs.since);
            match (&mut mine.of, &theirs.of) {
                (LogOf::Rolling(mine), LogOf::Rolling(theirs)) => mine.join(theirs),
                (LogOf::Calendar(mine), LogOf::Calendar(theirs)) => mine.join(*theirs),
                _ => {}
            }
        }
        self.0.sort_by_key(|log| log.id);
    }

    /// Brings all times within reach of `now` after the clock was set back.
    pub(crate) fn rebase(&mut self, now: Timestamp, declared: &DeclaredLimits) {
        for log in &mut self.0 {
            let id = log.id;
            if log.since != Timestamp::NEVER {
                log.since = log.since.min(now);
            }
            log.reset = log.reset.min(now);
            let limit = declared.windows().iter().find(|limit| limit.id() == id);
            match (&mut log.of, limit.map(DeclaredLimit::window)) {
                (LogOf::Rolling(log), Some(LimitWindow::Rolling(length))) => {
                    log.rebase(now, *length);
                }
                (LogOf::Calendar(log), _) => log.rebase(now),
                _ => {}
            }
        }
    }

    /// Returns whether calls of this type's methods could have led to this state.
    pub(crate) fn is_plausible(&self) -> bool {
        self.0.iter().all(|log| match &log.of {
            LogOf::Rolling(log) => log.is_plausible(),
            LogOf::Calendar(_) => true,
        })
    }

    /// Returns the log of a limit, which is nearly always at the limit's own place.
    fn log(&self, place: usize, limit: &DeclaredLimit) -> Option<&Log> {
        let is_its = |log: &&Log| log.id == limit.id();
        let there = self.0.get(place).filter(is_its);
        there.or_else(|| self.0.iter().find(is_its))
    }

    /// Puts one log per limit in front, in their order. The logs of other limits stay behind them,
    /// because those limits may come back: an operator corrects a mistake, or requests of a key
    /// follow two rules in turn.
    fn align(&mut self, declared: &DeclaredLimits) {
        let windows = declared.windows();
        let is_aligned = self.0.len() >= windows.len() && {
            let (first, others) = self.0.split_at(windows.len());
            let mut pairs = first.iter().zip(windows);
            pairs.all(|(log, limit)| log.id == limit.id())
                && others.iter().all(|log| log.since == Timestamp::NEVER)
        };
        if is_aligned {
            return;
        }
        let in_force = windows.iter().map(|limit| {
            let known = self.log(0, limit).cloned();
            known.unwrap_or_else(|| Log::new(limit))
        });
        let is_other = |log: &&Log| windows.iter().all(|limit| limit.id() != log.id);
        let others = self.0.iter().filter(is_other).take(OTHERS_MAX);
        // Requests of the meantime will not be charged there.
        let others = others.map(|log| Log {
            since: Timestamp::NEVER,
            ..log.clone()
        });
        self.0 = in_force.chain(others).collect();
    }
}
