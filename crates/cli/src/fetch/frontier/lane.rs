//! The URLs of one origin, and the decision which of them is next.

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use politely::RefusalReason;
use politely::core::Timestamp;
use politely::core::retry::{Budget, BudgetRule};
use url::Url;

use super::outage::Health;
use super::pending::Pending;
use super::{KeySet, LaneId};
use crate::fetch::robots::{Rules, Standing};

/// The number of waiting pages whose refusals counted against the host from which on they are tried
/// again early.
const BLAMING_MIN: u32 = 2;
/// The number of untried URLs that go before such a page.
const EARLY_AFTER: u64 = 1;

/// One origin's URLs.
pub(crate) struct Lane {
    /// `https://example.com`, without a path.
    pub(crate) origin: Box<str>,
    /// The keys of the lane's requests, one set for each egress that has its own. The first one
    /// names the lane. It is empty until the host's address is known.
    pub(crate) keys: Box<[KeySet]>,
    pub(super) resolving: bool,
    /// Whether the lane stands in a gate's queue.
    pub(super) in_line: bool,
    pub(super) fresh: VecDeque<u64>,
    /// The number of URLs ever added to `fresh`.
    pub(super) added: u64,
    pub(super) returned: Returned,
    /// Waiting pages whose refusals counted against the host ([`Pending::blames_host`]).
    blaming: u32,
    /// Pages in flight that never failed.
    pub(super) untried_in_flight: u32,
    pub(crate) health: Health,
    /// Fetches of robots.txt, also for other origins that redirected here. They go before pages.
    pub(super) errands: VecDeque<Box<Pending>>,
    /// The backoff of `errands`: none of them leaves before this time.
    pub(super) errands_not_before: Timestamp,
    pub(crate) robots: Standing,
    /// The time of its next turn, if it is scheduled.
    pub(super) due: Option<Timestamp>,
    /// Queue entries with another stamp are out of date.
    pub(super) stamp: u32,
    pub(crate) in_flight: u32,
    /// The time since when the first URL in the queue has been first.
    pub(in crate::fetch) first_since: Timestamp,
    /// Why the limits refused the lane last.
    pub(in crate::fetch) waits_for: Cell<Option<RefusalReason>>,
    /// The lane's retry budget.
    pub(super) budget: Budget,
    pub(crate) tally: Tally,
    /// Whether the learned state changed since it was last stored.
    pub(super) dirty: bool,
    /// Why the lane is set aside: its hold is longer than the user allows. `None` if it is not set
    /// aside.
    pub(super) set_aside: Option<Box<str>>,
}

/// A lane's counts of pages, requests and bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) pages: u64,
    pub(crate) failed: u64,
    pub(crate) refused: u64,
    pub(crate) requests: u64,
    pub(crate) bytes: u64,
}

/// Pages that came back. Few lanes have any, so an empty value takes only a pointer.
#[derive(Default)]
pub(super) struct Returned(Option<Box<Queues>>);

#[derive(Default)]
struct Queues {
    /// Pages redirected here that were not tried yet.
    redirected: VecDeque<Box<Pending>>,
    /// Pages that were refused or failed, in the order in which they are tried again.
    ready: BinaryHeap<Reverse<Ready>>,
    /// Pages that wait for a time of their own.
    resting: BinaryHeap<Reverse<Resting>>,
}

/// A page's place in its lane's queue.
struct Ready {
    /// URLs added to the lane before the page came back. These go first.
    behind: u64,
    sequence: u64,
    pending: Box<Pending>,
}

struct Resting {
    not_before: Timestamp,
    page: Ready,
}

impl Returned {
    pub(super) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |queues| {
            queues.redirected.len() + queues.ready.len() + queues.resting.len()
        })
    }

    fn queues(&mut self) -> &mut Queues {
        self.0.get_or_insert_default()
    }
}

impl Queues {
    /// Moves the pages that blame the host forward, behind the first `early` URLs.
    fn hasten(&mut self, early: u64) {
        let mut pages = std::mem::take(&mut self.ready).into_vec();
        for Reverse(page) in &mut pages {
            if page.pending.blames_host {
                page.behind = page.behind.min(early);
            }
        }
        self.ready = pages.into();
    }
}

/// The next page of a lane.
enum First {
    Redirected,
    Ready,
    Fresh,
    /// No page before this time.
    At(Timestamp),
    None,
}

/// The next action of a lane.
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
    /// Returns an empty lane. `robots` means that its robots.txt comes first.
    pub(super) fn new(origin: &str, keys: Box<[KeySet]>, robots: bool) -> Self {
        Self {
            origin: origin.into(),
            keys,
            resolving: false,
            in_line: false,
            fresh: VecDeque::new(),
            added: 0,
            returned: Returned::default(),
            blaming: 0,
            untried_in_flight: 0,
            health: Health::default(),
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
            waits_for: Cell::default(),
            budget: Budget::full(&BudgetRule::PER_KEY, Timestamp::ZERO),
            tally: Tally::default(),
            dirty: false,
            set_aside: None,
        }
    }

    /// Returns the lane's name in result lines and tables.
    pub(crate) fn name(&self) -> &str {
        self.keys
            .first()
            .map_or(&self.origin, |keys| keys[0].as_str())
    }

    /// Returns the number of URLs that wait.
    pub(crate) fn pages_waiting(&self) -> usize {
        self.fresh.len() + self.returned.len()
    }

    pub(super) fn has_pages(&self) -> bool {
        self.pages_waiting() > 0
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.has_pages() && self.errands.is_empty()
    }

    pub(super) fn next(&mut self, now: Timestamp) -> Next {
        if self.resolving || self.is_empty() {
            return Next::Nothing;
        }
        if self.keys.is_empty() {
            return Next::Resolve;
        }
        if let Some(why) = self.health.gave_up()
            && self.has_pages()
        {
            return Next::GiveUp(why.to_owned());
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
        match self.first(now) {
            First::At(at) => Next::At(at),
            First::None => Next::Nothing,
            First::Redirected | First::Ready | First::Fresh => Next::Page,
        }
    }

    pub(super) fn ask_robots(&mut self, id: LaneId) {
        self.robots = std::mem::replace(&mut self.robots, Standing::Unknown).asked();
        self.errands
            .push_back(Box::new(Pending::robots(id, &self.origin)));
    }

    /// Returns whether the next page is forbidden.
    pub(super) fn forbidden(
        &mut self,
        rules: &Rules,
        now: Timestamp,
        look: &mut impl FnMut(&mut Pending) -> Option<Url>,
    ) -> Option<String> {
        let url = match self.peek(now) {
            Some(Err(offset)) => look(&mut Pending::page(offset)),
            Some(Ok(pending)) => {
                let (hop, offset) = (pending.hop.clone(), pending.offset);
                hop.or_else(|| look(&mut Pending::page(offset)))
            }
            None => None,
        }?;
        rules.forbids(&url)
    }

    /// Returns why the next page is out of attempts, if it is.
    pub(super) fn spent(&mut self, now: Timestamp, attempts_max: u32) -> Option<String> {
        if self.returned.len() == 0 || !matches!(self.first(now), First::Ready) {
            return None;
        }
        // Nothing that changes here affects its place.
        let mut page = self.returned.queues().ready.pop()?;
        let pending = &mut page.0.pending;
        self.health.settle(pending);
        let spent = pending.own_failures >= attempts_max;
        let why = spent.then(|| {
            let words = pending.trouble.as_deref().unwrap_or("no answer");
            format!("{words} (failed {} times)", pending.own_failures)
        });
        self.returned.queues().ready.push(page);
        why
    }

    /// Puts a page that was refused or failed behind all that wait now. It does not leave before
    /// `not_before`.
    ///
    /// Several refused pages go behind one untried URL only. Their next answers tell whether the
    /// host has a limit or these pages alone are refused. Until then each further refusal slows the
    /// host.
    pub(super) fn put_behind(
        &mut self,
        pending: Box<Pending>,
        sequence: u64,
        not_before: Timestamp,
        now: Timestamp,
    ) {
        let mut page = Ready {
            behind: self.added,
            sequence,
            pending,
        };
        let early = self.added.min(self.gone() + EARLY_AFTER);
        let queues = self.returned.queues();
        if page.pending.blames_host {
            self.blaming += 1;
            if self.blaming == BLAMING_MIN {
                queues.hasten(early);
            }
            if self.blaming >= BLAMING_MIN {
                page.behind = early;
            }
        }
        if not_before > now {
            queues.resting.push(Reverse(Resting { not_before, page }));
        } else {
            queues.ready.push(Reverse(page));
        }
    }

    /// Puts a page that a redirect led here in front: it was not tried here yet.
    pub(super) fn put_redirected(&mut self, pending: Box<Pending>) {
        self.returned.queues().redirected.push_back(pending);
    }

    /// Returns the number of URLs that left `fresh`.
    fn gone(&self) -> u64 {
        self.added - self.fresh.len() as u64
    }

    /// Returns which page is next at `now`. While the host is in trouble, an untried URL goes
    /// first, since its answer tells most about the host.
    fn first(&mut self, now: Timestamp) -> First {
        let fresh = !self.fresh.is_empty();
        let gone = self.gone();
        let Some(queues) = &mut self.returned.0 else {
            return if fresh { First::Fresh } else { First::None };
        };
        while let Some(Reverse(resting)) = queues.resting.peek()
            && resting.not_before <= now
            && let Some(Reverse(Resting { page, .. })) = queues.resting.pop()
        {
            queues.ready.push(Reverse(page));
        }
        if !queues.redirected.is_empty() {
            return First::Redirected;
        }
        match queues.ready.peek() {
            Some(Reverse(page)) if !fresh || (page.behind <= gone && !self.health.in_trouble()) => {
                First::Ready
            }
            _ if fresh => First::Fresh,
            _ => queues
                .resting
                .peek()
                .map_or(First::None, |Reverse(page)| First::At(page.not_before)),
        }
    }

    /// Returns the next page, or the offset of an untried URL.
    fn peek(&mut self, now: Timestamp) -> Option<Result<&Pending, u64>> {
        match self.first(now) {
            First::Fresh => self.fresh.front().map(|&offset| Err(offset)),
            First::Redirected => self
                .returned
                .queues()
                .redirected
                .front()
                .map(|page| Ok(&**page)),
            First::Ready => {
                let Reverse(page) = self.returned.queues().ready.peek()?;
                Some(Ok(&page.pending))
            }
            First::At(_) | First::None => None,
        }
    }

    pub(super) fn pull_page(&mut self, now: Timestamp) -> Option<Box<Pending>> {
        match self.first(now) {
            First::Redirected => return self.returned.queues().redirected.pop_front(),
            First::Ready => {
                let Reverse(mut page) = self.returned.queues().ready.pop()?;
                self.health.settle(&mut page.pending);
                self.blaming -= u32::from(std::mem::take(&mut page.pending.blames_host));
                return Some(page.pending);
            }
            First::Fresh => {}
            First::At(_) | First::None => return None,
        }
        let offset = self.fresh.pop_front()?;
        // A long queue that has drained releases its memory.
        if self.fresh.capacity() > 1024 && self.fresh.len() < self.fresh.capacity() / 4 {
            self.fresh.shrink_to(self.fresh.capacity() / 2);
        }
        Some(Box::new(Pending::page(offset)))
    }

    /// Returns whether an untried URL waits here, or is in flight beside `besides` others.
    pub(super) fn has_untried(&self, besides: u32) -> bool {
        !self.fresh.is_empty()
            || self.untried_in_flight > besides
            || (self.returned.0.as_ref()).is_some_and(|queues| !queues.redirected.is_empty())
    }
}

/// Orders a type by the value of an expression.
macro_rules! ordered_by {
    ($name:ident, $this:ident => $by:expr) => {
        impl PartialEq for $name {
            fn eq(&self, other: &Self) -> bool {
                self.cmp(other).is_eq()
            }
        }
        impl Eq for $name {}
        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
                Some(self.cmp(other))
            }
        }
        impl Ord for $name {
            fn cmp(&self, other: &Self) -> std::cmp::Ordering {
                let by = |$this: &Self| $by;
                by(self).cmp(&by(other))
            }
        }
    };
}
ordered_by!(Ready, page => (page.behind, page.sequence));
ordered_by!(Resting, resting => (resting.not_before, resting.page.sequence));
