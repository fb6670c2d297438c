//! The lanes decide which page is next.
//!
//! Pages of one origin form a [`Lane`]: the number of its pages in the crawl, the pages that it
//! took out last, the requests that are retried, and the state of its robots.txt. Lanes wait in one
//! queue ordered by next allowed time, so a slow host never delays a fast one. A waiting lane holds
//! no worker, because a worker gets a page only together with a permit.
//!
//! Nothing here sleeps, sends or reads the crawl: a worker takes pages out of it at
//! [`Take::Fill`]. A lane is *scheduled*, *parked* or *idle*. A scheduled lane has a time. A parked
//! lane waits until a request of its key comes back. An idle lane has nothing to do, or its pages
//! or its robots.txt are on their way.

pub(super) mod doubt;
mod gates;
mod held;
pub(super) mod lane;
pub(super) mod pending;
mod returned;
pub(super) mod sample;
mod supply;
mod tally;
mod turn;
mod under_way;
mod unit;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use politely::core::Timestamp;
use politely::core::fault::machine::{self, Machine};
use politely::core::fault::{Company, Verdict};
use politely::core::host::Directions;
use politely::core::key::Key;
use politely::core::queue::NextQueue;
use politely::core::retry::{Account, Budget, BudgetRule, Policy};
use politely::core::signal::{Failure, Report, Signal};
use url::{Position, Url};

use crate::fetch::robots::Standing;

pub(crate) use lane::Lane;
use pending::{Pending, Purpose};
pub(crate) use tally::Tally;

use doubt::Kept;
use gates::Gate;
pub(crate) use turn::{Job, Refused, Take};
use under_way::UnderWay;

/// A lane's number. Lanes live as long as the run.
pub(crate) type LaneId = u32;

/// The keys that one request names, the host's first.
pub(crate) type KeySet = Box<[Key]>;

/// A pause of the run while this machine is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    Begins,
    GoesOn,
}

/// All waiting URLs, and the lanes that hold them.
pub(crate) struct Lanes {
    all: Vec<Lane>,
    by_origin: HashMap<Arc<str>, LaneId>,
    due: NextQueue<(LaneId, u32)>,
    /// Lanes to wake when a request of this key comes back.
    parked: HashMap<Key, Vec<LaneId>>,
    /// Queues of lanes for keys that many lanes share.
    gates: Vec<Gate>,
    gate_of: HashMap<Key, u32>,
    under_way: UnderWay,
    /// The number of requests that wait to be sent, robots.txt included.
    waiting: u64,
    /// The number of waiting requests that belong to lanes set aside.
    aside: u64,
    /// The number of requests in flight.
    in_flight: u64,
    /// Whether more URLs may come.
    input_open: bool,
    /// Orders retries that are due at the same time.
    sequence: u64,
    robots: bool,
    /// Whether the limits of a request depend on its page.
    by_page: bool,
    /// Lanes that need further pages soon.
    low: Vec<LaneId>,
    /// Lanes whose learned state changed since it was last stored.
    dirty: Vec<LaneId>,
    /// Pages that were kept in doubt, and whose answers turned out to be theirs.
    finished: Vec<(LaneId, Kept)>,
    /// Lanes that keep pages in doubt which began elsewhere.
    redirected: Vec<LaneId>,
    sum: Tally,
    /// Whether the network of this machine works.
    machine: Machine,
    /// The lanes that wait for the machine's next probe, and its time.
    paused: Vec<LaneId>,
    next_probe: Timestamp,
    /// The run's retry budget.
    budget: Budget,
    policy: Policy,
}

impl Lanes {
    /// Returns no lanes. `robots` means that each origin's robots.txt comes first.
    pub(crate) fn new(robots: bool, policy: Policy) -> Self {
        Self {
            all: Vec::new(),
            by_origin: HashMap::new(),
            due: NextQueue::new(),
            parked: HashMap::new(),
            gates: Vec::new(),
            gate_of: HashMap::new(),
            under_way: UnderWay::default(),
            waiting: 0,
            aside: 0,
            in_flight: 0,
            input_open: true,
            sequence: 0,
            robots,
            by_page: false,
            low: Vec::new(),
            dirty: Vec::new(),
            finished: Vec::new(),
            redirected: Vec::new(),
            sum: Tally::default(),
            machine: Machine::default(),
            paused: Vec::new(),
            next_probe: Timestamp::NEVER,
            budget: Budget::UNTOUCHED,
            policy,
        }
    }

    /// Sets whether the limits of a request depend on its page.
    pub(crate) fn limited_by_page(mut self, by_page: bool) -> Self {
        self.by_page = by_page;
        self
    }

    /// Returns the lane of `url`, and whether it is new. A new lane is made with `keys`.
    pub(crate) fn lane_of(
        &mut self,
        url: &Url,
        keys: impl FnOnce() -> Box<[KeySet]>,
    ) -> (LaneId, bool) {
        let spelled;
        let origin = if url.username().is_empty() && url.password().is_none() {
            &url[..Position::BeforePath]
        } else {
            spelled = format!(
                "{}://{}",
                url.scheme(),
                &url[Position::BeforeHost..Position::BeforePath]
            );
            &spelled
        };
        if let Some(&id) = self.by_origin.get(origin) {
            return (id, false);
        }
        let id = self.all.len() as LaneId;
        let origin: Arc<str> = origin.into();
        self.by_origin.insert(Arc::clone(&origin), id);
        self.all
            .push(Lane::new(origin, keys(), self.robots, self.by_page));
        (id, true)
    }

    pub(crate) fn lane(&self, id: LaneId) -> &Lane {
        &self.all[id as usize]
    }

    pub(crate) fn lane_mut(&mut self, id: LaneId) -> &mut Lane {
        &mut self.all[id as usize]
    }

    pub(crate) fn all(&self) -> &[Lane] {
        &self.all
    }

    /// Counts `pages` pages that were added to the crawl.
    pub(crate) fn add(&mut self, id: LaneId, pages: u32, now: Timestamp) {
        let lane = &mut self.all[id as usize];
        if lane.is_empty() {
            lane.first_since = now;
            if lane.in_flight == 0 {
                lane.outage.start_over();
            }
        }
        let had_untried = lane.untried() > 0;
        lane.backlog += pages;
        lane.added += u64::from(pages);
        self.waiting += u64::from(pages);
        if lane.set_aside.is_some() {
            self.aside += u64::from(pages);
        } else if lane.due.is_none() && !had_untried {
            self.schedule(id, now);
        }
    }

    /// Puts a request that was refused or failed behind all that wait. It does not leave before
    /// `not_before`.
    pub(crate) fn put_back(
        &mut self,
        id: LaneId,
        pending: Box<Pending>,
        not_before: Timestamp,
        now: Timestamp,
    ) {
        if pending.purpose == Purpose::Proof {
            // The lane makes another one.
            return self.schedule(id, now.max(not_before));
        }
        self.sequence += 1;
        let sequence = self.sequence;
        let lane = self.make_room(id, now);
        match pending.purpose {
            Purpose::Robots(_) => {
                lane.errands.push_front(pending);
                lane.errands_not_before = not_before;
            }
            Purpose::Page | Purpose::Proof => {
                lane.put_behind(pending, sequence, not_before, now);
            }
        }
        self.schedule(id, now.max(not_before));
    }

    /// Puts a request that a redirect led to lane `id` in front.
    pub(crate) fn put_redirected(&mut self, id: LaneId, pending: Box<Pending>, now: Timestamp) {
        if pending.purpose != Purpose::Page {
            return self.put_back(id, pending, now, now);
        }
        self.make_room(id, now).put_redirected(pending);
        self.schedule(id, now);
    }

    /// Counts one more request that waits in lane `id`.
    fn make_room(&mut self, id: LaneId, now: Timestamp) -> &mut Lane {
        let lane = &mut self.all[id as usize];
        if lane.is_empty() {
            lane.first_since = now;
        }
        self.waiting += 1;
        self.aside += u64::from(lane.set_aside.is_some());
        lane
    }

    /// Closes the input: no more URLs will be added.
    pub(crate) fn close_input(&mut self) {
        self.input_open = false;
    }

    pub(crate) fn waiting(&self) -> u64 {
        self.waiting
    }

    pub(crate) fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Returns whether something is due at `now`. Out-of-date entries count too, and the caller
    /// detects them.
    pub(crate) fn is_due(&self, now: Timestamp) -> bool {
        !self.low.is_empty()
            || !self.finished.is_empty()
            || self.due.peek_due().is_some_and(|at| at <= now)
    }

    /// Sets the keys of lane `id`, which are known now.
    pub(crate) fn resolved(&mut self, id: LaneId, keys: Box<[KeySet]>, now: Timestamp) {
        let lane = &mut self.all[id as usize];
        lane.keys = keys;
        lane.awaits = None;
        self.schedule(id, now);
    }

    /// Handles a request that came back, and schedules the lanes that waited for its slot.
    pub(crate) fn came_back(&mut self, id: LaneId, now: Timestamp) {
        self.in_flight -= 1;
        self.all[id as usize].in_flight -= 1;
        if !self.parked.is_empty() || !self.gates.is_empty() {
            let keys = std::mem::take(&mut self.all[id as usize].keys);
            for key in keys.iter().flatten() {
                self.ask_again(key, now);
            }
            self.all[id as usize].keys = keys;
        }
        self.settle_kept(id, now);
        // The answer may make the next request due sooner.
        let lane = &self.all[id as usize];
        if !lane.is_empty() || lane.wants_proof() {
            self.schedule(id, now);
        } else {
            self.rests(id, Timestamp::NEVER, now);
        }
    }

    /// Schedules the lanes that wait for `key`, since it may have a permit now.
    pub(crate) fn ask_again(&mut self, key: &Key, now: Timestamp) {
        if let Some(&gate) = self.gate_of.get(key) {
            self.schedule_gate(gate, now);
        }
        for waiter in self.parked.remove(key).unwrap_or_default() {
            self.schedule(waiter, now);
        }
    }

    /// Records that a request of lane `id` failed, told in `words`. Returns what that means for
    /// `pending`.
    pub(crate) fn failed(
        &mut self,
        id: LaneId,
        pending: &mut Pending,
        report: &Report,
        directions: &Directions,
        words: &str,
        now: Timestamp,
    ) -> Verdict {
        let lane = &self.all[id as usize];
        let company = match pending.purpose {
            Purpose::Page if lane.is_empty() && lane.in_flight <= 1 => Company::Alone,
            Purpose::Page if lane.has_untried(u32::from(pending.is_untried())) => Company::Untried,
            Purpose::Page | Purpose::Proof => Company::Tried,
            // The pages behind a robots.txt cannot be tried before it.
            Purpose::Robots(of) if self.all[of as usize].pages_waiting() > 1 => Company::Untried,
            Purpose::Robots(_) => Company::Alone,
        };
        let lane = &mut self.all[id as usize];
        if pending.failed_at != id {
            pending.attempt.failures.forget_unclear();
            pending.failed_at = id;
        }
        lane.last_failure = words.into();
        lane.failed_connected += u32::from(!matches!(
            report.failure,
            Some(Failure::Connect | Failure::Tls | Failure::NoSuchHost | Failure::Resolver)
        ));
        self.asked_to_wait(id, pending.purpose, report, words, now);
        let lane = &mut self.all[id as usize];
        let (outage, attempt) = (&mut lane.outage, &mut pending.attempt);
        (self.policy).judge(outage, attempt, report, directions, company, now)
    }

    /// Records a failure of a request of lane `id` that may be this machine's. Returns the pause if
    /// it is.
    pub(crate) fn machine_failed(
        &mut self,
        id: LaneId,
        trouble: machine::Trouble,
        now: Timestamp,
    ) -> Option<Pause> {
        let was_paused = self.machine.paused_since().is_some();
        let has_answered = self.all[id as usize].outage.has_answered();
        let is_ours = self.machine.failed(now, id, has_answered, trouble);
        is_ours.then_some(if was_paused {
            Pause::GoesOn
        } else {
            Pause::Begins
        })
    }

    /// Records that a disk of this machine is full. Returns whether requests pause from now on.
    pub(crate) fn out_of_room(&mut self, now: Timestamp) -> bool {
        self.machine.out_of_room(now)
    }

    /// Records that there is room again. Returns how long requests had paused, if they did.
    pub(crate) fn has_room(&mut self, now: Timestamp) -> Option<Duration> {
        self.machine.has_room(now)
    }

    /// Returns whether requests pause, since this machine is at fault.
    pub(crate) fn is_paused(&self) -> bool {
        self.machine.paused_since().is_some()
    }

    /// Records that a host answered. Returns how long requests had paused, if they did. The hosts'
    /// failures of that time are forgotten.
    pub(crate) fn machine_works(&mut self, now: Timestamp) -> Option<Duration> {
        let paused = self.machine.answered(now)?;
        for lane in &mut self.all {
            lane.outage.forget_trouble();
        }
        self.resume(now);
        Some(paused)
    }

    /// Records that a request of lane `id` was served.
    pub(crate) fn served(&mut self, id: LaneId) {
        self.all[id as usize].outage.served();
    }

    /// Records that the first try of a page of lane `id` is over.
    pub(crate) fn tried(&mut self, id: LaneId) {
        let untried = &mut self.all[id as usize].untried_in_flight;
        *untried = untried.saturating_sub(1);
    }

    /// Returns the retry budgets that a request of lane `id` pays into and takes out of, with
    /// [`Policy::budgets`].
    pub(crate) fn accounts<'a>(
        &'a mut self,
        id: LaneId,
        (of_lane, of_all): &'a (BudgetRule, BudgetRule),
    ) -> [Account<'a>; 2] {
        let lane = &mut self.all[id as usize].budget;
        let all = &mut self.budget;
        [(lane, of_lane), (all, of_all)].map(|(budget, rule)| Account { budget, rule })
    }

    /// Records that a page of lane `id` is over.
    pub(crate) fn over(&mut self, id: LaneId, failed: bool) {
        for tally in [&mut self.all[id as usize].tally, &mut self.sum] {
            if failed {
                tally.failed += 1;
            } else {
                tally.pages += 1;
            }
        }
    }

    /// Records that a fetched page of lane `id` is as it was at its last visit.
    pub(crate) fn not_modified(&mut self, id: LaneId) {
        self.all[id as usize].tally.not_modified += 1;
        self.sum.not_modified += 1;
    }

    /// Records an answer to a request of lane `id`.
    pub(crate) fn answered(&mut self, id: LaneId, report: &Report) {
        for tally in [&mut self.all[id as usize].tally, &mut self.sum] {
            tally.bytes += report.bytes;
            tally.refused += u64::from(report.signal == Signal::RateLimited);
            tally.blocked += u64::from(report.signal == Signal::Blocked);
            tally.statuses.count(report.status);
        }
    }

    /// Returns the sum of all lanes' counts.
    pub(crate) fn sum(&self) -> Tally {
        self.sum.clone()
    }

    /// Returns whether hosts were fetched from, and only pages of origins wait whose robots.txt is
    /// unavailable.
    pub(crate) fn only_closed_left(&self) -> bool {
        let is_closed = |lane: &&Lane| {
            let is_open = matches!(lane.robots, Standing::Off | Standing::Known { .. });
            lane.set_aside.is_none() && !is_open
        };
        let closed = self.all.iter().filter(is_closed);
        let waiting: usize = closed
            .map(|lane| lane.pages_waiting() + lane.errands.len())
            .sum();
        self.sum.pages > 0 && !self.input_open && waiting as u64 == self.waiting - self.aside
    }

    /// Sets the state of lane `id`'s robots.txt.
    pub(crate) fn robots_answered(&mut self, id: LaneId, standing: Standing, now: Timestamp) {
        self.all[id as usize].robots = standing;
        self.schedule(id, now);
    }

    /// Marks that lane `id`'s learned state changed.
    pub(crate) fn learned(&mut self, id: LaneId) {
        let lane = &mut self.all[id as usize];
        if !std::mem::replace(&mut lane.dirty, true) {
            self.dirty.push(id);
        }
    }

    /// Returns the lanes that changed since the last call.
    pub(crate) fn take_dirty(&mut self) -> Vec<LaneId> {
        let dirty = std::mem::take(&mut self.dirty);
        for &id in &dirty {
            self.all[id as usize].dirty = false;
        }
        dirty
    }

    fn schedule(&mut self, id: LaneId, at: Timestamp) {
        let lane = &mut self.all[id as usize];
        if lane.set_aside.is_some() || lane.due.is_some_and(|due| due <= at) {
            return;
        }
        lane.due = Some(at);
        lane.stamp = lane.stamp.wrapping_add(1);
        self.due.push(at, (id, lane.stamp));
    }
}

#[cfg(test)]
mod tests;
