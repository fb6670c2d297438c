//! An engine in virtual time, with the faults of real ones. See [`politely_store::Engine`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use politely_core::Timestamp;

use super::dice::Micros;
use super::plan::Memory;
use politely_store::{Heartbeat, Version, Write, Written};

/// The engine's clock when the schedule begins, in 2026.
pub(super) const EPOCH: u64 = 1_795_000_000_000_000;

/// The health of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Health {
    Up,
    /// The engine takes calls and answers none.
    Stalled,
    Down,
}

/// A cell and its value.
type Held = (Arc<str>, Arc<[u8]>);

/// One server and its replica. Of the replica only its lag matters.
#[derive(Clone)]
pub(super) struct Engine {
    cells: BTreeMap<Arc<str>, Arc<[u8]>>,
    /// All writes that still count. `None` stands for the deletion of all cells.
    journal: Vec<(Micros, Option<Held>)>,
    run: u64,
    /// The number of starts. Connections from before the last one are broken.
    pub(super) incarnation: u32,
    offset: i64,
    health: Health,
    /// The time since when it answers no process.
    pub(super) away_since: Option<Micros>,
    watched: BTreeSet<(Arc<str>, usize)>,
    lag: Micros,
    /// The time since when the replica is cut off.
    cut: Option<Micros>,
}

impl Engine {
    pub(super) const fn new(run: u64, lag: Micros) -> Self {
        Self {
            cells: BTreeMap::new(),
            journal: Vec::new(),
            run,
            incarnation: 0,
            offset: 0,
            health: Health::Up,
            away_since: None,
            watched: BTreeSet::new(),
            lag,
            cut: None,
        }
    }

    pub(super) const fn time(&self, now: Micros) -> Timestamp {
        Timestamp::from_micros((EPOCH + now).saturating_add_signed(self.offset))
    }

    pub(super) fn cell(&self, name: &str) -> Option<&Arc<[u8]>> {
        self.cells.get(name)
    }

    pub(super) fn read(&self, name: &str) -> Option<Vec<u8>> {
        self.cells.get(name).map(|value| value.to_vec())
    }

    pub(super) fn heartbeat(&self, epoch: &str, now: Micros) -> Heartbeat {
        Heartbeat {
            time: self.time(now),
            run: self.run,
            epoch: self.read(epoch),
        }
    }

    pub(super) fn compare_and_set(&mut self, write: &Write, now: Micros) -> Written {
        let held = self.cells.get(&write.cell);
        if held.and_then(|value| Version::of(value)) != write.expected {
            return Written::Conflict(held.map(|value| value.to_vec()));
        }
        let value: Arc<[u8]> = write.value.as_slice().into();
        self.journal
            .push((now, Some((Arc::clone(&write.cell), Arc::clone(&value)))));
        self.cells.insert(Arc::clone(&write.cell), value);
        Written::Done
    }

    pub(super) fn watch(&mut self, who: usize, more: Vec<Arc<str>>, less: Vec<Arc<str>>) {
        for cell in less {
            self.watched.remove(&(cell, who));
        }
        self.watched
            .extend(more.into_iter().map(|cell| (cell, who)));
    }

    pub(super) fn forget_watcher(&mut self, who: usize) {
        self.watched.retain(|(_, watcher)| *watcher != who);
    }

    pub(super) fn watchers(&self, cell: &str) -> Vec<usize> {
        let watching = self.watched.iter().filter(|(name, _)| **name == *cell);
        watching.map(|(_, who)| *who).collect()
    }

    /// Returns the time up to which the replica has all writes.
    pub(super) fn replica_has(&self, now: Micros) -> Micros {
        self.cut
            .map_or(now, |cut| cut.min(now))
            .saturating_sub(self.lag)
    }

    pub(super) fn cut_replica(&mut self, now: Micros) {
        self.cut.get_or_insert(now);
    }

    pub(super) fn set_clock(&mut self, by: i64) {
        self.offset = self.offset.saturating_add(by);
    }

    pub(super) fn flush(&mut self, now: Micros) {
        self.cells.clear();
        self.journal.push((now, None));
    }

    /// Kills the server and breaks all connections.
    pub(super) fn stop(&mut self, now: Micros) {
        self.fare(Health::Down, now);
        self.incarnation += 1;
    }

    /// Drops what the server will not remember after its restart.
    pub(super) fn forget(&mut self, memory: Memory, now: Micros) {
        match memory {
            Memory::Nothing => self.go_back(None),
            Memory::Snapshot(age) => self.go_back(Some(now.saturating_sub(age))),
            Memory::Everything => {}
        }
    }

    /// Replaces the state by the replica's.
    pub(super) fn fail_over(&mut self, now: Micros, clock: i64) {
        self.go_back(Some(self.replica_has(now)));
        self.set_clock(clock);
        self.cut = None;
    }

    fn go_back(&mut self, to: Option<Micros>) {
        self.journal.retain(|(at, _)| Some(*at) <= to);
        self.cells.clear();
        for (_, written) in &self.journal {
            match written {
                Some((cell, value)) => {
                    self.cells.insert(Arc::clone(cell), Arc::clone(value));
                }
                None => self.cells.clear(),
            }
        }
    }

    pub(super) fn start(&mut self, run: u64, now: Micros) {
        self.run = run;
        self.fare(Health::Up, now);
    }

    pub(super) const fn health(&self) -> Health {
        self.health
    }

    pub(super) fn fare(&mut self, health: Health, now: Micros) {
        self.health = health;
        match health {
            Health::Up => self.away_since = None,
            Health::Stalled | Health::Down => {
                self.away_since.get_or_insert(now);
            }
        }
    }
}
