//! One shared key, as one process sees it: group commit.
//!
//! Everything that happens is applied to the state as it was last seen and written with one compare-and-set; while that is under
//! way the next batch gathers. Had somebody else written meanwhile, the engine's answer is the state to apply the batch to
//! again, at once. A write without an answer may have been made or not: the next answer tells, since each state names
//! everybody's last write; what it granted leaves only once a later write of ours is known to stand.
//!
//! Who has to wait for a slot or against others joins the key's line, which is part of the state: the first in it serves, a
//! moment's worth, and goes to the end. So nobody starves and one write is made per turn, not one per try.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use politely_core::Timestamp;
use politely_core::config::Config;
use politely_core::control::LawConfig;
use politely_core::gate::LeaseId;
use politely_core::host::{Ask, Decision, Directions, Grant, Host, Reason, Wait};

use super::alone::Alone;
use super::cell::{Cell, CellError, LastWrite, Who};
use super::epoch::{Epochs, QUIET};
use super::event::Event;
use super::lease::safely;
use crate::cells::{EngineError, Version, Write, Written};
use crate::waiters::Turn;

/// A permit may start so far ahead of its commit, at most: what an engine that forgets can double.
pub(super) const HORIZON: Duration = Duration::from_secs(2);
/// Good news waits so long for something to be written with, unless slots are short: where a law learns from it, and where
/// none does (but for a quarter of its lease at most).
const LINGER: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(5));
/// Whose turn it is has so long to take it.
const CLAIM: Duration = Duration::from_millis(250);
/// Of those in the key's line each takes what leaves within so long, then it is the next one's turn.
const QUANTUM: Duration = Duration::from_millis(20);
/// A notice may be lost: who waits for others looks this often.
const POLL: Duration = Duration::from_secs(1);
/// What is under way at once, at most, in permits.
const BATCH: usize = 1024;
/// Events kept while nothing can be written; then the oldest goes. Its lease runs out by itself.
const EVENTS_MAX: usize = 1 << 14;
/// What cannot be read may be, after an upgrade.
const UNREADABLE: Duration = Duration::from_secs(1);
/// A cell that nobody writes is forgotten.
const KEEP: Duration = Duration::from_hours(24 * 30);
/// After a write without an answer, doubling up to 64 times as long.
const RETRY: Duration = Duration::from_millis(10);
/// Writes that take longer than this would be late for what may leave at once.
const SLOW: Duration = Duration::from_millis(20);
/// … and what takes longer than this was us, standing still: calls are given up before.
const SLOW_MAX: Duration = Duration::from_millis(500);
/// Which state was looked at so lately that an answer may be given from it.
const LATELY: Duration = Duration::from_millis(250);

/// What all desks of a process share.
pub(super) struct Shop {
    pub(super) me: Who,
    pub(super) epochs: Epochs,
    pub(super) config: Arc<Config>,
    pub(super) seed: u64,
    /// Our last write's number.
    pub(super) number: u64,
    /// Tickets of those who gave up while they were served.
    pub(super) gone: HashSet<u64, foldhash::fast::RandomState>,
    pub(super) count: Count,
}

/// What group commit comes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    /// Writes that stood.
    pub(super) commits: u64,
    /// … that met another's.
    pub(super) conflicts: u64,
    /// … of which nobody knows.
    pub(super) unknown: u64,
    /// Looks at a cell.
    pub(super) reads: u64,
    /// Events and permits written.
    pub(super) items: u64,
    /// States that the engine had lost some of.
    pub(super) lost: u64,
    pub(super) granted: u64,
    pub(super) reported: u64,
    pub(super) refused: u64,
    pub(super) cancelled: u64,
    pub(super) late: u64,
}

#[expect(
    clippy::struct_excessive_bools,
    reason = "what is to be done next; each is set and cleared by itself"
)]
pub(super) struct Desk {
    name: Arc<str>,
    /// What the engine holds, as far as we know; `None`: nothing.
    base: Option<Version>,
    /// When it was heard last, by our own clock; never: `base` is a guess.
    heard: Option<Timestamp>,
    reading: Reading,
    /// The state at `base`, and the latest time it knows of.
    view: Cell,
    /// The same with all `events` applied; `None`: there are none.
    ahead: Option<Box<Cell>>,
    /// … after so many corrections of shared time.
    ahead_of: u32,
    at: Timestamp,
    /// What is granted from while the engine is away and shares are allowed.
    alone: Option<Box<Alone>>,
    /// Not written yet, in order, and when each happened by our own clock; and by when the first that lingers must be.
    events: VecDeque<(Timestamp, Event)>,
    due: Timestamp,
    waiting: BTreeMap<(Turn, u64), Waiter>,
    under_way: Option<Attempt>,
    /// Attempts on `base` of which nobody knows whether they were made.
    doubtful: Vec<Attempt>,
    /// Granted by an attempt that was made, as it turned out.
    owed: Vec<Granting>,
    /// Our last write here that stood.
    last: u64,
    /// Nothing is tried before then, unless something happens.
    try_at: Timestamp,
    /// … and then the cell is read, not written.
    look: bool,
    /// Somebody wants an answer that what we know is too old for.
    ask_first: bool,
    /// Since when it would have been the turn of those before us.
    open_since: Option<Timestamp>,
    /// Met somebody else's write since the last turn.
    contended: bool,
    unreadable: Option<String>,
    /// What this process knew of the key before it was started again: for an engine that knows nothing.
    pub(super) remembered: Option<Box<Host>>,
    /// Something was learned since it was last kept.
    pub(super) learned: bool,
    /// How long a write takes, the slow ones remembered for a while.
    takes: Duration,
    /// Failures in a row; nothing is written before then.
    failures: u32,
    not_before: Timestamp,
    pub(super) watched: bool,
}

/// Whether a read is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    No,
    Sent,
    /// It is, but what came meanwhile is newer.
    Overtaken,
}

impl Reading {
    fn is_overtaken(&mut self) {
        if *self == Self::Sent {
            *self = Self::Overtaken;
        }
    }
}

/// Who waits here.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiter {
    pub(super) ask: Ask,
    /// It will have an answer now, be it no.
    pub(super) once: bool,
}

/// A permit in a write.
#[derive(Clone, Copy, Debug)]
pub(super) struct Granting {
    pub(super) turn: Turn,
    pub(super) ticket: u64,
    pub(super) waiter: Waiter,
    pub(super) grant: Grant,
}

struct Attempt {
    number: u64,
    version: Version,
    cell: Cell,
    events: usize,
    granted: Vec<Granting>,
    /// Nothing was there before.
    makes: bool,
    began: Timestamp,
}

/// What is to be done for a desk.
pub(super) enum Step {
    Write(Write),
    Read,
    /// Nothing before then, by our own clock.
    Wait(Timestamp),
}

/// What came of it for those who wait.
#[derive(Debug)]
pub(super) enum Told {
    Granted(Granting),
    /// It was the first write to this cell: it stands if the epoch does.
    Made(Granting),
    No(u64, Wait),
}

impl Desk {
    pub(super) fn new(name: Arc<str>, shop: &Shop, mono: Timestamp) -> Self {
        let now = shop.epochs.now(mono);
        Self {
            name,
            base: None,
            heard: None,
            reading: Reading::No,
            view: Cell::new(Host::new(&shop.config, now)),
            ahead: None,
            ahead_of: 0,
            at: now,
            alone: None,
            events: VecDeque::new(),
            due: Timestamp::NEVER,
            waiting: BTreeMap::new(),
            under_way: None,
            doubtful: Vec::new(),
            owed: Vec::new(),
            last: 0,
            try_at: Timestamp::ZERO,
            look: false,
            ask_first: false,
            open_since: None,
            contended: false,
            unreadable: None,
            remembered: None,
            learned: false,
            takes: Duration::ZERO,
            failures: 0,
            not_before: Timestamp::ZERO,
            watched: false,
        }
    }

    pub(super) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The state as far as we know it, what is not written yet included.
    pub(super) fn host(&mut self) -> &mut Host {
        match (&mut self.alone, &mut self.ahead) {
            (Some(alone), _) => &mut alone.host,
            (None, Some(ahead)) => &mut ahead.host,
            (None, None) => &mut self.view.host,
        }
    }

    /// Nothing leaves while the engine is away.
    pub(super) fn is_shut(&self) -> bool {
        self.alone.is_none()
    }

    pub(super) fn unreadable(&self) -> Option<&str> {
        self.unreadable.as_deref()
    }

    pub(super) fn before(&self, turn: Turn) -> usize {
        self.waiting.range(..(turn, 0)).count()
    }

    /// Others wait with us: we want to hear what they do.
    pub(super) fn wants_notices(&self, me: Who) -> bool {
        !self.waiting.is_empty() && self.view.head.line.contains(&me)
    }

    /// Nothing would be lost with it.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty()
            && self.events.is_empty()
            && self.under_way.is_none()
            && self.doubtful.is_empty()
            && self.owed.is_empty()
            && self.view.host.in_flight() == 0
    }

    /// Somebody waits for a permit.
    pub(super) fn ask(&mut self, turn: Turn, ticket: u64, waiter: Waiter) {
        self.waiting.insert((turn, ticket), waiter);
        if waiter.once
            || self
                .waiting
                .first_key_value()
                .is_some_and(|(first, _)| first.1 == ticket)
        {
            self.try_now();
        }
    }

    /// … and does no more.
    pub(super) fn give_up(&mut self, turn: Turn, ticket: u64) -> bool {
        let waited = self.waiting.remove(&(turn, ticket)).is_some();
        if self.waiting.is_empty() {
            self.try_now();
        }
        waited
    }

    pub(super) fn give_up_all(&mut self, shop: &mut Shop) {
        for (_, ticket) in std::mem::take(&mut self.waiting).into_keys() {
            shop.gone.remove(&ticket);
        }
        self.try_now();
    }

    /// Something happened.
    pub(super) fn tell(
        &mut self,
        event: Event,
        shop: &Shop,
        mono: Timestamp,
    ) -> Option<Directions> {
        let now = self.now(shop, mono);
        if self.ahead.is_none() {
            self.ahead_of = shop.epochs.corrections();
        }
        let ahead = self
            .ahead
            .get_or_insert_with(|| Box::new(self.view.clone()));
        // Before the event: it is the slot it frees that somebody may wait for.
        let lingers = event.can_linger() && {
            let (taken, of) = ahead.host.slots(now, &shop.config);
            2 * taken <= of
        };
        let directions = event.apply(&mut ahead.host, now, &shop.config, shop.seed);
        if let Some(alone) = &mut self.alone {
            event.apply(&mut alone.host, now, &alone.config, shop.seed);
        }
        let linger = if lingers {
            linger(&shop.config)
        } else {
            Duration::ZERO
        };
        self.due = self.due.min(mono + linger);
        self.push(mono, event);
        if !lingers {
            self.try_now();
        }
        directions
    }

    fn push(&mut self, mono: Timestamp, event: Event) {
        let fixed = self.under_way.as_ref().map_or(0, |attempt| attempt.events);
        let doubtful = self.doubtful.iter().map(|attempt| attempt.events).max();
        let fixed = fixed.max(doubtful.unwrap_or(0));
        if self.events.len() >= EVENTS_MAX && fixed < self.events.len() {
            self.events.remove(fixed);
        }
        self.events.push_back((mono, event));
    }

    /// Nothing of ours is unwritten.
    pub(super) fn is_quiet(&self) -> bool {
        self.events.is_empty() && self.under_way.is_none() && self.doubtful.is_empty()
    }

    /// What lingers is written now.
    pub(super) fn flush(&mut self, mono: Timestamp) {
        if !self.events.is_empty() {
            self.due = self.due.min(mono);
        }
    }

    /// The configuration is another.
    pub(super) fn look_again(&mut self, mono: Timestamp) {
        if !self.waiting.is_empty() {
            self.try_at = mono;
        }
    }

    /// Compares what we know with what the engine holds.
    pub(super) fn check(&mut self) {
        if self.heard.is_some() {
            self.look = true;
            self.try_at = Timestamp::ZERO;
        }
    }

    fn try_now(&mut self) {
        self.try_at = Timestamp::ZERO;
        self.look = false;
    }

    fn try_unless_unreadable(&mut self) {
        if self.unreadable.is_none() {
            self.try_now();
        }
    }

    fn now(&self, shop: &Shop, mono: Timestamp) -> Timestamp {
        shop.epochs.now(mono).max(self.at)
    }

    /// What to do at `mono`.
    pub(super) fn step(&mut self, shop: &mut Shop, mono: Timestamp, told: &mut Vec<Told>) -> Step {
        if self.under_way.is_some() {
            return Step::Wait(Timestamp::NEVER);
        }
        self.rejoin(shop, mono);
        let must = self.due <= mono || !self.owed.is_empty() || !self.doubtful.is_empty();
        let tries =
            self.try_at <= mono && (self.look || !self.waiting.is_empty() || self.in_line(shop.me));
        if self.unreadable.is_some() && self.try_at > mono {
            return Step::Wait(self.try_at);
        }
        if !must && !tries {
            let waits = !self.waiting.is_empty() || self.look;
            let try_at = if waits { self.try_at } else { Timestamp::NEVER };
            return Step::Wait(self.due.min(try_at));
        }
        if self.unreadable.is_some() || (self.look && !must && self.heard.is_some()) {
            self.look = false;
            self.try_at = mono + POLL;
            return self.read();
        }
        if self.not_before > mono {
            return Step::Wait(self.not_before);
        }
        if self.base.is_none() && shop.epochs.now(mono).since(shop.epochs.began()) < QUIET {
            if self.heard.is_none() {
                return self.read();
            }
            // Should it have been lost, whoever remembers it comes first.
            let at = shop.epochs.mono(shop.epochs.began() + QUIET);
            if !self.has_been_lost() {
                return Step::Wait(at.max(mono + Duration::from_millis(1)));
            }
        }
        self.build(shop, mono, told)
    }

    /// One at a time: nobody could tell the older answer from the newer.
    fn read(&mut self) -> Step {
        if self.reading != Reading::No {
            return Step::Wait(Timestamp::NEVER);
        }
        self.reading = Reading::Sent;
        Step::Read
    }

    /// What to do at `mono` while the engine is away: our share of what the key may, of the state as it was last known.
    pub(super) fn step_alone(
        &mut self,
        shop: &Shop,
        mono: Timestamp,
        told: &mut Vec<Told>,
    ) -> Timestamp {
        if self.waiting.is_empty() || self.heard.is_none() || self.unreadable.is_some() {
            return Timestamp::NEVER;
        }
        let now = self.now(shop, mono);
        if self.alone.is_none() {
            let known = self.ahead.as_deref().unwrap_or(&self.view);
            self.alone = Alone::new(known.host.clone(), shop, now).map(Box::new);
        }
        let Some(alone) = &mut self.alone else {
            return Timestamp::NEVER;
        };
        while let Some((&(turn, ticket), &waiter)) = self.waiting.first_key_value() {
            match alone.host.request(now, waiter.ask, &alone.config) {
                Decision::Granted(grant) => {
                    self.waiting.pop_first();
                    told.push(Told::Granted(Granting {
                        turn,
                        ticket,
                        waiter,
                        grant,
                    }));
                }
                Decision::Wait(wait) => return shop.epochs.mono(wait.at),
            }
        }
        Timestamp::NEVER
    }

    /// The engine is back: what was granted meanwhile becomes part of the state.
    fn rejoin(&mut self, shop: &Shop, mono: Timestamp) {
        if let Some(alone) = self.alone.take() {
            let host = alone.back_at(self.now(shop, mono));
            self.events.push_back((mono, Event::Join(Box::new(host))));
            self.due = mono;
            self.apply_again(shop);
        }
    }

    fn in_line(&self, me: Who) -> bool {
        self.view.head.line.contains(&me)
    }

    fn build(&mut self, shop: &mut Shop, mono: Timestamp, told: &mut Vec<Told>) -> Step {
        let now = self.now(shop, mono);
        if self.ahead.is_some() && self.ahead_of != shop.epochs.corrections() {
            // Shared time is not what it was thought to be.
            self.apply_again(shop);
        }
        let mut cell = match &self.ahead {
            Some(ahead) => ahead.as_ref().clone(),
            None => self.view.clone(),
        };
        if self.base.is_none() {
            if let Some(remembered) = &self.remembered {
                cell.host.clone_from(remembered);
                self.apply_events(&mut cell.host, shop);
            }
            begin(&mut cell, shop, now, self.has_been_lost());
        } else if cell.head.epoch < shop.epochs.number() {
            // What was granted last may not be in it: it is not granted again, nor is a burst.
            let began = shop.epochs.began();
            cell.host.resume_after(now, began, &shop.config);
        }
        cell.head.epoch = shop.epochs.number();
        let line = cell.head.line.clone();
        // Where writes are slow, what leaves does so once this one is heard of: before, it would be given back for being late.
        let now = if self.takes > SLOW {
            now + self.takes
        } else {
            now
        };
        let granted = self.serve(&mut cell, shop, now, mono, told);
        let changed = (self.due <= mono && !self.events.is_empty())
            || !granted.is_empty()
            || !self.owed.is_empty()
            || !self.doubtful.is_empty()
            || cell.head.line != line;
        if !changed {
            if self.events.is_empty() {
                // Looking has counted tokens and leases: it is not worth a write, but goes with the next.
                self.view = cell;
                self.ahead = None;
                self.at = now;
                self.due = Timestamp::NEVER;
            }
            if std::mem::take(&mut self.ask_first) {
                self.look = false;
                self.try_at = mono + POLL;
                return self.read();
            }
            let waits = !self.waiting.is_empty();
            let try_at = if waits { self.try_at } else { Timestamp::NEVER };
            return Step::Wait(self.due.min(try_at));
        }
        shop.number += 1;
        let notify = cell.others_wait(shop.me);
        let (version, value) = cell.encode(shop.me, shop.number);
        self.under_way = Some(Attempt {
            number: shop.number,
            version,
            cell,
            events: self.events.len(),
            granted,
            makes: self.base.is_none(),
            began: mono,
        });
        self.at = now;
        self.due = Timestamp::NEVER;
        Step::Write(Write {
            cell: Arc::clone(&self.name),
            expected: self.base,
            value,
            keep: KEEP,
            notify,
        })
    }

    /// What was known of it is to be joined with what it is now.
    fn has_been_lost(&self) -> bool {
        let mut events = self.events.iter();
        events.any(|(_, event)| matches!(event, Event::Join(_)))
    }

    /// Lets those leave who may, and takes its place in the line of all who wait.
    fn serve(
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
        let mut before = place.unwrap_or(cell.head.line.len());
        if before > 0 && self.are_late(cell, shop, before, now, mono) {
            cell.head.line.drain(..before);
            before = 0;
        }
        if before > 0 {
            self.answer_at_once(
                told,
                Wait {
                    at: now,
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
        let (granted, wait) = self.take(cell, shop, now, others);
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
        others: bool,
    ) -> (Vec<Granting>, Option<Wait>) {
        let mut granted: Vec<Granting> = Vec::new();
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
                    });
                }
                Decision::Wait(_) if others && !granted.is_empty() => return (granted, None),
                Decision::Wait(wait) => return (granted, Some(wait)),
            }
        }
        (granted, None)
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
        let patience = CLAIM * before as u32;
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
                    Reason::InFlight => before as u32,
                    _ => 10 * before as u32,
                };
                self.try_at = (at + patience).min(mono + POLL * polls).max(mono + CLAIM);
                self.look = true;
                false
            }
        }
    }

    /// What came of the write under way.
    pub(super) fn written(
        &mut self,
        result: Result<Written, EngineError>,
        shop: &mut Shop,
        mono: Timestamp,
        told: &mut Vec<Told>,
    ) {
        let Some(attempt) = self.under_way.take() else {
            return;
        };
        match result {
            Ok(Written::Done) => {
                let took = mono.since(attempt.began);
                self.takes = took.min(SLOW_MAX).max(self.takes / 8 * 7);
                self.failures = 0;
                shop.count.commits += 1;
                shop.count.items += (attempt.events + attempt.granted.len()) as u64;
                self.stands(attempt, shop, mono, told);
            }
            Ok(Written::Conflict(value)) => {
                shop.count.conflicts += 1;
                self.contended = true;
                self.take_back(&attempt, shop);
                self.heard(value.as_deref(), shop, mono);
                self.soon(mono);
            }
            Err(_) => {
                shop.count.unknown += 1;
                self.take_back(&attempt, shop);
                self.doubtful.push(attempt);
                self.not_before = mono + RETRY * (1 << self.failures.min(6));
                self.failures += 1;
            }
        }
    }

    fn stands(&mut self, attempt: Attempt, shop: &Shop, mono: Timestamp, told: &mut Vec<Told>) {
        self.base = Some(attempt.version);
        self.remembered = None;
        self.learned |= attempt.events > 0;
        self.heard = Some(mono);
        self.reading.is_overtaken();
        self.last = attempt.number;
        self.doubtful.clear();
        self.drop_events(attempt.events, shop);
        self.view = attempt.cell;
        self.apply_again(shop);
        if !self.events.is_empty() {
            self.due = self.due.min(mono);
        }
        let told_as: fn(Granting) -> Told = if attempt.makes {
            Told::Made
        } else {
            Told::Granted
        };
        let owed = std::mem::take(&mut self.owed);
        told.extend(owed.into_iter().chain(attempt.granted).map(told_as));
    }

    /// Who was to be served stands where they stood.
    fn take_back(&mut self, attempt: &Attempt, shop: &mut Shop) {
        for granting in &attempt.granted {
            self.wait_again(granting, shop);
        }
    }

    /// A permit that cannot be used: whoever was to have it waits again, if they still do.
    pub(super) fn wait_again(&mut self, granting: &Granting, shop: &mut Shop) {
        if !shop.gone.remove(&granting.ticket) {
            let place = (granting.turn, granting.ticket);
            self.waiting.insert(place, granting.waiter);
            self.try_now();
        }
    }

    fn soon(&mut self, mono: Timestamp) {
        self.try_unless_unreadable();
        if !self.events.is_empty() {
            self.due = mono;
        }
    }

    /// What a look showed.
    pub(super) fn was_read(
        &mut self,
        result: Result<Option<Vec<u8>>, EngineError>,
        shop: &mut Shop,
        mono: Timestamp,
    ) {
        shop.count.reads += 1;
        let reading = std::mem::replace(&mut self.reading, Reading::No);
        match result {
            // Whoever wrote meanwhile was not answered from what was read, but can be from that.
            _ if reading == Reading::Overtaken => self.try_unless_unreadable(),
            Ok(value) if self.under_way.is_none() => {
                self.heard(value.as_deref(), shop, mono);
                self.try_unless_unreadable();
            }
            Ok(_) => {}
            Err(_) => self.try_at = self.try_at.min(mono + LATELY),
        }
    }

    /// What somebody else wrote; while a write of ours is under way its answer tells more.
    pub(super) fn noticed(&mut self, value: &[u8], shop: &mut Shop, mono: Timestamp) {
        if self.under_way.is_some() || Version::of(value) == self.base {
            return;
        }
        if let Ok((cell, _)) = Cell::decode(value, Timestamp::ZERO, &shop.config)
            && cell.head.commits > self.view.head.commits
        {
            self.heard(Some(value), shop, mono);
            self.try_now();
        }
    }

    /// The engine holds `value`.
    fn heard(&mut self, value: Option<&[u8]>, shop: &mut Shop, mono: Timestamp) {
        let first = self.heard.is_none();
        let version = value.and_then(Version::of);
        self.heard = Some(mono);
        self.reading.is_overtaken();
        if version == self.base && !first && self.unreadable.is_none() {
            return;
        }
        let now = self.now(shop, mono);
        // Read as of its own time: what happened here meanwhile may be older than now.
        let read = value.map(|value| Cell::decode(value, Timestamp::ZERO, &shop.config));
        let (cell, at) = match read {
            None => (Cell::new(Host::new(&shop.config, now)), now),
            Some(Ok(read)) => read,
            Some(Err(why)) => {
                self.cannot_read(&why, mono);
                return;
            }
        };
        self.unreadable = None;
        let made = match cell.head.last_write(shop.me) {
            LastWrite::Number(number) => {
                let made = self
                    .doubtful
                    .iter()
                    .position(|attempt| attempt.number == number);
                made.map(|i| self.doubtful.swap_remove(i))
            }
            LastWrite::None | LastWrite::Unknown => None,
        };
        if !self.doubtful.is_empty() {
            // What they wrote, they did not.
            self.due = mono;
        }
        self.doubtful.clear();
        if let Some(attempt) = made {
            self.was_made_after_all(attempt, shop, mono);
        }
        if self.has_lost(&cell, shop.me) {
            shop.count.lost += 1;
            let known = std::mem::replace(&mut self.view, cell).host;
            if version.is_none() {
                // Of two laws a join takes the slower: a new one would make what was learned forgotten.
                self.view.host.clone_from(&known);
            }
            self.events.push_front((mono, Event::Join(Box::new(known))));
            self.due = mono;
            self.last = 0;
        } else {
            self.view = cell;
        }
        self.base = version;
        self.learned = true;
        self.at = at;
        self.apply_again(shop);
    }

    fn cannot_read(&mut self, why: &CellError, mono: Timestamp) {
        self.unreadable = Some(why.to_string());
        self.try_at = mono + UNREADABLE;
    }

    /// So many are written.
    fn drop_events(&mut self, count: usize, shop: &Shop) {
        for (at, event) in self.events.drain(..count) {
            if let Event::Renew(lease) = event {
                lease.settled(at + safely(shop.config.lease));
            }
        }
    }

    fn was_made_after_all(&mut self, attempt: Attempt, shop: &Shop, mono: Timestamp) {
        self.last = attempt.number;
        self.drop_events(attempt.events, shop);
        for granting in attempt.granted {
            if self
                .waiting
                .remove(&(granting.turn, granting.ticket))
                .is_some()
            {
                self.owed.push(granting);
            } else {
                let slots = u64::from(granting.grant.slots);
                for i in (0..slots).rev() {
                    let lease = LeaseId(granting.grant.lease.0 + i);
                    self.events
                        .push_back((mono, Event::Cancel { lease, sent: false }));
                }
                self.due = mono;
            }
        }
    }

    /// The engine holds less than it did: our last write is not in it, or not all that we saw.
    fn has_lost(&self, cell: &Cell, me: Who) -> bool {
        let ours = match cell.head.last_write(me) {
            LastWrite::Number(number) => number < self.last,
            LastWrite::None => self.last > 0,
            LastWrite::Unknown => false,
        };
        ours || cell.head.commits < self.view.head.commits
    }

    fn apply_again(&mut self, shop: &Shop) {
        self.ahead = None;
        if self.events.is_empty() {
            return;
        }
        self.ahead_of = shop.epochs.corrections();
        let mut ahead = Box::new(self.view.clone());
        self.apply_events(&mut ahead.host, shop);
        self.ahead = Some(ahead);
    }

    /// Each as of when it happened, by what shared time is known to have been then.
    fn apply_events(&self, host: &mut Host, shop: &Shop) {
        for (mono, event) in &self.events {
            let now = self.now(shop, *mono);
            event.apply(host, now, &shop.config, shop.seed);
        }
    }
}

fn linger(config: &Config) -> Duration {
    match config.law {
        LawConfig::Fixed | LawConfig::Advice(_) => LINGER.1.min(config.lease / 4),
        _ => LINGER.0,
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

/// A key that nobody knows. After a loss it may be one that was forgotten, whose last permits have yet to leave; one that
/// `has_been_lost` here is, whether the epoch says so already or not.
fn begin(cell: &mut Cell, shop: &Shop, now: Timestamp, has_been_lost: bool) {
    let lost_at = if has_been_lost {
        now
    } else {
        shop.epochs.began()
    };
    let newest = lost_at + HORIZON;
    if newest > now {
        cell.host.resume_after(now, newest, &shop.config);
    }
    // Whoever else may make it anew, now or after a loss that is not known here yet, names no lease the same.
    let maker = u64::from(shop.me.0 & 0xf_ffff) << 12;
    cell.host
        .ids_from(LeaseId((u64::from(shop.epochs.number()) << 32) | maker));
}
