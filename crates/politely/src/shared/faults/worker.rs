//! Workers: they ask, leave when they may, and say what came of it. What `claim.rs` and `mod.rs` do for real ones.

use std::sync::Arc;
use std::time::Duration;

use politely_core::Timestamp;
use politely_core::gate::LeaseId;
use politely_core::host::{Ask, Wait};
use politely_core::signal::{Failure, Report, Signal};

use super::check::Arrival;
use super::log::{End, What};
use super::plan::{MS, Micros, SECOND};
use super::world::{Own, World};
use crate::shared::event::Event;
use crate::shared::hub::{Delivery, Granted, Ticket, ahead};
use crate::shared::lease::Lease;
use crate::waiters::Turn;

/// One worker's wish for a permit.
#[derive(Debug)]
pub(super) struct Errand {
    who: usize,
    life: u32,
    worker: usize,
    keys: Vec<usize>,
    /// The key that was in the way last is asked first.
    first: usize,
    got: Vec<Part>,
    ask: Ask,
    once: bool,
    turn: Turn,
    asked: Option<(usize, Ticket)>,
    pub(super) over: bool,
}

/// A permit's claim on one key.
#[derive(Clone, Debug)]
pub(super) struct Part {
    key: usize,
    lease: Arc<Lease>,
    start: Timestamp,
    /// Its start by everybody's time may be this much earlier: it came late.
    late: Duration,
    valid_until: Timestamp,
    lasts: Duration,
    arrival: Option<usize>,
}

/// A permit.
#[derive(Debug)]
pub(super) struct Flight {
    who: usize,
    life: u32,
    worker: usize,
    parts: Vec<Part>,
    granted: Micros,
    left: bool,
    served: Micros,
    end: End,
    body: Option<Micros>,
    lazy: bool,
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
        let ask = Ask {
            slots: if single && dice.chance(run) {
                dice.whole(2, 4) as u16
            } else {
                1
            },
            horizon: if single { ahead() } else { Duration::ZERO },
            ..Ask::default()
        };
        let once = single && dice.chance(once);
        let errand = self.errands.len();
        self.errands.push(Errand {
            who,
            life: self.seats[who].life,
            worker,
            keys,
            first: 0,
            got: Vec::new(),
            ask,
            once,
            turn: Turn(self.seats[who].mono(self.now).as_micros()),
            asked: None,
            over: false,
        });
        if self.dice.chance(self.plan.work.give_up) {
            let at = self.now + self.dice.span(MS, 4 * SECOND);
            self.to(who, at, Own::GivesUp(errand));
        }
        self.asks_on(errand);
    }

    /// The key it asks next.
    pub(super) fn asks_on(&mut self, id: usize) {
        let errand = &mut self.errands[id];
        if errand.over || errand.asked.is_some() {
            return;
        }
        let done = errand.got.len();
        let index = match done {
            0 => errand.first,
            _ if done <= errand.first => done - 1,
            _ => done,
        };
        let key = errand.keys[index];
        let once = errand.once || done > 0;
        let who = errand.who;
        let (turn, ask) = (errand.turn, errand.ask);
        let mono = self.mono(who);
        let ticket = self.seats[who]
            .hub
            .ask(&self.keys[key].0, turn, ask, once, mono);
        self.errands[id].asked = Some((key, ticket));
        self.seats[who].waits.insert(ticket, id);
        self.note(who, What::Asks { ticket, key, once });
    }

    pub(super) fn gives_up(&mut self, id: usize) {
        let errand = &mut self.errands[id];
        if errand.over {
            return;
        }
        errand.over = true;
        let (who, worker, turn) = (errand.who, errand.worker, errand.turn);
        let got = std::mem::take(&mut errand.got);
        if let Some((key, ticket)) = errand.asked.take() {
            self.seats[who].waits.remove(&ticket);
            let key = self.keys[key].0.clone();
            self.seats[who].hub.give_up(&key, turn, ticket);
            self.note(who, What::GivesUp { ticket });
        }
        self.give_back(who, &got);
        self.rests(who, worker);
    }

    fn give_back(&mut self, who: usize, parts: &[Part]) {
        for part in parts {
            let lease = part.lease.id();
            self.note(
                who,
                What::GivesBack {
                    key: part.key,
                    lease: lease.0,
                },
            );
            self.books.cancelled += 1;
            self.tell(who, part.key, Event::Cancel { lease, sent: false });
        }
    }

    fn tell(&mut self, who: usize, key: usize, event: Event) {
        let mono = self.mono(who);
        let key = &self.keys[key].0;
        self.seats[who].hub.tell(key, event, mono);
    }

    fn rests(&mut self, who: usize, worker: usize) {
        let think = match self.plan.work.think {
            0 => 0,
            most => self.dice.whole(0, 2 * most),
        };
        let at = self.now + think + self.jitter();
        self.to(who, at, Own::Asks(worker));
    }

    /// What the hub has to say to those who wait; whether it had anything.
    pub(super) fn deliver(&mut self, who: usize) -> bool {
        let mono = self.mono(who);
        let deliveries = self.seats[who].hub.take_deliveries(mono);
        let any = !deliveries.is_empty();
        for delivery in deliveries {
            let (Delivery::Granted(ticket, _) | Delivery::No(ticket, _)) = delivery;
            let Some(id) = self.seats[who].waits.remove(&ticket) else {
                self.books.wrong(format!(
                    "c{who} tells ticket {ticket}, which nobody waits for"
                ));
                continue;
            };
            let asked = self.errands[id].asked.take();
            let key = asked.expect("it waited").0;
            match delivery {
                Delivery::Granted(_, granted) => self.is_granted(id, key, ticket, &granted),
                Delivery::No(_, wait) => self.is_refused(id, ticket, wait),
            }
        }
        any
    }

    fn is_granted(&mut self, id: usize, key: usize, ticket: Ticket, granted: &Granted) {
        let errand = &self.errands[id];
        let who = errand.who;
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
        let mono = self.mono(who);
        let grace = granted.valid_until.since(granted.start);
        let part = Part {
            key,
            lease: Arc::new(Lease::new(granted.lease, granted.start + granted.lasts)),
            start: granted.start,
            late: if granted.start == mono {
                grace
            } else {
                Duration::ZERO
            },
            valid_until: granted.valid_until,
            lasts: granted.lasts,
            arrival: None,
        };
        let errand = &mut self.errands[id];
        if errand.keys.len() == 1 {
            errand.over = true;
            self.books.served_in_order(who, key, errand.turn, ticket);
            let worker = errand.worker;
            for i in 0..granted.slots {
                let part = one_of(&part, i, granted.rate);
                self.takes_off(who, worker, vec![part]);
            }
            return;
        }
        errand.got.push(part);
        if errand.got.len() < errand.keys.len() {
            self.asks_on(id);
            return;
        }
        errand.over = true;
        let (worker, got) = (errand.worker, std::mem::take(&mut errand.got));
        self.takes_off(who, worker, got);
    }

    fn is_refused(&mut self, id: usize, ticket: Ticket, wait: Wait) {
        let errand = &mut self.errands[id];
        let (who, worker) = (errand.who, errand.worker);
        let reason = wait.reason;
        let done = errand.got.len();
        if done > 0 {
            let index = if done <= errand.first { done - 1 } else { done };
            errand.first = index;
            let got = std::mem::take(&mut errand.got);
            self.note(who, What::Refused { ticket, reason });
            self.give_back(who, &got);
            let at = self.now + self.dice.whole(1, 5 * MS);
            self.to(who, at, Own::AsksOn(id));
            return;
        }
        errand.over = true;
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

    /// Its start has come.
    pub(super) fn leaves(&mut self, id: usize) {
        let flight = &self.flights[id];
        let (who, worker) = (flight.who, flight.worker);
        let mono = self.mono(who);
        let valid_until = flight.parts.iter().map(|part| part.valid_until).min();
        if valid_until.is_none_or(|until| mono > until) {
            let parts = self.flights[id].parts.clone();
            self.flights[id].over = true;
            self.give_back(who, &parts);
            self.rests(who, worker);
            return;
        }
        let (takes, end) = self.fate();
        let arrivals = self.books.arrivals.len();
        let flight = &mut self.flights[id];
        flight.left = true;
        flight.end = end;
        flight.served = self.now + takes;
        for (i, part) in flight.parts.iter_mut().enumerate() {
            part.arrival = Some(arrivals + i);
            let late = mono.since(part.start) + part.late;
            let (at, granted, key) = (self.now, flight.granted, part.key);
            let late = late.as_micros() as Micros;
            self.books.arrivals.push(Arrival {
                key,
                at,
                late,
                granted,
                end: Micros::MAX,
                orphan: false,
            });
            let what = What::Leaves {
                key,
                lease: part.lease.id().0,
            };
            self.log.note(self.now, Some(who), what);
        }
        flight.lazy = self.dice.chance(self.plan.work.lazy);
        let has_body =
            matches!(end, End::Ok | End::Refused) && self.dice.chance(self.plan.work.body);
        if has_body {
            let head = self.now + takes / 2;
            flight.body = Some(head);
            self.to(who, head, Own::Answered(id));
        }
        self.to(who, self.now + takes, Own::Ends(id));
        self.looks(id);
    }

    /// How long the target takes, and what it says.
    fn fate(&mut self) -> (Micros, End) {
        let work = &self.plan.work;
        let dice = &mut self.dice;
        let takes = dice.span(work.service.0, work.service.1);
        let end = if dice.chance(work.killed) {
            End::Killed
        } else if dice.chance(work.cancel) {
            End::Cancelled
        } else if dice.chance(work.timeout) {
            End::Timeout
        } else if dice.chance(work.refused) {
            match dice.chance(work.retry_after) {
                true => End::RetryAfter(dice.span(200 * MS, 4 * SECOND)),
                false => End::Refused,
            }
        } else {
            End::Ok
        };
        (takes, end)
    }

    /// The head of the response is there, its body is to come.
    pub(super) fn is_answered(&mut self, id: usize) {
        let flight = &self.flights[id];
        if !flight.over {
            let (who, part) = (flight.who, flight.parts[0].clone());
            let report = report(flight.end);
            self.reports(who, &part, report, true);
        }
    }

    fn reports(&mut self, who: usize, part: &Part, report: Report, body_coming: bool) {
        let (key, lease) = (part.key, part.lease.id());
        if let Some(after) = report.retry_after {
            self.next += 1;
            let by = (who, self.seats[who].life);
            self.books
                .held(key, by, self.next, self.now, after.as_micros() as Micros);
        }
        self.tell(
            who,
            key,
            Event::Report {
                lease,
                report,
                body_coming,
            },
        );
    }

    /// The target has answered, or the worker is killed.
    pub(super) fn ends(&mut self, id: usize) {
        if self.flights[id].over {
            return;
        }
        let end = self.flights[id].end;
        self.is_over_for(id, end);
    }

    fn is_over_for(&mut self, id: usize, end: End) {
        let flight = &mut self.flights[id];
        flight.over = true;
        let (who, worker) = (flight.who, flight.worker);
        let parts = std::mem::take(&mut flight.parts);
        let heard = flight.body.is_some_and(|head| head <= self.now);
        let at = self.now.min(flight.served);
        for (i, part) in parts.iter().enumerate() {
            let (key, lease) = (part.key, part.lease.id());
            if let Some(arrival) = part.arrival {
                self.books.arrivals[arrival].end = at;
            }
            self.note(
                who,
                What::Ends {
                    key,
                    lease: lease.0,
                    how: end,
                },
            );
            match end {
                End::Killed => self.books.abandoned += 1,
                End::Cancelled | End::LeaseOver if !(heard && i == 0) => {
                    self.books.cancelled += 1;
                    self.tell(who, key, Event::Cancel { lease, sent: true });
                }
                _ if heard || i > 0 => {
                    self.books.reported += 1;
                    self.tell(who, key, Event::Release { lease, bytes: 0 });
                }
                _ => {
                    self.books.reported += 1;
                    self.reports(who, part, report(end), false);
                }
            }
        }
        self.rests(who, worker);
    }

    /// Is the lease still its own? Half of it over, it asks for more.
    pub(super) fn looks(&mut self, id: usize) {
        let flight = &self.flights[id];
        if flight.over {
            return;
        }
        let who = flight.who;
        let mono = self.mono(who);
        let left = flight.parts.iter().map(|part| part.lease.left(mono)).min();
        let Some(left) = left.flatten() else {
            self.lease_over(id);
            return;
        };
        let lasts = flight.parts.iter().map(|part| part.lasts).min();
        let lasts = lasts.expect("a key");
        let mut renews = Vec::new();
        if !flight.lazy && left < lasts / 2 {
            renews = flight.parts.clone();
        }
        for part in renews {
            if part.lease.ask() {
                let lease = part.lease.id().0;
                self.note(
                    who,
                    What::Renews {
                        key: part.key,
                        lease,
                    },
                );
                self.tell(who, part.key, Event::Renew(part.lease));
            }
        }
        // … and looks often enough to hear that it is gone.
        let next = (mono + lasts / 8).min(mono + left);
        let at = self.seats[who].when(next);
        self.to(who, at, Own::Looks(id));
    }

    /// Aborted. Had it stood still until now, nobody counts what it could not do.
    fn lease_over(&mut self, id: usize) {
        self.is_over_for(id, End::LeaseOver);
    }

    /// Whoever sits there is killed: its workers with it, or they go on by themselves until they are done or their leases over.
    pub(super) fn kill_all_of(&mut self, who: usize) {
        let life = self.seats[who].life;
        for errand in &mut self.errands {
            errand.over |= errand.who == who && errand.life == life;
        }
        for id in 0..self.flights.len() {
            let flight = &self.flights[id];
            if flight.over || flight.who != who || flight.life != life {
                continue;
            }
            let mut at = self.now;
            if self.plan.work.outlive {
                let until = flight.parts.iter().map(|part| part.lease.until()).min();
                at = flight
                    .served
                    .min(self.seats[who].when(until.expect("a key")));
            }
            self.books.abandoned += flight.parts.len() as u64;
            let flight = &mut self.flights[id];
            flight.over = true;
            for part in &flight.parts {
                if let Some(arrival) = part.arrival {
                    self.books.arrivals[arrival].end = at.max(self.now);
                }
            }
        }
    }

    /// It stands still: its requests are the target's until they are answered, its leases nobody's once they are over.
    pub(super) fn stood_still(&mut self, who: usize) {
        for id in 0..self.flights.len() {
            let flight = &self.flights[id];
            if flight.over || flight.who != who || flight.life != self.seats[who].life {
                continue;
            }
            let until = flight.parts.iter().map(|part| part.lease.until()).min();
            let until = self.seats[who].when(until.expect("a key"));
            let flight = &mut self.flights[id];
            flight.served = flight.served.min(until);
        }
    }
}

/// One permit of a run.
fn one_of(part: &Part, i: u16, rate: f64) -> Part {
    let after = politely_core::gate::Rate::per_second(rate).interval() * u32::from(i);
    let start = part.start + after;
    Part {
        lease: Arc::new(Lease::new(
            LeaseId(part.lease.id().0 + u64::from(i)),
            start + part.lasts,
        )),
        start,
        valid_until: part.valid_until + after,
        ..part.clone()
    }
}

fn report(end: End) -> Report {
    match end {
        End::RetryAfter(after) => Report {
            status: Some(429),
            retry_after: Some(Duration::from_micros(after)),
            ..Report::of(Signal::RateLimited)
        },
        End::Refused => Report {
            status: Some(429),
            ..Report::of(Signal::RateLimited)
        },
        End::Timeout => Report {
            failure: Some(Failure::Timeout),
            ..Report::of(Signal::Overloaded)
        },
        _ => Report::of(Signal::Ok),
    }
}
