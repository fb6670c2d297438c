//! Views for operators: the key table, key histories, events, workers, metrics.
//!
//! Nothing here influences permits, and all of it is bounded in memory.

mod attention;
mod blocks;
mod event_log;
mod histogram;
mod metrics;
mod minutes;
mod outcomes;
mod past;
mod process;
mod table;
mod workers;

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use politely::core::Timestamp;
use politely::core::key::Key;
use politely::core::signal::Report;
use politely::{Directions, Limiter, Stats};
use politely_api::wire::{
    Decision, Event, EventKind, KeyPage, KeyState, KeysPattern, KeysQuery, Point,
};

pub(crate) use blocks::BLOCK_SHARE;
use blocks::BlockShares;
use event_log::EventLog;
pub(crate) use event_log::{Next, NotKept};
pub(crate) use metrics::{export, install, scrape};
use outcomes::Outcomes;
use past::Pasts;
pub(crate) use past::STEP;
use table::glance;
pub(crate) use table::row;
use table::{Table, TableMetrics};
pub(crate) use workers::{SEPARATOR, Worker, Workers};

use crate::coordinator::ms_up;
use crate::fleet_log::Outbox;
use crate::webhook::Webhooks;

/// The window over which rates are measured.
const WINDOW: Duration = Duration::from_secs(10);

pub(crate) struct Watch {
    pub(crate) began: Timestamp,
    pub(crate) workers: Workers,
    table: Table,
    pasts: Pasts,
    outcomes: Outcomes,
    blocks: BlockShares,
    events: Arc<EventLog>,
    /// Where events go in a fleet, whose log numbers them.
    outbox: OnceLock<Arc<Outbox>>,
    webhooks: OnceLock<Webhooks>,
    /// Times with the permits and refusals until then, for about one window.
    totals: Mutex<VecDeque<(Timestamp, u64, u64)>>,
}

impl Watch {
    pub(crate) fn new(now: Timestamp) -> Self {
        Self {
            began: now,
            workers: Workers::default(),
            table: Table::default(),
            pasts: Pasts::default(),
            outcomes: Outcomes::default(),
            blocks: BlockShares::default(),
            events: Arc::default(),
            outbox: OnceLock::new(),
            webhooks: OnceLock::new(),
            totals: Mutex::default(),
        }
    }

    /// Hands the outcome counts to the metrics recorder.
    pub(crate) fn emit(&self) {
        self.outcomes.emit();
    }

    pub(crate) fn granted(&self, now: Timestamp, key: &Key, slots: u16) {
        self.pasts.granted(now, key, slots);
    }

    /// Records a report in the key's history, and announces a changed rate, or a share of blocks
    /// above `block_share`.
    pub(crate) fn reported(
        &self,
        now: Timestamp,
        key: &Key,
        report: &Report,
        directions: &Directions,
        block_share: f64,
    ) {
        if !directions.late {
            self.outcomes.count(report);
            if let Some(text) = self.blocks.add(now, key, report.signal, block_share) {
                self.announce(EventKind::Blocks, Some(key), &text);
            }
        }
        if let Some((from, to)) = self.pasts.reported(now, key, report, directions) {
            let text = format!("{from:.2}/s -> {to:.2}/s");
            self.tell(Event {
                kind: EventKind::Rate,
                key: Some(key.as_str().to_owned()),
                text,
                rate: Some(to),
                hold_ms: None,
            });
        }
    }

    /// Announces the hold, breaker or quarantine that a failure of `key` caused.
    pub(crate) fn event(&self, now: Timestamp, limiter: &Limiter, key: &Key) {
        let Some(explained) = limiter.explain(key) else {
            return;
        };
        let glance = glance(key, &explained, 0, now);
        let kind = match glance.state {
            KeyState::Breaker => EventKind::Breaker,
            KeyState::Quarantine => EventKind::Quarantine,
            _ => EventKind::Hold,
        };
        let text = explained.line(now);
        self.pasts.decided(now, key, text.clone());
        let until = explained.wait.map_or(now, |wait| wait.at);
        self.tell(Event {
            kind,
            key: Some(key.as_str().to_owned()),
            text,
            rate: explained.rate.is_finite().then_some(explained.rate),
            hold_ms: Some(ms_up(until.since(now))),
        });
    }

    /// Records and announces an operator's change of `key`.
    pub(crate) fn operated(&self, now: Timestamp, limiter: &Limiter, key: &Key, text: &str) {
        self.pasts.decided(now, key, text.to_owned());
        let rate = limiter.explain(key).map(|explained| explained.rate);
        self.tell(Event {
            kind: EventKind::Operator,
            key: Some(key.as_str().to_owned()),
            text: text.to_owned(),
            rate: rate.filter(|rate| rate.is_finite()),
            hold_ms: None,
        });
    }

    pub(crate) fn announce(&self, kind: EventKind, key: Option<&Key>, text: &str) {
        self.tell(Event {
            kind,
            key: key.map(|key| key.as_str().to_owned()),
            text: text.to_owned(),
            rate: None,
            hold_ms: None,
        });
    }

    /// Returns whether the log has this event, or will have it.
    pub(crate) fn has_announced(&self, kind: EventKind, key: &Key, text: &str) -> bool {
        let is_it = |event: &Event| {
            event.kind == kind && event.key.as_deref() == Some(key.as_str()) && event.text == text
        };
        let is_waiting = |outbox: &Arc<Outbox>| outbox.has_event(is_it);
        self.outbox.get().is_some_and(is_waiting) || self.events.has(is_it)
    }

    /// Waits until the events so far are in the log, so that they outlive this coordinator.
    pub(crate) async fn logged(&self) {
        if let Some(outbox) = self.outbox.get() {
            outbox.appended_so_far().await;
        }
    }

    /// Records that the lease of a permit expired without a report.
    pub(crate) fn expired(&self, now: Timestamp, key: &Key) {
        self.pasts.expired(now, key);
    }

    /// Returns the rows that match `query`. It is slow with a million keys, so it must not run on
    /// an async thread.
    pub(crate) fn page(&self, limiter: &Limiter, query: &KeysQuery) -> KeyPage {
        self.table.page(limiter, &self.pasts, query)
    }

    /// Returns the keys that match `pattern`. It must not run on an async thread, like
    /// [`Watch::page`].
    pub(crate) fn matching(&self, limiter: &Limiter, pattern: &KeysPattern) -> Vec<Key> {
        self.table.matching(limiter, &self.pasts, pattern)
    }

    /// Returns the number of keys for which no request may start now.
    pub(crate) fn limited(&self, limiter: &Limiter) -> u64 {
        self.table.limited(limiter, &self.pasts)
    }

    /// Returns the numbers of the table in `/metrics`.
    fn table_metrics(&self, limiter: &Limiter, most: usize) -> TableMetrics {
        self.table.metrics(limiter, &self.pasts, most)
    }

    /// Marks the table as outdated, so that a change is visible at once.
    pub(crate) fn changed(&self) {
        self.table.stale();
    }

    /// Returns the keys with the most grants per second in the last full step, at most `most`.
    fn busiest(&self, now: Timestamp, most: usize) -> Vec<(Key, f64)> {
        self.pasts.busiest(now, most)
    }

    pub(crate) const fn events(&self) -> &Arc<EventLog> {
        &self.events
    }

    pub(crate) fn past(&self, now: Timestamp, key: &Key) -> (Vec<Point>, Vec<Decision>) {
        self.pasts.of(now, key)
    }

    /// Records the current totals. Must be called a few times per second.
    pub(crate) fn tick(&self, now: Timestamp, stats: &Stats) {
        let mut totals = self.totals.lock();
        totals.push_back((now, stats.granted, stats.refused));
        while totals.len() > 2
            && totals
                .get(1)
                .is_some_and(|(at, ..)| now.since(*at) > WINDOW)
        {
            totals.pop_front();
        }
    }

    /// Returns permits and refusals per second, over the last ten seconds.
    pub(crate) fn per_s(&self) -> (f64, f64) {
        let totals = self.totals.lock();
        let (Some(first), Some(last)) = (totals.front(), totals.back()) else {
            return (0.0, 0.0);
        };
        let secs = last.0.since(first.0).as_secs_f64();
        if secs <= 0.0 {
            return (0.0, 0.0);
        }
        let per_s = |from: u64, to: u64| to.saturating_sub(from) as f64 / secs;
        (per_s(first.1, last.1), per_s(first.2, last.2))
    }

    /// Sends events to the log of a fleet from now on.
    pub(crate) fn share_events(&self, outbox: Arc<Outbox>) {
        let _ = self.outbox.set(outbox);
    }

    /// Sends events to webhooks from now on.
    pub(crate) fn set_webhooks(&self, webhooks: Webhooks) {
        let _ = self.webhooks.set(webhooks);
    }

    fn tell(&self, event: Event) {
        if let Some(webhooks) = self.webhooks.get() {
            webhooks.put(&event);
        }
        match self.outbox.get() {
            Some(outbox) => outbox.put_event(event),
            None => self.events.push(event),
        }
    }
}
