//! Merging what the engine holds into what a replica knows.
//!
//! A replica learns the value of its cell from a read, from a conflict or from a notice. Usually
//! the value continues the known state, and the pending events are applied to it again. It may also
//! tell that the engine has lost writes: the last write of this node is missing, or the number of
//! commits went down. Then the state that this process knows is joined with the engine's as one
//! more event.

use std::sync::Arc;

use politely_core::Timestamp;
use politely_core::host::{Grant, HORIZON, Host};

use super::timers::Timer;
use super::{LATELY, Phase, ReadState, Replica, UNREADABLE_RETRY};
use crate::engine::{EngineError, Version};
use crate::event::Event;
use crate::node::NodeContext;
use crate::record::{LastWrite, Record, RecordError};

impl Replica {
    /// Handles the answer to a read.
    pub(crate) fn handle_read(
        &mut self,
        result: Result<Option<Vec<u8>>, EngineError>,
        context: &mut NodeContext,
        local: Timestamp,
    ) {
        context.counts.reads += 1;
        let read = std::mem::take(&mut self.read);
        let has_gathered = matches!(self.phase, Phase::Gathering);
        if has_gathered {
            self.phase = Phase::Idle;
        }
        if has_gathered
            && let Ok(value) = &result
            && value.as_deref().and_then(Version::of) != self.known.version()
        {
            self.note_conflict();
        }
        match result {
            // A newer value came while the read was in flight. Callers are answered from that.
            _ if read == ReadState::Overtaken => self.try_unless_unreadable(),
            Ok(value) if !self.phase.is_writing() => {
                self.merge(value.as_deref(), context, local);
                self.try_unless_unreadable();
            }
            Ok(_) => {}
            Err(_) => self.timers.bring_forward(Timer::Attempt, local + LATELY),
        }
    }

    /// Handles a notice. While a write is in flight it is ignored, since the answer tells more.
    pub(crate) fn handle_notice(
        &mut self,
        value: &[u8],
        context: &mut NodeContext,
        local: Timestamp,
    ) {
        if self.phase.is_writing() || Version::of(value) == self.known.version() {
            return;
        }
        if let Ok((record, _)) = Record::decode(value, Timestamp::ZERO, &context.config)
            && record.head.commits > self.known.record.head.commits
        {
            self.merge(Some(value), context, local);
            self.try_now();
        }
    }

    /// Makes `value`, which the engine holds, the known state.
    pub(super) fn merge(
        &mut self,
        value: Option<&[u8]>,
        context: &mut NodeContext,
        local: Timestamp,
    ) {
        let is_first = self.known.heard_at.is_none();
        let version = value.and_then(Version::of);
        self.known.heard_at = Some(local);
        self.read.note_newer();
        let is_known =
            value.is_some() == self.known.value.is_some() && version == self.known.version();
        if is_known && !is_first && !self.is_unreadable() {
            return;
        }
        let now = self.known.now(context, local);
        // The state is decoded as of its own time, since a pending event may be older than now.
        let decoded = value.map(|value| Record::decode(value, Timestamp::ZERO, &context.config));
        let (record, time) = match decoded {
            None => (Record::new(Host::new(&context.config, now)), now),
            Some(Ok(decoded)) => decoded,
            Some(Err(why)) => {
                self.note_unreadable(&why, local);
                return;
            }
        };
        if self.is_unreadable() {
            self.phase = Phase::Idle;
        }
        self.settle_doubt(&record, context, local);
        if self.known.is_lost_in(&record, context.me) {
            self.note_loss(record, version, now, context, local);
        } else {
            self.known.record = record;
        }
        self.known.value = value.map(Arc::from);
        self.has_learned = true;
        self.known.time = time;
        self.pending.rebuild(&self.known, context);
        self.release_again(context, local);
    }

    /// Decides on the commits in doubt: `record` names the last write of this node.
    fn settle_doubt(&mut self, record: &Record, context: &NodeContext, local: Timestamp) {
        let commits = &mut self.in_doubt.commits;
        let made = match record.head.last_write(context.me) {
            LastWrite::Number(number) => {
                let made = commits.iter().position(|commit| commit.number == number);
                made.map(|i| commits.swap_remove(i))
            }
            LastWrite::None | LastWrite::Unknown => None,
        };
        if !commits.is_empty() {
            // The other commits were not made, so their events must be written again.
            self.timers.set(Timer::Flush, local);
        }
        commits.clear();
        if let Some(commit) = made {
            self.confirm_late(commit, context, local);
        }
    }

    /// Handles the discovery that the engine, which now holds `record`, has lost writes.
    fn note_loss(
        &mut self,
        record: Record,
        version: Option<Version>,
        now: Timestamp,
        context: &mut NodeContext,
        local: Timestamp,
    ) {
        context.counts.lost += 1;
        self.known.lost_at = Some(local);
        let before = std::mem::replace(&mut self.known.record, record);
        let is_made_anew = version.is_none() || before.born != self.known.record.born;
        let Record {
            head: lost,
            host: mut before,
            ..
        } = before;
        // The grants that were confirmed late are no longer in the engine's state.
        for pending in std::mem::take(&mut self.in_doubt.late_confirmed) {
            let Grant {
                lease,
                slots,
                unused,
                ..
            } = pending.grant;
            for (lease, unused) in unused.of_run(lease, slots) {
                before.cancel(now, lease, Some(unused), &context.config);
            }
            self.put_back(&pending, context);
        }
        if is_made_anew {
            // Neither state contains what other nodes were granted last.
            before.resume_after(now, now + HORIZON, &context.config);
        }
        if version.is_none() {
            self.known.record.head.replace_lost(&lost);
            // A join takes the slower of two laws. In a join with a new law, the learned law would
            // be lost.
            self.known.record.host.clone_from(&before);
        }
        let join = Event::Join(Box::new(before));
        self.pending.push_front(local, join);
        self.timers.set(Timer::Flush, local);
        self.known.last_write = 0;
    }

    /// Ends the leases again that this node ended and another node took up after a loss.
    fn release_again(&mut self, context: &NodeContext, local: Timestamp) {
        let host = &self.pending.record(&self.known).host;
        let again: Vec<_> = self.ended.taken_again(host).collect();
        if again.is_empty() {
            return;
        }
        for lease in again {
            self.push(local, Event::Release { lease, bytes: 0 });
        }
        self.timers.set(Timer::Flush, local);
        self.pending.rebuild(&self.known, context);
    }

    fn note_unreadable(&mut self, why: &RecordError, local: Timestamp) {
        if !self.is_unreadable() {
            self.phase = Phase::Unreadable;
            let retry_s = UNREADABLE_RETRY.as_secs();
            let cell = &self.name;
            tracing::warn!(%cell, %why, "cannot decode the cell; retrying every {retry_s} s");
        }
        self.timers.set(Timer::Attempt, local + UNREADABLE_RETRY);
    }
}
