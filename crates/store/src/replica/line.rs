//! The line of nodes that wait for a key, and what the node at its head may grant.
//!
//! The line is part of the shared record. A node joins it if it has to wait for a slot, or competes
//! with other nodes. The head of the line serves its callers for a moment ([`QUANTUM`]) and goes to
//! the end. So every node gets a turn, and the engine sees one write per turn instead of one per
//! attempt.
//!
//! The other nodes watch the head. If it could have gone on for [`TURN_PATIENCE`] and did not, it
//! is passed over. A node far behind does not wait for each node before it: after a fleet was
//! killed, a line of dead nodes would block the key.

use std::time::Duration;

use politely_core::Timestamp;
use politely_core::host::{Ask, Decision, HORIZON, Reason, Wait};

use super::commit::{PendingGrant, WaiterReply};
use super::timers::Timer;
use super::{Attempt, LATELY, POLL, Replica};
use crate::node::NodeContext;
use crate::record::Record;

/// The time for which a node may leave its turn unused.
const TURN_PATIENCE: Duration = Duration::from_millis(250);
/// The number of nodes that are waited for, one after the other.
const TURNS_MAX: usize = 4;
/// The head of the line grants what starts within this time. Then it is the next node's turn.
const QUANTUM: Duration = Duration::from_millis(20);
/// The number of grants in one write.
const BATCH: usize = 1024;

/// The moment of an attempt, in shared and in local time.
#[derive(Clone, Copy)]
pub(super) struct Moment {
    /// The shared time at which a grant starts at the earliest.
    pub(super) now: Timestamp,
    pub(super) local: Timestamp,
    /// The expected time until a grant is confirmed, if that is long. `now` includes it.
    pub(super) latency: Duration,
}

impl Replica {
    /// Grants what may be sent now, and takes this node's place in the line of `record`.
    pub(super) fn serve(
        &mut self,
        record: &mut Record,
        context: &mut NodeContext,
        moment: Moment,
        replies: &mut Vec<WaiterReply>,
    ) -> Vec<PendingGrant> {
        let Moment {
            now,
            local,
            latency,
        } = moment;
        record.host.generation(context.clock.number());
        let me = context.me;
        let place = record.head.line.iter().position(|node| *node == me);
        if self.queue.is_empty() {
            record.head.line.retain(|node| *node != me);
            return Vec::new();
        }
        if local < context.apart_until {
            self.timers.set(Timer::Attempt, context.apart_until);
            return Vec::new();
        }
        let mut before = place.unwrap_or(record.head.line.len());
        if before > 0 && self.are_late(record, context, before, moment) {
            record.head.line.drain(..before);
            before = 0;
        }
        if before > 0
            && let Some(granted) = self.take_of_plenty(record, context, moment)
        {
            record.head.line.retain(|node| *node != me);
            return granted;
        }
        if before > 0 {
            let wait = Wait {
                at: now + TURN_PATIENCE * before as u32,
                reason: Reason::Pace,
            };
            self.refuse_impatient(replies, wait, local);
            if place.is_none() && !self.queue.is_empty() {
                record.head.line.push(me);
            }
            return Vec::new();
        }
        self.queue.open_since = None;
        let others_wait = record.others_wait(me);
        let (granted, wait) = self.take(record, context, moment, others_wait);
        record.head.line.retain(|node| *node != me);
        let Some(wait) = wait else {
            if !self.queue.is_empty() {
                // This node goes on after the turns of the others, or at once if there are none.
                record.head.line.push(me);
                self.timers.set(Timer::Attempt, local);
            }
            return granted;
        };
        if let Reason::Parked(_) = wait.reason {
            let tickets = self.queue.take_all();
            replies.extend(tickets.map(|ticket| WaiterReply::Refused(ticket, wait)));
            return granted;
        }
        self.refuse_impatient(replies, wait, local);
        if self.queue.is_empty() {
            return granted;
        }
        let waits_for_slot = wait.reason == Reason::InFlight && !record.head.is_only_writer(me);
        if granted.is_empty() && place.is_some() {
            // The turn of this node is still to come.
            record.head.line.insert(0, me);
        } else if others_wait || self.queue.is_contended || waits_for_slot || place.is_some() {
            record.head.line.push(me);
            self.queue.is_contended = false;
        }
        // A grant that is to start at `wait.at` must be written before.
        let at = context.clock.local(wait.at) - latency;
        let at = at.max(local + Duration::from_micros(100));
        self.timers.set(Timer::Attempt, at);
        self.attempt = Attempt::Serve;
        if waits_for_slot {
            self.attempt = Attempt::Read;
            self.timers.bring_forward(Timer::Attempt, local + POLL);
        }
        granted
    }

    /// Notes that the callers wait. Refuses those that want an answer now, or asks for a read if
    /// the known state is too old.
    fn refuse_impatient(&mut self, replies: &mut Vec<WaiterReply>, wait: Wait, local: Timestamp) {
        self.queue.note_wait();
        let heard_at = self.known.heard_at;
        if heard_at.is_none_or(|heard_at| local.since(heard_at) >= LATELY) {
            self.queue.needs_read = self.queue.wants_answer();
        } else {
            self.queue.refuse_impatient(replies, wait);
        }
    }

    /// Grants to the callers in order, while the gates of the key are open.
    fn take(
        &mut self,
        record: &mut Record,
        context: &NodeContext,
        moment: Moment,
        others_wait: bool,
    ) -> (Vec<PendingGrant>, Option<Wait>) {
        let Moment { now, local, .. } = moment;
        let mut granted: Vec<PendingGrant> = Vec::new();
        // After shared time was put back, the state is from a later time.
        let ahead = self.known.time.since(context.clock.now(local));
        if ahead > HORIZON {
            let wait = Wait {
                at: self.known.time - HORIZON,
                reason: Reason::Pace,
            };
            return (granted, Some(wait));
        }
        let is_new = self.known.value.is_none() || !context.clock.looked_after(record.born);
        let unconfirmed_since = is_new.then(|| context.clock.loss());
        let (mut taken, of) = record.host.slots(now, &context.config);
        while let Some(((arrival, ticket), waiter)) = self.queue.first() {
            if granted.len() >= BATCH {
                return (granted, None);
            }
            let mut ask = if waiter.once {
                waiter.ask.clone()
            } else {
                without_reservation(waiter.ask.clone(), taken, of)
            };
            if ahead > LATELY {
                ask.horizon = ask.horizon.min(HORIZON.saturating_sub(ahead));
            }
            if others_wait && let Some(first) = granted.first() {
                let until = first.grant.start + QUANTUM;
                ask.horizon = ask.horizon.min(until.since(now));
                if until < now {
                    return (granted, None);
                }
            }
            match record.host.request(now, ask, &context.config) {
                Decision::Granted(grant) => {
                    self.queue.pop_first();
                    taken += u32::from(grant.slots);
                    granted.push(PendingGrant {
                        arrival,
                        ticket,
                        waiter,
                        grant,
                        has_waited: self.queue.has_waited(ticket),
                        starts: context.clock.local(grant.start),
                        unconfirmed_since,
                    });
                }
                Decision::Wait(_) if others_wait && !granted.is_empty() => return (granted, None),
                Decision::Wait(wait) => return (granted, Some(wait)),
            }
        }
        (granted, None)
    }

    /// Grants out of turn if the key has plenty: all callers here can be served at once, the same
    /// number again as well, and half of the slots stay free.
    fn take_of_plenty(
        &mut self,
        record: &mut Record,
        context: &NodeContext,
        moment: Moment,
    ) -> Option<Vec<PendingGrant>> {
        if self.queue.len() > BATCH
            || self
                .queue
                .asks()
                .any(|ask| ask.bytes > 0 || ask.crawl_delay.is_some())
        {
            return None;
        }
        let asks = self.queue.asks();
        let wanted: u32 = asks
            .map(|ask| u32::from(ask.slots.max(ask.cost).max(1)))
            .sum();
        let (taken, of) = record.host.slots(moment.now, &context.config);
        let all = Ask {
            cost: u16::try_from(wanted).ok()?,
            ..Ask::default()
        };
        let mut host = record.host.clone();
        let mut is_granted = || {
            let decision = host.request(moment.now, all.clone(), &context.config);
            matches!(decision, Decision::Granted(_))
        };
        if 2 * (taken + wanted) > of || !is_granted() || !is_granted() {
            return None;
        }
        self.queue.open_since = None;
        Some(self.take(record, context, moment, false).0)
    }

    /// Returns whether the nodes before this one could have gone on for a while and did not.
    fn are_late(
        &mut self,
        record: &Record,
        context: &NodeContext,
        before: usize,
        moment: Moment,
    ) -> bool {
        let Moment { now, local, .. } = moment;
        let before = before.min(TURNS_MAX) as u32;
        let patience = TURN_PATIENCE * before;
        let mut host = record.host.clone();
        let (taken, of) = host.slots(now, &context.config);
        let ask = without_reservation(Ask::within(HORIZON), taken, of);
        let (at, are_late) = match host.request(now, ask, &context.config) {
            Decision::Granted(_) => {
                let since = *self.queue.open_since.get_or_insert(local);
                let heard_at = self.known.heard_at;
                let are_late = heard_at.is_some_and(|heard_at| heard_at >= since + patience);
                let at = if are_late {
                    local + POLL
                } else {
                    (since + patience).max(local)
                };
                (at, are_late)
            }
            Decision::Wait(wait) => {
                self.queue.open_since = None;
                let at = context.clock.local(wait.at);
                // A slot may come back at any time. All other waits end at a known time, or a
                // notice tells.
                let polls = match wait.reason {
                    Reason::InFlight => before,
                    _ => 10 * before,
                };
                let at = (at + patience).min(local + POLL * polls);
                (at.max(local + TURN_PATIENCE), false)
            }
        };
        self.timers.set(Timer::Attempt, at);
        self.attempt = Attempt::Read;
        are_late
    }
}

/// Returns `ask` without its horizon if slots are short: a permit ahead of its time takes a slot.
fn without_reservation(ask: Ask, taken: u32, of: u32) -> Ask {
    if 2 * (taken + 1) <= of {
        return ask;
    }
    Ask {
        horizon: Duration::ZERO,
        ..ask
    }
}
