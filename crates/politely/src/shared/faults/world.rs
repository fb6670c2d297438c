//! The loop: what happens next, to whom.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use politely_core::config::Config;
use politely_core::key::Key;

use super::books::Books;
use super::dice::{Dice, MS, Micros, SECOND};
use super::engine::Engine;
use super::errand::Errand;
use super::flight::Flight;
use super::log::{Log, What};
use super::operator::Unconfirmed;
use super::plan::Plan;
use super::seat::Seat;
use super::wire::{Answer, Request};
use super::zombie::Zombie;
use crate::shared::hub::{Hub, name};

/// So many keys fit without any being forgotten.
const CAPACITY: usize = 64;
/// A timer goes off late by this much, at most: tokio's are that coarse.
const TIMER: Micros = 1_200;

/// What happens.
#[derive(Debug)]
pub(super) enum Event {
    /// To whoever sits there, if it still is that one.
    To(usize, u32, Own),
    /// A request reaches the engine.
    Request(u64),
    /// The replica has what was written.
    Copied(u64, Micros, Answer),
    Fault(usize),
    Over(usize),
    /// A zombie master is gone.
    Joins,
}

/// What happens to one process.
#[derive(Debug)]
pub(super) enum Own {
    Timer(u64),
    Answer(u64, Answer),
    NoAnswer(u64),
    Notice(Arc<str>, Arc<[u8]>),
    Operates,
    Asks(usize),
    AsksOn(usize),
    GivesUp(usize),
    Leaves(usize),
    Answered(usize),
    Ends(usize),
    Looks(usize),
}

pub(super) struct World {
    pub(super) plan: Plan,
    pub(super) now: Micros,
    pub(super) dice: Dice,
    pub(super) config: Arc<Config>,
    pub(super) keys: Vec<(Key, Arc<str>)>,
    pub(super) engine: Engine,
    pub(super) zombie: Option<Zombie>,
    /// What the engine has to answer once it goes on.
    pub(super) backlog: Vec<u64>,
    pub(super) requests: BTreeMap<u64, Request>,
    pub(super) seats: Vec<Seat>,
    pub(super) errands: Vec<Errand>,
    pub(super) flights: Vec<Flight>,
    pub(super) books: Books,
    pub(super) log: Log,
    pub(super) next: u64,
    pub(super) unconfirmed: Vec<Unconfirmed>,
    queue: BTreeMap<(Micros, u64), Event>,
}

impl World {
    pub(super) fn new(plan: Plan) -> Self {
        let mut dice = plan.dice.clone();
        let keys = (0..plan.keys).map(|i| {
            let key = Key::host(&format!("k{i}.example")).expect("a host");
            let cell = name(&key);
            (key, cell)
        });
        let mut world = Self {
            now: 0,
            config: Arc::new(plan.config.clone()),
            keys: keys.collect(),
            engine: Engine::new(dice.bits(), plan.lag),
            zombie: None,
            backlog: Vec::new(),
            requests: BTreeMap::new(),
            seats: Vec::new(),
            errands: Vec::new(),
            flights: Vec::new(),
            books: Books::new(plan.keys),
            log: Log::default(),
            next: 0,
            unconfirmed: Vec::new(),
            queue: BTreeMap::new(),
            dice,
            plan,
        };
        for who in 0..world.plan.coordinators {
            let seat = world.newcomer(0);
            world.seats.push(seat);
            world.begin(who);
        }
        for index in 0..world.plan.faults.len() {
            world.at(world.plan.faults[index].0, Event::Fault(index));
        }
        world
    }

    /// Whoever sits down next.
    pub(super) fn newcomer(&mut self, life: u32) -> Seat {
        let who = self.dice.bits() as u32;
        let hub = Hub::new(
            who,
            self.dice.bits(),
            Arc::clone(&self.config),
            CAPACITY,
            self.plan.shares,
        );
        Seat::new(hub, life, self.now, &mut self.dice)
    }

    /// … and begins to work.
    pub(super) fn begin(&mut self, who: usize) {
        for worker in 0..self.plan.workers {
            let at = self.now + self.dice.whole(0, SECOND);
            self.to(who, at, Own::Asks(worker));
        }
        self.operates_later(who);
        self.serve(who);
    }

    pub(super) fn at(&mut self, at: Micros, event: Event) {
        self.next += 1;
        self.queue.insert((at.max(self.now), self.next), event);
    }

    pub(super) fn to(&mut self, who: usize, at: Micros, own: Own) {
        self.at(at, Event::To(who, self.seats[who].life, own));
    }

    /// Until all is done, or `end`.
    pub(super) fn run(&mut self, end: Micros) {
        while let Some(entry) = self.queue.first_entry() {
            let at = entry.key().0;
            if at > end || (at > self.plan.load && self.is_done()) {
                return;
            }
            let event = self.queue.pop_first().expect("it was there").1;
            self.now = at;
            self.happen(event);
        }
    }

    /// Nobody works or waits, and nothing more goes wrong.
    fn is_done(&self) -> bool {
        let settled = self.seats.iter().all(|seat| {
            seat.alive && !seat.frozen && !seat.cut && seat.waits.is_empty() && seat.hub.is_quiet()
        });
        settled
            && self.errands.iter().all(|errand| errand.over)
            && self.flights.iter().all(|flight| flight.over)
            && self.books.faults_left == 0
    }

    pub(super) fn happen(&mut self, event: Event) {
        match event {
            Event::To(who, life, own) => {
                let seat = &mut self.seats[who];
                let stale = matches!(own, Own::Timer(timer) if timer != seat.timer);
                if seat.life != life || stale {
                    return;
                }
                if seat.frozen {
                    seat.held.push(Event::To(who, life, own));
                    return;
                }
                let of_task = matches!(
                    own,
                    Own::Timer(_) | Own::Answer(..) | Own::NoAnswer(_) | Own::Notice(..)
                );
                if seat.stopped && of_task {
                    return;
                }
                self.own(who, own);
                self.serve(who);
                self.hears_confirmed(who);
            }
            Event::Request(id) => self.receive(id),
            Event::Copied(id, written, answer) => self.copied(id, written, answer),
            Event::Fault(index) if index < self.plan.faults.len() => self.goes_wrong(index),
            Event::Fault(index) => self.master_dies(index - self.plan.faults.len()),
            Event::Over(index) => self.is_over(index),
            Event::Joins => self.joins(),
        }
    }

    fn own(&mut self, who: usize, own: Own) {
        match own {
            Own::Timer(_) => {}
            Own::Answer(call, answer) => self.answered(who, call, answer),
            Own::NoAnswer(call) => {
                if self.seats[who].calls.contains_key(&call) {
                    self.note(who, What::NoAnswer { call });
                    self.answered(who, call, Answer::None);
                }
            }
            Own::Notice(cell, value) => {
                let mono = self.mono(who);
                self.seats[who].hub.noticed(&cell, &value, mono);
            }
            Own::Operates => self.operates(who),
            Own::Asks(worker) => self.asks(who, worker),
            Own::AsksOn(errand) => self.asks_on(errand),
            Own::GivesUp(errand) => self.gives_up(errand),
            Own::Leaves(flight) => self.leaves(flight),
            Own::Answered(flight) => self.is_answered(flight),
            Own::Ends(flight) => self.ends(flight),
            Own::Looks(flight) => self.looks(flight),
        }
    }

    /// What the courier does when it wakes.
    pub(super) fn serve(&mut self, who: usize) {
        if self.seats[who].stopped {
            return;
        }
        for round in 0.. {
            assert!(round < 10_000, "the courier never sleeps");
            let mono = self.mono(who);
            let seat = &mut self.seats[who];
            let calls = seat.hub.calls(mono, seat.under_way < 4);
            let idle = calls.is_empty();
            if !idle {
                self.send(who, calls, mono);
            }
            if !self.deliver(who) && idle {
                break;
            }
        }
        let mono = self.mono(who);
        let seat = &mut self.seats[who];
        let next = seat.hub.next(mono, seat.under_way < 4);
        seat.timer += 1;
        let timer = seat.timer;
        if next != politely_core::Timestamp::NEVER {
            let at = self.seats[who].when(next).max(self.now + 1) + self.dice.whole(0, TIMER);
            self.to(who, at, Own::Timer(timer));
        }
    }

    pub(super) fn mono(&self, who: usize) -> politely_core::Timestamp {
        self.seats[who].mono(self.now)
    }

    pub(super) fn note(&mut self, who: usize, what: What) {
        self.log.note(self.now, Some(who), what);
    }

    /// What the engine holds of a key, as somebody reads it a day later.
    pub(super) fn key_of(&self, cell: &str) -> Option<usize> {
        self.keys.iter().position(|(_, name)| **name == *cell)
    }

    pub(super) fn jitter(&mut self) -> Micros {
        self.dice.whole(0, MS)
    }
}

impl World {
    /// P5: whoever kept waiting is served once nothing goes wrong any more.
    pub(super) fn starved(&mut self, end: Micros) -> Option<String> {
        if !self.plan.fixed || self.now <= self.plan.load || self.is_done() {
            return None;
        }
        let waiting: Vec<_> = self.errands.iter().filter(|errand| !errand.over).collect();
        let first = waiting.first();
        let mut told = String::new();
        for who in 0..self.seats.len() {
            let mono = self.mono(who);
            let seat = &mut self.seats[who];
            for (key, _) in &self.keys {
                if let Some(explained) = seat.hub.explain(key, mono) {
                    let _ = write!(
                        told,
                        "\n  c{who} at {mono}: {key:?} {:?} {:?} {:?}",
                        explained.wait, explained.in_flight, explained.tally
                    );
                }
            }
        }
        let unquiet = self
            .seats
            .iter()
            .filter(|seat| !seat.hub.is_quiet())
            .count();
        Some(format!(
            "P5: at {:.3} of {:.3} {} still wait, the first is {first:?}; {unquiet} hubs are not quiet{told}",
            self.now as f64 / 1e6,
            end as f64 / 1e6,
            waiting.len(),
        ))
    }
}
