//! The log that the coordinators of a fleet share: events, and the counts of the audit.
//!
//! A coordinator puts its events and counts into an outbox. One task appends them to the log of the
//! fleet ([`ring`]) in batches, and applies each batch of the log, its own included. So all
//! coordinators have the same events in the same order, and the same sums.

mod ring;
mod roster_cell;

use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::time::Duration;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use parking_lot::Mutex;
use politely::cells::{Engine, EngineError, Notice};
use politely::core::Timestamp;
use politely_api::wire::Event;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use self::ring::{Batch, Ring};
use self::roster_cell::RosterCell;
use crate::coordinator::Coordinator;
use crate::usage::HourLines;
use crate::usage::roster::SIGN_EVERY;

/// The time from one append to the next, in which events gather.
const GATHER: Duration = Duration::from_millis(10);
/// The interval at which the log is read in case a notice was lost.
const READ_EVERY: Duration = Duration::from_secs(1);
/// The interval at which the counts of the audit go to the log.
const COUNT_EVERY: Duration = Duration::from_secs(1);
/// The time for the last events and counts to reach the log.
const LEAVE_TIME: Duration = Duration::from_secs(1);
/// The delay after the engine failed.
const AGAIN: Duration = Duration::from_millis(200);
/// The most events of one batch.
const EVENTS_MAX: usize = 1_000;
/// The most events that wait for the engine. Beyond it the oldest are dropped.
const WAITING_MAX: usize = 16_384;
/// The most rows of the audit in one batch. They take some 25 KB.
const ROWS_MAX: usize = 1_000;
/// The most batches of the audit that wait for the engine.
const COUNTS_MAX: usize = 2_000;
/// The most bytes of a batch after decompression.
const BATCH_MAX: u64 = 1 << 24;

/// The first byte of a batch: its content is events, or rows of the audit.
const EVENTS: u8 = b'E';
const COUNTS: u8 = b'C';

/// The log of a fleet, and what this coordinator has for it.
pub(crate) struct FleetLog {
    engine: Arc<dyn Engine>,
    outbox: Arc<Outbox>,
    roster: RosterCell,
}

/// This coordinator's entries that are not in the log yet.
#[derive(Default)]
pub(crate) struct Outbox {
    waiting: Mutex<Waiting>,
    wake: Notify,
    /// Signals that a batch was appended.
    appended: Notify,
}

#[derive(Default)]
struct Waiting {
    events: VecDeque<Event>,
    /// The number of the first waiting event of this coordinator.
    first: u64,
    /// The number of events that were dropped, and whose readers are not told so yet.
    dropped: u64,
    counts: VecDeque<HourLines>,
    /// Whether counts are on their way to the log.
    sends_counts: bool,
}

/// A batch that is not appended yet.
enum Draft {
    Events(Vec<Event>, Place),
    Counts(HourLines),
}

/// A batch that may be in the log. Its append has no answer yet.
struct Pending {
    draft: Draft,
    /// The number of own batches in the log before it.
    own: u64,
}

/// The place of a batch among the events of this coordinator.
#[derive(Clone, Copy, Default)]
struct Place {
    first: u64,
    /// The number of events that were dropped before it.
    dropped: u64,
}

impl FleetLog {
    pub(crate) fn new(engine: Arc<dyn Engine>) -> Self {
        Self {
            roster: RosterCell::new(Arc::clone(&engine)),
            outbox: Arc::default(),
            engine,
        }
    }

    pub(crate) const fn outbox(&self) -> &Arc<Outbox> {
        &self.outbox
    }
}

impl Outbox {
    pub(crate) fn put_event(&self, event: Event) {
        let mut waiting = self.waiting.lock();
        if waiting.events.len() >= WAITING_MAX {
            waiting.events.pop_front();
            waiting.first += 1;
            waiting.dropped += 1;
        }
        waiting.events.push_back(event);
        drop(waiting);
        self.wake.notify_one();
    }

    /// Adds counts of the audit. Returns the hours of the oldest counts, which are lost if the
    /// engine is away for hours.
    pub(crate) fn put_counts(&self, hours: Vec<HourLines>) -> Vec<u64> {
        let mut waiting = self.waiting.lock();
        for HourLines { hour, lines } in hours {
            let chunks = lines.chunks(ROWS_MAX).map(|lines| HourLines {
                hour,
                lines: lines.to_vec(),
            });
            waiting.counts.extend(chunks);
        }
        let too_many = waiting.counts.len().saturating_sub(COUNTS_MAX);
        let lost = waiting.counts.drain(..too_many);
        let lost = lost.map(|lost| lost.hour).collect();
        drop(waiting);
        self.wake.notify_one();
        lost
    }

    fn has_counts(&self) -> bool {
        self.waiting.lock().has_counts()
    }

    /// Waits until there is something to append, and until `from`. Cancel safe.
    async fn filled(&self, from: Instant) {
        while self.is_empty() {
            self.wake.notified().await;
        }
        tokio::time::sleep_until(from).await;
    }

    pub(crate) fn has_event(&self, is_it: impl Fn(&Event) -> bool) -> bool {
        self.waiting.lock().events.iter().any(is_it)
    }

    /// Waits until the events so far are in the log. An event that was dropped counts as missed.
    pub(crate) async fn appended_so_far(&self) {
        let end = {
            let waiting = self.waiting.lock();
            waiting.first + waiting.events.len() as u64
        };
        self.appended_until(|waiting| waiting.first >= end).await;
    }

    /// Waits until everything is in the log.
    pub(crate) async fn emptied(&self) {
        self.appended_until(Waiting::is_empty).await;
    }

    async fn appended_until(&self, is_enough: impl Fn(&Waiting) -> bool) {
        let appended = self.appended.notified();
        tokio::pin!(appended);
        loop {
            appended.as_mut().enable();
            if is_enough(&self.waiting.lock()) {
                return;
            }
            appended.as_mut().await;
            appended.set(self.appended.notified());
        }
    }

    fn is_empty(&self) -> bool {
        self.waiting.lock().is_empty()
    }

    /// Returns the next batch. Events go first, since their readers wait.
    fn next(&self) -> Option<Draft> {
        let mut waiting = self.waiting.lock();
        if !waiting.events.is_empty() {
            let events = waiting.events.iter().take(EVENTS_MAX);
            let place = Place {
                first: waiting.first,
                dropped: waiting.dropped,
            };
            return Some(Draft::Events(events.cloned().collect(), place));
        }
        let counts = waiting.counts.pop_front()?;
        waiting.sends_counts = true;
        Some(Draft::Counts(counts))
    }

    /// Removes a batch that was appended.
    fn remove(&self, draft: &Draft) {
        let mut waiting = self.waiting.lock();
        match draft {
            Draft::Events(events, place) => {
                let sent = events.len() as u64;
                // These were dropped while the batch was on its way.
                let overtaken = (waiting.first - place.first).min(sent);
                waiting.dropped -= place.dropped + overtaken;
                waiting.events.drain(..(sent - overtaken) as usize);
                waiting.first += sent - overtaken;
            }
            Draft::Counts(_) => waiting.sends_counts = false,
        }
        drop(waiting);
        self.appended.notify_waiters();
    }
}

impl Waiting {
    fn is_empty(&self) -> bool {
        self.events.is_empty() && !self.has_counts()
    }

    fn has_counts(&self) -> bool {
        self.sends_counts || !self.counts.is_empty()
    }
}

impl Draft {
    /// Returns the number of events, dropped ones included, and the bytes of the batch.
    fn encode(&self) -> (u32, Vec<u8>) {
        let (events, kind, json) = match self {
            Self::Events(events, place) => {
                let numbers = events.len() as u64 + place.dropped;
                (numbers, EVENTS, serde_json::to_vec(events))
            }
            Self::Counts(counts) => (0, COUNTS, serde_json::to_vec(counts)),
        };
        let mut packed = GzEncoder::new(vec![kind], Compression::fast());
        // Writing to a `Vec` cannot fail.
        let _ = packed.write_all(&json.unwrap_or_default());
        (events as u32, packed.finish().unwrap_or_default())
    }

    fn decode(content: &[u8]) -> Option<Self> {
        let (&kind, packed) = content.split_first()?;
        let mut json = Vec::new();
        let mut unpacked = GzDecoder::new(packed).take(BATCH_MAX);
        unpacked.read_to_end(&mut json).ok()?;
        match kind {
            EVENTS => {
                let events = serde_json::from_slice(&json).ok()?;
                Some(Self::Events(events, Place::default()))
            }
            COUNTS => serde_json::from_slice(&json).ok().map(Self::Counts),
            _ => None,
        }
    }
}

impl Coordinator {
    /// Follows the log of the fleet until the coordinator is dropped.
    pub(crate) async fn follow_log(self) {
        let Some(FleetLog {
            engine,
            outbox,
            roster,
        }) = self.fleet_log()
        else {
            return;
        };
        let (sender, mut notices) = mpsc::unbounded_channel();
        engine.listen(Arc::new(move |notice| {
            let _ = sender.send(notice);
        }));
        let mut ring = Ring::new(Arc::clone(engine));
        let before = loop {
            match ring.open().await {
                Ok(batches) => break batches,
                Err(_) => tokio::time::sleep(AGAIN).await,
            }
        };
        for batch in &before {
            self.apply_batch(batch);
        }
        self.watch().events().join_here();
        let mut on_batch = |batch: Batch| self.apply_batch(&batch);
        let (mut counted, mut counted_until) = (Instant::now(), self.now());
        let mut pending = None;
        // Without a sign, the audit says that it is incomplete.
        let sign = async |until| {
            let signed = roster.sign(self.usage_counts(), until, self.now());
            let _ = signed.await;
            Instant::now()
        };
        let mut signed = sign(counted_until).await;
        let mut append_from = Instant::now();
        let mut is_subscribed = false;
        loop {
            if !is_subscribed {
                is_subscribed = engine.watch(ring.cells(), Vec::new()).await.is_ok();
            }
            let done = tokio::select! {
                notice = notices.recv() => match notice {
                    Some(Notice::Written { cell, value }) => {
                        ring.handle_notice(&cell, value, &mut on_batch).await
                    }
                    Some(Notice::Unheard { .. }) => {
                        is_subscribed = false;
                        tokio::time::sleep(AGAIN).await;
                        // A subscription that ended tells it once per cell.
                        while notices.try_recv().is_ok() {}
                        ring.catch_up(&mut on_batch).await
                    }
                    None => return,
                },
                () = outbox.filled(append_from) => {
                    append_from = Instant::now() + GATHER;
                    self.send_next(outbox, &mut pending, &mut ring, &mut on_batch).await
                }
                () = tokio::time::sleep(READ_EVERY) => ring.catch_up(&mut on_batch).await,
            };
            if counted.elapsed() >= COUNT_EVERY {
                counted = Instant::now();
                counted_until = self.send_counts(outbox);
            }
            if done.is_ok() && signed.elapsed() >= SIGN_EVERY && !outbox.has_counts() {
                signed = sign(counted_until).await;
            }
            if done.is_err() {
                // The coordinator reports elsewhere that the engine is away.
                tokio::time::sleep(AGAIN).await;
            }
        }
    }

    /// Puts the counts so far into the outbox. Returns the time until which they are.
    fn send_counts(&self, outbox: &Outbox) -> Timestamp {
        let now = self.now();
        let lost = outbox.put_counts(self.usage_counts().take_unsent(now));
        self.usage_counts().lose(lost);
        now
    }

    /// Sends the last events and counts to the log of the fleet, and leaves the fleet.
    pub(crate) async fn leave_log(&self) {
        let Some(FleetLog { outbox, roster, .. }) = self.fleet_log() else {
            return;
        };
        self.send_counts(outbox);
        let left = async {
            outbox.emptied().await;
            roster.leave(self.usage_counts()).await
        };
        // Otherwise the audit says that the last counts may be missing.
        let _ = tokio::time::timeout(LEAVE_TIME, left).await;
    }

    /// Appends `pending`, the batch whose append failed, or the next batch of the outbox.
    async fn send_next(
        &self,
        outbox: &Outbox,
        pending: &mut Option<Pending>,
        ring: &mut Ring,
        on_batch: &mut impl FnMut(Batch),
    ) -> Result<(), EngineError> {
        if pending.is_none() {
            let own = ring.own();
            *pending = outbox.next().map(|draft| Pending { draft, own });
        }
        let Some(Pending { draft, own }) = &*pending else {
            return Ok(());
        };
        let (events, content) = draft.encode();
        ring.append(*own, events, &content, on_batch).await?;
        outbox.remove(draft);
        *pending = None;
        Ok(())
    }

    fn apply_batch(&self, batch: &Batch) {
        let mut counts = None;
        match Draft::decode(&batch.content) {
            Some(Draft::Events(events, _)) => {
                let log = self.watch().events();
                // The numbers of dropped events come first, so that readers are told of them.
                let before = batch.events_before + u64::from(batch.events) - events.len() as u64;
                log.append(batch.run as u32, before, events);
            }
            Some(Draft::Counts(all)) => counts = Some(all),
            None => {
                let number = batch.number;
                tracing::warn!(
                    number,
                    "a batch of the fleet's log cannot be read; run one version of politely"
                );
                // The audit takes it for a missing batch.
                return;
            }
        }
        let usage = self.usage_counts();
        usage.add(batch.run, batch.number, counts.as_ref(), self.now());
    }
}

#[cfg(test)]
mod tests {
    use politely_api::wire::EventKind;

    use super::*;

    fn put(outbox: &Outbox, events: usize) {
        for _ in 0..events {
            outbox.put_event(Event {
                kind: EventKind::Lock,
                key: None,
                text: String::new(),
                rate: None,
                hold_ms: None,
            });
        }
    }

    /// Returns the number of events in a batch, and how many numbers it takes.
    fn size(draft: &Draft) -> (usize, u32) {
        let Draft::Events(events, _) = draft else {
            panic!("the batch has events");
        };
        (events.len(), draft.encode().0)
    }

    #[tokio::test]
    async fn events_that_are_dropped_take_numbers_and_never_take_others_along() {
        let outbox = Outbox::default();
        put(&outbox, WAITING_MAX + 5);
        let draft = outbox.next().unwrap();
        assert_eq!(size(&draft), (EVENTS_MAX, EVENTS_MAX as u32 + 5));
        // Seven events of the batch are dropped while it is on its way, and they arrive.
        put(&outbox, 7);
        outbox.remove(&draft);
        let later = outbox.next().unwrap();
        assert_eq!(size(&later), (EVENTS_MAX, EVENTS_MAX as u32));
        let mut numbers = EVENTS_MAX as u32 + 5;
        while let Some(draft) = outbox.next() {
            numbers += size(&draft).1;
            outbox.remove(&draft);
        }
        assert_eq!(numbers as usize, WAITING_MAX + 5 + 7);
        outbox.appended_so_far().await;
    }
}
