//! Counts in memory: of the current hour, and of hours that have ended.

use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::{Equivalent, HashMap};
use parking_lot::Mutex;
use politely_api::wire::UsageCounts;

use super::{KEPT_HOURS, Line};

/// The most rows of one hour. Counts beyond it go to the worker's row without a key.
const ROWS_MAX: usize = 1 << 20;
const SHARDS: usize = 16;

/// The counts of the current hour, and of hours that have ended.
pub(super) struct Counts {
    shards: Box<[Mutex<Hour>]>,
    hasher: foldhash::quality::RandomState,
    pub(super) ended: Mutex<BTreeMap<u64, Vec<Line>>>,
}

/// The counts of one hour.
#[derive(Default)]
struct Hour {
    number: u64,
    rows: HashMap<Id, UsageCounts, foldhash::fast::RandomState>,
}

/// A worker and a key. The name of a worker contains that of its token.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Id {
    pub(super) worker: Arc<str>,
    pub(super) key: Arc<str>,
}

#[derive(Hash)]
struct IdRef<'a> {
    worker: &'a str,
    key: &'a str,
}

impl Equivalent<Id> for IdRef<'_> {
    fn equivalent(&self, id: &Id) -> bool {
        *self.worker == *id.worker && *self.key == *id.key
    }
}

impl Default for Counts {
    fn default() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: foldhash::quality::RandomState::default(),
            ended: Mutex::default(),
        }
    }
}

impl Counts {
    /// Changes the counts of a worker and a key in the hour `number`.
    pub(super) fn change(
        &self,
        number: u64,
        worker: &str,
        key: &str,
        change: impl FnOnce(&mut UsageCounts),
    ) {
        let hash = self.hasher.hash_one((worker, key));
        let mut shard = self.shards[hash as usize % SHARDS].lock();
        if shard.number < number {
            let ended = std::mem::take(&mut *shard);
            shard.number = number;
            self.end(&ended);
        }
        let is_full = shard.rows.len() >= ROWS_MAX / SHARDS;
        let is_known = shard.rows.contains_key(&IdRef { worker, key });
        let key = if is_full && !is_known { "" } else { key };
        if let Some(counts) = shard.rows.get_mut(&IdRef { worker, key }) {
            change(counts);
            return;
        }
        let id = Id {
            worker: worker.into(),
            key: key.into(),
        };
        change(shard.rows.entry(id).or_default());
    }

    /// Adds rows of the hour `hour`. The current hour is `now`.
    pub(super) fn add(&self, hour: u64, lines: &[Line], now: u64) {
        if hour < now {
            self.roll(now);
            let mut ended = self.ended.lock();
            ended.entry(hour).or_default().extend_from_slice(lines);
            return;
        }
        for line in lines {
            self.change(hour, &line.worker, &line.key, |counts| {
                counts.add(&line.counts);
            });
        }
    }

    /// Ends the hours of all shards that are over in the hour `number`. So all counts of an hour
    /// end together.
    pub(super) fn roll(&self, number: u64) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            if shard.number < number {
                let ended = std::mem::take(&mut *shard);
                shard.number = number;
                self.end(&ended);
            }
        }
    }

    /// Adds the counts of a shard whose hour has ended to the ended hours.
    fn end(&self, hour: &Hour) {
        if hour.rows.is_empty() {
            return;
        }
        let mut ended = self.ended.lock();
        let lines = ended.entry(hour.number).or_default();
        lines.extend(hour.rows.iter().map(|(id, counts)| line_of(id, counts)));
        while ended.len() as u64 > KEPT_HOURS {
            ended.pop_first();
        }
    }

    /// Calls `visit` with each row of the current hour.
    pub(super) fn each(&self, mut visit: impl FnMut(u64, &Id, &UsageCounts)) {
        for shard in &self.shards {
            let shard = shard.lock();
            for (id, counts) in &shard.rows {
                visit(shard.number, id, counts);
            }
        }
    }

    /// Removes all counts and returns them by hour.
    pub(super) fn take(&self) -> BTreeMap<u64, Vec<Line>> {
        for shard in &self.shards {
            let mut shard = shard.lock();
            let rows = std::mem::take(&mut shard.rows);
            let number = shard.number;
            self.end(&Hour { number, rows });
        }
        std::mem::take(&mut *self.ended.lock())
    }
}

pub(super) fn line_of(id: &Id, counts: &UsageCounts) -> Line {
    Line {
        worker: id.worker.to_string(),
        key: id.key.to_string(),
        counts: counts.clone(),
    }
}
