//! All shared keys of one process, and the engine's time: no clock, no socket.
//!
//! The courier asks what is to be done ([`Hub::calls`]), does it, and says what came of it; callers ask and tell at any time.
//! A simulation does the courier's part in virtual time.

mod away;
mod delivery;
mod notices;
mod operate;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use politely_core::Timestamp;
use politely_core::config::Config;
use politely_core::host::{Ask, Directions, Host};
use politely_core::key::Key;

use super::cell::Who;
use super::desk::{Count, Desk, Granting, Shop, Step, Took, Waiter};
use super::epoch::{Epochs, PULSE, STALE};
use super::event::Event;
use crate::cells::{EngineError, Pulse, Write, Written};
use crate::waiters::Turn;

pub(super) use self::delivery::{Delivery, Granted};
use self::notices::Watching;

/// Writes in one call of the engine.
const BATCH: usize = 512;
/// When to ask again if nobody can say.
const AGAIN: Duration = Duration::from_millis(250);
/// A look follows one that settled nothing after so long, and each further one after twice as long.
const AGAIN_FIRST: Duration = Duration::from_millis(1);
/// Where a write failed, a look follows the last one no sooner.
const SOON: Duration = Duration::from_millis(50);

/// A caller's name for what it asked.
pub(super) type Ticket = u64;

/// The state of all shared keys here.
pub(super) struct Hub {
    shop: Shop,
    desks: Vec<Option<Desk>>,
    of: HashMap<Key, usize, foldhash::fast::RandomState>,
    named: HashMap<Arc<str>, usize, foldhash::fast::RandomState>,
    free: Vec<usize>,
    /// When which desk has something to do, by our own clock.
    due: BTreeSet<(Timestamp, usize)>,
    due_of: Vec<Timestamp>,
    capacity: usize,
    /// While the engine is away each goes on with its share.
    shares: bool,
    /// When it was asked what to do last; nothing from when it stood still until the engine answers.
    awake: Option<Timestamp>,
    /// States kept by an earlier run, for an engine that has lost them.
    remembered: HashMap<Key, Vec<u8>, foldhash::fast::RandomState>,
    /// Permits of keys that are new to the engine, and since when they wait to be sure that they are.
    unsure: Vec<(Timestamp, usize, Granting)>,
    pulse_at: Timestamp,
    /// When the last look was sent.
    pulse_sent: Timestamp,
    pulsing: bool,
    /// Looks in a row that did not settle what time it is.
    unsettled: u32,
    /// Since when the engine answers, takes no write and says why.
    refused: Option<(Timestamp, String)>,
    /// With the desk it is from.
    told: Vec<(usize, Delivery)>,
    /// Something is to be done sooner than was thought when it was last looked at.
    news: bool,
    watching: Watching,
    next: Ticket,
}

/// What the engine is asked next; none of it may be under way already.
#[derive(Debug, Default)]
pub(super) struct Calls {
    pub(super) pulse: Option<Arc<str>>,
    pub(super) reads: Vec<Arc<str>>,
    pub(super) writes: Vec<Write>,
    pub(super) watch: Vec<Arc<str>>,
    pub(super) unwatch: Vec<Arc<str>>,
}

impl Calls {
    pub(super) fn is_empty(&self) -> bool {
        self.pulse.is_none()
            && self.reads.is_empty()
            && self.writes.is_empty()
            && self.watch.is_empty()
            && self.unwatch.is_empty()
    }
}

impl Hub {
    pub(super) fn new(
        who: u32,
        seed: u64,
        config: Arc<Config>,
        capacity: usize,
        shares: bool,
    ) -> Self {
        let me = Who(who);
        Self {
            shop: Shop {
                me,
                epochs: Epochs::new(me),
                config,
                seed,
                number: 0,
                gone: HashSet::default(),
                count: Count::default(),
                apart_until: Timestamp::ZERO,
                look: false,
                trouble: None,
                took: Took::default(),
            },
            desks: Vec::new(),
            of: HashMap::default(),
            named: HashMap::default(),
            free: Vec::new(),
            due: BTreeSet::new(),
            due_of: Vec::new(),
            capacity,
            shares,
            awake: None,
            remembered: HashMap::default(),
            unsure: Vec::new(),
            pulse_at: Timestamp::ZERO,
            pulse_sent: Timestamp::ZERO,
            pulsing: false,
            unsettled: 0,
            refused: None,
            told: Vec::new(),
            news: false,
            watching: Watching::default(),
            next: 0,
        }
    }

    /// A caller joins the line of `key`; `once`: it wants an answer now, be it no.
    pub(super) fn ask(
        &mut self,
        key: &Key,
        turn: Turn,
        ask: Ask,
        once: bool,
        mono: Timestamp,
    ) -> Ticket {
        self.next += 1;
        let ticket = self.next;
        let id = self.desk(key, mono);
        if let Some(desk) = &mut self.desks[id] {
            desk.ask(turn, ticket, Waiter { ask, once });
        }
        self.stir(id, Timestamp::ZERO, mono);
        ticket
    }

    /// It does not wait any more.
    pub(super) fn give_up(&mut self, key: &Key, turn: Turn, ticket: Ticket) {
        if let Some(&id) = self.of.get(key)
            && let Some(desk) = &mut self.desks[id]
        {
            if !desk.give_up(turn, ticket) {
                // It was served, or is about to be.
                self.shop.gone.insert(ticket);
            }
            self.wake(id);
        }
    }

    /// Something happened to `key`.
    pub(super) fn tell(&mut self, key: &Key, event: Event, mono: Timestamp) -> Directions {
        let id = self.desk(key, mono);
        let count = &mut self.shop.count;
        match &event {
            Event::Report { report, .. } => {
                count.reported += 1;
                count.refused += u64::from(report.signal.is_refusal());
            }
            Event::Cancel { .. } => count.cancelled += 1,
            _ => {}
        }
        let mut due = Timestamp::ZERO;
        let told = self.desks[id].as_mut().and_then(|desk| {
            let told = desk.tell(event, &self.shop, mono);
            due = desk.due();
            told
        });
        self.stir(id, due, mono);
        let directions = told.map(|told| Directions {
            hold_until: self.shop.epochs.mono(told.hold_until),
            ..told
        });
        let directions = directions.unwrap_or(Directions {
            hold_until: mono,
            rate: 0.0,
            event: false,
            late: false,
        });
        self.shop.count.late += u64::from(directions.late);
        directions
    }

    pub(super) fn shared_time(&self, mono: Timestamp) -> Timestamp {
        self.shop.epochs.now(mono)
    }

    /// How long leases last.
    pub(super) fn lease(&self) -> Duration {
        self.shop.config.lease
    }

    /// A permit granted elsewhere is one of ours.
    pub(super) const fn adopted(&mut self) {
        self.shop.count.granted += 1;
    }

    /// What is to be done now; without `room`, nothing is asked of keys.
    pub(super) fn calls(&mut self, mono: Timestamp, room: bool) -> Calls {
        let mut calls = Calls::default();
        self.stays_awake(mono);
        if self.shop.epochs.is_fresh(mono) {
            if room {
                self.ask_desks(&mut calls, mono);
            }
        } else if self.is_alone(mono) {
            self.serve_alone(mono);
        }
        if std::mem::take(&mut self.shop.look) {
            self.pulse_at = mono;
        }
        if !self.pulsing && self.pulse_at <= mono {
            self.pulsing = true;
            self.pulse_sent = mono;
            calls.pulse = Some(self.shop.epochs.cell());
        }
        (calls.watch, calls.unwatch) = self.watched(mono);
        calls
    }

    fn ask_desks(&mut self, calls: &mut Calls, mono: Timestamp) {
        let mut told = Vec::new();
        while calls.writes.len() < BATCH && calls.reads.len() < BATCH {
            let Some(&(at, id)) = self.due.first().filter(|(at, _)| *at <= mono) else {
                break;
            };
            self.due.remove(&(at, id));
            self.due_of[id] = Timestamp::NEVER;
            let Some(desk) = &mut self.desks[id] else {
                continue;
            };
            match desk.step(&mut self.shop, mono, &mut told) {
                Step::Write(write) => calls.writes.push(write),
                Step::Read => calls.reads.push(Arc::clone(desk.name())),
                Step::Wait(until) => self.at(id, until.max(mono + Duration::from_micros(1))),
            }
            self.see_to_notices(id);
            self.hear(id, &mut told, mono);
        }
    }

    /// When [`Hub::calls`] has something next; while the engine is away only looks at it.
    pub(super) fn next(&self, mono: Timestamp, room: bool) -> Timestamp {
        let pulse = if self.pulsing {
            Timestamp::NEVER
        } else {
            self.pulse_at
        };
        let due = self.due.first().map(|(at, _)| *at);
        let fresh = room && self.shop.epochs.is_fresh(mono);
        let serves = fresh || self.is_alone(mono);
        let due = due.filter(|_| serves).unwrap_or(Timestamp::NEVER);
        due.min(pulse).min(self.watching.again_at)
    }

    /// What a look at the engine showed; it was sent at that time of our clock.
    pub(super) fn pulsed(
        &mut self,
        sent: Timestamp,
        pulse: Result<Pulse, EngineError>,
        mono: Timestamp,
    ) -> Option<Write> {
        self.pulsing = false;
        self.pulse_at = sent.max(mono - PULSE / 2) + PULSE;
        let pulse = match pulse {
            Ok(pulse) => pulse,
            Err(EngineError(why)) => {
                self.shop.trouble = Some(why);
                return None;
            }
        };
        self.shop.trouble = self.shop.epochs.strange(&pulse);
        if mono.since(sent) >= STALE {
            // We stood still: what time it was then says little of what time it is.
            self.pulse_at = mono;
            return None;
        }
        let was_away = !self.shop.epochs.is_fresh(sent);
        let seen_before = self.shop.epochs.last_seen();
        let seen = self.shop.epochs.seen(sent, mono, &pulse);
        if seen.again {
            // At once, unless nobody's word for it is taken.
            self.pulse_at = mono + PULSE.min(AGAIN_FIRST * (1 << self.unsettled.min(16)));
            self.unsettled += 1;
        } else {
            self.unsettled = 0;
        }
        if seen.new_epoch {
            for id in 0..self.desks.len() {
                if let Some(desk) = &mut self.desks[id] {
                    desk.check();
                    self.wake(id);
                }
            }
        }
        if !seen.again {
            self.confirm(sent, mono);
            if !self.unsure.is_empty() {
                // They came since this look was sent.
                self.pulse_at = mono;
            }
        }
        if was_away {
            self.wake_waiting();
        }
        self.is_back(seen_before, sent, mono);
        seen.write
    }

    /// Keys that were new to the engine were new indeed: its epoch is still the one of before.
    fn confirm(&mut self, sent: Timestamp, mono: Timestamp) {
        let lost = self.shop.epochs.lost();
        let sure = self.unsure.extract_if(.., |(since, ..)| *since <= sent);
        let sure: Vec<_> = sure.collect();
        for (_, id, granting) in sure {
            if granting.unsure == Some(lost) {
                self.deliver(id, &granting, mono);
            } else {
                self.take_back(id, &granting, mono);
            }
        }
    }

    fn wake_waiting(&mut self) {
        for id in 0..self.desks.len() {
            if self.desks[id].is_some() && self.due_of[id] != Timestamp::NEVER {
                self.wake(id);
            }
        }
    }

    /// What came of a write of a key. If it stood: how long that took.
    pub(super) fn was_written(
        &mut self,
        cell: &str,
        result: Result<Written, EngineError>,
        mono: Timestamp,
    ) -> Option<Duration> {
        match &result {
            Ok(Written::Done) => self.refused = None,
            Ok(Written::Conflict(_)) => {}
            Err(EngineError(why)) => {
                let since = self.refused.take().map_or(mono, |(since, _)| since);
                self.refused = Some((since, why.clone()));
                let soon = mono.max(self.pulse_sent + SOON);
                self.pulse_at = self.pulse_at.min(soon);
            }
        }
        let id = *self.named.get(cell)?;
        let mut told = Vec::new();
        let desk = self.desks[id].as_mut();
        let took = desk.and_then(|desk| desk.written(result, &mut self.shop, mono, &mut told));
        self.hear(id, &mut told, mono);
        self.wake(id);
        took
    }

    /// What a look at a key showed.
    pub(super) fn was_read(
        &mut self,
        cell: &str,
        result: Result<Option<Vec<u8>>, EngineError>,
        mono: Timestamp,
    ) {
        if let Some(&id) = self.named.get(cell) {
            if let Some(desk) = &mut self.desks[id] {
                desk.was_read(result, &mut self.shop, mono);
            }
            self.wake(id);
        }
    }

    /// What somebody else wrote.
    pub(super) fn noticed(&mut self, cell: &str, value: &[u8], mono: Timestamp) {
        if let Some(&id) = self.named.get(cell) {
            if let Some(desk) = &mut self.desks[id] {
                desk.noticed(value, &mut self.shop, mono);
            }
            self.wake(id);
        }
    }

    /// Nobody is served any more, `tickets` neither.
    pub(super) fn close(&mut self, tickets: impl Iterator<Item = Ticket>) {
        self.shop.gone.extend(tickets);
        for desk in self.desks.iter_mut().flatten() {
            desk.give_up_all(&mut self.shop);
        }
    }

    fn desk(&mut self, key: &Key, mono: Timestamp) -> usize {
        if let Some(&id) = self.of.get(key) {
            return id;
        }
        if self.of.len() >= self.capacity {
            self.forget_idle();
        }
        let name = name(key);
        let mut desk = Desk::new(Arc::clone(&name), &self.shop, mono);
        if let Some(state) = self.remembered.remove(key) {
            let now = self.shop.epochs.now(mono);
            let host = Host::restore(&state, now, &self.shop.config);
            desk.remembered = host.ok().map(|mut host| {
                host.forget_leases();
                Box::new(host)
            });
        }
        let id = self.free.pop().unwrap_or_else(|| {
            self.desks.push(None);
            self.due_of.push(Timestamp::NEVER);
            self.desks.len() - 1
        });
        self.desks[id] = Some(desk);
        self.of.insert(key.clone(), id);
        self.named.insert(name, id);
        id
    }

    /// What nobody here uses is in the engine.
    fn forget_idle(&mut self) {
        let most = self.capacity / 8 + 1;
        let desks = &self.desks;
        let idle = |id: &usize| desks[*id].as_ref().is_none_or(Desk::is_idle);
        let idle: Vec<Key> = self
            .of
            .iter()
            .filter(|(_, id)| idle(id))
            .map(|(key, _)| key.clone())
            .take(most)
            .collect();
        for key in idle {
            if let Some(id) = self.of.remove(&key) {
                self.named.remove(&name(&key));
                self.desks[id] = None;
                self.due.remove(&(self.due_of[id], id));
                self.due_of[id] = Timestamp::NEVER;
                self.free.push(id);
            }
        }
    }

    /// There is something to be done for a desk at `due`, unless it rests.
    fn stir(&mut self, id: usize, due: Timestamp, mono: Timestamp) {
        let rests = self.desks[id].as_ref().map(Desk::rests_until);
        let rests = rests.filter(|_| self.shop.epochs.is_fresh(mono));
        let at = rests.map_or(Timestamp::ZERO, |rests| rests.max(due));
        if at < self.due_of[id] {
            self.at(id, at);
            self.news = true;
        }
    }

    /// Whether [`Hub::calls`] should be called sooner than was thought.
    pub(super) const fn take_news(&mut self) -> bool {
        std::mem::replace(&mut self.news, false)
    }

    fn wake(&mut self, id: usize) {
        self.at(id, Timestamp::ZERO);
    }

    fn at(&mut self, id: usize, at: Timestamp) {
        let before = self.due_of[id];
        if before != Timestamp::NEVER {
            self.due.remove(&(before, id));
        }
        self.due_of[id] = at;
        if at != Timestamp::NEVER {
            self.due.insert((at, id));
        }
    }
}

/// One key is one cell; the braces keep all of a key's on one server of a cluster.
pub(super) fn name(key: &Key) -> Arc<str> {
    format!("politely:{{{}}}", key.as_str()).into()
}
