//! The audit: what each worker did with each key, and how it was answered, per hour, for 30 days.
//!
//! The counts of the current hour are in memory. Every few seconds ([`Usage::save_pause`]) they are
//! written to `usage/HOUR.gz` in the state folder, as JSON lines that are sorted by worker and key.
//! HOUR is the number of hours since 1970.
//!
//! In a fleet, a coordinator sends its counts to the fleet's log every second, and adds what it
//! reads there. So each coordinator has the sums of all.
//!
//! A killed coordinator loses its last counts. Rosters ([`roster`]) say in which hours that was.

mod counts;
mod hour_files;
mod log_place;
pub(crate) mod roster;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use politely::core::Timestamp;
use politely::core::key::Key;
use politely::core::signal::{Report, Signal};
use politely_api::wire::{
    AnswerCounts, UsageBy, UsageCounts, UsagePage, UsageQuery, UsageRow, UsageStep,
};
use serde::{Deserialize, Serialize};

use crate::private;
use crate::watch::SEPARATOR;
use counts::{Counts, line_of};
use hour_files::{files, read, write};
use log_place::{LogPlace, Place};
use roster::Roster;

const HOUR: Duration = Duration::from_hours(1);
/// The number of hours that are kept.
const KEPT_HOURS: u64 = 30 * 24;
/// The most rows of an answer.
const PAGE_MAX: usize = 10_000;
/// The folder in the state folder.
const FOLDER: &str = "usage";
/// The roster in that folder.
const ROSTER: &str = "roster.json";
/// The shortest pause between two saves.
const SAVE_EVERY: Duration = Duration::from_secs(5);
/// The longest pause, and the most times that a pause is longer than the save before it. So saves
/// of a million rows take a twentieth of a core.
const SAVE_EVERY_MAX: Duration = Duration::from_mins(1);
const PAUSE_TIMES: u32 = 20;

/// The counts of this coordinator, or of its fleet.
pub(crate) struct Usage {
    all: Counts,
    /// The counts of this coordinator that its fleet does not know yet.
    unsent: OnceLock<Counts>,
    folder: Option<PathBuf>,
    /// The last hour whose file has all counts that were known when the hour ended.
    last_written: AtomicU64,
    /// The name of this coordinator in rosters.
    me: u64,
    /// The incomplete hours that this coordinator knows of by itself.
    own: Mutex<Roster>,
    /// The roster of the fleet.
    fleet: Mutex<Roster>,
    log_place: Mutex<LogPlace>,
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
            me: RandomState::new().hash_one(number),
            own: Mutex::default(),
            fleet: Mutex::default(),
            log_place: Mutex::default(),
        };
        let mut own = Roster::default();
        if let Some(folder) = &usage.folder {
            own = read_roster(folder);
            own.end_all(now);
            own.sign_alone(usage.me, Some(now), now + SAVE_EVERY * 2);
            *usage.log_place.lock() = LogPlace::of_files(folder, now);
        } else {
            own.lose(number.saturating_sub(KEPT_HOURS)..=number);
        }
        *usage.own.lock() = own;
        usage.write_roster();
        let mut lines = Vec::new();
        usage.read_file(number, "", |line| lines.push(line));
        usage.all.add(number, &lines, number);
        usage
    }

    /// Makes this coordinator one of a fleet, which gets its counts from [`Usage::take_unsent`].
    pub(crate) fn share(&self) {
        let _ = self.unsent.set(Counts::default());
        *self.fleet.lock() = Roster::before_signs(self.me);
        let mut own = self.own.lock();
        own.leave(self.me);
        if self.folder.is_none() {
            *own = Roster::default();
        }
        drop(own);
        self.write_roster();
    }

    pub(crate) const fn me(&self) -> u64 {
        self.me
    }

    /// Returns the roster of the fleet as it was read last.
    pub(crate) fn fleet_roster(&self) -> Roster {
        self.fleet.lock().clone()
    }

    pub(crate) fn set_fleet_roster(&self, roster: Roster) {
        *self.fleet.lock() = roster;
    }

    /// Notes that counts of this coordinator never reached the fleet.
    pub(crate) fn lose(&self, hours: impl IntoIterator<Item = u64>) {
        self.fleet.lock().lose(hours);
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

    /// Adds a batch of the fleet's log, the batch `number` of the log `run`. It has no counts if it
    /// has events.
    pub(crate) fn add(&self, run: u64, number: u64, counts: Option<&HourLines>, now: Timestamp) {
        let mut place = self.log_place.lock();
        if let Some(since) = place.pass(run, number, now) {
            // The missing batches may have had late counts of the hour before.
            let (since, now) = (hour_of(since).saturating_sub(1), hour_of(now));
            let first = since.max(now.saturating_sub(KEPT_HOURS));
            self.own.lock().lose(first..=now);
        }
        if let Some(HourLines { hour, lines }) = counts
            && !place.is_in_file(*hour, run, number)
        {
            self.all.add(*hour, lines, hour_of(now));
        }
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
    ///
    /// The next call comes within `again_in`.
    pub(crate) fn save(&self, now: Timestamp, again_in: Duration) {
        let number = hour_of(now);
        self.all.roll(number);
        let Some(folder) = &self.folder else {
            return;
        };
        if self.unsent.get().is_some() && self.log_place.lock().is_behind {
            return;
        }
        // The hours with missing batches are written before the place behind those batches.
        self.write_roster();
        let (place, mut hours, ended) = self.snapshot();
        let last_written = self.last_written.load(Relaxed);
        // Counts of other coordinators may come after the end of their hour.
        for (hour, lines) in hours.range_mut(..=last_written) {
            self.read_file(*hour, "", |line| lines.push(line));
        }
        let mut failed = BTreeSet::new();
        for (hour, lines) in hours {
            if let Err(why) = write(folder, hour, place, lines) {
                tracing::error!("cannot write {FOLDER}/{hour}.gz: {why}; make room on the disk");
                failed.insert(hour);
            }
        }
        let last_written = ended.max(Some(last_written)).unwrap_or_default();
        self.last_written.store(last_written, Relaxed);
        for hour in files(folder) {
            if hour + KEPT_HOURS < number {
                let _ = fs::remove_file(folder.join(format!("{hour}.gz")));
            }
        }
        let is_saved = failed.is_empty();
        // The counts of the current hour are still in memory.
        failed.remove(&number);
        let mut own = self.own.lock();
        own.lose(failed);
        own.forget_before(number.saturating_sub(KEPT_HOURS));
        if self.unsent.get().is_none() {
            own.sign_alone(self.me, is_saved.then_some(now), now + again_in);
        }
        drop(own);
        self.write_roster();
    }

    /// Saves the last counts, at the end of this coordinator. Blocks.
    pub(crate) fn save_last(&self, now: Timestamp) {
        self.save(now, Duration::ZERO);
        self.own.lock().leave(self.me);
        self.write_roster();
    }

    /// Returns the pause after a save that took `took`.
    pub(crate) fn save_pause(took: Duration) -> Duration {
        (took * PAUSE_TIMES).clamp(SAVE_EVERY, SAVE_EVERY_MAX)
    }

    /// Returns the counts in memory by hour, without keeping those of ended hours, the last ended
    /// hour, and the place in the fleet's log until which they are.
    fn snapshot(&self) -> (Option<Place>, BTreeMap<u64, Vec<Line>>, Option<u64>) {
        let place = self.log_place.lock();
        let mut hours = std::mem::take(&mut *self.all.ended.lock());
        let ended = hours.last_key_value().map(|(hour, _)| *hour);
        self.all.each(|hour, id, counts| {
            hours.entry(hour).or_default().push(line_of(id, counts));
        });
        (place.now, hours, ended)
    }

    fn write_roster(&self) {
        let Some(folder) = &self.folder else { return };
        let own = self.own.lock().clone();
        let written = serde_json::to_vec(&own).map_err(io::Error::from);
        let written = written.and_then(|json| {
            private::folder(folder)?;
            private::replace(&folder.join(ROSTER), &json)
        });
        if let Err(why) = written {
            tracing::error!("cannot write {FOLDER}/{ROSTER}: {why}; make room on the disk");
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
            incomplete: self.incomplete(&asked_hours(query, now), now),
        }
    }

    /// Returns the beginnings of the incomplete hours, in seconds since 1970.
    fn incomplete(&self, hours: &Range<u64>, now: Timestamp) -> Vec<u64> {
        let mut all = self.own.lock().lost().clone();
        all.extend(self.fleet.lock().incomplete(now));
        let among = all.into_iter().filter(|hour| hours.contains(hour));
        among.map(|hour| hour * 3_600).collect()
    }

    /// Returns the counts that match `query`, by the first hour of their step and by name.
    fn sums(&self, query: &UsageQuery, now: Timestamp) -> BTreeMap<(u64, String), UsageCounts> {
        let hour = hour_of(now);
        self.all.roll(hour);
        let step = u64::from(query.step.hours());
        let asked = asked_hours(query, now);
        let from = asked.start;
        let mut sums: BTreeMap<(u64, String), UsageCounts> = BTreeMap::new();
        let mut add = |number: u64, worker: &str, key: &str, counts: &UsageCounts| {
            if !asked.contains(&number) {
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
            if asked.contains(&number) && !in_memory.contains(&number) {
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
            incomplete: self.incomplete(&asked_hours(&query, now), now),
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

/// Returns the hours that `query` is about.
fn asked_hours(query: &UsageQuery, now: Timestamp) -> Range<u64> {
    let from = match query.from {
        Some(seconds) => seconds / 3_600,
        None => hour_of(now).saturating_sub(23),
    };
    from..query.to.map_or(u64::MAX, |seconds| seconds.div_ceil(3_600))
}

fn read_roster(folder: &Path) -> Roster {
    let json = match fs::read(folder.join(ROSTER)) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Roster::default(),
        json => json,
    };
    let roster = json.and_then(|json| Ok(serde_json::from_slice(&json)?));
    roster.unwrap_or_else(|why| {
        tracing::error!("cannot read {FOLDER}/{ROSTER}: {why}; its incomplete hours are forgotten");
        Roster::default()
    })
}

fn hour_of(now: Timestamp) -> u64 {
    now.as_micros() / HOUR.as_micros() as u64
}

#[cfg(test)]
#[path = "usage_tests.rs"]
mod tests;
