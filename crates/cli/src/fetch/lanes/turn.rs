//! The turn of a lane: what a worker does next for it, and what follows if the limits refuse it.

use std::sync::Arc;

use politely::core::Timestamp;
use politely::core::key::Key;

use super::doubt::Kept;
use super::gates::{GATES, Gate};
use super::lane::{Awaited, Lane, Next};
use super::pending::{Pending, Purpose};
use super::{LaneId, Lanes};

/// The next action of a worker.
pub(crate) enum Take<P> {
    /// Send this.
    Send(Job<P>),
    /// Resolve the address of this lane's host, which is part of its key.
    Resolve(LaneId),
    /// Take further pages of this lane out of the crawl. With a permit, the first of them may
    /// leave.
    Fill(LaneId, Option<P>),
    /// End this page with the answer that was kept in doubt.
    Finish(LaneId, Kept),
    /// End this URL without a request, for this reason.
    Drop(LaneId, Box<Pending>, String),
    /// Nothing may leave before this time, or before a report or more input comes.
    Wait(Option<Timestamp>),
    /// Nothing is left and nothing will come.
    Done,
}

/// A request with its permit.
pub(crate) struct Job<P> {
    pub(crate) lane: LaneId,
    pub(crate) pending: Box<Pending>,
    pub(crate) permit: P,
}

/// Why a lane gets no permit.
pub(crate) enum Refused {
    /// Acquire again at this time.
    At(Timestamp),
    /// Acquire again at this time, or when a request of this key has come back.
    Slot(Timestamp, Key),
    /// Acquire again at this time, or when the coordinator has answered for one of its keys.
    Asked(Timestamp),
    /// The same as [`Self::At`], for a key that many lanes share.
    Shared(Timestamp, Key),
    /// Acquire again at this time. The host asked for this wait, which is longer than
    /// `--give-up-after`, and why.
    Held(Timestamp, String),
    /// Only the next page must wait, until this time. Others of its lane may leave.
    Page(Timestamp),
    /// The wait is longer than a run waits, and why.
    SetAside(String),
}

impl Refused {
    /// Returns when to acquire again, or the end of time for a lane that is set aside.
    pub(crate) const fn at(&self) -> Timestamp {
        match self {
            Self::At(at)
            | Self::Slot(at, _)
            | Self::Asked(at)
            | Self::Shared(at, _)
            | Self::Held(at, _)
            | Self::Page(at) => *at,
            Self::SetAside(_) => Timestamp::NEVER,
        }
    }
}

impl Lanes {
    /// Returns the next request that may leave at `now`. `may_leave` asks the limits.
    pub(crate) fn take<P>(
        &mut self,
        now: Timestamp,
        mut may_leave: impl FnMut(&Lane) -> Result<P, Refused>,
    ) -> Take<P> {
        if self.machine.is_out_of_room() {
            // Nothing can be written, so no page can be finished or taken out of the crawl.
            return Take::Wait(None);
        }
        if now >= self.next_probe {
            self.resume(now);
        }
        if let Some((id, page)) = self.finished.pop() {
            self.waiting -= 1;
            return Take::Finish(id, page);
        }
        if let Some(id) = self.low.pop() {
            return Take::Fill(id, None);
        }
        let mut of_machine = [None; 2];
        while let Some((_, (id, stamp))) = self.due.pop_due(now) {
            if id >= GATES {
                self.let_in(id - GATES, stamp, now);
                continue;
            }
            let lane = &mut self.all[id as usize];
            if lane.due.is_none() || lane.stamp != stamp {
                continue;
            }
            lane.due = None;
            if !self.machine_lets(id, now, &mut of_machine) {
                continue;
            }
            let lane = &mut self.all[id as usize];
            let next = lane.next(now);
            if !self.may_begin(id, &next) {
                continue;
            }
            let lane = &mut self.all[id as usize];
            let next = match next {
                Next::AskRobots => {
                    lane.ask_robots(id);
                    self.waiting += 1;
                    Next::Errand
                }
                other => other,
            };
            match next {
                Next::Nothing if lane.is_empty() => self.rests(id, Timestamp::NEVER, now),
                Next::Nothing => {}
                Next::Resolve => {
                    lane.awaits = Some(Awaited::Keys);
                    return Take::Resolve(id);
                }
                Next::Fill => {
                    lane.awaits = Some(Awaited::Pages);
                    return Take::Fill(id, None);
                }
                Next::At(at) => {
                    self.rests(id, at, now);
                    self.schedule(id, at);
                }
                Next::GiveUp(why) => {
                    if let Some(pending) = self.pull(id, Timestamp::NEVER) {
                        self.schedule(id, now);
                        return Take::Drop(id, pending, why);
                    }
                }
                Next::Errand => match may_leave(lane) {
                    Ok(permit) => {
                        if let Some(pending) = lane.errands.pop_front() {
                            return self.job(id, pending, permit, now);
                        }
                    }
                    Err(refused) => self.refused(id, refused, now),
                },
                Next::Prove => match may_leave(lane) {
                    Ok(permit) => {
                        if let Some(url) = &lane.doubts.known.served {
                            let mut pending = Box::new(Pending::proof(id, url));
                            if let Some(page) = lane.next_returned() {
                                pending.through = page.through;
                            }
                            self.waiting += 1;
                            return self.job(id, pending, permit, now);
                        }
                    }
                    Err(refused) => self.refused_page(id, refused, now),
                },
                Next::Page | Next::AskRobots => {
                    if let Some(take) = self.take_page(id, now, &mut may_leave) {
                        return take;
                    }
                }
            }
        }
        if self.settle_redirected(now) || self.end_held(now) {
            return self.take(now, may_leave);
        }
        // The queue may still hold entries that are out of date.
        if self.waiting == self.aside && self.in_flight == 0 && !self.input_open {
            return Take::Done;
        }
        let probe = (!self.paused.is_empty()).then_some(self.next_probe);
        Take::Wait(self.due.peek_due().into_iter().chain(probe).min())
    }

    /// Returns whether this machine lets a request of lane `id` leave. If not, the lane waits for
    /// the next probe. `known` has what the machine says of hosts that never answered, and of
    /// others.
    fn machine_lets(
        &mut self,
        id: LaneId,
        now: Timestamp,
        known: &mut [Option<Result<(), Timestamp>>; 2],
    ) -> bool {
        let has_answered = self.all[id as usize].outage.has_answered();
        let may_send = known[usize::from(has_answered)]
            .get_or_insert_with(|| self.machine.may_send(now, has_answered));
        let Err(next_probe) = *may_send else {
            return true;
        };
        self.paused.push(id);
        self.next_probe = next_probe;
        false
    }

    /// Lets the lanes that the machine's pause keeps ask again.
    pub(super) fn resume(&mut self, now: Timestamp) {
        for id in std::mem::take(&mut self.paused) {
            self.schedule(id, now);
        }
    }

    /// Takes the next page of lane `id`, if it may leave or ends without a request.
    fn take_page<P>(
        &mut self,
        id: LaneId,
        now: Timestamp,
        may_leave: &mut impl FnMut(&Lane) -> Result<P, Refused>,
    ) -> Option<Take<P>> {
        if let Some(why) = self.ends_unsent(id, now)
            && let Some(pending) = self.pull(id, now)
        {
            self.schedule(id, now);
            return Some(Take::Drop(id, pending, why));
        }
        let lane = &mut self.all[id as usize];
        match may_leave(lane) {
            Ok(permit) if lane.needs_page(now) => {
                lane.awaits = Some(Awaited::Pages);
                Some(Take::Fill(id, Some(permit)))
            }
            Ok(permit) => {
                let pending = lane.pull_page(id, now)?;
                Some(self.job(id, pending, permit, now))
            }
            Err(Refused::Page(at)) => {
                if let Some(pending) = self.pull(id, now) {
                    self.put_back(id, pending, at, now);
                }
                self.schedule(id, now);
                None
            }
            Err(refused) => {
                self.refused_page(id, refused, now);
                None
            }
        }
    }

    fn job<P>(&mut self, id: LaneId, pending: Box<Pending>, permit: P, now: Timestamp) -> Take<P> {
        let pending = self.depart(id, pending, now);
        Take::Send(Job {
            lane: id,
            pending,
            permit,
        })
    }

    /// Returns why the next page of lane `id` ends without a further request, if it does.
    pub(super) fn ends_unsent(&mut self, id: LaneId, now: Timestamp) -> Option<String> {
        let lane = &mut self.all[id as usize];
        let rules = lane.robots.rules().filter(|rules| rules.has_any());
        let forbidden = rules
            .map(Arc::clone)
            .and_then(|rules| lane.forbidden(&rules, now));
        forbidden.or_else(|| lane.spent(id, now, self.policy.attempts_max))
    }

    /// Counts a request that leaves.
    pub(super) fn depart(
        &mut self,
        id: LaneId,
        mut pending: Box<Pending>,
        now: Timestamp,
    ) -> Box<Pending> {
        self.waiting -= 1;
        self.in_flight += 1;
        let lane = &mut self.all[id as usize];
        lane.in_flight += 1;
        if pending.purpose == Purpose::Page && pending.is_untried() {
            lane.untried_in_flight += 1;
        }
        lane.tally.requests += 1;
        self.sum.requests += 1;
        pending.waited_us += now.micros_since(lane.first_since);
        pending.attempts += 1;
        lane.first_since = now;
        if lane.is_low() {
            lane.awaits = Some(Awaited::Pages);
            self.low.push(id);
        }
        if !lane.is_empty() && !lane.wants_proof() {
            self.schedule(id, now);
        }
        pending
    }

    /// Handles a page of lane `id` without a permit: it waits, or its host is given up.
    fn refused_page(&mut self, id: LaneId, refused: Refused, now: Timestamp) {
        let lane = &mut self.all[id as usize];
        let deadline = match refused {
            Refused::At(_) | Refused::Held(..) | Refused::Slot(..) if lane.in_flight == 0 => {
                lane.outage.deadline(now, self.policy.give_up_after)
            }
            _ => None,
        };
        if let Some(deadline) = deadline {
            if lane
                .outage
                .give_up(now, self.policy.give_up_after)
                .is_some()
            {
                return self.schedule(id, now);
            }
            self.refused(id, refused, now);
            return self.schedule(id, deadline);
        }
        self.refused(id, refused, now);
    }

    pub(super) fn refused(&mut self, id: LaneId, refused: Refused, now: Timestamp) {
        self.rests(id, refused.at(), now);
        match refused {
            Refused::At(at) | Refused::Page(at) => self.schedule(id, at),
            Refused::Held(at, why) => {
                let lane = &mut self.all[id as usize];
                // The reason of a closed origin is the answer to its robots.txt.
                if lane.errands.is_empty() || lane.held.is_none() {
                    lane.held = Some((at, why.into()));
                }
                self.schedule(id, at);
            }
            Refused::Slot(at, key) => {
                self.schedule(id, at);
                let waiters = self.parked.entry(key).or_default();
                if waiters.last() != Some(&id) {
                    waiters.push(id);
                }
            }
            Refused::Asked(at) => {
                self.schedule(id, at);
                for keys in &self.all[id as usize].keys {
                    let waiters = self.parked.entry(keys[0].clone()).or_default();
                    if waiters.last() != Some(&id) {
                        waiters.push(id);
                    }
                }
            }
            Refused::Shared(at, key) => {
                let new = self.gates.len() as u32;
                let gate = *self.gate_of.entry(key).or_insert(new);
                if gate == new {
                    self.gates.push(Gate::default());
                }
                if !std::mem::replace(&mut self.all[id as usize].in_line, true) {
                    self.gates[gate as usize].line.push_back(id);
                }
                self.schedule_gate(gate, at);
            }
            Refused::SetAside(why) => {
                // The answers to the pages that are kept were no answers of theirs.
                self.release(id, now);
                let lane = &mut self.all[id as usize];
                lane.due = None;
                lane.set_aside = Some(why.into());
                self.aside += (lane.pages_waiting() + lane.errands.len()) as u64;
            }
        }
    }

    /// Takes a page out of lane `id` without sending it.
    pub(super) fn pull(&mut self, id: LaneId, now: Timestamp) -> Option<Box<Pending>> {
        let pending = self.all[id as usize].pull_page(id, now)?;
        self.waiting -= 1;
        self.settle_kept(id, now);
        Some(pending)
    }
}
