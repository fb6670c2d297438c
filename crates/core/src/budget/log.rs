//! The log of one declared limit, and the terms in which it was charged.

use std::cmp::Ordering;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::calendar::Calendar;
use super::declared::Author;
use super::rolling::Rolling;
use super::{DeclaredLimit, DeclaredLimits, LimitUnit, LimitWindow};
use crate::Timestamp;

/// The most terms of a log. Departures of earlier terms give nothing back.
const TERMS_MAX: usize = 8;

/// The quantity that was spent of one limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Log {
    /// Unit and window. A limit with another unit or window starts full.
    pub(super) id: u32,
    pub(super) unit: LimitUnit,
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
pub(super) struct Term {
    from: Timestamp,
    /// `None`: it goes on.
    until: Option<Timestamp>,
    /// The number of requests that each request counted as.
    pub(super) weight: u64,
    author: Author,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum LogOf {
    /// The log, and the seconds of its window.
    Rolling(Rolling, u32),
    Calendar(Calendar),
}

impl Term {
    pub(super) fn is_of(&self, weight: u64, author: Author) -> bool {
        self.weight == weight && self.author == author
    }

    pub(super) fn end(&self) -> Timestamp {
        self.until.unwrap_or(Timestamp::NEVER)
    }
}

impl Log {
    pub(super) fn new(limit: &DeclaredLimit) -> Self {
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
    pub(super) fn present(&self) -> Option<&Term> {
        self.terms.last().filter(|term| term.until.is_none())
    }

    /// Returns whether the present term of a limit that is not among the `declared` ones is over.
    pub(super) fn is_over_under(&self, declared: &DeclaredLimits) -> bool {
        let replaces = |term: &Term| declared.author().replaces(term.author);
        self.present()
            .is_some_and(|term| declared.is_empty() || !replaces(term))
    }

    /// Returns the term in which a departure at `at` was charged.
    pub(super) fn term_of(&self, at: Timestamp) -> Option<Term> {
        let of_it = |term: &&Term| (term.from..term.end()).contains(&at);
        self.terms.iter().find(of_it).copied()
    }

    /// Ends the present term. No departure from `now` on is charged.
    pub(super) fn end_term(&mut self, now: Timestamp) {
        if let Some(last) = self.terms.last_mut() {
            last.until = Some(last.end().min(now));
        }
        self.terms.retain(|term| term.from < term.end());
    }

    /// Begins a term for departures from `from` on.
    pub(super) fn begin_term(
        &mut self,
        now: Timestamp,
        from: Timestamp,
        declared: &DeclaredLimits,
    ) {
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
    pub(super) fn charge(
        &mut self,
        now: Timestamp,
        at: Timestamp,
        cost: u64,
        limit: Option<&DeclaredLimit>,
    ) {
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
    pub(super) fn counts(&self, now: Timestamp) -> bool {
        match &self.of {
            LogOf::Rolling(log, secs) => log.spent(now, u64::MAX, length(*secs)).0 > 0,
            LogOf::Calendar(log) => !log.is_past(now),
        }
    }

    pub(super) fn next_start(&self, now: Timestamp, cost: u64, limit: &DeclaredLimit) -> Timestamp {
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

    pub(super) fn spent(&self, now: Timestamp, limit: &DeclaredLimit) -> (u64, Timestamp) {
        match (&self.of, limit.window()) {
            (LogOf::Rolling(log, secs), _) => log.spent(now, limit.quantity(), length(*secs)),
            (LogOf::Calendar(log), LimitWindow::Calendar(period, zone)) => {
                log.spent(now, *period, zone)
            }
            _ => (0, now),
        }
    }

    /// Makes the limit whole. Requests that leave before `end` are charged no more.
    pub(super) fn reset(&mut self, limit: &DeclaredLimit, end: Timestamp) {
        *self = Self {
            reset: end.max(self.reset),
            ..Self::new(limit)
        };
    }

    /// Takes back the charge of a departure at `at`.
    pub(super) fn put_back(&mut self, at: Timestamp, cost: u64) {
        match &mut self.of {
            LogOf::Rolling(log, secs) => log.put_back(at, cost, length(*secs)),
            LogOf::Calendar(log) => log.put_back(at, cost),
        }
    }

    /// Merges the logs of one limit that went on apart. The one with the later reset counts.
    pub(super) fn join(&mut self, other: &Self) {
        match self.reset.cmp(&other.reset) {
            Ordering::Less => self.clone_from(other),
            Ordering::Greater => return,
            Ordering::Equal => {}
        }
        self.terms = common(&self.terms, &other.terms);
        match (&mut self.of, &other.of) {
            (LogOf::Rolling(mine, _), LogOf::Rolling(theirs, _)) => mine.join(theirs),
            (LogOf::Calendar(mine), LogOf::Calendar(theirs)) => mine.join(*theirs),
            _ => {}
        }
    }

    pub(super) fn rebase(&mut self, now: Timestamp) {
        for term in &mut self.terms {
            term.from = term.from.min(now);
            term.until = term.until.map(|until| until.min(now));
        }
        self.terms.retain(|term| term.from < term.end());
        self.reset = self.reset.min(now);
        match &mut self.of {
            LogOf::Rolling(log, secs) => log.rebase(now, length(*secs)),
            LogOf::Calendar(log) => log.rebase(now),
        }
    }

    pub(super) fn is_plausible(&self) -> bool {
        match &self.of {
            LogOf::Rolling(log, _) => log.is_plausible(),
            LogOf::Calendar(_) => true,
        }
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
