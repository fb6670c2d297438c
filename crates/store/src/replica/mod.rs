//! One shared key as one process sees it.
//!
//! A replica holds the state that it last saw in the key's cell, and applies every event to it at
//! once. It writes all events and grants of a moment with one compare-and-set, while the next batch
//! gathers. The engine's answer decides what holds: see `commit.rs`.
//!
//! | file | its part |
//! | --- | --- |
//! | `step.rs` | what to do now, or until when to wait |
//! | `queue.rs` | the callers of this process that wait |
//! | `line.rs` | the nodes that wait, and what the first of them may grant |
//! | `pending.rs` | the events that are not written yet |
//! | `commit.rs` | a write and its result; commits in doubt |
//! | `known.rs`, `merge.rs` | the state of the cell, and what a new value means |
//! | `ended_leases.rs` | leases whose end another node may not know of |
//! | `fallback.rs` | the share of the key while the engine is unavailable |
//! | `timers.rs` | when to do what |
//!
//! Exactly one [`Phase`] holds at a time. A read may be in flight beside any of them
//! ([`ReadState`]), since a lost answer to a read must not delay a write.

mod commit;
mod ended_leases;
pub(crate) mod fallback;
mod keep;
mod known;
mod line;
mod merge;
mod pending;
mod queue;
mod step;
mod timers;

use std::sync::Arc;
use std::time::Duration;

use politely_core::Timestamp;
use politely_core::arrival::Arrival;
use politely_core::config::Config;
use politely_core::control::LawConfig;
use politely_core::host::{AcquireRequest, Directions, Host};
use politely_core::lock::Locks;

use crate::event::Event;
use crate::node::{NodeContext, Ticket};
use crate::record::NodeId;

pub use self::commit::CROWD;

pub(crate) use self::commit::{Action, PendingGrant, WaiterReply};
pub(crate) use self::queue::Waiter;

use self::commit::{Commit, InDoubt, WritePace};
use self::ended_leases::EndedLeases;
use self::fallback::FallbackShare;
use self::known::Known;
use self::pending::PendingEvents;
use self::queue::WaitQueue;
use self::timers::{Timer, TimerTable};

/// A good report waits this long for another write of its key if a law learns from it.
const LINGER_LEARNING: Duration = Duration::from_millis(500);
/// A good report waits this long if no law learns from it, but at most a quarter of its lease.
const LINGER_FIXED: Duration = Duration::from_secs(5);
/// The interval of reads while this node waits for other nodes, in case a notice is lost.
const POLL: Duration = Duration::from_secs(1);
/// The interval of reads of a cell that cannot be decoded. It can be after an upgrade.
const UNREADABLE_RETRY: Duration = Duration::from_secs(1);
/// The longest latency that counts. A longer one means that this process was suspended.
const SLOW_MAX: Duration = Duration::from_millis(500);
/// A refusal may be based on a state of at most this age.
const LATELY: Duration = Duration::from_millis(250);

/// One shared key.
pub(crate) struct Replica {
    /// The name of the cell.
    name: Arc<str>,
    known: Known,
    pending: PendingEvents,
    queue: WaitQueue,
    phase: Phase,
    read: ReadState,
    in_doubt: InDoubt,
    ended: EndedLeases,
    fallback: Option<Box<FallbackShare>>,
    timers: TimerTable,
    attempt: Attempt,
    pace: WritePace,
    /// The state from before this process was restarted, for an engine that does not hold the key.
    pub(crate) remembered: Option<Box<Host>>,
    /// Whether the state has learned something since it was last saved.
    pub(crate) has_learned: bool,
    /// The state of the key's locks at the last call of [`Replica::take_lock_change`].
    lock_mark: (u64, usize),
    /// Whether the node is subscribed to notices of the cell.
    pub(crate) is_subscribed: bool,
}

/// The state of a replica's work on its cell.
enum Phase {
    /// No write is in flight, and one may start.
    Idle,
    /// A large batch was written among writes of other nodes. The next batch gathers until
    /// [`Timer::Gather`], and then the cell is read before the next write.
    Gathering,
    /// This write is in flight.
    Writing(Box<Commit>),
    /// The cell cannot be decoded. It is read now and then, and never written.
    Unreadable,
}

impl Phase {
    const fn is_writing(&self) -> bool {
        matches!(self, Self::Writing(_))
    }

    /// Ends [`Phase::Writing`] and returns its commit.
    fn take_commit(&mut self) -> Option<Commit> {
        match std::mem::replace(self, Self::Idle) {
            Self::Writing(commit) => Some(*commit),
            other => {
                *self = other;
                None
            }
        }
    }
}

/// Whether a read is in flight. There is one at most, since its answers carry no order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ReadState {
    #[default]
    None,
    InFlight,
    /// A read is in flight, and a newer value is known already.
    Overtaken,
}

impl ReadState {
    /// Notes that a newer value is known than a read in flight will return.
    const fn note_newer(&mut self) {
        if matches!(self, Self::InFlight) {
            *self = Self::Overtaken;
        }
    }
}

/// The step that a replica takes at [`Timer::Attempt`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attempt {
    /// The queue is served.
    Serve,
    /// The cell is read.
    Read,
}

impl Replica {
    pub(crate) fn new(name: Arc<str>, context: &NodeContext, local: Timestamp) -> Self {
        Self {
            name,
            known: Known::new(context, local),
            pending: PendingEvents::default(),
            queue: WaitQueue::default(),
            phase: Phase::Idle,
            read: ReadState::None,
            in_doubt: InDoubt::default(),
            ended: EndedLeases::default(),
            fallback: None,
            timers: TimerTable::new(),
            attempt: Attempt::Serve,
            pace: WritePace::default(),
            remembered: None,
            has_learned: false,
            lock_mark: (0, 0),
            is_subscribed: false,
        }
    }

    pub(crate) const fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Returns the state as far as this process knows it, pending events included.
    pub(crate) fn host(&mut self) -> &mut Host {
        match &mut self.fallback {
            Some(share) => &mut share.host,
            None => &mut self.pending.record_mut(&mut self.known).host,
        }
    }

    pub(crate) const fn has_fallback(&self) -> bool {
        self.fallback.is_some()
    }

    pub(crate) const fn is_unreadable(&self) -> bool {
        matches!(self.phase, Phase::Unreadable)
    }

    pub(crate) fn waiters_before(&self, arrival: Arrival) -> usize {
        self.queue.before(arrival)
    }

    /// Returns whether this node is in line, so that writes of other nodes matter to it.
    pub(crate) fn wants_notices(&self, me: NodeId) -> bool {
        (!self.queue.is_empty() && self.is_in_line(me)) || self.has_waiting_lock()
    }

    /// Returns whether the engine holds everything that this replica holds.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty()
            && self.is_flushed()
            && self.in_doubt.late_confirmed.is_empty()
            && self.known.record.host.in_flight() == 0
            && !self.has_waiting_lock()
    }

    /// Returns the locks that the engine has confirmed.
    pub(crate) fn locks(&self) -> Option<&Locks> {
        self.known.heard_at?;
        self.known.record.host.locks()
    }

    fn has_waiting_lock(&self) -> bool {
        let locks = self.known.record.host.locks();
        locks.is_some_and(Locks::has_waiting)
    }

    /// Returns whether the confirmed locks have changed since the last call.
    pub(crate) fn take_lock_change(&mut self) -> bool {
        let mark = self.locks().map(Locks::mark).unwrap_or_default();
        std::mem::replace(&mut self.lock_mark, mark) != mark
    }

    /// Returns whether all events are written.
    pub(crate) fn is_flushed(&self) -> bool {
        self.pending.is_empty() && !self.phase.is_writing() && self.in_doubt.commits.is_empty()
    }

    /// Adds a caller to the queue.
    pub(crate) fn enqueue(&mut self, arrival: Arrival, ticket: Ticket, waiter: Waiter) {
        let once = waiter.once;
        let is_first = self.queue.insert(arrival, ticket, waiter);
        if once || is_first {
            self.try_now();
        }
    }

    /// Removes a caller from the queue. Returns whether it was there.
    pub(crate) fn dequeue(&mut self, arrival: Arrival, ticket: Ticket) -> bool {
        let was_there = self.queue.remove(arrival, ticket);
        if self.queue.is_empty() {
            self.try_now();
        }
        was_there
    }

    /// Removes the first caller from the queue if it asked for the same as `ask`, for a start that
    /// is `ahead` of now. Returns its ticket and whether the key had to wait meanwhile.
    pub(crate) fn pop_caller_of(
        &mut self,
        ask: &AcquireRequest,
        ahead: Duration,
    ) -> Option<(Ticket, bool)> {
        let ticket = self.queue.pop_first_of(ask, ahead)?;
        if self.queue.is_empty() {
            self.try_now();
        }
        Some((ticket, self.queue.has_waited(ticket)))
    }

    pub(crate) fn clear_queue(&mut self, context: &mut NodeContext) {
        for ticket in self.queue.take_all() {
            context.left.remove(&ticket);
        }
        self.try_now();
    }

    /// Applies an event, and schedules its write.
    pub(crate) fn apply(
        &mut self,
        event: Event,
        context: &NodeContext,
        local: Timestamp,
    ) -> Option<Directions> {
        let now = self.known.now(context, local);
        let host = &mut self.pending.begin(&self.known, context).host;
        // A slot that the event frees may be waited for, so slots are counted before the event.
        let owes = event.owes(host, &context.config);
        let linger = event.can_linger().filter(|_| !owes).and_then(|lease| {
            let (taken, of) = host.slots(now, &context.config);
            let left = host.lease_ends(lease).map(|ends| ends.since(now));
            let left = left.unwrap_or(Duration::MAX).saturating_sub(SLOW_MAX);
            (2 * taken <= of).then(|| linger(&context.config).min(left / 2))
        });
        let directions = self.pending.apply(&event, now, context);
        if let Some(share) = &mut self.fallback {
            share.apply(&event, now, context.seed);
        }
        let flush_at = local + linger.unwrap_or_default();
        self.timers.bring_forward(Timer::Flush, flush_at);
        self.push(local, event);
        if owes {
            self.pending.note_owed();
        }
        if linger.is_none() {
            self.try_now();
        }
        directions
    }

    /// Adds an event to the pending ones. Events of a commit in flight or in doubt are never
    /// dropped.
    fn push(&mut self, local: Timestamp, event: Event) {
        let in_flight = match &self.phase {
            Phase::Writing(commit) => commit.events,
            _ => 0,
        };
        let commits = &self.in_doubt.commits;
        let in_doubt = commits.iter().map(|commit| commit.events).max();
        let fixed = in_flight.max(in_doubt.unwrap_or(0));
        self.pending.push(local, event, fixed);
    }

    /// Returns the local time before which nothing is read or written.
    pub(crate) fn rests_until(&self) -> Timestamp {
        match self.phase {
            Phase::Writing(_) => Timestamp::NEVER,
            Phase::Gathering if self.read != ReadState::None => Timestamp::NEVER,
            _ => self.timers.get(Timer::Gather),
        }
    }

    /// Returns the local time by which the pending events must be written.
    pub(crate) const fn flush_at(&self) -> Timestamp {
        self.timers.get(Timer::Flush)
    }

    /// Returns whether a pending event spends more than its permit did.
    pub(crate) const fn owes(&self) -> bool {
        self.pending.owes()
    }

    /// Schedules the write of the pending events now.
    pub(crate) fn flush(&mut self, local: Timestamp) {
        if !self.pending.is_empty() {
            self.timers.bring_forward(Timer::Flush, local);
        }
    }

    /// Serves the queue at `local`, since the limits may have changed.
    pub(crate) fn retry_at(&mut self, local: Timestamp) {
        if !self.queue.is_empty() {
            self.timers.set(Timer::Attempt, local);
        }
    }

    /// Schedules a read, since the engine may have lost the cell.
    pub(crate) const fn check(&mut self) {
        if self.known.heard_at.is_some() {
            self.attempt = Attempt::Read;
            self.timers.set(Timer::Attempt, Timestamp::ZERO);
        }
    }

    const fn try_now(&mut self) {
        self.attempt = Attempt::Serve;
        self.timers.set(Timer::Attempt, Timestamp::ZERO);
    }

    const fn try_unless_unreadable(&mut self) {
        if !self.is_unreadable() {
            self.try_now();
        }
    }
}

fn linger(config: &Config) -> Duration {
    match config.law {
        LawConfig::Fixed | LawConfig::Advice(_) => LINGER_FIXED.min(config.lease / 4),
        _ => LINGER_LEARNING,
    }
}
