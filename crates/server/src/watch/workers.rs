//! The counts of each worker: its permits and their outcomes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::RwLock;
use politely::OwnMachine;
use politely::core::Timestamp;
use politely::core::signal::Signal;
use politely_api::wire::WorkerStats;

/// The most workers whose counts are kept.
///
/// Beyond it, the tenth that called least recently is dropped, idle workers first. Only counts are
/// lost, because permits are bound to a worker's name.
const WORKERS_MAX: usize = 10_000;
const GIVE_WAY: usize = WORKERS_MAX / 10;

/// Separates a token's name from a client's name in the name of a worker.
pub(crate) const SEPARATOR: char = '\u{1f}';

/// All known workers, by name.
#[derive(Default)]
pub(crate) struct Workers(RwLock<HashMap<Box<str>, Arc<Worker>, foldhash::fast::RandomState>>);

/// The counts of one worker.
#[derive(Default)]
pub(crate) struct Worker {
    /// The client's name, after the name of its token if the token has one.
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
    pub(crate) own_machine: OwnMachine,
}

impl Workers {
    /// Returns the worker with this name, and creates it if it is new.
    pub(crate) fn named(&self, name: &str, now: Timestamp) -> Arc<Worker> {
        if let Some(worker) = self.0.read().get(name) {
            worker.seen.store(now.as_micros(), Ordering::Relaxed);
            return Arc::clone(worker);
        }
        let mut workers = self.0.write();
        if workers.len() >= WORKERS_MAX {
            let age = |worker: &Arc<Worker>| (worker.live() > 0, worker.seen());
            let mut ages: Vec<_> = workers.values().map(age).collect();
            let (_, last, _) = ages.select_nth_unstable(GIVE_WAY - 1);
            let last = *last;
            let mut places = GIVE_WAY;
            workers.retain(|_, worker| {
                let gives_way = places > 0 && age(worker) <= last;
                places -= usize::from(gives_way);
                !gives_way
            });
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

    /// Returns the counts of at most `most` workers, those with the most permits first.
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
    /// Returns the name that the worker's permits are bound to.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the client's own name, without the name of its token.
    pub(crate) fn client(&self) -> &str {
        let named = self.name.split_once(SEPARATOR);
        named.map_or(&*self.name, |(_, client)| client)
    }

    fn seen(&self) -> u64 {
        self.seen.load(Ordering::Relaxed)
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
            client: self.client().to_owned(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_books_of_workers_are_bounded_and_the_busy_stay() {
        let workers = Workers::default();
        let at = |i: usize| Timestamp::from_micros(i as u64);
        workers.named("busy", at(0)).granted(1);
        for i in 1..3 * WORKERS_MAX {
            workers.named(&format!("w{i}"), at(i));
            assert!(workers.0.read().len() <= WORKERS_MAX);
        }
        let busy = workers.named("busy", at(0));
        assert_eq!(busy.granted.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_workers_client_is_shown_without_its_token() {
        let workers = Workers::default();
        let client = |name: &str| workers.named(name, Timestamp::ZERO).client().to_owned();
        assert_eq!(client("w:1"), "w:1");
        assert_eq!(client(&format!("ci{SEPARATOR}w:1")), "w:1");
    }
}
