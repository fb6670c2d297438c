//! Who does what: the fleet's audit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::RwLock;
use politely::core::Timestamp;
use politely::core::signal::Signal;
use politely::wire::WorkerStats;

/// Workers remembered; the one not heard of for longest gives way.
const WORKERS_MAX: usize = 10_000;

/// All workers heard of, by name.
#[derive(Default)]
pub(crate) struct Workers(RwLock<HashMap<Box<str>, Arc<Worker>, foldhash::fast::RandomState>>);

/// One worker's books.
#[derive(Default)]
pub(crate) struct Worker {
    name: Box<str>,
    granted: AtomicU64,
    reported: AtomicU64,
    refused: AtomicU64,
    cancelled: AtomicU64,
    expired: AtomicU64,
    late: AtomicU64,
    waits: AtomicU64,
    waited_us: AtomicU64,
    seen: AtomicU64,
}

impl Workers {
    /// The books of the worker named so.
    pub(crate) fn named(&self, name: &str, now: Timestamp) -> Arc<Worker> {
        if let Some(worker) = self.0.read().get(name) {
            worker.seen.store(now.as_micros(), Ordering::Relaxed);
            return Arc::clone(worker);
        }
        let mut workers = self.0.write();
        if workers.len() >= WORKERS_MAX {
            let oldest = workers
                .values()
                .min_by_key(|worker| (worker.live() > 0, worker.seen.load(Ordering::Relaxed)))
                .map(|worker| worker.name.clone());
            if let Some(name) = oldest {
                workers.remove(&name);
            }
        }
        let worker = workers.entry(name.into()).or_insert_with(|| {
            Arc::new(Worker {
                name: name.into(),
                ..Worker::default()
            })
        });
        worker.seen.store(now.as_micros(), Ordering::Relaxed);
        Arc::clone(worker)
    }

    /// The most active first, at most `most`.
    pub(crate) fn stats(&self, now: Timestamp, most: usize) -> Vec<WorkerStats> {
        let mut all: Vec<_> = self
            .0
            .read()
            .values()
            .map(|worker| worker.stats(now))
            .collect();
        all.sort_unstable_by(|a, b| {
            b.granted
                .cmp(&a.granted)
                .then_with(|| a.client.cmp(&b.client))
        });
        all.truncate(most);
        all
    }
}

impl Worker {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn granted(&self, slots: u16) {
        self.granted.fetch_add(u64::from(slots), Ordering::Relaxed);
    }

    pub(crate) fn reported(&self, signal: Signal) {
        self.reported.fetch_add(1, Ordering::Relaxed);
        if signal.is_refusal() {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn cancelled(&self) {
        self.cancelled.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn expired(&self) {
        self.expired.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn late(&self) {
        self.late.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn waits(&self) {
        self.waits.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn waited(&self, length: Duration) {
        let micros = length.as_micros() as u64;
        self.waited_us.fetch_add(micros, Ordering::Relaxed);
    }

    fn live(&self) -> u64 {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let ended = of(&self.reported) + of(&self.cancelled) + of(&self.expired);
        of(&self.granted).saturating_sub(ended)
    }

    fn stats(&self, now: Timestamp) -> WorkerStats {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        WorkerStats {
            client: self.name.to_string(),
            granted: of(&self.granted),
            reported: of(&self.reported),
            refused: of(&self.refused),
            cancelled: of(&self.cancelled),
            expired: of(&self.expired),
            late: of(&self.late),
            live: self.live(),
            waits: of(&self.waits),
            waited_ms: of(&self.waited_us) / 1_000,
            seen_ago_ms: now.micros_since(Timestamp::from_micros(of(&self.seen))) / 1_000,
        }
    }
}
