//! All shared keys of one process, and the engine's time: no clock, no socket.
//!
//! The courier asks what is to be done ([`Node::poll_commands`]), does it, and says what came of it; callers ask and tell at any time.
//! A simulation does the courier's part in virtual time.

mod admin;
mod commit_latency;
mod context;
mod notices;
mod offline;
mod replies;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use politely_core::Timestamp;
use politely_core::arrival::Arrival;
use politely_core::config::Config;
use politely_core::host::{Ask, Directions, Host};
use politely_core::key::Key;
use politely_core::signal::Signal;

use crate::engine::{EngineError, Heartbeat, Write, Written};
use crate::event::Event;
use crate::record::NodeId;
use crate::replica::{Action, PendingGrant, Replica, Waiter};
use crate::shared_clock::{HEARTBEAT_EVERY, STALE, SharedClock};

pub use self::context::Counts;
pub use self::replies::{Grant, Reply};

pub(crate) use self::context::NodeContext;

use self::commit_latency::CommitLatency;
use self::notices::Subscriptions;

/// Writes in one call of the engine.
const BATCH: usize = 512;
/// When to ask again if nobody can say.
const AGAIN: Duration = Duration::from_millis(250);
/// A look follows one that settled nothing after so long, and each further one after twice as long.
const AGAIN_FIRST: Duration = Duration::from_millis(1);
/// Where a write failed, a look follows the last one no sooner.
const SOON: Duration = Duration::from_millis(50);

/// A caller's name for what it asked.
pub type Ticket = u64;

/// The settings of a node.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// The id of this process, different from the ids of all other nodes.
    pub id: NodeId,
    /// The seed of all jitter.
    pub seed: u64,
    /// The limits of all keys.
    pub config: Arc<Config>,
    /// The number of keys above which idle keys are dropped from memory.
    pub keys_max: usize,
    /// While the engine is unavailable, every node goes on with its share of each key.
    pub shares_when_unavailable: bool,
}

/// The state of all shared keys here.
pub struct Node {
    context: NodeContext,
    replicas: Vec<Option<Replica>>,
    of: HashMap<Key, usize, foldhash::fast::RandomState>,
    named: HashMap<Arc<str>, usize, foldhash::fast::RandomState>,
    free: Vec<usize>,
    /// When which replica has something to do, by our own clock.
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
    unsure: Vec<(Timestamp, usize, PendingGrant)>,
    heartbeat_at: Timestamp,
    /// When the last look was sent.
    heartbeat_sent: Timestamp,
    heartbeat_in_flight: bool,
    /// Looks in a row that did not settle what time it is.
    unsettled: u32,
    /// Since when the engine answers, takes no write and says why.
    refused: Option<(Timestamp, String)>,
    /// With the replica it is from.
    replies: Vec<(usize, Reply)>,
    /// Something is to be done sooner than was thought when it was last looked at.
    news: bool,
    watching: Subscriptions,
    next: Ticket,
}

/// What the engine is asked next; none of it may be under way already.
#[derive(Debug, Default)]
pub struct Commands {
    pub heartbeat: Option<Arc<str>>,
    pub reads: Vec<Arc<str>>,
    pub writes: Vec<Write>,
    pub watch: Vec<Arc<str>>,
    pub unwatch: Vec<Arc<str>>,
}

impl Commands {
    pub fn is_empty(&self) -> bool {
        self.heartbeat.is_none()
            && self.reads.is_empty()
            && self.writes.is_empty()
            && self.watch.is_empty()
            && self.unwatch.is_empty()
    }
}

impl Node {
    pub fn new(options: NodeOptions) -> Self {
        let NodeOptions {
            id: me,
            seed,
            config,
            keys_max: capacity,
            shares_when_unavailable: shares,
        } = options;
        Self {
            context: NodeContext {
                me,
                clock: SharedClock::new(me),
                config,
                seed,
                number: 0,
                gone: HashSet::default(),
                count: Counts::default(),
                apart_until: Timestamp::ZERO,
                look: false,
                last_error: None,
                took: CommitLatency::default(),
            },
            replicas: Vec::new(),
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
            heartbeat_at: Timestamp::ZERO,
            heartbeat_sent: Timestamp::ZERO,
            heartbeat_in_flight: false,
            unsettled: 0,
            refused: None,
            replies: Vec::new(),
            news: false,
            watching: Subscriptions::default(),
            next: 0,
        }
    }

    /// A caller joins the line of `key`; `once`: it wants an answer now, be it no.
    pub fn acquire(
        &mut self,
        key: &Key,
        turn: Arrival,
        ask: Ask,
        once: bool,
        local: Timestamp,
    ) -> Ticket {
        self.next += 1;
        let ticket = self.next;
        let id = self.replica(key, local);
        if let Some(replica) = &mut self.replicas[id] {
            replica.ask(turn, ticket, Waiter { ask, once });
        }
        self.stir(id, Timestamp::ZERO, local);
        ticket
    }

    /// It does not wait any more.
    pub fn cancel(&mut self, key: &Key, turn: Arrival, ticket: Ticket) {
        if let Some(&id) = self.of.get(key)
            && let Some(replica) = &mut self.replicas[id]
        {
            if !replica.cancel(turn, ticket) {
                // It was served, or is about to be.
                self.context.gone.insert(ticket);
            }
            self.wake(id);
        }
    }

    /// Something happened to `key`.
    pub fn apply(&mut self, key: &Key, event: Event, local: Timestamp) -> Directions {
        let id = self.replica(key, local);
        let count = &mut self.context.count;
        match &event {
            Event::Report { report, .. } => {
                count.reported += 1;
                count.refused += u64::from(report.signal == Signal::RateLimited);
            }
            Event::Cancel { .. } => count.cancelled += 1,
            _ => {}
        }
        let mut due = Timestamp::ZERO;
        let replies = self.replicas[id].as_mut().and_then(|replica| {
            let replies = replica.tell(event, &self.context, local);
            due = replica.due();
            replies
        });
        self.stir(id, due, local);
        let directions = replies.map(|replies| Directions {
            hold_until: self.context.clock.local(replies.hold_until),
            ..replies
        });
        let directions = directions.unwrap_or(Directions {
            hold_until: local,
            rate: 0.0,
            event: false,
            late: false,
        });
        self.context.count.late += u64::from(directions.late);
        directions
    }

    pub fn shared_time(&self, local: Timestamp) -> Timestamp {
        self.context.clock.now(local)
    }

    /// How long leases last.
    pub fn lease(&self) -> Duration {
        self.context.config.lease
    }

    /// A permit granted elsewhere is one of ours.
    pub const fn note_adopted(&mut self) {
        self.context.count.granted += 1;
    }

    /// What is to be done now; without `room`, nothing is asked of keys.
    pub fn poll_commands(&mut self, local: Timestamp, room: bool) -> Commands {
        let mut calls = Commands::default();
        self.stays_awake(local);
        if self.context.clock.is_fresh(local) {
            if room {
                self.ask_desks(&mut calls, local);
            }
        } else if self.is_alone(local) {
            self.serve_alone(local);
        }
        if std::mem::take(&mut self.context.look) {
            self.heartbeat_at = local;
        }
        if !self.heartbeat_in_flight && self.heartbeat_at <= local {
            self.heartbeat_in_flight = true;
            self.heartbeat_sent = local;
            calls.heartbeat = Some(self.context.clock.cell());
        }
        (calls.watch, calls.unwatch) = self.watched(local);
        calls
    }

    fn ask_desks(&mut self, calls: &mut Commands, local: Timestamp) {
        let mut replies = Vec::new();
        while calls.writes.len() < BATCH && calls.reads.len() < BATCH {
            let Some(&(at, id)) = self.due.first().filter(|(at, _)| *at <= local) else {
                break;
            };
            self.due.remove(&(at, id));
            self.due_of[id] = Timestamp::NEVER;
            let Some(replica) = &mut self.replicas[id] else {
                continue;
            };
            match replica.step(&mut self.context, local, &mut replies) {
                Action::Write(write) => calls.writes.push(write),
                Action::Read => calls.reads.push(Arc::clone(replica.name())),
                Action::Wait(until) => self.at(id, until.max(local + Duration::from_micros(1))),
            }
            self.see_to_notices(id);
            self.collect(id, &mut replies, local);
        }
    }

    /// When [`Node::poll_commands`] has something next; while the engine is away only looks at it.
    pub fn next_wakeup(&self, local: Timestamp, room: bool) -> Timestamp {
        let heartbeat = if self.heartbeat_in_flight {
            Timestamp::NEVER
        } else {
            self.heartbeat_at
        };
        let due = self.due.first().map(|(at, _)| *at);
        let fresh = room && self.context.clock.is_fresh(local);
        let serves = fresh || self.is_alone(local);
        let due = due.filter(|_| serves).unwrap_or(Timestamp::NEVER);
        due.min(heartbeat).min(self.watching.again_at)
    }

    /// What a look at the engine showed; it was sent at that time of our clock.
    pub fn handle_heartbeat(
        &mut self,
        sent: Timestamp,
        heartbeat: Result<Heartbeat, EngineError>,
        local: Timestamp,
    ) -> Option<Write> {
        self.heartbeat_in_flight = false;
        self.heartbeat_at = sent.max(local - HEARTBEAT_EVERY / 2) + HEARTBEAT_EVERY;
        let heartbeat = match heartbeat {
            Ok(heartbeat) => heartbeat,
            Err(EngineError(why)) => {
                self.context.last_error = Some(why);
                return None;
            }
        };
        self.context.last_error = self.context.clock.strange(&heartbeat);
        if local.since(sent) >= STALE {
            // We stood still: what time it was then says little of what time it is.
            self.heartbeat_at = local;
            return None;
        }
        let was_away = !self.context.clock.is_fresh(sent);
        let seen_before = self.context.clock.last_seen();
        let seen = self.context.clock.seen(sent, local, &heartbeat);
        if seen.again {
            // At once, unless nobody's word for it is taken.
            self.heartbeat_at =
                local + HEARTBEAT_EVERY.min(AGAIN_FIRST * (1 << self.unsettled.min(16)));
            self.unsettled += 1;
        } else {
            self.unsettled = 0;
        }
        if seen.new_epoch {
            for id in 0..self.replicas.len() {
                if let Some(replica) = &mut self.replicas[id] {
                    replica.check();
                    self.wake(id);
                }
            }
        }
        if !seen.again {
            self.confirm(sent, local);
            if !self.unsure.is_empty() {
                // They came since this look was sent.
                self.heartbeat_at = local;
            }
        }
        if was_away {
            self.wake_waiting();
        }
        self.is_back(seen_before, sent, local);
        seen.write
    }

    /// Keys that were new to the engine were new indeed: its epoch is still the one of before.
    fn confirm(&mut self, sent: Timestamp, local: Timestamp) {
        let lost = self.context.clock.lost();
        let sure = self.unsure.extract_if(.., |(since, ..)| *since <= sent);
        let sure: Vec<_> = sure.collect();
        for (_, id, pending) in sure {
            if pending.unsure == Some(lost) {
                self.deliver(id, &pending, local);
            } else {
                self.take_back(id, &pending, local);
            }
        }
    }

    fn wake_waiting(&mut self) {
        for id in 0..self.replicas.len() {
            if self.replicas[id].is_some() && self.due_of[id] != Timestamp::NEVER {
                self.wake(id);
            }
        }
    }

    /// What came of a write of a key. If it stood: how long that took.
    pub fn handle_write(
        &mut self,
        cell: &str,
        result: Result<Written, EngineError>,
        local: Timestamp,
    ) -> Option<Duration> {
        match &result {
            Ok(Written::Done) => self.refused = None,
            Ok(Written::Conflict(_)) => {}
            Err(EngineError(why)) => {
                let since = self.refused.take().map_or(local, |(since, _)| since);
                self.refused = Some((since, why.clone()));
                let soon = local.max(self.heartbeat_sent + SOON);
                self.heartbeat_at = self.heartbeat_at.min(soon);
            }
        }
        let id = *self.named.get(cell)?;
        let mut replies = Vec::new();
        let replica = self.replicas[id].as_mut();
        let took = replica
            .and_then(|replica| replica.written(result, &mut self.context, local, &mut replies));
        self.collect(id, &mut replies, local);
        self.wake(id);
        took
    }

    /// What a look at a key showed.
    pub fn handle_read(
        &mut self,
        cell: &str,
        result: Result<Option<Vec<u8>>, EngineError>,
        local: Timestamp,
    ) {
        if let Some(&id) = self.named.get(cell) {
            if let Some(replica) = &mut self.replicas[id] {
                replica.handle_read(result, &mut self.context, local);
            }
            self.wake(id);
        }
    }

    /// What somebody else wrote.
    pub fn handle_notice(&mut self, cell: &str, value: &[u8], local: Timestamp) {
        if let Some(&id) = self.named.get(cell) {
            if let Some(replica) = &mut self.replicas[id] {
                replica.handle_notice(value, &mut self.context, local);
            }
            self.wake(id);
        }
    }

    /// Nobody is served any more, `tickets` neither.
    pub fn close(&mut self, tickets: impl Iterator<Item = Ticket>) {
        self.context.gone.extend(tickets);
        for replica in self.replicas.iter_mut().flatten() {
            replica.cancel_all(&mut self.context);
        }
    }

    fn replica(&mut self, key: &Key, local: Timestamp) -> usize {
        if let Some(&id) = self.of.get(key) {
            return id;
        }
        if self.of.len() >= self.capacity {
            self.forget_idle();
        }
        let name = cell_name(key);
        let mut replica = Replica::new(Arc::clone(&name), &self.context, local);
        if let Some(state) = self.remembered.remove(key) {
            let now = self.context.clock.now(local);
            let host = Host::restore(&state, now, &self.context.config);
            replica.remembered = host.ok().map(|mut host| {
                host.forget_leases();
                Box::new(host)
            });
        }
        let id = self.free.pop().unwrap_or_else(|| {
            self.replicas.push(None);
            self.due_of.push(Timestamp::NEVER);
            self.replicas.len() - 1
        });
        self.replicas[id] = Some(replica);
        self.of.insert(key.clone(), id);
        self.named.insert(name, id);
        id
    }

    /// What nobody here uses is in the engine.
    fn forget_idle(&mut self) {
        let most = self.capacity / 8 + 1;
        let replicas = &self.replicas;
        let idle = |id: &usize| replicas[*id].as_ref().is_none_or(Replica::is_idle);
        let idle: Vec<Key> = self
            .of
            .iter()
            .filter(|(_, id)| idle(id))
            .map(|(key, _)| key.clone())
            .take(most)
            .collect();
        for key in idle {
            if let Some(id) = self.of.remove(&key) {
                self.named.remove(&cell_name(&key));
                self.replicas[id] = None;
                self.due.remove(&(self.due_of[id], id));
                self.due_of[id] = Timestamp::NEVER;
                self.free.push(id);
            }
        }
    }

    /// There is something to be done for a replica at `due`, unless it rests.
    fn stir(&mut self, id: usize, due: Timestamp, local: Timestamp) {
        let rests = self.replicas[id].as_ref().map(Replica::rests_until);
        let rests = rests.filter(|_| self.context.clock.is_fresh(local));
        let at = rests.map_or(Timestamp::ZERO, |rests| rests.max(due));
        if at < self.due_of[id] {
            self.at(id, at);
            self.news = true;
        }
    }

    /// Whether [`Node::poll_commands`] should be called sooner than was thought.
    pub const fn take_wake(&mut self) -> bool {
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
pub fn cell_name(key: &Key) -> Arc<str> {
    format!("politely:{{{}}}", key.as_str()).into()
}
