//! One shared key as one process sees it.
//!
//! A replica holds the state that it last saw in the key's cell, and applies every event to it at
//! once. It writes all events and grants of a moment with one compare-and-set, while the next batch
//! gathers. The engine's answer decides what holds: see `commit.rs`.
//!
//! | file | its part |
//! | --- | --- |
//! | `queue.rs` | the callers of this process that wait |
//! | `line.rs` | the nodes that wait, and what the first of them may grant |
//! | `pending.rs` | the events that are not written yet |
//! | `commit.rs` | a write and its result; commits in doubt |
//! | `known.rs`, `merge.rs` | the state of the cell, and what a new value means |
//! | `ended_leases.rs` | leases whose end another node may not know of |
//! | `fallback.rs` | the share of the key while the engine is unavailable |
//! | `timers.rs` | when to do what |
//!
//! Exactly one [`Phase`] holds at a time. A read may be in flight beside any of them ([`ReadState`]),
//! since a lost answer to a read must not delay a write.

mod commit;
mod ended_leases;
pub(crate) mod fallback;
mod known;
mod line;
mod merge;
mod pending;
mod queue;
mod timers;

use std::sync::Arc;
use std::time::Duration;

use politely_core::Timestamp;
use politely_core::arrival::Arrival;
use politely_core::config::Config;
use politely_core::control::LawConfig;
use politely_core::gate::LeaseId;
use politely_core::host::{Directions, HORIZON, Host};

use crate::engine::Write;
use crate::event::Event;
use crate::node::{NodeContext, Ticket};
use crate::record::{NodeId, Record};
use crate::shared_clock::{QUIET, STALE};

pub use self::commit::CROWD;

pub(crate) use self::commit::{Action, PendingGrant, WaiterReply};
pub(crate) use self::queue::Waiter;

use self::commit::{Commit, InDoubt, WritePace};
use self::ended_leases::EndedLeases;
use self::fallback::FallbackShare;
use self::known::Known;
use self::line::Moment;
use self::pending::PendingEvents;
use self::queue::WaitQueue;
use self::timers::{Timer, TimerTable};

/// A good report waits this long for another write of its key if a law learns from it.
const LINGER_LEARNING: Duration = Duration::from_millis(500);
/// A good report waits this long if no law learns from it, but at most a quarter of its lease.
const LINGER_FIXED: Duration = Duration::from_secs(5);
/// The interval of reads while this node waits for other nodes, in case a notice is lost.
const POLL: Duration = Duration::from_secs(1);
/// The typical duration of a heartbeat. A replica that needs one waits this long.
const HEARTBEAT_WAIT: Duration = Duration::from_millis(5);
/// The interval of reads of a cell that cannot be decoded. It can be after an upgrade.
const UNREADABLE_RETRY: Duration = Duration::from_secs(1);
/// The engine may delete a cell that is not written for this long.
const KEEP: Duration = Duration::from_hours(24 * 30);
/// If writes take longer than this, grants start after the expected end of their write.
const SLOW: Duration = Duration::from_millis(20);
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
    /// The state has learned something since it was last saved.
    pub(crate) has_learned: bool,
    /// Notices of the cell are subscribed to.
    pub(crate) is_subscribed: bool,
}

/// What a replica does with its cell.
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

/// What happens at [`Timer::Attempt`].
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
        !self.queue.is_empty() && self.is_in_line(me)
    }

    /// Returns whether the engine holds everything that this replica holds.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty()
            && self.is_flushed()
            && self.in_doubt.late_confirmed.is_empty()
            && self.known.record.host.in_flight() == 0
    }

    /// Returns whether all events are written.
    pub(crate) fn is_flushed(&self) -> bool {
        self.pending.is_empty() && !self.phase.is_writing() && self.in_doubt.commits.is_empty()
    }

    /// Adds a caller to the queue.
    pub(crate) fn enqueue(&mut self, arrival: Arrival, ticket: Ticket, waiter: Waiter) {
        let is_first = self.queue.insert(arrival, ticket, waiter);
        if waiter.once || is_first {
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
        let linger = event.can_linger().and_then(|lease| {
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
        if linger.is_none() {
            self.try_now();
        }
        directions
    }

    /// Adds an event to the pending ones. Events of a commit in flight or in doubt are never dropped.
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

    /// Returns what to do at `local`.
    pub(crate) fn step(
        &mut self,
        context: &mut NodeContext,
        local: Timestamp,
        replies: &mut Vec<WaiterReply>,
    ) -> Action {
        let rests_until = self.rests_until();
        if rests_until > local {
            return Action::Wait(rests_until);
        }
        self.end_fallback(context, local);
        let must_write = self.timers.is_due(Timer::Flush, local) || self.in_doubt.needs_write();
        let waits = !self.queue.is_empty();
        let rereads_at = self.rereads_after_loss(context);
        if rereads_at.is_some_and(|at| at <= local) {
            self.attempt = Attempt::Read;
        }
        let reads = self.attempt == Attempt::Read;
        let is_due = self.timers.is_due(Timer::Attempt, local);
        let tries = (is_due && (reads || waits || self.is_in_line(context.me)))
            || (self.queue.needs_read && waits);
        if self.is_unreadable() && !is_due {
            return Action::Wait(self.timers.get(Timer::Attempt));
        }
        if !must_write && !tries {
            let rereads_at = rereads_at.unwrap_or(Timestamp::NEVER);
            let attempt = (!waits && !reads).then_some(rereads_at);
            return Action::Wait(self.timers.next_wakeup(attempt));
        }
        if self.is_unreadable() || (reads && !must_write && self.known.heard_at.is_some()) {
            self.attempt = Attempt::Serve;
            self.timers.set(Timer::Attempt, local + POLL);
            return self.start_read();
        }
        let backoff = self.timers.get(Timer::Backoff);
        if backoff > local {
            return Action::Wait(backoff);
        }
        if matches!(self.phase, Phase::Gathering) {
            self.pace.tried_since.get_or_insert(local);
            return self.start_read();
        }
        if context.last_error.is_some() || self.is_clock_in_doubt(context) {
            context.needs_heartbeat = true;
            return Action::Wait(local + HEARTBEAT_WAIT);
        }
        let began = context.clock.began();
        let is_quiet = context.clock.now(local).since(began) < QUIET;
        if self.known.value.is_none() && is_quiet {
            if self.known.heard_at.is_none() {
                return self.start_read();
            }
            // If the cell was lost, a node that remembers it writes it first.
            if !self.pending.contains_join() {
                let at = context.clock.local(began + QUIET);
                return Action::Wait(at.max(local + Duration::from_millis(1)));
            }
        }
        self.write(context, local, replies)
    }

    /// Returns whether a heartbeat is needed before the next write.
    ///
    /// Either another node knows a later epoch, or the engine has lost something that our epoch does
    /// not tell of yet.
    fn is_clock_in_doubt(&self, context: &NodeContext) -> bool {
        let doubted_at = if self.known.record.head.epoch > context.clock.number() {
            self.known.heard_at
        } else {
            self.known.lost_at
        };
        doubted_at.is_some_and(|at| !context.clock.looked_since(at))
    }

    /// Returns when to read the cell after a loss, if this node has ended leases.
    ///
    /// By then all nodes have written what they remember, and one may have taken up such a lease.
    fn rereads_after_loss(&self, context: &NodeContext) -> Option<Timestamp> {
        let heard_at = self.known.heard_at.filter(|_| !self.ended.is_empty())?;
        let at = context.clock.local(context.clock.began() + 2 * QUIET);
        (heard_at < at).then_some(at)
    }

    /// Starts a read, unless one is in flight.
    fn start_read(&mut self) -> Action {
        if self.read != ReadState::None {
            return Action::Wait(Timestamp::NEVER);
        }
        self.read = ReadState::InFlight;
        Action::Read
    }

    fn is_in_line(&self, me: NodeId) -> bool {
        self.known.record.head.line.contains(&me)
    }

    /// Builds the next state and returns its write, or waits if there is nothing to write.
    fn write(
        &mut self,
        context: &mut NodeContext,
        local: Timestamp,
        replies: &mut Vec<WaiterReply>,
    ) -> Action {
        let now = self.known.now(context, local);
        self.pending.rebuild_if_corrected(&self.known, context);
        let mut record = self.pending.record(&self.known).clone();
        self.begin_record(&mut record, context, now);
        let line = record.head.line.clone();
        // If writes are slow, a grant starts when its write is confirmed. An earlier start would be
        // over by then.
        let latency = self.pace.latency;
        let now = if latency > SLOW {
            now.max(context.clock.now(local) + latency)
        } else {
            now
        };
        let moment = Moment { now, local };
        let granted = self.serve(&mut record, context, moment, replies);
        let must_flush = self.timers.is_due(Timer::Flush, local) && !self.pending.is_empty();
        let has_changed = must_flush
            || !granted.is_empty()
            || self.in_doubt.needs_write()
            || record.head.line != line;
        if !has_changed {
            return self.write_nothing(record, moment);
        }
        context.write_number += 1;
        self.pace.tried_since.get_or_insert(local);
        let notify = record.others_wait(context.me);
        let value = record.encode(context.me, context.write_number);
        self.phase = Phase::Writing(Box::new(Commit {
            number: context.write_number,
            value: value.as_slice().into(),
            record,
            events: self.pending.len(),
            granted,
            began: local,
        }));
        self.known.time = now;
        self.timers.stop(Timer::Flush);
        Action::Write(Write {
            cell: Arc::clone(&self.name),
            expected: self.known.version(),
            before: self.known.value.clone(),
            value,
            keep: KEEP,
            notify,
        })
    }

    /// Ends an attempt that has nothing to write.
    fn write_nothing(&mut self, record: Record, moment: Moment) -> Action {
        self.pace.tried_since = None;
        if self.pending.is_empty() {
            // The gates have counted tokens and leases up to now. That goes with the next write.
            self.known.record = record;
            self.pending.clear_applied();
            self.known.time = moment.now;
            self.timers.stop(Timer::Flush);
        }
        if std::mem::take(&mut self.queue.needs_read) {
            self.attempt = Attempt::Serve;
            self.timers.set(Timer::Attempt, moment.local + POLL);
            return self.start_read();
        }
        let attempt = self.queue.is_empty().then_some(Timestamp::NEVER);
        Action::Wait(self.timers.next_wakeup(attempt))
    }

    /// Prepares `record` for a write if the cell is new, or if the engine has lost writes since.
    fn begin_record(&self, record: &mut Record, context: &NodeContext, now: Timestamp) {
        if self.known.value.is_none() {
            if let Some(remembered) = &self.remembered {
                record.host.clone_from(remembered);
                self.pending
                    .apply_all(&mut record.host, &self.known, context);
            }
            let is_lost = self.pending.contains_join();
            begin_cell(record, context, now, is_lost);
        } else if record.head.epoch < context.clock.loss() {
            // The last grants may be missing. Neither they nor a burst are granted again. A cell that
            // was made anew before the loss was known contains none of them.
            let began = context.clock.began();
            let is_made_anew = record.born + 2 * STALE > began;
            let ahead = if is_made_anew {
                HORIZON
            } else {
                Duration::ZERO
            };
            record
                .host
                .resume_after(now, began + ahead, &context.config);
        }
        record.head.epoch = context.clock.number();
    }
}

fn linger(config: &Config) -> Duration {
    match config.law {
        LawConfig::Fixed | LawConfig::Advice(_) => LINGER_FIXED.min(config.lease / 4),
        _ => LINGER_LEARNING,
    }
}

/// Begins a cell that the engine does not hold.
///
/// After a loss it may be a forgotten one, whose last permits have yet to start. `is_lost` tells that
/// this one is, even if the epoch does not tell yet.
fn begin_cell(record: &mut Record, context: &NodeContext, now: Timestamp, is_lost: bool) {
    let lost_at = if is_lost { now } else { context.clock.began() };
    record.born = now;
    let newest = lost_at + HORIZON;
    if newest > now {
        record.host.resume_after(now, newest, &context.config);
    }
    // Another node that makes the cell anew must name its leases differently.
    let maker = u64::from(context.me.0 & 0xf_ffff) << 12;
    let epoch = u64::from(context.clock.number()) << 32;
    record.host.ids_from(LeaseId(epoch | maker));
}
