//! Callers acquire permits and get replies, as `politely`'s `shared/mod.rs` does it.

use std::sync::Arc;
use std::time::Duration;

use politely_core::gate::{LeaseId, grace};
use politely_core::host::{AcquireRequest, HORIZON, Wait};

use super::dice::{MS, Micros, SECOND};
use super::flight::{Flight, Part};
use super::log::{End, What};
use super::world::{Own, World};
use politely_core::arrival::Arrival;
use politely_store::{Event, Grant, HeldLease, Reply, Ticket};

/// A caller with several keys gives up after this time. No key reserves a permit for it, so another
/// caller may always be first.
const PATIENCE: Micros = 20 * SECOND;

/// One worker's call for a permit.
#[derive(Debug)]
pub(super) struct Caller {
    pub(super) who: usize,
    pub(super) life: u32,
    worker: usize,
    keys: Vec<usize>,
    /// The key that refused last is asked first.
    first: usize,
    got: Vec<Part>,
    ask: AcquireRequest,
    once: bool,
    turn: Arrival,
    asked: Option<(usize, Ticket)>,
    pub(super) over: bool,
}

impl World {
    /// A worker wants to send a request.
    pub(super) fn asks(&mut self, who: usize, worker: usize) {
        if self.now >= self.plan.load {
            return;
        }
        let work = &self.plan.work;
        let (several, once, run) = (work.several_keys, work.once, work.run);
        let dice = &mut self.dice;
        let first = dice.whole(0, self.keys.len() as u64 - 1) as usize;
        let mut keys = vec![first];
        if self.keys.len() > 1 && dice.chance(several) {
            let more = dice.whole(1, self.keys.len() as u64 - 1) as usize;
            keys.extend((1..=more).map(|i| (first + i) % self.keys.len()));
        }
        let single = keys.len() == 1;
        let ask = AcquireRequest {
            slots: if single && dice.chance(run) {
                dice.whole(2, 4) as u16
            } else {
                1
            },
            horizon: if single { HORIZON } else { Duration::ZERO },
            ..AcquireRequest::default()
        };
        let once = single && dice.chance(once);
        let caller = self.callers.len();
        self.callers.push(Caller {
            who,
            life: self.seats[who].life,
            worker,
            keys,
            first: 0,
            got: Vec::new(),
            ask,
            once,
            turn: Arrival::from_micros(self.seats[who].local(self.now).as_micros()),
            asked: None,
            over: false,
        });
        if self.dice.chance(self.plan.work.give_up) {
            let at = self.now + self.dice.span(MS, 4 * SECOND);
            self.to(who, at, Own::GivesUp(caller));
        }
        self.asks_on(caller);
    }

    /// Asks the next key.
    pub(super) fn asks_on(&mut self, id: usize) {
        let caller = &mut self.callers[id];
        if caller.over || caller.asked.is_some() {
            return;
        }
        let done = caller.got.len();
        let index = match done {
            0 => caller.first,
            _ if done <= caller.first => done - 1,
            _ => done,
        };
        let key = caller.keys[index];
        let once = caller.once || done > 0;
        let who = caller.who;
        let (turn, ask) = (caller.turn, caller.ask.clone());
        let local = self.local(who);
        let ticket = self.seats[who]
            .node
            .acquire(&self.keys[key].0, turn, ask, once, local);
        self.callers[id].asked = Some((key, ticket));
        self.seats[who].waits.insert(ticket, id);
        self.note(who, What::Asks { ticket, key, once });
    }

    pub(super) fn gives_up(&mut self, id: usize) {
        let caller = &mut self.callers[id];
        if caller.over {
            return;
        }
        caller.over = true;
        let (who, worker, turn) = (caller.who, caller.worker, caller.turn);
        let got = std::mem::take(&mut caller.got);
        if let Some((key, ticket)) = caller.asked.take() {
            self.seats[who].waits.remove(&ticket);
            let key = self.keys[key].0.clone();
            self.seats[who].node.cancel(&key, turn, ticket);
            self.note(who, What::GivesUp { ticket });
        }
        self.give_back(who, &got);
        self.rests(who, worker);
    }

    pub(super) fn give_back(&mut self, who: usize, parts: &[Part]) {
        for part in parts {
            let lease = *part.lease.id();
            self.note(
                who,
                What::GivesBack {
                    key: part.key,
                    lease: lease.0,
                },
            );
            self.books.cancelled += 1;
            self.tell(
                who,
                part.key,
                Event::Cancel {
                    lease,
                    unused: Some(AcquireRequest::default().unused()),
                },
            );
        }
    }

    pub(super) fn tell(&mut self, who: usize, key: usize, event: Event) {
        let local = self.local(who);
        let key = &self.keys[key].0;
        self.seats[who].node.apply(key, event, local);
    }

    pub(super) fn rests(&mut self, who: usize, worker: usize) {
        let think = match self.plan.work.think {
            0 => 0,
            most => self.dice.whole(0, 2 * most),
        };
        let at = self.now + think + self.jitter();
        self.to(who, at, Own::Asks(worker));
    }

    /// Passes on the node's replies. Returns whether there were any.
    pub(super) fn deliver(&mut self, who: usize) -> bool {
        let local = self.local(who);
        let deliveries = self.seats[who].node.poll_replies(local);
        let any = !deliveries.is_empty();
        for delivery in deliveries {
            let Reply { ticket, result } = delivery;
            let Some(id) = self.seats[who].waits.remove(&ticket) else {
                self.books.wrong(format!(
                    "c{who} tells ticket {ticket}, which nobody waits for"
                ));
                continue;
            };
            let asked = self.callers[id].asked.take();
            let key = asked.expect("it waited").0;
            match result {
                Ok(grant) => self.is_granted(id, key, ticket, &grant),
                Err(wait) => self.is_refused(id, ticket, wait),
            }
        }
        any
    }

    fn is_granted(&mut self, id: usize, key: usize, ticket: Ticket, granted: &Grant) {
        let caller = &self.callers[id];
        let who = caller.who;
        self.note(
            who,
            What::Granted {
                ticket,
                lease: granted.lease.0,
                slots: granted.slots,
                start: self.seats[who].when(granted.start),
            },
        );
        self.books.granted += u64::from(granted.slots);
        let local = self.local(who);
        // A grant that was confirmed late is valid for less. With both it may be used for one and a
        // half graces after its start.
        let most = grace(Duration::from_secs_f64(granted.rate.recip())) * 3 / 2;
        let late = most.saturating_sub(granted.valid_until.since(granted.start));
        let part = Part {
            key,
            lease: Arc::new(HeldLease::new(granted.lease, granted.start + granted.lasts)),
            start: granted.start,
            late: if granted.start == local {
                late
            } else {
                Duration::ZERO
            },
            valid_until: granted.valid_until,
            lasts: granted.lasts,
            arrival: None,
        };
        let caller = &mut self.callers[id];
        if caller.keys.len() == 1 {
            caller.over = true;
            let (worker, place) = (caller.worker, (caller.turn, ticket));
            if self.plan.is_calm() {
                self.is_first(who, key, place);
            }
            for i in 0..granted.slots {
                let part = one_of(&part, i, granted.rate);
                self.takes_off(who, worker, vec![part]);
            }
            return;
        }
        caller.got.push(part);
        if caller.got.len() < caller.keys.len() {
            self.asks_on(id);
            return;
        }
        caller.over = true;
        let (worker, got) = (caller.worker, std::mem::take(&mut caller.got));
        self.takes_off(who, worker, got);
    }

    /// P5: no caller that arrived earlier is still waiting.
    fn is_first(&mut self, who: usize, key: usize, place: (Arrival, Ticket)) {
        let earlier = self.seats[who].waits.iter().find(|(ticket, id)| {
            let caller = &self.callers[**id];
            let waits = caller.keys == [key] && !caller.once;
            waits && (caller.turn, **ticket) < place
        });
        if let Some((ticket, _)) = earlier {
            let at = self.now as f64 / 1e6;
            let wrong = format!("P5: {at:.6}: c{who} serves {place:?} before ticket {ticket}");
            self.books.wrong(wrong);
        }
    }

    fn is_refused(&mut self, id: usize, ticket: Ticket, wait: Wait) {
        let caller = &mut self.callers[id];
        let (who, worker) = (caller.who, caller.worker);
        let reason = wait.reason;
        let done = caller.got.len();
        if done > 0 {
            let index = if done <= caller.first { done - 1 } else { done };
            caller.first = index;
            let got = std::mem::take(&mut caller.got);
            self.note(who, What::Refused { ticket, reason });
            self.give_back(who, &got);
            if self.now > self.plan.load + PATIENCE {
                self.callers[id].over = true;
                return;
            }
            let at = self.now + self.dice.whole(1, 5 * MS);
            self.to(who, at, Own::AsksOn(id));
            return;
        }
        caller.over = true;
        self.note(who, What::Refused { ticket, reason });
        let at = self.now + self.dice.span(MS, SECOND);
        self.to(who, at, Own::Asks(worker));
    }

    fn takes_off(&mut self, who: usize, worker: usize, parts: Vec<Part>) {
        let start = parts.iter().map(|part| part.start).max().expect("a key");
        let at = self.seats[who].when(start).max(self.now) + self.dice.whole(0, MS);
        let flight = self.flights.len();
        self.flights.push(Flight {
            who,
            life: self.seats[who].life,
            worker,
            parts,
            granted: self.now,
            left: false,
            served: 0,
            end: End::Ok,
            body: None,
            lazy: false,
            over: false,
        });
        self.to(who, at, Own::Leaves(flight));
    }
}

/// Returns one permit of a run.
fn one_of(part: &Part, i: u16, rate: f64) -> Part {
    let after = politely_core::gate::Rate::per_second(rate).interval() * u32::from(i);
    let start = part.start + after;
    Part {
        lease: Arc::new(HeldLease::new(
            LeaseId(part.lease.id().0 + u64::from(i)),
            start + part.lasts,
        )),
        start,
        valid_until: part.valid_until + after,
        ..part.clone()
    }
}
