//! The quantities that a key spent of its declared limits.
//!
//! A charge is returned to the logs that it was taken from, and to no other: each log has the
//! *terms* in which departures were charged to it. A term goes on when its author replaces the
//! limit: if the limit comes back, no window of it has more departures than it allows.

use std::cmp::Ordering;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::calendar::Calendar;
use super::declared::Author;
use super::rolling::Rolling;
use super::unit::UnitCosts;
use super::{DeclaredLimit, DeclaredLimits, LimitUnit, LimitWindow};
use crate::Timestamp;

/// The most logs of limits that are not in force.
const OTHERS_MAX: usize = 8;
/// The most terms of a log. Departures of earlier terms give nothing back.
const TERMS_MAX: usize = 8;

/// The quantities that a key spent, one log per limit, in the order of their declaration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Spent {
    /// Grows with each change. It is at least the time of the change, so that it also grows if a
    /// key is forgotten and begins anew.
    version: u64,
    logs: Vec<Log>,
}

/// The quantity that was spent of one limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Log {
    /// Unit and window. A limit with another unit or window starts full.
    id: u32,
    unit: LimitUnit,
    /// When departures were charged, oldest first.
    terms: Vec<Term>,
    /// The end of the operator's last reset, zero without one. Departures before it are not
    /// charged here, neither now nor when they are settled. Later requests leave after it.
    reset: Timestamp,
    of: LogOf,
}

/// A time in which the limit, or one that replaced it, was in force. Departures from `from` until
/// before `until` were charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Term {
    from: Timestamp,
    /// `None`: it goes on.
    until: Option<Timestamp>,
    /// How many requests each request counted as.
    weight: u64,
    author: Author,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum LogOf {
    /// The log, and the seconds of its window.
    Rolling(Rolling, u32),
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

impl Term {
    fn is_of(&self, weight: u64, author: Author) -> bool {
        self.weight == weight && self.author == author
    }

    fn end(&self) -> Timestamp {
        self.until.unwrap_or(Timestamp::NEVER)
    }
}

impl Log {
    fn new(limit: &DeclaredLimit) -> Self {
        Self {
            id: limit.id(),
            unit: limit.unit(),
            terms: Vec::new(),
            reset: Timestamp::ZERO,
            of: match limit.window() {
                LimitWindow::Rolling(length) => {
                    LogOf::Rolling(Rolling::default(), length.as_secs() as u32)
                }
                _ => LogOf::Calendar(Calendar::default()),
            },
        }
    }

    /// Returns the present term, if departures are charged.
    fn present(&self) -> Option<&Term> {
        self.terms.last().filter(|term| term.until.is_none())
    }

    /// Returns whether the present term of a limit that is not among the `declared` ones is over.
    fn is_over_under(&self, declared: &DeclaredLimits) -> bool {
        let replaces = |term: &Term| declared.author().replaces(term.author);
        self.present()
            .is_some_and(|term| declared.is_empty() || !replaces(term))
    }

    /// Returns the term in which a departure at `at` was charged.
    fn term_of(&self, at: Timestamp) -> Option<Term> {
        let of_it = |term: &&Term| (term.from..term.end()).contains(&at);
        self.terms.iter().find(of_it).copied()
    }

    /// Ends the present term. No departure from `now` on is charged.
    fn end_term(&mut self, now: Timestamp) {
        if let Some(last) = self.terms.last_mut() {
            last.until = Some(last.end().min(now));
        }
        self.terms.retain(|term| term.from < term.end());
    }

    /// Begins a term for departures from `from` on.
    fn begin_term(&mut self, now: Timestamp, from: Timestamp, declared: &DeclaredLimits) {
        self.end_term(now);
        let earlier = self.terms.last().map_or(self.reset, Term::end);
        self.terms.push(Term {
            from: from.max(earlier).max(self.reset),
            until: None,
            weight: declared.weight(),
            author: declared.author(),
        });
        let surplus = self.terms.len().saturating_sub(TERMS_MAX);
        self.terms.drain(..surplus);
    }

    /// Charges a request of `cost` that is granted at `now` and leaves at `at`. `limit` is that of
    /// the log if it is in force: only then a next period of the calendar may begin.
    fn charge(&mut self, now: Timestamp, at: Timestamp, cost: u64, limit: Option<&DeclaredLimit>) {
        match (&mut self.of, limit.map(DeclaredLimit::window)) {
            (LogOf::Rolling(log, secs), _) => {
                let quantity = limit.map_or(u64::MAX, DeclaredLimit::quantity);
                log.charge(now, at, cost, quantity, length(*secs));
            }
            (LogOf::Calendar(log), Some(LimitWindow::Calendar(period, zone))) => {
                log.charge(at, cost, *period, zone);
            }
            (LogOf::Calendar(log), _) => log.charge_present(at, cost),
        }
    }

    /// Returns whether something may still count at `now`.
    fn counts(&self, now: Timestamp) -> bool {
        match &self.of {
            LogOf::Rolling(log, secs) => log.spent(now, u64::MAX, length(*secs)).0 > 0,
            LogOf::Calendar(log) => !log.is_past(now),
        }
    }

    fn next_start(&self, now: Timestamp, cost: u64, limit: &DeclaredLimit) -> Timestamp {
        let (quantity, now) = (limit.quantity(), now.max(self.reset));
        match (&self.of, limit.window()) {
            _ if cost > quantity => Timestamp::NEVER,
            (LogOf::Rolling(log, secs), _) => log.next_start(now, cost, quantity, length(*secs)),
            (LogOf::Calendar(log), LimitWindow::Calendar(period, zone)) => {
                log.next_start(now, cost, quantity, *period, zone)
            }
            _ => now,
        }
    }

    fn spent(&self, now: Timestamp, limit: &DeclaredLimit) -> (u64, Timestamp) {
        match (&self.of, limit.window()) {
            (LogOf::Rolling(log, secs), _) => log.spent(now, limit.quantity(), length(*secs)),
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
            match &mut log.of {
                LogOf::Rolling(log, secs) => log.put_back(at, cost, length(*secs)),
                LogOf::Calendar(log) => log.put_back(at, cost),
            }
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
                let reset = end.max(log.reset);
                *log = Log {
                    reset,
                    ..Log::new(limit)
                };
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
            match mine.reset.cmp(&theirs.reset) {
                Ordering::Less => *mine = theirs.clone(),
                Ordering::Greater => continue,
                Ordering::Equal => {}
            }
            mine.terms = common(&mine.terms, &theirs.terms);
            match (&mut mine.of, &theirs.of) {
                (LogOf::Rolling(mine, _), LogOf::Rolling(theirs, _)) => mine.join(theirs),
                (LogOf::Calendar(mine), LogOf::Calendar(theirs)) => mine.join(*theirs),
                _ => {}
            }
        }
        self.logs.sort_by_key(|log| log.id);
    }

    /// Brings all times within reach of `now` after the clock was set back.
    pub(crate) fn rebase(&mut self, now: Timestamp) {
        for log in &mut self.logs {
            for term in &mut log.terms {
                term.from = term.from.min(now);
                term.until = term.until.map(|until| until.min(now));
            }
            log.terms.retain(|term| term.from < term.end());
            log.reset = log.reset.min(now);
            match &mut log.of {
                LogOf::Rolling(log, secs) => log.rebase(now, length(*secs)),
                LogOf::Calendar(log) => log.rebase(now),
            }
        }
    }

    /// Returns whether calls of this type's methods could have led to this state.
    pub(crate) fn is_plausible(&self) -> bool {
        self.logs.iter().all(|log| match &log.of {
            LogOf::Rolling(log, _) => log.is_plausible(),
            LogOf::Calendar(_) => true,
        })
    }

    /// Returns the log of a limit, which is nearly always at the limit's own place.
    fn log(&self, place: usize, limit: &DeclaredLimit) -> Option<&Log> {
        let is_its = |log: &&Log| log.id == limit.id();
        let there = self.logs.get(place).filter(is_its);
        there.or_else(|| self.logs.iter().find(is_its))
    }
}

const fn length(secs: u32) -> Duration {
    Duration::from_secs(secs as u64)
}

/// Returns the times that are in terms of both sides.
fn common(mine: &[Term], theirs: &[Term]) -> Vec<Term> {
    let pairs = mine
        .iter()
        .flat_map(|one| theirs.iter().map(move |other| (one, other)));
    let alike = |one: &Term, other: &Term| (one.weight, one.author) == (other.weight, other.author);
    let common = pairs.filter(|(one, other)| alike(one, other));
    let common = common.map(|(one, other)| Term {
        from: one.from.max(other.from),
        until: one.until.into_iter().chain(other.until).min(),
        ..*one
    });
    let mut common: Vec<Term> = common.filter(|term| term.from < term.end()).collect();
    common.sort_unstable();
    common
}
