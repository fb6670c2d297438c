//! Whose turn it is, and what they may take.

use std::time::Duration;

use politely_core::Timestamp;
use politely_core::host::{Ask, Decision, HORIZON, Reason, Wait};

use super::super::cell::Cell;
use super::{BATCH, CLAIM, Desk, Granting, HEIRS, LATELY, POLL, QUANTUM, Shop, Told};

impl Desk {
    /// Lets those leave who may, and takes its place in the line of all who wait.
    pub(super) fn serve(
        &mut self,
        cell: &mut Cell,
        shop: &Shop,
        now: Timestamp,
        mono: Timestamp,
        told: &mut Vec<Told>,
    ) -> Vec<Granting> {
        cell.host.generation(shop.epochs.number());
        let me = shop.me;
        let place = cell.head.line.iter().position(|who| *who == me);
        if self.waiting.is_empty() {
            cell.head.line.retain(|who| *who != me);
            return Vec::new();
        }
        if mono < shop.apart_until {
            self.try_at = shop.apart_until;
            return Vec::new();
        }
        let mut before = place.unwrap_or(cell.head.line.len());
        if before > 0 && self.are_late(cell, shop, before, now, mono) {
            cell.head.line.drain(..before);
            before = 0;
        }
        if before > 0
            && let Some(granted) = self.take_of_plenty(cell, shop, now, mono)
        {
            cell.head.line.retain(|who| *who != me);
            return granted;
        }
        if before > 0 {
            self.answer_at_once(
                told,
                Wait {
                    at: now + CLAIM * before as u32,
                    reason: Reason::Pace,
                },
                mono,
            );
            if place.is_none() && !self.waiting.is_empty() {
                cell.head.line.push(me);
            }
            return Vec::new();
        }
        self.open_since = None;
        let others = cell.others_wait(me);
        let (granted, wait) = self.take(cell, shop, now, mono, others);
        cell.head.line.retain(|who| *who != me);
        let Some(wait) = wait else {
            if !self.waiting.is_empty() {
                // It goes on after the others' turns, or at once.
                cell.head.line.push(me);
                self.try_at = mono;
            }
            return granted;
        };
        if let Reason::Parked(_) = wait.reason {
            for ((_, ticket), _) in std::mem::take(&mut self.waiting) {
                told.push(Told::No(ticket, wait));
            }
            return granted;
        }
        self.answer_at_once(told, wait, mono);
        if self.waiting.is_empty() {
            return granted;
        }
        let slots = wait.reason == Reason::InFlight && !cell.head.is_only(me);
        if granted.is_empty() && place.is_some() {
            // Its turn is still to come.
            cell.head.line.insert(0, me);
        } else if others || self.contended || slots || place.is_some() {
            cell.head.line.push(me);
            self.contended = false;
        }
        let at = shop.epochs.mono(wait.at);
        self.try_at = at.max(mono + Duration::from_micros(100));
        self.look = slots;
        if slots {
            self.try_at = self.try_at.min(mono + POLL);
        }
        granted
    }

    /// Those who want an answer now have it, if what we know is no older than a moment.
    fn answer_at_once(&mut self, told: &mut Vec<Told>, wait: Wait, mono: Timestamp) {
        if self.heard.is_none_or(|heard| mono.since(heard) >= LATELY) {
            self.ask_first = self.waiting.values().any(|waiter| waiter.once);
            return;
        }
        self.waiting.retain(|(_, ticket), waiter| {
            if waiter.once {
                told.push(Told::No(*ticket, wait));
            }
            !waiter.once
        });
    }

    /// Grants in order, while the gates are open.
    fn take(
        &mut self,
        cell: &mut Cell,
        shop: &Shop,
        now: Timestamp,
        mono: Timestamp,
        others: bool,
    ) -> (Vec<Granting>, Option<Wait>) {
        let mut granted: Vec<Granting> = Vec::new();
        // Where shared time was put back the state is of a time to come.
        let ahead = self.at.since(shop.epochs.now(mono));
        if ahead > HORIZON {
            let wait = Wait {
                at: self.at - HORIZON,
                reason: Reason::Pace,
            };
            return (granted, Some(wait));
        }
        let unsure = self.base.is_none() || !shop.epochs.looked_after(cell.born);
        let unsure = unsure.then(|| shop.epochs.lost());
        let (mut taken, of) = cell.host.slots(now, &shop.config);
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
            match cell.host.request(now, ask, &shop.config) {
                Decision::Granted(grant) => {
                    self.waiting.pop_first();
                    taken += u32::from(grant.slots);
                    granted.push(Granting {
                        turn,
                        ticket,
                        waiter,
                        grant,
                        starts: shop.epochs.mono(grant.start),
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
        cell: &mut Cell,
        shop: &Shop,
        now: Timestamp,
        mono: Timestamp,
    ) -> Option<Vec<Granting>> {
        let mut asks = self.waiting.values().map(|waiter| waiter.ask);
        if self.waiting.len() > BATCH || asks.any(|ask| ask.bytes > 0) {
            return None;
        }
        let asks = self.waiting.values().map(|waiter| waiter.ask);
        let wanted: u32 = asks
            .map(|ask| u32::from(ask.slots.max(ask.cost).max(1)))
            .sum();
        let (taken, of) = cell.host.slots(now, &shop.config);
        let all = Ask {
            cost: u16::try_from(wanted).ok()?,
            ..Ask::default()
        };
        let mut host = cell.host.clone();
        let mut is_there = || matches!(host.request(now, all, &shop.config), Decision::Granted(_));
        if 2 * (taken + wanted) > of || !is_there() || !is_there() {
            return None;
        }
        self.open_since = None;
        Some(self.take(cell, shop, now, mono, false).0)
    }

    /// Those before us could have gone on for a while and did not: they are gone, or very slow.
    fn are_late(
        &mut self,
        cell: &Cell,
        shop: &Shop,
        before: usize,
        now: Timestamp,
        mono: Timestamp,
    ) -> bool {
        let before = before.min(HEIRS) as u32;
        let patience = CLAIM * before;
        let mut host = cell.host.clone();
        let (taken, of) = host.slots(now, &shop.config);
        let ask = modest(Ask::within(HORIZON), taken, of);
        match host.request(now, ask, &shop.config) {
            Decision::Granted(_) => {
                let since = *self.open_since.get_or_insert(mono);
                let fresh = self.heard.is_some_and(|heard| heard >= since + patience);
                self.try_at = if fresh {
                    mono + POLL
                } else {
                    (since + patience).max(mono)
                };
                self.look = true;
                fresh
            }
            Decision::Wait(wait) => {
                self.open_since = None;
                let at = shop.epochs.mono(wait.at);
                // Slots come back at any time; of all else it is known when it ends, or a notice tells.
                let polls = match wait.reason {
                    Reason::InFlight => before,
                    _ => 10 * before,
                };
                self.try_at = (at + patience).min(mono + POLL * polls).max(mono + CLAIM);
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
