//! One origin's URLs, and what would be done with them now.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use politely::core::Timestamp;
use politely::core::retry::{Budget, BudgetRule};
use url::Url;

use super::frontier::LaneId;
use super::limits::KeySet;
use super::pending::Pending;
use super::robots::{Rules, Standing};

/// One origin's URLs.
pub(crate) struct Lane {
    /// `https://example.com`, no path.
    pub(crate) origin: Box<str>,
    /// The keys a request may leave under, one for each egress that has its own; the first gives the lane
    /// its name. None yet: the host's address has to be found out.
    pub(crate) keys: Box<[KeySet]>,
    pub(super) resolving: bool,
    /// It stands in a gate's line.
    pub(super) in_line: bool,
    pub(super) fresh: VecDeque<u64>,
    pub(super) again: BinaryHeap<Reverse<Again>>,
    /// Fetches of robots.txt, also for other origins that redirected here; they go before pages.
    pub(super) errands: VecDeque<Box<Pending>>,
    /// The errands' backoff: none goes before.
    pub(super) errands_not_before: Timestamp,
    pub(crate) robots: Standing,
    /// When it is looked at next, if it is scheduled.
    pub(super) due: Option<Timestamp>,
    /// Entries of the queue with another stamp are out of date.
    pub(super) stamp: u32,
    pub(crate) in_flight: u32,
    /// Since when the first in line has been first.
    pub(super) first_since: Timestamp,
    /// What the lane has to spend on retries.
    pub(super) budget: Budget,
    pub(crate) tally: Tally,
    /// The learned state changed since it was last kept.
    pub(super) dirty: bool,
    /// Its hold is too long to wait for.
    pub(super) set_aside: Option<Box<str>>,
}

/// What a lane did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) pages: u64,
    pub(crate) failed: u64,
    pub(crate) refused: u64,
    pub(crate) requests: u64,
    pub(crate) bytes: u64,
}

pub(super) struct Again {
    pub(super) not_before: Timestamp,
    pub(super) sequence: u64,
    pub(super) pending: Box<Pending>,
}

/// What a lane would do now.
pub(super) enum Next {
    Nothing,
    Resolve,
    At(Timestamp),
    AskRobots,
    Errand,
    Page,
    GiveUp(String),
}

impl Lane {
    /// An empty lane. `robots`: its robots.txt comes first.
    pub(super) fn new(origin: &str, keys: Box<[KeySet]>, robots: bool) -> Self {
        Self {
            origin: origin.into(),
            keys,
            resolving: false,
            in_line: false,
            fresh: VecDeque::new(),
            again: BinaryHeap::new(),
            errands: VecDeque::new(),
            errands_not_before: Timestamp::ZERO,
            robots: if robots {
                Standing::Unknown
            } else {
                Standing::Off
            },
            due: None,
            stamp: 0,
            in_flight: 0,
            first_since: Timestamp::ZERO,
            budget: Budget::full(&BudgetRule::PER_KEY, Timestamp::ZERO),
            tally: Tally::default(),
            dirty: false,
            set_aside: None,
        }
    }

    /// How rows and tables call it.
    pub(crate) fn name(&self) -> &str {
        self.keys
            .first()
            .map_or(&self.origin, |keys| keys[0].as_str())
    }

    /// URLs that wait.
    pub(crate) fn pages_waiting(&self) -> usize {
        self.fresh.len() + self.again.len()
    }

    pub(super) fn has_pages(&self) -> bool {
        self.pages_waiting() > 0
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.has_pages() && self.errands.is_empty()
    }

    pub(super) fn next(&self, now: Timestamp) -> Next {
        if self.resolving || self.is_empty() {
            return Next::Nothing;
        }
        if self.keys.is_empty() {
            return Next::Resolve;
        }
        if !self.errands.is_empty() {
            return if self.errands_not_before > now {
                Next::At(self.errands_not_before)
            } else {
                Next::Errand
            };
        }
        if !self.has_pages() {
            return Next::Nothing;
        }
        match &self.robots {
            Standing::Asking { .. } => return Next::Nothing,
            Standing::Unavailable { until, .. } if *until > now => return Next::At(*until),
            Standing::Unknown | Standing::Unavailable { .. } => return Next::AskRobots,
            Standing::Known { until, .. } if *until <= now => return Next::AskRobots,
            Standing::GaveUp(why) => return Next::GiveUp(why.to_string()),
            Standing::Off | Standing::Known { .. } => {}
        }
        match self.again.peek() {
            Some(Reverse(again)) if self.fresh.is_empty() && again.not_before > now => {
                Next::At(again.not_before)
            }
            _ => Next::Page,
        }
    }

    pub(super) fn ask_robots(&mut self, id: LaneId) {
        self.robots = std::mem::replace(&mut self.robots, Standing::Unknown).asked();
        self.errands
            .push_back(Box::new(Pending::robots(id, &self.origin)));
    }

    /// Is the page that is next forbidden?
    pub(super) fn forbidden(
        &mut self,
        rules: &Rules,
        now: Timestamp,
        look: &mut impl FnMut(&mut Pending) -> Option<Url>,
    ) -> Option<String> {
        let url = match self.again.peek() {
            Some(Reverse(again)) if self.again_is_first(now) => {
                let hop = again.pending.hop.clone();
                hop.or_else(|| look(&mut Pending::page(again.pending.offset)))
            }
            _ => look(&mut Pending::page(*self.fresh.front()?)),
        }?;
        rules.forbids(&url)
    }

    /// Is a page that goes again before the fresh ones?
    fn again_is_first(&self, now: Timestamp) -> bool {
        let first = self.again.peek();
        first.is_some_and(|Reverse(again)| again.not_before <= now || self.fresh.is_empty())
    }

    pub(super) fn pull_page(&mut self, now: Timestamp) -> Option<Box<Pending>> {
        if self.again_is_first(now) {
            return self.again.pop().map(|Reverse(again)| again.pending);
        }
        let offset = self.fresh.pop_front()?;
        // A long queue that has drained gives its memory back.
        if self.fresh.capacity() > 1024 && self.fresh.len() < self.fresh.capacity() / 4 {
            self.fresh.shrink_to(self.fresh.capacity() / 2);
        }
        Some(Box::new(Pending::page(offset)))
    }
}

impl PartialEq for Again {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for Again {}
impl PartialOrd for Again {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Again {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.not_before, self.sequence).cmp(&(other.not_before, other.sequence))
    }
}
