//! All shared keys of one process, without I/O.
//!
//! The documentation of [`Node`] says how it is driven.
//!
//! | file | its part |
//! | --- | --- |
//! | `heartbeats.rs` | the engine's time, and whether it is available |
//! | `settings.rs` | the engine's settings that may lose writes |
//! | `replies.rs` | the way of a grant to its caller |
//! | `notices.rs` | subscriptions to cells |
//! | `admin.rs` | questions and settings of an operator |
//! | `locks.rs` | the locks of keys, as far as the engine has confirmed them |
//! | `table.rs` | the replicas and their wakeups |
//! | `context.rs`, `commit_latency.rs` | the values that all replicas share |

mod admin;
mod commit_latency;
mod context;
mod heartbeats;
mod locks;
mod notices;
mod replies;
mod settings;
mod table;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use politely_core::Timestamp;
use politely_core::arrival::Arrival;
use politely_core::config::Config;
use politely_core::host::{AcquireRequest, Directions, Host};
use politely_core::key::Key;

use crate::engine::{EngineError, Write, Written};
use crate::event::Event;
use crate::record::NodeId;
use crate::replica::{Action, PendingGrant, Replica, Waiter};

pub use self::context::Counts;
pub use self::replies::{Grant, Reply};

pub(crate) use self::context::NodeContext;

use self::heartbeats::Heartbeats;
use self::notices::Subscriptions;
use self::settings::EngineSettings;
use self::table::ReplicaTable;

/// The number of writes, and of reads, in one call of the engine.
const BATCH: usize = 512;

/// The id of one call of [`Node::acquire`].
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
    /// Whether every node goes on with its share of each key while the engine is unavailable.
    pub shares_when_unavailable: bool,
}

/// All shared keys of one process.
///
/// A node is driven from outside. Its methods are of four kinds:
///
/// - *Callers* use [`Node::acquire`], [`Node::cancel`] and [`Node::apply`] at any time. If
///   [`Node::take_wake`] returns true afterwards, the driver must run before its next wakeup.
/// - *The driver* carries out the commands of [`Node::poll_commands`] and passes on the answers of
///   [`Node::poll_replies`]. It repeats both until there are no more commands. Then it sleeps until
///   [`Node::next_wakeup`], or until a caller wakes it.
/// - *Answers of the engine* go into the `handle_*` method of their kind, in any order. A lost
///   answer is passed on as an error after a time-out of at most one second.
/// - *Operators* use [`Node::explain`], [`Node::counts`], [`Node::set_config`] and the like.
///
/// All times of arguments and results are *local*: the caller's own clock, which never runs back.
/// The driver must limit the number of calls in flight, and tell by `has_room` whether one more is
/// possible.
pub struct Node {
    context: NodeContext,
    table: ReplicaTable,
    keys_max: usize,
    shares_when_unavailable: bool,
    heartbeats: Heartbeats,
    settings: EngineSettings,
    /// States from an earlier run of this process, for an engine that has lost them.
    remembered: HashMap<Key, Vec<u8>, foldhash::fast::RandomState>,
    /// Grants from cells that are new to the engine, with their replica and the time since which
    /// they wait for a heartbeat. The heartbeat tells whether an older cell was lost.
    unconfirmed: Vec<(Timestamp, usize, PendingGrant)>,
    /// The answers that are ready, with their replica.
    replies: Vec<(usize, Reply)>,
    /// Whether a replica must be called before the wakeup that the driver knows.
    has_news: bool,
    subscriptions: Subscriptions,
    /// The replicas whose confirmed locks have changed.
    lock_changes: Vec<usize>,
    last_ticket: Ticket,
}

/// The calls of the engine that a driver must make. All of them may be in flight at once.
#[derive(Debug, Default)]
pub struct Commands {
    /// Send a heartbeat that reads this cell, and pass the answer to [`Node::handle_heartbeat`].
    pub heartbeat: Option<Arc<str>>,
    /// Read the engine's settings, and pass the answer to [`Node::handle_risks`]. This comes with a
    /// heartbeat only.
    pub settings: bool,
    /// Read these cells, and pass each answer to [`Node::handle_read`].
    pub reads: Vec<Arc<str>>,
    /// Make these writes, and pass each answer to [`Node::handle_write`].
    pub writes: Vec<Write>,
    /// Subscribe to these cells, and pass a failure to [`Node::handle_lost_subscription`].
    pub watch: Vec<Arc<str>>,
    /// End the subscriptions to these cells.
    pub unwatch: Vec<Arc<str>>,
}

impl Commands {
    /// Returns whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.heartbeat.is_none()
            && self.reads.is_empty()
            && self.writes.is_empty()
            && self.watch.is_empty()
            && self.unwatch.is_empty()
    }
}

impl Node {
    /// Creates a node without keys.
    pub fn new(options: NodeOptions) -> Self {
        let NodeOptions {
            id,
            seed,
            config,
            keys_max,
            shares_when_unavailable,
        } = options;
        Self {
            context: NodeContext::new(id, seed, config),
            table: ReplicaTable::default(),
            keys_max,
            shares_when_unavailable,
            heartbeats: Heartbeats::default(),
            settings: EngineSettings::default(),
            remembered: HashMap::default(),
            unconfirmed: Vec::new(),
            replies: Vec::new(),
            has_news: false,
            subscriptions: Subscriptions::default(),
            lock_changes: Vec::new(),
            last_ticket: 0,
        }
    }

    /// Puts a caller into the queue of `key`. The answer comes from [`Node::poll_replies`].
    ///
    /// With `once` the caller gets an answer as soon as one is known, be it a refusal. Otherwise it
    /// waits until it is served, or until the key is parked.
    pub fn acquire(
        &mut self,
        key: &Key,
        arrival: Arrival,
        ask: AcquireRequest,
        once: bool,
        local: Timestamp,
    ) -> Ticket {
        self.last_ticket += 1;
        let ticket = self.last_ticket;
        let id = self.replica(key, local);
        if let Some(replica) = self.table.get_mut(id) {
            replica.enqueue(arrival, ticket, Waiter { ask, once });
        }
        self.stir(id, Timestamp::ZERO, local);
        ticket
    }

    /// Removes a caller that has left from the queue of `key`. A grant for it is cancelled.
    pub fn cancel(&mut self, key: &Key, arrival: Arrival, ticket: Ticket) {
        if let Some(id) = self.table.id_of(key)
            && let Some(replica) = self.table.get_mut(id)
        {
            if !replica.dequeue(arrival, ticket) {
                // A grant for this caller is in flight.
                self.context.left.insert(ticket);
            }
            self.table.wake(id);
        }
    }

    /// Applies an event to `key` and returns the key's directions for the caller.
    ///
    /// The event is written in the background.
    pub fn apply(&mut self, key: &Key, event: Event, local: Timestamp) -> Directions {
        let id = self.replica(key, local);
        let counts = &mut self.context.counts;
        match &event {
            Event::Report { report, .. } => {
                counts.reported += 1;
                counts.refused += u64::from(report.signal.is_refusal());
            }
            Event::Cancel { .. } => counts.cancelled += 1,
            _ => {}
        }
        let mut flush_at = Timestamp::ZERO;
        let directions = self.table.get_mut(id).and_then(|replica| {
            let directions = replica.apply(event, &self.context, local);
            flush_at = replica.flush_at();
            directions
        });
        self.stir(id, flush_at, local);
        let directions = directions.map(|directions| Directions {
            hold_until: self.context.clock.local(directions.hold_until),
            ..directions
        });
        let directions = directions.unwrap_or(Directions::unknown(local));
        self.context.counts.late += u64::from(directions.late);
        directions
    }

    /// Returns the commands that are due. Without `has_room`, no cell is read or written.
    pub fn poll_commands(&mut self, local: Timestamp, has_room: bool) -> Commands {
        let mut commands = Commands::default();
        self.heartbeats.note_poll(local);
        if self.context.clock.is_fresh(local) {
            if has_room {
                self.step_replicas(&mut commands, local);
            }
        } else if self.is_on_fallback(local) {
            self.serve_from_fallback(local);
        }
        if std::mem::take(&mut self.context.needs_heartbeat) {
            self.heartbeats.next_at = local;
        }
        if self.heartbeats.is_due(local) {
            commands.heartbeat = Some(self.context.clock.cell());
            commands.settings = self.settings.is_due(local);
        }
        (commands.watch, commands.unwatch) = self.take_subscriptions(local);
        commands
    }

    fn step_replicas(&mut self, commands: &mut Commands, local: Timestamp) {
        let mut replies = Vec::new();
        while commands.writes.len() < BATCH && commands.reads.len() < BATCH {
            let Some(id) = self.table.pop_due(local) else {
                break;
            };
            let Some(replica) = self.table.get_mut(id) else {
                continue;
            };
            match replica.step(&mut self.context, local, &mut replies) {
                Action::Write(write) => commands.writes.push(write),
                Action::Read => commands.reads.push(Arc::clone(replica.name())),
                Action::Wait(until) => {
                    let at = until.max(local + Duration::from_micros(1));
                    self.table.set_wakeup(id, at);
                }
            }
            self.update_subscription(id);
            self.collect(id, &mut replies, local);
        }
    }

    /// Returns the time of the next call of [`Node::poll_commands`], [`Timestamp::NEVER`] for none.
    ///
    /// While the engine is unavailable, that is the next heartbeat.
    pub fn next_wakeup(&self, local: Timestamp, has_room: bool) -> Timestamp {
        let is_fresh = has_room && self.context.clock.is_fresh(local);
        let replicas = if is_fresh || self.is_on_fallback(local) {
            self.table.next_wakeup()
        } else {
            Timestamp::NEVER
        };
        replicas
            .min(self.heartbeats.next_wakeup())
            .min(self.subscriptions.renew_at)
    }

    /// Handles the answer to a write of `cell`. Returns the latency of the batch if it was
    /// confirmed.
    pub fn handle_write(
        &mut self,
        cell: &str,
        result: Result<Written, EngineError>,
        local: Timestamp,
    ) -> Option<Duration> {
        match &result {
            Ok(Written::Done) => self.heartbeats.note_write_done(),
            Ok(Written::Conflict(_)) => {}
            Err(EngineError(why)) => self.heartbeats.note_write_failed(why, local),
        }
        let id = self.table.id_of_cell(cell)?;
        let mut replies = Vec::new();
        let latency = self.table.get_mut(id).and_then(|replica| {
            replica.handle_write(result, &mut self.context, local, &mut replies)
        });
        self.collect(id, &mut replies, local);
        self.wake_after_change(id);
        latency
    }

    /// Handles the answer to a read of `cell`.
    pub fn handle_read(
        &mut self,
        cell: &str,
        result: Result<Option<Vec<u8>>, EngineError>,
        local: Timestamp,
    ) {
        if let Some(id) = self.table.id_of_cell(cell) {
            if let Some(replica) = self.table.get_mut(id) {
                replica.handle_read(result, &mut self.context, local);
            }
            self.wake_after_change(id);
        }
    }

    /// Handles a notice that `cell` was written and holds `value`.
    pub fn handle_notice(&mut self, cell: &str, value: &[u8], local: Timestamp) {
        if let Some(id) = self.table.id_of_cell(cell) {
            if let Some(replica) = self.table.get_mut(id) {
                replica.handle_notice(value, &mut self.context, local);
            }
            self.wake_after_change(id);
        }
    }

    /// Empties all queues. `tickets` are the callers that still wait; grants for them are
    /// cancelled.
    pub fn close(&mut self, tickets: impl Iterator<Item = Ticket>) {
        self.context.left.extend(tickets);
        let context = &mut self.context;
        self.table.for_each(|replica| replica.clear_queue(context));
    }

    /// Returns the replica of `key`, and creates one if there is none.
    fn replica(&mut self, key: &Key, local: Timestamp) -> usize {
        if let Some(id) = self.table.id_of(key) {
            return id;
        }
        if self.table.len() >= self.keys_max {
            self.table.drop_idle(self.keys_max / 8 + 1);
        }
        let mut replica = Replica::new(cell_name(key), &self.context, local);
        if let Some(state) = self.remembered.remove(key) {
            let now = self.context.clock.now(local);
            let host = Host::restore(&state, now, &self.context.config);
            replica.remembered = host.ok().map(|mut host| {
                host.forget_leases();
                Box::new(host)
            });
        }
        self.table.insert(key, replica)
    }

    /// Schedules a replica for `due`, or for when it may write again if that is later.
    fn stir(&mut self, id: usize, due: Timestamp, local: Timestamp) {
        let rests_until = self.table.get(id).map(Replica::rests_until);
        let rests_until = rests_until.filter(|_| self.context.clock.is_fresh(local));
        let at = rests_until.map_or(Timestamp::ZERO, |until| until.max(due));
        if at < self.table.wakeup_of(id) {
            self.table.set_wakeup(id, at);
            self.has_news = true;
        }
    }

    /// Returns whether [`Node::poll_commands`] must be called before the last wakeup, and resets
    /// it.
    pub const fn take_wake(&mut self) -> bool {
        std::mem::replace(&mut self.has_news, false)
    }
}

/// Returns the name of the cell of `key`.
///
/// The braces are a hash tag: a Redis cluster keeps all names with the same tag on one server.
pub fn cell_name(key: &Key) -> Arc<str> {
    format!("politely:{{{}}}", key.as_str()).into()
}
