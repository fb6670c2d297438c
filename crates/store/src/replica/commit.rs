//! One write of a replica, from its start to its confirmation.
//!
//! All events and grants of a moment are one compare-and-set (group commit). While it is in flight,
//! the next batch gathers. There are three results:
//!
//! - *Done*: the new state holds, and its grants go to their callers.
//! - *Conflict*: another node wrote first. The answer contains its state, and the batch is applied
//!   to that state at once.
//! - *No answer*: the commit is in doubt. Each state names the last write of every node, so the
//!   next answer tells whether the commit was made. What it granted is delivered only after a later
//!   write of this node is confirmed.

use std::sync::Arc;
use std::time::Duration;

use politely_core::Timestamp;
use politely_core::arrival::Arrival;
use politely_core::host::{Grant, Wait};

use super::queue::Waiter;
use super::timers::Timer;
use super::{Phase, Replica, SLOW_MAX};
use crate::engine::{EngineError, Write, Written};
use crate::event::Event;
use crate::node::{NodeContext, Ticket};
use crate::record::Record;

/// After a contended commit with this many items, the next batch gathers for as long as the commit
/// took. Small batches would delay all writers, and longer gathering would leave the engine idle.
pub const CROWD: usize = 16;
/// The longest time for which a batch gathers.
const GATHER_MAX: Duration = Duration::from_millis(2);
/// The delay after a write without an answer. It doubles up to 64 times this value.
const RETRY_MIN: Duration = Duration::from_millis(10);
/// After this many writes in a row there is a pause of one write. Without it, another node whose
/// writes take as long would lose every compare-and-set.
const WRITES_IN_A_ROW_MAX: u32 = 16;

/// A grant in a commit that is not confirmed.
#[derive(Clone, Debug)]
pub(crate) struct PendingGrant {
    pub(crate) arrival: Arrival,
    pub(crate) ticket: Ticket,
    pub(crate) waiter: Waiter,
    pub(crate) grant: Grant,
    /// The key did not grant it at the first decision.
    pub(crate) has_waited: bool,
    /// The local start time as known when the grant was made. Shared time may be put back until the
    /// grant is delivered.
    pub(crate) starts: Timestamp,
    /// The number of the engine's last loss as known when the grant was made, if the cell was new
    /// then. The grant stands if the engine has lost nothing since.
    pub(crate) unconfirmed_since: Option<u32>,
}

/// A write and the state that it makes.
pub(super) struct Commit {
    pub(super) number: u64,
    pub(super) value: Arc<[u8]>,
    pub(super) record: Record,
    /// The number of pending events that the write contains.
    pub(super) events: usize,
    pub(super) granted: Vec<PendingGrant>,
    /// The local time when the write was built.
    pub(super) began: Timestamp,
}

/// The next step of a replica.
pub(crate) enum Action {
    /// Make this write.
    Write(Write),
    /// Read the cell.
    Read,
    /// Do nothing before this local time.
    Wait(Timestamp),
}

/// The answer of a replica to one caller in its queue.
#[derive(Debug)]
pub(crate) enum WaiterReply {
    /// The grant is confirmed.
    Granted(PendingGrant),
    /// The key must wait until this shared time.
    Refused(Ticket, Wait),
}

/// The commits whose result is unknown, and the grants of those that turned out to be made.
#[derive(Default)]
pub(super) struct InDoubt {
    /// The commits on the known state without an answer.
    pub(super) commits: Vec<Commit>,
    /// Grants that were confirmed late. They are delivered after the next confirmed write.
    pub(super) late_confirmed: Vec<PendingGrant>,
}

impl InDoubt {
    /// Returns whether a write is needed to settle the doubt.
    pub(super) fn needs_write(&self) -> bool {
        !self.commits.is_empty() || !self.late_confirmed.is_empty()
    }
}

/// The pace of a replica's writes.
#[derive(Default)]
pub(super) struct WritePace {
    /// The latency of a write. A slow write is remembered for a while.
    pub(super) latency: Duration,
    /// The local time of the last confirmation.
    answered_at: Timestamp,
    /// The number of writes since the last pause.
    in_a_row: u32,
    /// The number of consecutive writes without an answer.
    failures: u32,
    /// The local time since when the present batch is tried.
    pub(super) tried_since: Option<Timestamp>,
    /// Whether the present batch has met the write of another node.
    has_conflicted: bool,
}

impl WritePace {
    /// Notes a confirmed write. Returns whether other nodes now need a pause.
    fn note_done(&mut self, began: Timestamp, took: Duration, local: Timestamp) -> bool {
        self.latency = took.min(SLOW_MAX).max(self.latency / 8 * 7);
        self.failures = 0;
        let paused = began.since(self.answered_at) >= took;
        self.in_a_row = if paused { 1 } else { self.in_a_row + 1 };
        self.answered_at = local;
        self.in_a_row >= WRITES_IN_A_ROW_MAX
    }

    /// Notes a write without an answer. Returns the delay of the next write.
    fn note_failed(&mut self) -> Duration {
        let delay = RETRY_MIN * (1 << self.failures.min(6));
        self.failures += 1;
        delay
    }
}

impl Replica {
    /// Handles the answer to the write in flight. Returns the latency of the batch if it was
    /// confirmed.
    pub(crate) fn handle_write(
        &mut self,
        result: Result<Written, EngineError>,
        context: &mut NodeContext,
        local: Timestamp,
        replies: &mut Vec<WaiterReply>,
    ) -> Option<Duration> {
        let commit = self.phase.take_commit()?;
        match result {
            Ok(Written::Done) => self.confirm(commit, context, local, replies),
            Ok(Written::Conflict(value)) => {
                context.counts.conflicts += 1;
                self.note_conflict();
                self.put_back_all(&commit, context);
                self.merge(value.as_deref(), context, local);
                self.try_unless_unreadable();
                if !self.pending.is_empty() {
                    self.timers.set(Timer::Flush, local);
                }
                None
            }
            Err(_) => {
                context.counts.unknown += 1;
                self.put_back_all(&commit, context);
                self.in_doubt.commits.push(commit);
                let delay = self.pace.note_failed();
                self.timers.set(Timer::Backoff, local + delay);
                None
            }
        }
    }

    fn confirm(
        &mut self,
        commit: Commit,
        context: &mut NodeContext,
        local: Timestamp,
        replies: &mut Vec<WaiterReply>,
    ) -> Option<Duration> {
        let took = local.since(commit.began);
        let needs_pause = self.pace.note_done(commit.began, took, local);
        if needs_pause && context.clock.rank().1 > 1 {
            self.pace.in_a_row = 0;
            self.timers.set(Timer::Backoff, local + took.min(SLOW_MAX));
        }
        let items = commit.events + commit.granted.len();
        context.counts.commits += 1;
        context.counts.items += items as u64;
        self.hold_for_all(commit, context, local, replies);
        let latency = local.since(self.pace.tried_since.take()?);
        if std::mem::take(&mut self.pace.has_conflicted) && items >= CROWD {
            let until = local + latency.min(GATHER_MAX);
            self.timers.set(Timer::Gather, until);
            self.phase = Phase::Gathering;
        }
        context.latency.add(latency);
        Some(latency)
    }

    /// Makes the state of a confirmed commit the known one, and delivers its grants.
    fn hold_for_all(
        &mut self,
        commit: Commit,
        context: &NodeContext,
        local: Timestamp,
        replies: &mut Vec<WaiterReply>,
    ) {
        self.known.value = Some(commit.value);
        self.remembered = None;
        self.has_learned |= commit.events > 0;
        self.known.heard_at = Some(local);
        self.read.note_newer();
        self.known.last_write = commit.number;
        self.in_doubt.commits.clear();
        self.pending.remove_written(commit.events, context);
        let now = self.known.now(context, local);
        let before = &self.known.record.host;
        self.ended.note(before, &commit.record.host, now);
        self.known.record = commit.record;
        self.pending.rebuild(&self.known, context);
        if !self.pending.is_empty() {
            self.timers.bring_forward(Timer::Flush, local);
        }
        let late_confirmed = std::mem::take(&mut self.in_doubt.late_confirmed);
        let granted = late_confirmed.into_iter().chain(commit.granted);
        replies.extend(granted.map(WaiterReply::Granted));
    }

    /// Notes that another node has written.
    pub(super) const fn note_conflict(&mut self) {
        self.queue.is_contended = true;
        self.pace.has_conflicted = true;
    }

    /// Puts the callers of a commit back to their places in the queue.
    fn put_back_all(&mut self, commit: &Commit, context: &mut NodeContext) {
        for pending in &commit.granted {
            self.put_back(pending, context);
        }
    }

    /// Puts the caller of a grant that cannot be used back into the queue, unless it has left.
    pub(crate) fn put_back(&mut self, pending: &PendingGrant, context: &mut NodeContext) {
        if self.queue.put_back(pending, context) {
            self.try_now();
        }
    }

    /// Handles the discovery that a commit in doubt was made.
    pub(super) fn confirm_late(&mut self, commit: Commit, context: &NodeContext, local: Timestamp) {
        self.known.last_write = commit.number;
        self.pending.remove_written(commit.events, context);
        let now = self.known.now(context, local);
        let before = &self.known.record.host;
        self.ended.note(before, &commit.record.host, now);
        for pending in commit.granted {
            if self.queue.remove(pending.arrival, pending.ticket) {
                self.in_doubt.late_confirmed.push(pending);
            } else {
                let Grant {
                    lease,
                    slots,
                    unused,
                    ..
                } = pending.grant;
                let cancelled = Event::cancelled(lease, slots, unused);
                self.pending.extend(local, cancelled);
                self.timers.set(Timer::Flush, local);
            }
        }
    }
}
