//! What an operator would see: the table of keys, a key's past, events, workers, metrics.
//!
//! Nothing here decides anything; all of it is bounded.

mod histogram;
mod metrics;
mod outcomes;
mod past;
mod table;
mod workers;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use politely::core::Timestamp;
use politely::core::key::Key;
use politely::core::signal::Report;
use politely::wire::{Decision, Event, EventKind, KeyState, Point};
use politely::{Directions, Limiter, Stats};
use tokio::sync::broadcast;

pub(crate) use metrics::{install, scrape};
use outcomes::Outcomes;
use past::Pasts;
pub(crate) use past::STEP;
use table::glance;
pub(crate) use table::{Table, row};
pub(crate) use workers::{SEPARATOR, Worker, Workers};

use crate::coordinator::ms_up;

/// Events a slow reader may be behind.
const EVENTS_KEPT: usize = 4_096;
/// Rates are told over so long.
const WINDOW: Duration = Duration::from_secs(10);

pub(crate) struct Watch {
    pub(crate) began: Timestamp,
    pub(crate) workers: Workers,
    pub(crate) table: Table,
    pasts: Pasts,
    outcomes: Outcomes,
    events: broadcast::Sender<Arc<Event>>,
    /// When, permits given and refusals by then; the oldest about a window ago.
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
            events: broadcast::Sender::new(EVENTS_KEPT),
            totals: Mutex::default(),
        }
    }

    /// Hands what was reported to the metrics recorder.
    pub(crate) fn emit(&self) {
        self.outcomes.emit();
    }

    pub(crate) fn granted(&self, now: Timestamp, key: &Key, slots: u16) {
        self.pasts.granted(now, key, slots);
    }

    /// A report was heard: enters it in the key's past and tells a changed rate.
    pub(crate) fn heard(
        &self,
        now: Timestamp,
        key: &Key,
        report: &Report,
        directions: &Directions,
    ) {
        if !directions.late {
            self.outcomes.count(report.signal);
        }
        if let Some((from, to)) = self.pasts.heard(now, key, report, directions) {
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

    /// Something went wrong for `key`: says what follows.
    pub(crate) fn event(&self, now: Timestamp, limiter: &Limiter, key: &Key, report: &Report) {
        let Some(explained) = limiter.explain(key) else {
            return;
        };
        let glance = glance(key, &explained, 0, now);
        let kind = match glance.state {
            KeyState::Breaker => EventKind::Breaker,
            KeyState::Quarantine => EventKind::Quarantine,
            _ => EventKind::Hold,
        };
        let what = match (report.status, report.failure) {
            (Some(status), _) => status.to_string(),
            (None, Some(failure)) => format!("{failure:?}"),
            (None, None) => String::new(),
        };
        let text = format!("{what}: {}", explained.line(now));
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

    /// An operator set something for `key`.
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

    pub(crate) fn events(&self) -> broadcast::Receiver<Arc<Event>> {
        self.events.subscribe()
    }

    pub(crate) fn past(&self, now: Timestamp, key: &Key) -> (Vec<Point>, Vec<Decision>) {
        self.pasts.of(now, key)
    }

    /// Call it a few times per second.
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

    /// Permits and refusals per second, over the last ten.
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

    fn tell(&self, event: Event) {
        // Nobody listens: nobody misses it.
        let _ = self.events.send(Arc::new(event));
    }
}
