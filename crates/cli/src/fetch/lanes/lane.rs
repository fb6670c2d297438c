//! The pages of one origin that wait, and the decision which of them is next.
//!
//! Most pages stay in the crawl. A lane holds the pages that it took last, about as many as it
//! sends in a second, and the pages that are tried again.

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::Arc;

use politely::RefusalReason;
use politely::core::Timestamp;
use politely::core::fault::{GivenUp, Outage};
use politely::core::retry::Budget;
use url::Url;

use super::doubt::Doubts;
use super::pending::{Page, Pending};
use super::returned::{Ready, Resting, Returned};
use super::tally::Tally;
use super::unit::Unit;
use super::{KeySet, LaneId};
use crate::fetch::robots::{Rules, Standing};

/// The number of untried URLs that go before a page whose first refusal held the host.
const EARLY_AFTER: u64 = 1;

/// The number of waiting pages that failed from which on a lane takes no further pages. It bounds
/// the memory of a host that refuses everything.
const RETURNED_MAX: usize = 10_000;

/// One origin's pages.
pub(crate) struct Lane {
    /// `https://example.com`, without a path.
    pub(crate) origin: Arc<str>,
    /// The keys of the lane's requests, one set for each egress that has its own. The first one
    /// names the lane. It is empty until the host's address is known.
    pub(crate) keys: Box<[KeySet]>,
    /// Whether the limits of a request depend on its page.
    pub(in crate::fetch) by_page: bool,
    /// What a worker is getting for the lane.
    pub(super) awaits: Option<Awaited>,
    /// Whether the lane stands in a gate's queue.
    pub(super) in_line: bool,
    /// The number of pages that wait in the crawl.
    pub(super) backlog: u32,
    /// Pages that were taken out of the crawl and not tried yet.
    pub(super) fresh: VecDeque<Page>,
    /// The pages that were taken last.
    pub(super) unit: Unit,
    /// The number of pages ever added.
    pub(super) added: u64,
    pub(super) returned: Returned,
    /// Pages in flight that never failed.
    pub(super) untried_in_flight: u32,
    pub(crate) outage: Outage,
    /// The last failure, in words.
    pub(crate) last_failure: Box<str>,
    /// The number of failed requests that had a connection to its host.
    pub(super) failed_connected: u32,
    /// Pages whose answers may be refusals.
    pub(super) doubts: Doubts,
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
    /// The end of the longest wait that its host asked for, if that is longer than
    /// [`politely::core::retry::Policy::give_up_after`], and why it waits.
    pub(super) held: Option<(Timestamp, Box<str>)>,
    /// Why the lane is set aside: its hold is longer than the user allows. `None` if it is not set
    /// aside.
    pub(super) set_aside: Option<Box<str>>,
}

/// What a worker gets for a lane. A lane needs its keys before its pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Awaited {
    /// The address of its host, which is part of its keys.
    Keys,
    /// Further pages out of the crawl.
    Pages,
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
    /// A page that was served before is requested.
    Prove,
    Fill,
    Page,
    GiveUp(String),
}

impl Lane {
    /// Returns an empty lane. `robots` means that its robots.txt comes first, and `by_page` that
    /// the limits of a request depend on its page.
    pub(super) fn new(origin: Arc<str>, keys: Box<[KeySet]>, robots: bool, by_page: bool) -> Self {
        Self {
            origin,
            keys,
            by_page,
            awaits: None,
            in_line: false,
            backlog: 0,
            fresh: VecDeque::new(),
            unit: Unit::default(),
            added: 0,
            returned: Returned::default(),
            untried_in_flight: 0,
            outage: Outage::default(),
            last_failure: Box::default(),
            failed_connected: 0,
            doubts: Doubts::default(),
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
            budget: Budget::UNTOUCHED,
            tally: Tally::default(),
            dirty: false,
            held: None,
            set_aside: None,
        }
    }

    /// Returns the lane's name in result lines and tables.
    pub(crate) fn name(&self) -> &str {
        self.keys
            .first()
            .map_or(&self.origin, |keys| keys[0].as_str())
    }

    /// Returns whether the run has pages of its origin, and does not only pass it in redirects.
    pub(crate) const fn has_own_pages(&self) -> bool {
        self.added > 0
    }

    /// Returns the number of pages that wait.
    pub(crate) fn pages_waiting(&self) -> usize {
        self.untried() + self.returned.len()
    }

    /// Returns whether the host is closed, so nothing tells when it serves its pages: it is set
    /// aside, it is down, or its robots.txt is not available.
    pub(crate) fn is_closed(&self) -> bool {
        self.set_aside.is_some()
            || self.outage.down_since().is_some()
            || matches!(
                self.robots,
                Standing::Unavailable { .. } | Standing::Asking { tries: 1.., .. }
            )
    }

    /// Returns the number of pages that wait and were not tried.
    pub(super) fn untried(&self) -> usize {
        self.backlog as usize + self.fresh.len()
    }

    pub(super) fn has_pages(&self) -> bool {
        self.pages_waiting() > 0
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.has_pages() && self.errands.is_empty()
    }

    pub(super) fn next(&mut self, now: Timestamp) -> Next {
        let is_doubted = self.wants_proof();
        if self.awaits == Some(Awaited::Keys) || self.is_empty() && !is_doubted {
            return Next::Nothing;
        }
        if self.keys.is_empty() {
            return Next::Resolve;
        }
        if self.has_pages()
            && let Some(why) = self.outage.given_up()
        {
            let why = match &self.robots {
                Standing::GaveUp(why) => why.to_string(),
                _ => self.why_given_up(why),
            };
            return self.give_up(why);
        }
        if is_doubted {
            return if self.in_flight > 0 {
                Next::Nothing
            } else {
                Next::Prove
            };
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
            Standing::GaveUp(why) => {
                let why = why.to_string();
                return self.give_up(why);
            }
            Standing::Off | Standing::Known { .. } => {}
        }
        match self.first(now) {
            First::At(at) => Next::At(at),
            First::None => Next::Nothing,
            First::Fresh if self.fresh.is_empty() && self.awaits.is_some() => Next::Nothing,
            // The rules may forbid the page, or limit it, so it must be known before a permit is
            // asked for.
            First::Fresh if self.fresh.is_empty() && (self.has_rules() || self.by_page) => {
                Next::Fill
            }
            First::Redirected | First::Ready | First::Fresh => Next::Page,
        }
    }

    /// Returns why the host is given up, in words for a user.
    pub(crate) fn why_given_up(&self, why: GivenUp) -> String {
        let (is_all, last) = match why {
            GivenUp::ServedNothing { is_all, .. } => (is_all, "answer"),
            GivenUp::NeverAnswered { is_all, .. } => (is_all, "failure"),
        };
        let option = if is_all { " (--give-up-after)" } else { "" };
        let is_closed = matches!(
            self.robots,
            Standing::Unavailable { .. } | Standing::Asking { .. }
        );
        let failure = &self.last_failure;
        let answer = match why {
            GivenUp::ServedNothing { .. } if is_closed => format!("robots.txt answers {failure}"),
            GivenUp::NeverAnswered { tries, .. } if is_closed && self.failed_connected > 0 => {
                format!("robots.txt: no answer in {tries} tries ({failure})")
            }
            _ => return format!("{why}{option}; the last {last}: {failure}"),
        };
        format!("{answer}: the host is closed to crawlers{option}")
    }

    /// Returns the next action of a lane that is given up.
    fn give_up(&mut self, why: String) -> Next {
        match self.needs_page(Timestamp::NEVER) {
            true if self.awaits.is_some() => Next::Nothing,
            true => Next::Fill,
            false => Next::GiveUp(why),
        }
    }

    fn has_rules(&self) -> bool {
        self.robots.rules().is_some_and(|rules| rules.has_any())
    }

    /// Returns whether the next page at `now` is still in the crawl.
    pub(super) fn needs_page(&mut self, now: Timestamp) -> bool {
        self.fresh.is_empty() && matches!(self.first(now), First::Fresh)
    }

    /// Returns whether further pages should be taken while others are being sent.
    pub(super) fn is_low(&self) -> bool {
        self.backlog > 0 && self.awaits.is_none() && self.unit.is_low(self.fresh.len())
    }

    pub(super) fn ask_robots(&mut self, id: LaneId) {
        self.robots = std::mem::replace(&mut self.robots, Standing::Unknown).asked();
        self.errands
            .push_back(Box::new(Pending::robots(id, &self.origin)));
    }

    /// Returns the rule that forbids the next page, if one does.
    pub(super) fn forbidden(&mut self, rules: &Rules, now: Timestamp) -> Option<String> {
        self.wake_rested(now);
        rules.forbids(&self.page_url()?)
    }

    /// Returns the URL of the next request, as far as it is known before a permit is acquired.
    pub(crate) fn next_url(&self) -> Option<Url> {
        if self.wants_proof() {
            return Url::parse(self.doubts.known.served.as_deref()?).ok();
        }
        match self.errands.front() {
            Some(errand) => errand.url(),
            None => self.page_url(),
        }
    }

    /// Returns the next request, if it was sent before. A proof is for a page that is kept.
    pub(crate) fn next_returned(&self) -> Option<&Pending> {
        if self.wants_proof() {
            return self.doubts.pages.first().map(|kept| &*kept.pending);
        }
        if let Some(errand) = self.errands.front() {
            return Some(errand);
        }
        let queues = self.returned.0.as_ref()?;
        match self.first_awake() {
            First::Redirected => queues.redirected.front().map(|page| &**page),
            First::Ready => queues.ready.peek().map(|Reverse(page)| &*page.pending),
            First::Fresh | First::At(_) | First::None => None,
        }
    }

    /// Returns the URL of the next page, if it is known.
    fn page_url(&self) -> Option<Url> {
        match self.first_awake() {
            First::Fresh => self.fresh.front()?.address(),
            First::Redirected | First::Ready => self.next_returned()?.url(),
            First::At(_) | First::None => None,
        }
    }

    /// Returns why the next page is out of attempts, if it is.
    pub(super) fn spent(
        &mut self,
        id: LaneId,
        now: Timestamp,
        attempts_max: u32,
    ) -> Option<String> {
        if self.returned.len() == 0 || !matches!(self.first(now), First::Ready) {
            return None;
        }
        // Nothing that changes here affects its place.
        let mut page = self.returned.queues().ready.pop()?;
        let pending = &mut page.0.pending;
        if pending.failed_at == id {
            self.outage.settle(&mut pending.attempt.failures);
        }
        let own = pending.attempt.failures.own;
        let spent = own >= attempts_max;
        let why = spent.then(|| {
            let words = pending.trouble.as_deref().unwrap_or("no answer");
            format!("{words} (failed {own} times)")
        });
        self.returned.queues().ready.push(page);
        why
    }

    /// Puts a page that was refused or failed behind all that wait now. It does not leave before
    /// `not_before`.
    ///
    /// A page whose first refusal held the host goes behind one untried URL only. Its next answer
    /// tells whether the host has a limit or this page alone is refused. Until then each further
    /// refusal slows the host.
    pub(super) fn put_behind(
        &mut self,
        mut pending: Box<Pending>,
        sequence: u64,
        not_before: Timestamp,
        now: Timestamp,
    ) {
        let is_early = std::mem::take(&mut pending.blames_host);
        let behind = if is_early {
            self.added.min(self.gone() + EARLY_AFTER)
        } else {
            self.added
        };
        let page = Ready {
            behind,
            sequence,
            pending,
        };
        let queues = self.returned.queues();
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

    pub(super) fn has_redirected(&self) -> bool {
        let queues = self.returned.0.as_ref();
        queues.is_some_and(|queues| !queues.redirected.is_empty())
    }

    /// Returns the number of pages that were tried.
    fn gone(&self) -> u64 {
        self.added - self.untried() as u64
    }

    /// Returns which page is next at `now`.
    fn first(&mut self, now: Timestamp) -> First {
        self.wake_rested(now);
        self.first_awake()
    }

    /// Moves the pages that have rested until `now` to those that are ready.
    fn wake_rested(&mut self, now: Timestamp) {
        let Some(queues) = &mut self.returned.0 else {
            return;
        };
        while let Some(Reverse(resting)) = queues.resting.peek()
            && resting.not_before <= now
            && let Some(Reverse(Resting { page, .. })) = queues.resting.pop()
        {
            queues.ready.push(Reverse(page));
        }
    }

    /// Returns which page is next. While the host is in trouble, an untried URL goes first, since
    /// its answer tells most about the host.
    fn first_awake(&self) -> First {
        let is_full = self.fresh.is_empty() && self.returned.len() >= RETURNED_MAX;
        let fresh = self.untried() > 0 && !is_full;
        let gone = self.gone();
        let Some(queues) = &self.returned.0 else {
            return if fresh { First::Fresh } else { First::None };
        };
        if !queues.redirected.is_empty() {
            return First::Redirected;
        }
        match queues.ready.peek() {
            Some(Reverse(page)) if !fresh || (page.behind <= gone && !self.outage.in_trouble()) => {
                First::Ready
            }
            _ if fresh => First::Fresh,
            _ => queues
                .resting
                .peek()
                .map_or(First::None, |Reverse(page)| First::At(page.not_before)),
        }
    }

    /// Takes out the next page. Returns `None` if it must be taken out of the crawl first.
    pub(super) fn pull_page(&mut self, id: LaneId, now: Timestamp) -> Option<Box<Pending>> {
        match self.first(now) {
            First::Redirected => return self.returned.queues().redirected.pop_front(),
            First::Ready => {
                let Reverse(mut page) = self.returned.queues().ready.pop()?;
                if page.pending.failed_at == id {
                    self.outage.settle(&mut page.pending.attempt.failures);
                }
                return Some(page.pending);
            }
            First::Fresh => {}
            First::At(_) | First::None => return None,
        }
        let page = self.fresh.pop_front()?;
        if self.fresh.is_empty() {
            // Most lanes wait long for their next turn.
            self.fresh = VecDeque::new();
        }
        Some(Box::new(Pending::page(id, page)))
    }

    /// Returns whether an untried URL waits here, or is in flight beside `besides` others.
    pub(super) fn has_untried(&self, besides: u32) -> bool {
        self.untried() > 0
            || self.untried_in_flight > besides
            || (self.returned.0.as_ref()).is_some_and(|queues| !queues.redirected.is_empty())
    }
}
