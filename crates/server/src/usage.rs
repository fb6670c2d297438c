//! The audit: what each worker did with each key, and how it was answered, per hour, for 30 days.
//!
//! The counts of the current hour are in memory. Every minute, and at the end of the hour, they are
//! written to `usage/HOUR.gz` in the state folder, as JSON lines that are sorted by worker and key.
//! HOUR is the number of hours since 1970. A killed coordinator loses the last minute at most.
//!
//! In a fleet, a coordinator sends its counts to the fleet's log every few seconds, and adds what
//! it reads there. So each coordinator has the sums of all.

mod hour_files;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hash::BuildHasher;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hashbrown::{Equivalent, HashMap};
use parking_lot::Mutex;
use politely::core::Timestamp;
use politely::core::key::Key;
use politely::core::signal::{Report, Signal};
use politely_api::wire::{
    AnswerCounts, UsageBy, UsageCounts, UsagePage, UsageQuery, UsageRow, UsageStep,
};
use serde::{Deserialize, Serialize};

use crate::watch::SEPARATOR;
use hour_files::{files, read, write};

const HOUR: Duration = Duration::from_hours(1);
/// The number of hours that are kept.
const KEPT_HOURS: u64 = 30 * 24;
/// The most rows of one hour. Counts beyond it go to the worker's row without a key.
const ROWS_MAX: usize = 1 << 20;
/// The most rows of an answer.
const PAGE_MAX: usize = 10_000;
/// The folder in the state folder.
const FOLDER: &str = "usage";
const SHARDS: usize = 16;

/// The counts of this coordinator, or of its fleet.
pub(crate) struct Usage {
    all: Counts,
    /// The counts of this coordinator that its fleet does not know yet.
    unsent: OnceLock<Counts>,
    folder: Option<PathBuf>,
    /// The last hour whose file has all counts that were known when the hour ended.
    last_written: AtomicU64,
}

/// The counts of the current hour, and of hours that have ended.
struct Counts {
    shards: Box<[Mutex<Hour>]>,
    hasher: foldhash::quality::RandomState,
    ended: Mutex<BTreeMap<u64, Vec<Line>>>,
}

/// The counts of one hour.
#[derive(Default)]
struct Hour {
    number: u64,
    rows: HashMap<Id, UsageCounts, foldhash::fast::RandomState>,
}

/// A worker and a key. The name of a worker contains that of its token.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Id {
    worker: Arc<str>,
    key: Arc<str>,
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

/// Rows of one hour.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct HourLines {
    pub(crate) hour: u64,
    pub(crate) lines: Vec<Line>,
}

/// A line of a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Line {
    worker: String,
    key: String,
    #[serde(flatten)]
    counts: UsageCounts,
}

impl Usage {
    /// Opens the counts of the state folder, or counts in memory. A file that cannot be read is
    /// logged and skipped.
    pub(crate) fn open(state: Option<&Path>, now: Timestamp) -> Self {
        let number = hour_of(now);
        let usage = Self {
            all: Counts::default(),
            unsent: OnceLock::new(),
            folder: state.map(|state| state.join(FOLDER)),
            last_written: AtomicU64::new(number.saturating_sub(1)),
        };
        let mut lines = Vec::new();
        usage.read_file(number, "", |line| lines.push(line));
        usage.all.add(number, &lines, number);
        usage
    }

    /// Makes this coordinator one of a fleet, which gets its counts from [`Usage::take_unsent`].
    pub(crate) fn share(&self) {
        let _ = self.unsent.set(Counts::default());
    }

    /// Returns the counts that the fleet does not know yet, and forgets them.
    pub(crate) fn take_unsent(&self, now: Timestamp) -> Vec<HourLines> {
        let Some(unsent) = self.unsent.get() else {
            return Vec::new();
        };
        unsent.roll(hour_of(now));
        let hours = unsent.take().into_iter();
        hours
            .map(|(hour, lines)| HourLines { hour, lines })
            .collect()
    }

    /// Adds counts from the fleet's log.
    pub(crate) fn add(&self, counts: &HourLines, now: Timestamp) {
        self.all.add(counts.hour, &counts.lines, hour_of(now));
    }

    pub(crate) fn granted(
        &self,
        now: Timestamp,
        worker: &str,
        key: &Key,
        slots: u16,
        waited: Option<Duration>,
    ) {
        self.count(now, worker, key, |counts| {
            counts.granted += u64::from(slots);
            if let Some(waited) = waited {
                counts.waits += 1;
                counts.waited_ms += waited.as_millis() as u64;
            }
        });
    }

    pub(crate) fn reported(&self, now: Timestamp, worker: &str, key: &Key, report: &Report) {
        self.count(now, worker, key, |counts| {
            let signal = match report.signal {
                Signal::Ok => &mut counts.ok,
                Signal::RateLimited => &mut counts.rate_limited,
                Signal::Overloaded => &mut counts.overloaded,
                Signal::Unreachable => &mut counts.unreachable,
                Signal::Blocked => &mut counts.blocked,
                Signal::UrlError => &mut counts.url_error,
            };
            *signal += 1;
            counts.statuses.count(report.status);
            counts.bytes += report.bytes;
        });
    }

    pub(crate) fn expired(&self, now: Timestamp, worker: &str, key: &Key) {
        self.count(now, worker, key, |counts| counts.expired += 1);
    }

    fn count(
        &self,
        now: Timestamp,
        worker: &str,
        key: &Key,
        change: impl FnOnce(&mut UsageCounts),
    ) {
        let counts = self.unsent.get().unwrap_or(&self.all);
        counts.change(hour_of(now), worker, key.as_str(), change);
    }

    /// Writes the counts to the state folder, and removes files of hours that are not kept. Blocks.
    pub(crate) fn save(&self, now: Timestamp) {
        let number = hour_of(now);
        self.all.roll(number);
        let Some(folder) = &self.folder else {
            return;
        };
        let mut hours = std::mem::take(&mut *self.all.ended.lock());
        let last_written = self.last_written.load(Relaxed);
        // Counts of other coordinators may come after the end of their hour.
        for (hour, lines) in hours.range_mut(..=last_written) {
            self.read_file(*hour, "", |line| lines.push(line));
        }
        let ended = hours.last_key_value().map(|(hour, _)| *hour);
        self.all.each(|hour, id, counts| {
            hours.entry(hour).or_default().push(line_of(id, counts));
        });
        for (hour, lines) in hours {
            if let Err(why) = write(folder, hour, lines) {
                tracing::error!("cannot write {FOLDER}/{hour}.gz: {why}; make room on the disk");
            }
        }
        let last_written = ended.max(Some(last_written)).unwrap_or_default();
        self.last_written.store(last_written, Relaxed);
        for hour in files(folder) {
            if hour + KEPT_HOURS < number {
                let _ = fs::remove_file(folder.join(format!("{hour}.gz")));
            }
        }
    }

    /// Returns the rows that match `query`. Blocks.
    pub(crate) fn page(&self, query: &UsageQuery, now: Timestamp) -> UsagePage {
        let sums = self.sums(query, now);
        let is_cut = sums.len() > PAGE_MAX;
        let rows = sums.into_iter().take(PAGE_MAX);
        UsagePage {
            rows: rows
                .map(|((at, name), counts)| UsageRow {
                    at_s: at * 3_600,
                    name,
                    counts,
                })
                .collect(),
            cut: is_cut,
        }
    }

    /// Returns the counts that match `query`, by the first hour of their step and by name.
    fn sums(&self, query: &UsageQuery, now: Timestamp) -> BTreeMap<(u64, String), UsageCounts> {
        let hour = hour_of(now);
        self.all.roll(hour);
        let step = u64::from(query.step.hours());
        let from = match query.from {
            Some(seconds) => seconds / 3_600,
            None => hour.saturating_sub(23),
        };
        let until = query.to.map_or(u64::MAX, |seconds| seconds.div_ceil(3_600));
        let mut sums: BTreeMap<(u64, String), UsageCounts> = BTreeMap::new();
        let mut add = |number: u64, worker: &str, key: &str, counts: &UsageCounts| {
            if !(from..until).contains(&number) {
                return;
            }
            let at = from + (number - from) / step * step;
            let (account, client) = worker.split_once(SEPARATOR).unwrap_or(("", worker));
            let name = match query.by {
                UsageBy::Worker => client,
                UsageBy::Key => key,
                UsageBy::Account => account,
            };
            if query.name.as_deref().is_none_or(|wanted| wanted == name) {
                sums.entry((at, name.to_owned())).or_default().add(counts);
            }
        };
        let mut in_memory = BTreeSet::new();
        for counts in std::iter::once(&self.all).chain(self.unsent.get()) {
            counts.each(|number, id, counts| add(number, &id.worker, &id.key, counts));
            let ended = counts.ended.lock().clone();
            for (number, lines) in &ended {
                for line in lines {
                    add(*number, &line.worker, &line.key, &line.counts);
                }
            }
        }
        // The files of these hours have what was in memory before.
        let last_written = self.last_written.load(Relaxed);
        in_memory.extend(
            self.all
                .ended
                .lock()
                .keys()
                .filter(|hour| **hour > last_written),
        );
        in_memory.insert(hour);
        let files = self.folder.as_deref().map(files).unwrap_or_default();
        for number in files {
            if (from..until).contains(&number) && !in_memory.contains(&number) {
                let name = query.name.as_deref().unwrap_or_default();
                self.read_file(number, name, |line| {
                    add(number, &line.worker, &line.key, &line.counts);
                });
            }
        }
        sums
    }

    /// Returns how many answers came in the last `hours`, of `key` or of all keys. Blocks.
    pub(crate) fn answers(&self, key: Option<&Key>, hours: u32, now: Timestamp) -> AnswerCounts {
        let from = (hour_of(now) + 1).saturating_sub(hours.into());
        let query = UsageQuery {
            by: key.map_or(UsageBy::Account, |_| UsageBy::Key),
            step: UsageStep::LONGEST,
            from: Some(from * 3_600),
            name: key.map(|key| key.as_str().to_owned()),
            ..UsageQuery::default()
        };
        let mut sum = UsageCounts::default();
        for counts in self.sums(&query, now).values() {
            sum.add(counts);
        }
        let signals: BTreeMap<_, _> = [
            (Signal::Ok, sum.ok),
            (Signal::RateLimited, sum.rate_limited),
            (Signal::Overloaded, sum.overloaded),
            (Signal::Unreachable, sum.unreachable),
            (Signal::Blocked, sum.blocked),
            (Signal::UrlError, sum.url_error),
        ]
        .into_iter()
        .filter(|(_, answers)| *answers > 0)
        .map(|(signal, answers)| (signal.as_str().to_owned(), answers))
        .collect();
        AnswerCounts {
            hours,
            answers: signals.values().sum(),
            statuses: sum.statuses,
            signals,
        }
    }

    /// Calls `visit` with the lines of an hour's file that may be about `name`. All lines are, if
    /// it is empty.
    fn read_file(&self, hour: u64, name: &str, visit: impl FnMut(Line)) {
        let Some(folder) = &self.folder else { return };
        match read(folder, hour, name, visit) {
            Err(why) if why.kind() != io::ErrorKind::NotFound => {
                tracing::error!("cannot read {FOLDER}/{hour}.gz: {why}; its counts are missing");
            }
            _ => {}
        }
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
    fn change(&self, number: u64, worker: &str, key: &str, change: impl FnOnce(&mut UsageCounts)) {
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
    fn add(&self, hour: u64, lines: &[Line], now: u64) {
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
    fn roll(&self, number: u64) {
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
    fn each(&self, mut visit: impl FnMut(u64, &Id, &UsageCounts)) {
        for shard in &self.shards {
            let shard = shard.lock();
            for (id, counts) in &shard.rows {
                visit(shard.number, id, counts);
            }
        }
    }

    /// Removes all counts and returns them by hour.
    fn take(&self) -> BTreeMap<u64, Vec<Line>> {
        for shard in &self.shards {
            let mut shard = shard.lock();
            let rows = std::mem::take(&mut shard.rows);
            let number = shard.number;
            self.end(&Hour { number, rows });
        }
        std::mem::take(&mut *self.ended.lock())
    }
}

fn line_of(id: &Id, counts: &UsageCounts) -> Line {
    Line {
        worker: id.worker.to_string(),
        key: id.key.to_string(),
        counts: counts.clone(),
    }
}

fn hour_of(now: Timestamp) -> u64 {
    now.as_micros() / HOUR.as_micros() as u64
}

#[cfg(test)]
#[path = "usage_tests.rs"]
mod tests;
