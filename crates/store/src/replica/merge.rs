//! What the engine's answers mean.

use std::sync::Arc;
use std::time::Duration;

use politely_core::Timestamp;
use politely_core::host::{Grant, HORIZON, Host};

use super::{
    BREATH, CROWD, Commit, GATHER_MAX, LATELY, NodeContext, PendingGrant, RETRY, ReadState,
    Replica, SLOW_MAX, UNREADABLE, WaiterReply,
};
use crate::engine::{EngineError, Version, Written};
use crate::event::Event;
use crate::held_lease::safe_length;
use crate::record::{LastWrite, NodeId, Record, RecordError};

impl Replica {
    /// What came of the write under way. If it stood: how long that took, conflicts included.
    pub(crate) fn written(
        &mut self,
        result: Result<Written, EngineError>,
        context: &mut NodeContext,
        local: Timestamp,
        replies: &mut Vec<WaiterReply>,
    ) -> Option<Duration> {
        let attempt = self.under_way.take()?;
        match result {
            Ok(Written::Done) => {
                let took = local.since(attempt.began);
                self.takes = took.min(SLOW_MAX).max(self.takes / 8 * 7);
                self.failures = 0;
                self.breathe(attempt.began, took, context, local);
                context.count.commits += 1;
                context.count.items += (attempt.events + attempt.granted.len()) as u64;
                let crowd = attempt.events + attempt.granted.len() >= CROWD;
                self.stands(attempt, context, local, replies);
                let length = local.since(self.tried_since.take()?);
                if std::mem::take(&mut self.met) && crowd {
                    self.gathers_until = local + length.min(GATHER_MAX);
                    self.outdated = true;
                }
                context.took.add(length);
                return Some(length);
            }
            Ok(Written::Conflict(value)) => {
                context.count.conflicts += 1;
                self.met_another();
                self.take_back(&attempt, context);
                self.heard(value.as_deref(), context, local);
                self.soon(local);
            }
            Err(_) => {
                context.count.unknown += 1;
                self.take_back(&attempt, context);
                self.in_doubt.push(attempt);
                self.not_before = local + RETRY * (1 << self.failures.min(6));
                self.failures += 1;
            }
        }
        None
    }

    /// Somebody else wrote.
    const fn met_another(&mut self) {
        self.contended = true;
        self.met = true;
    }

    /// Leaves room for somebody else's write now and then.
    fn breathe(
        &mut self,
        began: Timestamp,
        took: Duration,
        context: &NodeContext,
        local: Timestamp,
    ) {
        let paused = began.since(self.answered) >= took;
        self.in_a_row = if paused { 1 } else { self.in_a_row + 1 };
        self.answered = local;
        let (_, all) = context.clock.place();
        if self.in_a_row >= BREATH && all > 1 {
            self.in_a_row = 0;
            self.not_before = local + took.min(SLOW_MAX);
        }
    }

    fn stands(
        &mut self,
        attempt: Commit,
        context: &NodeContext,
        local: Timestamp,
        replies: &mut Vec<WaiterReply>,
    ) {
        self.base = Some(attempt.value);
        self.remembered = None;
        self.learned |= attempt.events > 0;
        self.heard = Some(local);
        self.reading.is_overtaken();
        self.last = attempt.number;
        self.in_doubt.clear();
        self.drop_events(attempt.events, context);
        let now = self.now(context, local);
        self.ended.note(&self.view.host, &attempt.cell.host, now);
        self.view = attempt.cell;
        self.apply_again(context);
        if !self.events.is_empty() {
            self.due = self.due.min(local);
        }
        let late_confirmed = std::mem::take(&mut self.late_confirmed);
        replies.extend(
            late_confirmed
                .into_iter()
                .chain(attempt.granted)
                .map(WaiterReply::Granted),
        );
    }

    /// Who was to be served stands where they stood.
    fn take_back(&mut self, attempt: &Commit, context: &mut NodeContext) {
        for pending in &attempt.granted {
            self.wait_again(pending, context);
        }
    }

    /// A permit that cannot be used: whoever was to have it waits again, if they still do.
    pub(crate) fn wait_again(&mut self, pending: &PendingGrant, context: &mut NodeContext) {
        if !context.gone.remove(&pending.ticket) {
            let place = (pending.turn, pending.ticket);
            self.waiting.insert(place, pending.waiter);
            self.try_now();
        }
    }

    fn soon(&mut self, local: Timestamp) {
        self.try_unless_unreadable();
        if !self.events.is_empty() {
            self.due = local;
        }
    }

    /// What a look showed.
    pub(crate) fn handle_read(
        &mut self,
        result: Result<Option<Vec<u8>>, EngineError>,
        context: &mut NodeContext,
        local: Timestamp,
    ) {
        context.count.reads += 1;
        let reading = std::mem::replace(&mut self.reading, ReadState::No);
        let outdated = std::mem::take(&mut self.outdated);
        if outdated
            && let Ok(value) = &result
            && value.as_deref().and_then(Version::of) != self.version()
        {
            self.met_another();
        }
        match result {
            // Whoever wrote meanwhile was not answered from what was read, but can be from that.
            _ if reading == ReadState::Overtaken => self.try_unless_unreadable(),
            Ok(value) if self.under_way.is_none() => {
                self.heard(value.as_deref(), context, local);
                self.try_unless_unreadable();
            }
            Ok(_) => {}
            Err(_) => self.try_at = self.try_at.min(local + LATELY),
        }
    }

    /// What somebody else wrote; while a write of ours is under way its answer tells more.
    pub(crate) fn handle_notice(
        &mut self,
        value: &[u8],
        context: &mut NodeContext,
        local: Timestamp,
    ) {
        if self.under_way.is_some() || Version::of(value) == self.version() {
            return;
        }
        if let Ok((cell, _)) = Record::decode(value, Timestamp::ZERO, &context.config)
            && cell.head.commits > self.view.head.commits
        {
            self.heard(Some(value), context, local);
            self.try_now();
        }
    }

    /// The engine holds `value`.
    fn heard(&mut self, value: Option<&[u8]>, context: &mut NodeContext, local: Timestamp) {
        let first = self.heard.is_none();
        let version = value.and_then(Version::of);
        self.heard = Some(local);
        self.reading.is_overtaken();
        let known = value.is_some() == self.base.is_some() && version == self.version();
        if known && !first && !self.unreadable {
            return;
        }
        let now = self.now(context, local);
        // Read as of its own time: what happened here meanwhile may be older than now.
        let read = value.map(|value| Record::decode(value, Timestamp::ZERO, &context.config));
        let (cell, at) = match read {
            None => (Record::new(Host::new(&context.config, now)), now),
            Some(Ok(read)) => read,
            Some(Err(why)) => {
                self.cannot_read(&why, local);
                return;
            }
        };
        self.unreadable = false;
        let made = match cell.head.last_write(context.me) {
            LastWrite::Number(number) => {
                let made = self
                    .in_doubt
                    .iter()
                    .position(|attempt| attempt.number == number);
                made.map(|i| self.in_doubt.swap_remove(i))
            }
            LastWrite::None | LastWrite::Unknown => None,
        };
        if !self.in_doubt.is_empty() {
            // What they wrote, they did not.
            self.due = local;
        }
        self.in_doubt.clear();
        if let Some(attempt) = made {
            self.was_made_after_all(attempt, context, local);
        }
        if self.has_lost(&cell, context.me) {
            context.count.lost += 1;
            self.lost_at = Some(local);
            let known = std::mem::replace(&mut self.view, cell);
            let made_anew = version.is_none() || known.born != self.view.born;
            let Record {
                head: lost,
                host: mut known,
                ..
            } = known;
            // What was to be delivered once it is sure is not in it any more.
            for pending in std::mem::take(&mut self.late_confirmed) {
                let Grant {
                    lease,
                    slots,
                    unused,
                    ..
                } = pending.grant;
                for (lease, unused) in unused.of_run(lease, slots) {
                    known.cancel(now, lease, Some(unused), &context.config);
                }
                self.wait_again(&pending, context);
            }
            if made_anew {
                // What others were granted last is in neither.
                known.resume_after(now, now + HORIZON, &context.config);
            }
            if version.is_none() {
                self.view.head.replace_lost(&lost);
                // Of two laws a join takes the slower: a new one would make what was learned forgotten.
                self.view.host.clone_from(&known);
            }
            self.events
                .push_front((local, Event::Join(Box::new(known))));
            self.due = local;
            self.last = 0;
        } else {
            self.view = cell;
        }
        self.base = value.map(Arc::from);
        self.learned = true;
        self.at = at;
        self.apply_again(context);
        self.end_again(context, local);
    }

    /// What we ended somebody who did not know took up again after a loss.
    fn end_again(&mut self, context: &NodeContext, local: Timestamp) {
        let known = self.ahead.as_deref().unwrap_or(&self.view);
        let again: Vec<_> = self.ended.taken_again(&known.host).collect();
        if again.is_empty() {
            return;
        }
        for lease in again {
            self.push(local, Event::Release { lease, bytes: 0 });
        }
        self.due = local;
        self.apply_again(context);
    }

    fn cannot_read(&mut self, why: &RecordError, local: Timestamp) {
        if !std::mem::replace(&mut self.unreadable, true) {
            tracing::warn!(cell = %self.name, %why, "left alone");
        }
        self.try_at = local + UNREADABLE;
    }

    /// So many are written.
    fn drop_events(&mut self, count: usize, context: &NodeContext) {
        for (at, event) in self.events.drain(..count) {
            if let Event::Renew(lease) = event {
                lease.confirm(at + safe_length(context.config.lease));
            }
        }
    }

    fn was_made_after_all(&mut self, attempt: Commit, context: &NodeContext, local: Timestamp) {
        self.last = attempt.number;
        self.drop_events(attempt.events, context);
        let now = self.now(context, local);
        self.ended.note(&self.view.host, &attempt.cell.host, now);
        for pending in attempt.granted {
            if self
                .waiting
                .remove(&(pending.turn, pending.ticket))
                .is_some()
            {
                self.late_confirmed.push(pending);
            } else {
                let Grant {
                    lease,
                    slots,
                    unused,
                    ..
                } = pending.grant;
                let cancelled = Event::cancelled(lease, slots, unused);
                self.events.extend(cancelled.map(|event| (local, event)));
                self.due = local;
            }
        }
    }

    /// The engine holds less than it did: our last write is not in it, or not all that we saw.
    fn has_lost(&self, cell: &Record, me: NodeId) -> bool {
        let ours = match cell.head.last_write(me) {
            LastWrite::Number(number) => number < self.last,
            LastWrite::None => self.last > 0,
            LastWrite::Unknown => false,
        };
        ours || cell.head.commits < self.view.head.commits
    }
}
