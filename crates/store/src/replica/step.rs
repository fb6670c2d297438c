//! One step of a replica: what to do now, or until when to wait.
//!
//! A step writes if events are due, if a commit is in doubt, or if a caller may be served. Before a
//! write it makes sure that the state and the time are known well enough: it reads the cell or asks
//! for a heartbeat first. A new cell waits while the epoch is quiet, since another node may
//! remember the key.

use std::sync::Arc;
use std::time::Duration;

use politely_core::Timestamp;
use politely_core::gate::LeaseId;
use politely_core::host::{HORIZON, Host};
use politely_core::lock::Locks;

use super::commit::{Action, Commit, WaiterReply};
use super::keep::keep;
use super::line::Moment;
use super::timers::Timer;
use super::{Attempt, POLL, Phase, ReadState, Replica};
use crate::engine::Write;
use crate::node::NodeContext;
use crate::record::{NodeId, Record};
use crate::shared_clock::{QUIET, STALE};

/// The typical duration of a heartbeat. A replica that needs one waits this long.
const HEARTBEAT_WAIT: Duration = Duration::from_millis(5);
/// If writes take longer than this, grants start this time before the expected end of their write.
const SLOW: Duration = Duration::from_millis(20);

impl Replica {
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
    /// Either another node knows a later epoch, or the engine has lost something that this node's
    /// epoch does not show yet.
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

    pub(super) fn is_in_line(&self, me: NodeId) -> bool {
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
        // A grant starts at most this time before its write is confirmed. An earlier start would be
        // over by then.
        let latency = self.pace.latency.saturating_sub(SLOW);
        let now = now.max(context.clock.now(local) + latency);
        let moment = Moment {
            now,
            local,
            latency,
        };
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
        let waits = |host: &Host| host.locks().is_some_and(Locks::has_waiting);
        let notify =
            record.others_wait(context.me) || waits(&self.known.record.host) || waits(&record.host);
        let keep = keep(&record.host, now);
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
            keep,
            notify,
        })
    }

    /// Ends an attempt that has nothing to write.
    fn write_nothing(&mut self, record: Record, moment: Moment) -> Action {
        self.pace.tried_since = None;
        if self.pending.is_empty() {
            // The gates have counted tokens and leases up to now. The next write contains these
            // counts.
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
            // The last grants may be missing. Neither they nor a burst are granted again. A cell
            // that was made anew before the loss was known contains none of them.
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

/// Begins a cell that the engine does not hold.
///
/// After a loss, the engine may have forgotten the cell, and the last permits of that cell may have
/// yet to start. `is_lost` is true if this cell was forgotten, even if the epoch does not show it
/// yet.
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
