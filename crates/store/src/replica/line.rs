//! Whose turn it is, and what they may take.

use std::time::Duration;

use politely_core::Timestamp;
use politely_core::host::{Ask, Decision, HORIZON, Reason, Wait};

use super::{BATCH, CLAIM, HEIRS, LATELY, POLL, PendingGrant, QUANTUM, Replica, WaiterReply};
use crate::node::NodeContext;
use crate::record::Record;

impl Replica {
    /// Lets those leave who may, and takes its place in the line of all who wait.
    pub(super) fn serve(
        &mut self,
        cell: &mut Record,
        context: &NodeContext,
        now: Timestamp,
        local: Timestamp,
        replies: &mut Vec<WaiterReply>,
    ) -> Vec<PendingGrant> {
        cell.host.generation(context.clock.number());
        let me = context.me;
        let place = cell.head.line.iter().position(|who| *who == me);
        if self.waiting.is_empty() {
            cell.head.line.retain(|who| *who != me);
            return Vec::new();
        }
        if local < context.apart_until {
            self.try_at = context.apart_until;
            return Vec::new();
        }
        let mut before = place.unwrap_or(cell.head.line.len());
        if before > 0 && self.are_late(cell, context, before, now, local) {
            cell.head.line.drain(..before);
            before = 0;
        }
        if before > 0
            && let Some(granted) = self.take_of_plenty(cell, context, now, local)
        {
            cell.head.line.retain(|who| *who != me);
            return granted;
        }
        if before > 0 {
            self.answer_at_once(
                replies,
                Wait {
                    at: now + CLAIM * before as u32,
                    reason: Reason::Pace,
                },
                local,
            );
            if place.is_none() && !self.waiting.is_empty() {
                cell.head.line.push(me);
            }
            return Vec::new();
        }
        self.open_since = None;
        let others = cell.others_wait(me);
        let (granted, wait) = self.take(cell, context, now, local, others);
        cell.head.line.retain(|who| *who != me);
        let Some(wait) = wait else {
            if !self.waiting.is_empty() {
                // It goes on after the others' turns, or at once.
                cell.head.line.push(me);
                self.try_at = local;
            }
            return granted;
        };
        if let Reason::Parked(_) = wait.reason {
            for ((_, ticket), _) in std::mem::take(&mut self.waiting) {
                replies.push(WaiterReply::Refused(ticket, wait));
            }
            return granted;
        }
        self.answer_at_once(replies, wait, local);
        if self.waiting.is_empty() {
            return granted;
        }
        let slots = wait.reason == Reason::InFlight && !cell.head.is_only_writer(me);
        if granted.is_empty() && place.is_some() {
            // Its turn is still to come.
            cell.head.line.insert(0, me);
        } else if others || self.contended || slots || place.is_some() {
            cell.head.line.push(me);
            self.contended = false;
        }
        let at = context.clock.local(wait.at);
        self.try_at = at.max(local + Duration::from_micros(100));
        self.look = slots;
        if slots {
            self.try_at = self.try_at.min(local + POLL);
        }
        granted
    }

    /// Those who want an answer now have it, if what we know is no older than a moment.
    fn answer_at_once(&mut self, replies: &mut Vec<WaiterReply>, wait: Wait, local: Timestamp) {
        if self.heard.is_none_or(|heard| local.since(heard) >= LATELY) {
            self.ask_first = self.waiting.values().any(|waiter| waiter.once);
            return;
        }
        self.waiting.retain(|(_, ticket), waiter| {
            if waiter.once {
                replies.push(WaiterReply::Refused(*ticket, wait));
            }
            !waiter.once
        });
    }

    /// Grants in order, while the gates are open.
    fn take(
        &mut self,
        cell: &mut Record,
        context: &NodeContext,
        now: Timestamp,
        local: Timestamp,
        others: bool,
    ) -> (Vec<PendingGrant>, Option<Wait>) {
        let mut granted: Vec<PendingGrant> = Vec::new();
        // Where shared time was put back the state is of a time to come.
        let ahead = self.at.since(context.clock.now(local));
        if ahead > HORIZON {
            let wait = Wait {
                at: self.at - HORIZON,
                reason: Reason::Pace,
            };
            return (granted, Some(wait));
        }
        let unsure = self.base.is_none() || !context.clock.looked_after(cell.born);
        let unsure = unsure.then(|| context.clock.lost());
        let (mut taken, of) = cell.host.slots(now, &context.config);
        while let Some((&(turn, ticket), &waiter)) = self.waiting.first_key_value() {
            if granted.len() >= BATCH {
                return (granted, None);
            }
            let mut ask = if waiter.once {
                waiter.ask
            } else {
                modest(waiter.ask, taken, of)
            };
            if ahead > LATELY {
                ask.horizon = ask.horizon.min(HORIZON.saturating_sub(ahead));
            }
            if others && let Some(first) = granted.first() {
                let until = first.grant.start + QUANTUM;
                ask.horizon = ask.horizon.min(until.since(now));
                if until < now {
                    return (granted, None);
                }
            }
            match cell.host.request(now, ask, &context.config) {
                Decision::Granted(grant) => {
                    self.waiting.pop_first();
                    taken += u32::from(grant.slots);
                    granted.push(PendingGrant {
                        turn,
                        ticket,
                        waiter,
                        grant,
                        starts: context.clock.local(grant.start),
                        unsure,
                    });
                }
                Decision::Wait(_) if others && !granted.is_empty() => return (granted, None),
                Decision::Wait(wait) => return (granted, Some(wait)),
            }
        }
        (granted, None)
    }

    /// Where there is plenty nobody needs to stand in line: all here are served, and as many again could be at once, with half
    /// of the slots left for them.
    fn take_of_plenty(
        &mut self,
        cell: &mut Record,
        context: &NodeContext,
        now: Timestamp,
        local: Timestamp,
    ) -> Option<Vec<PendingGrant>> {
        let mut asks = self.waiting.values().map(|waiter| waiter.ask);
        if self.waiting.len() > BATCH || asks.any(|ask| ask.bytes > 0) {
            return None;
        }
        let asks = self.waiting.values().map(|waiter| waiter.ask);
        let wanted: u32 = asks
            .map(|ask| u32::from(ask.slots.max(ask.cost).max(1)))
            .sum();
        let (taken, of) = cell.host.slots(now, &context.config);
        let all = Ask {
            cost: u16::try_from(wanted).ok()?,
            ..Ask::default()
        };
        let mut host = cell.host.clone();
        let mut is_there = || {
            matches!(
                host.request(now, all, &context.config),
                Decision::Granted(_)
            )
        };
        if 2 * (taken + wanted) > of || !is_there() || !is_there() {
            return None;
        }
        self.open_since = None;
        Some(self.take(cell, context, now, local, false).0)
    }

    /// Those before us could have gone on for a while and did not: they are gone, or very slow.
    fn are_late(
        &mut self,
        cell: &Record,
        context: &NodeContext,
        before: usize,
        now: Timestamp,
        local: Timestamp,
    ) -> bool {
        let before = before.min(HEIRS) as u32;
        let patience = CLAIM * before;
        let mut host = cell.host.clone();
        let (taken, of) = host.slots(now, &context.config);
        let ask = modest(Ask::within(HORIZON), taken, of);
        match host.request(now, ask, &context.config) {
            Decision::Granted(_) => {
                let since = *self.open_since.get_or_insert(local);
                let fresh = self.heard.is_some_and(|heard| heard >= since + patience);
                self.try_at = if fresh {
                    local + POLL
                } else {
                    (since + patience).max(local)
                };
                self.look = true;
                fresh
            }
            Decision::Wait(wait) => {
                self.open_since = None;
                let at = context.clock.local(wait.at);
                // Slots come back at any time; of all else it is known when it ends, or a notice tells.
                let polls = match wait.reason {
                    Reason::InFlight => before,
                    _ => 10 * before,
                };
                self.try_at = (at + patience).min(local + POLL * polls).max(local + CLAIM);
                self.look = true;
                false
            }
        }
    }
}

/// A permit ahead of its time takes a slot all the while: only where slots are plenty.
fn modest(ask: Ask, taken: u32, of: u32) -> Ask {
    if 2 * (taken + 1) <= of {
        return ask;
    }
    Ask {
        horizon: Duration::ZERO,
        ..ask
    }
}
