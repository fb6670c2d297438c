//! The event loop.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use politely_core::config::Config;
use politely_core::key::Key;

use super::books::Books;
use super::caller::Caller;
use super::dice::{Dice, MS, Micros, SECOND};
use super::engine::Engine;
use super::flight::Flight;
use super::locker::Locker;
use super::log::{Log, What};
use super::operator::Unconfirmed;
use super::plan::Plan;
use super::seat::Seat;
use super::wire::{Answer, Request};
use super::zombie::Zombie;
use politely_store::{Node, NodeId, NodeOptions, cell_name};

/// The number of keys that fit without dropping any.
const CAPACITY: usize = 64;
/// The largest delay of a timer, as coarse as Tokio's.
const TIMER: Micros = 1_200;

/// An event.
#[derive(Debug)]
pub(super) enum Event {
    /// An event of a process, if it is still the same one.
    To(usize, u32, Own),
    /// A request reaches the engine.
    Request(u64),
    /// The replica has a write.
    Copied(u64, Micros, Answer),
    Fault(usize),
    Over(usize),
    /// A zombie master ends.
    Joins,
}

/// An event of one process.
#[derive(Debug)]
pub(super) enum Own {
    Timer(u64),
    Answer(u64, Answer),
    NoAnswer(u64),
    Notice(Arc<str>, Arc<[u8]>),
    Operates,
    Locks(usize),
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
    /// The requests that a stalled engine will answer.
    pub(super) backlog: Vec<u64>,
    pub(super) requests: BTreeMap<u64, Request>,
    pub(super) seats: Vec<Seat>,
    pub(super) callers: Vec<Caller>,
    pub(super) flights: Vec<Flight>,
    pub(super) books: Books,
    pub(super) log: Log,
    pub(super) next: u64,
    pub(super) unconfirmed: Vec<Unconfirmed>,
    pub(super) lockers: Vec<Locker>,
    queue: BTreeMap<(Micros, u64), Event>,
}

impl World {
    pub(super) fn new(plan: Plan) -> Self {
        let mut dice = plan.dice.clone();
        let keys = (0..plan.keys).map(|i| {
            let key = Key::host(&format!("k{i}.example")).expect("a host");
            let cell = cell_name(&key);
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
            callers: Vec::new(),
            flights: Vec::new(),
            books: Books::new(plan.keys),
            log: Log::default(),
            next: 0,
            unconfirmed: Vec::new(),
            lockers: Vec::new(),
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

    /// Creates the next process of a place.
    pub(super) fn newcomer(&mut self, life: u32) -> Seat {
        let who = self.dice.bits() as u32;
        let node = Node::new(NodeOptions {
            id: NodeId(who),
            seed: self.dice.bits(),
            config: Arc::clone(&self.config),
            keys_max: CAPACITY,
            shares_when_unavailable: self.plan.shares,
        });
        Seat::new(node, life, self.now, &mut self.dice)
    }

    /// Lets the workers of a process begin.
    pub(super) fn begin(&mut self, who: usize) {
        for worker in 0..self.plan.workers {
            let at = self.now + self.dice.whole(0, SECOND);
            self.to(who, at, Own::Asks(worker));
        }
        self.operates_later(who);
        self.locks_later(who);
        self.serve(who);
    }

    pub(super) fn at(&mut self, at: Micros, event: Event) {
        self.next += 1;
        self.queue.insert((at.max(self.now), self.next), event);
    }

    pub(super) fn to(&mut self, who: usize, at: Micros, own: Own) {
        self.at(at, Event::To(who, self.seats[who].life, own));
    }

    /// Runs until all is done, or until `end`.
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

    /// Returns whether no worker works or waits and no fault is left.
    fn is_done(&self) -> bool {
        let settled = self.seats.iter().all(|seat| {
            seat.alive
                && !seat.frozen
                && !seat.cut
                && seat.waits.is_empty()
                && seat.node.is_flushed()
        });
        settled
            && self.callers.iter().all(|caller| caller.over)
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
                self.looks_at_locks(who);
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
                let local = self.local(who);
                self.seats[who].node.handle_notice(&cell, &value, local);
            }
            Own::Operates => self.operates(who),
            Own::Locks(locker) => self.locks(locker),
            Own::Asks(worker) => self.asks(who, worker),
            Own::AsksOn(caller) => self.asks_on(caller),
            Own::GivesUp(caller) => self.gives_up(caller),
            Own::Leaves(flight) => self.leaves(flight),
            Own::Answered(flight) => self.is_answered(flight),
            Own::Ends(flight) => self.ends(flight),
            Own::Looks(flight) => self.looks(flight),
        }
    }

    /// Does what the driver does when it wakes.
    pub(super) fn serve(&mut self, who: usize) {
        if self.seats[who].stopped {
            return;
        }
        for round in 0.. {
            assert!(round < 10_000, "the driver never sleeps");
            let local = self.local(who);
            let seat = &mut self.seats[who];
            let calls = seat.node.poll_commands(local, seat.under_way < 4);
            let idle = calls.is_empty();
            if !idle {
                self.send(who, calls, local);
            }
            if !self.deliver(who) && idle {
                break;
            }
        }
        let local = self.local(who);
        let seat = &mut self.seats[who];
        let next = seat.node.next_wakeup(local, seat.under_way < 4);
        seat.timer += 1;
        let timer = seat.timer;
        if next != politely_core::Timestamp::NEVER {
            let at = self.seats[who].when(next).max(self.now + 1) + self.dice.whole(0, TIMER);
            self.to(who, at, Own::Timer(timer));
        }
    }

    pub(super) fn local(&self, who: usize) -> politely_core::Timestamp {
        self.seats[who].local(self.now)
    }

    pub(super) fn note(&mut self, who: usize, what: What) {
        self.log.note(self.now, Some(who), what);
    }

    /// Returns the index of the key of `cell`.
    pub(super) fn key_of(&self, cell: &str) -> Option<usize> {
        self.keys.iter().position(|(_, name)| **name == *cell)
    }

    pub(super) fn jitter(&mut self) -> Micros {
        self.dice.whole(0, MS)
    }
}

impl World {
    /// P5: every caller that kept waiting is served after the last fault.
    pub(super) fn starved(&mut self, end: Micros) -> Option<String> {
        if !self.plan.fixed || self.now <= self.plan.load || self.is_done() {
            return None;
        }
        let waiting: Vec<_> = self.callers.iter().filter(|caller| !caller.over).collect();
        let first = waiting.first();
        let mut told = String::new();
        for who in 0..self.seats.len() {
            let local = self.local(who);
            let seat = &mut self.seats[who];
            for (key, _) in &self.keys {
                if let Some(explained) = seat.node.explain(key, local) {
                    let _ = write!(
                        told,
                        "\n  c{who} at {local}: {key:?} {:?} {:?} {:?}",
                        explained.wait, explained.in_flight, explained.tally
                    );
                }
            }
        }
        let unquiet = self
            .seats
            .iter()
            .filter(|seat| !seat.node.is_flushed())
            .count();
        Some(format!(
            "P5: at {:.3} of {:.3} {} still wait, the first is {first:?}; {unquiet} nodes are not quiet{told}",
            self.now as f64 / 1e6,
            end as f64 / 1e6,
            waiting.len(),
        ))
    }
}
