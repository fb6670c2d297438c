//! The events that no confirmed write contains yet.

use std::collections::VecDeque;

use politely_core::Timestamp;
use politely_core::host::{Directions, Host};

use super::known::Known;
use crate::event::Event;
use crate::held_lease::safe_length;
use crate::node::NodeContext;
use crate::record::Record;

/// The number of kept events while nothing can be written. Beyond it the oldest is dropped, and its
/// lease expires.
const EVENTS_MAX: usize = 1 << 14;

/// The events in order, and the state after them.
#[derive(Default)]
pub(super) struct PendingEvents {
    /// Each event, and the local time when it happened.
    events: VecDeque<(Timestamp, Event)>,
    /// The number of events up to the last one that spends more than its permit did.
    owed: usize,
    /// The known record with all events applied, `None` if there are none.
    applied: Option<Box<Record>>,
    /// The number of clock corrections that `applied` takes into account.
    corrections: u32,
}

impl PendingEvents {
    pub(super) fn len(&self) -> usize {
        self.events.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Returns the state after all events.
    pub(super) fn record<'a>(&'a self, known: &'a Known) -> &'a Record {
        self.applied.as_deref().unwrap_or(&known.record)
    }

    pub(super) fn record_mut<'a>(&'a mut self, known: &'a mut Known) -> &'a mut Record {
        self.applied.as_deref_mut().unwrap_or(&mut known.record)
    }

    /// Returns the state to apply the next event to.
    pub(super) fn begin(&mut self, known: &Known, context: &NodeContext) -> &mut Record {
        if self.applied.is_none() {
            self.corrections = context.clock.corrections();
        }
        self.applied
            .get_or_insert_with(|| Box::new(known.record.clone()))
    }

    /// Applies one event to the state of [`PendingEvents::begin`].
    pub(super) fn apply(
        &mut self,
        event: &Event,
        now: Timestamp,
        context: &NodeContext,
    ) -> Option<Directions> {
        let applied = self.applied.as_mut()?;
        event.apply(&mut applied.host, now, &context.config, context.seed)
    }

    /// Adds an event. The first `fixed` events are part of a commit in flight and are never
    /// dropped.
    pub(super) fn push(&mut self, local: Timestamp, event: Event, fixed: usize) {
        if self.events.len() >= EVENTS_MAX && fixed < self.events.len() {
            self.events.remove(fixed);
        }
        self.events.push_back((local, event));
    }

    /// Notes that the last event spends more of the declared limits than its permit did.
    pub(super) fn note_owed(&mut self) {
        self.owed = self.events.len();
    }

    /// Returns whether an event spends more of the declared limits than its permit did.
    pub(super) const fn owes(&self) -> bool {
        self.owed > 0
    }

    /// Adds events without a limit.
    pub(super) fn extend(&mut self, local: Timestamp, events: impl Iterator<Item = Event>) {
        self.events.extend(events.map(|event| (local, event)));
    }

    pub(super) fn push_front(&mut self, local: Timestamp, event: Event) {
        self.events.push_front((local, event));
        self.owed += usize::from(self.owes());
    }

    /// Removes the first `count` events, which are written.
    pub(super) fn remove_written(&mut self, count: usize, context: &NodeContext) {
        let left = self.events.len().saturating_sub(count);
        self.owed = self.owed.saturating_sub(count).min(left);
        for (at, event) in self.events.drain(..count) {
            match event {
                Event::Renew(lease) => lease.confirm(at + safe_length(context.config.lease)),
                Event::Barrier(barrier) => barrier.confirm(),
                _ => {}
            }
        }
    }

    /// Forgets the state after all events, which the known record now contains.
    pub(super) fn clear_applied(&mut self) {
        self.applied = None;
    }

    /// Returns whether a state from before a loss is to be joined.
    pub(super) fn contains_join(&self) -> bool {
        let mut events = self.events.iter();
        events.any(|(_, event)| matches!(event, Event::Join(_)))
    }

    /// Applies all events again, to another known record.
    pub(super) fn rebuild(&mut self, known: &Known, context: &NodeContext) {
        self.applied = None;
        if self.events.is_empty() {
            return;
        }
        self.corrections = context.clock.corrections();
        let mut applied = Box::new(known.record.clone());
        self.apply_all(&mut applied.host, known, context);
        self.applied = Some(applied);
    }

    /// Applies all events again if the shared clock was corrected meanwhile.
    pub(super) fn rebuild_if_corrected(&mut self, known: &Known, context: &NodeContext) {
        if self.applied.is_some() && self.corrections != context.clock.corrections() {
            self.rebuild(known, context);
        }
    }

    /// Applies all events to `host`, each at the shared time when it happened.
    pub(super) fn apply_all(&self, host: &mut Host, known: &Known, context: &NodeContext) {
        for (local, event) in &self.events {
            let now = known.now(context, *local);
            event.apply(host, now, &context.config, context.seed);
        }
    }
}
