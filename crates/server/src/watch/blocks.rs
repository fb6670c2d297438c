//! Counts of statuses and signals per key and for this coordinator, by hour, for a day.
//!
//! A block is counted apart from a limit. When the share of blocks among a key's answers of the
//! last hours passes a threshold, operators are told once, and again after it fell below.

use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use politely::core::Timestamp;
use politely::core::key::Key;
use politely::core::signal::{Report, Signal};
use politely_api::wire::AnswerCounts;

const HOUR: Duration = Duration::from_hours(1);
/// The hours that are kept, the current one included.
const HOURS: u64 = 24;
/// The hours whose answers the share of blocks is measured in, the current one included.
const SHARE_HOURS: u64 = 2;
/// The fewest answers that have a share.
const ANSWERS_MIN: u64 = 10;
/// The most kinds of answers of one key and hour. Further statuses are counted as status 0.
const KINDS_MAX: usize = 32;
const SHARDS: usize = 64;
/// The most keys per shard: 65,536 in all, of which each needs 12 bytes per hour and kind.
const KEYS: usize = 1_024;
/// The share of blocks that operators are told of, unless the key's rule names another.
pub(crate) const BLOCK_SHARE: f64 = 1.0 / 3.0;

/// The counts of all keys, and those of this coordinator.
pub(crate) struct Answers {
    shards: Box<[Mutex<Shard>]>,
    all: Mutex<Day>,
    hasher: foldhash::fast::RandomState,
}

type Shard = HashMap<Key, Day, foldhash::fast::RandomState>;

/// The counts of a day.
#[derive(Default)]
struct Day {
    counts: Vec<Count>,
    /// Whether operators were told of the share of blocks.
    is_told: bool,
}

/// How many answers of one kind came in one hour.
struct Count {
    hour: u32,
    /// Zero if no response came.
    status: u16,
    signal: Signal,
    answers: u32,
}

fn hour(now: Timestamp) -> u32 {
    (now.as_micros() / HOUR.as_micros() as u64) as u32
}

impl Day {
    fn add(&mut self, now: Timestamp, report: &Report) {
        let hour = hour(now);
        let mut status = report.status.unwrap_or_default();
        let is_it = |count: &&mut Count, status: u16| {
            (count.hour, count.status, count.signal) == (hour, status, report.signal)
        };
        if let Some(count) = self
            .counts
            .iter_mut()
            .rev()
            .find(|count| is_it(count, status))
        {
            count.answers = count.answers.saturating_add(1);
            return;
        }
        if self.counts.last().is_some_and(|last| last.hour != hour) {
            self.forget(hour);
        }
        let kinds = self
            .counts
            .iter()
            .rev()
            .take_while(|count| count.hour == hour);
        if kinds.count() >= KINDS_MAX {
            status = 0;
            if let Some(count) = self
                .counts
                .iter_mut()
                .rev()
                .find(|count| is_it(count, status))
            {
                count.answers = count.answers.saturating_add(1);
                return;
            }
        }
        self.counts.push(Count {
            hour,
            status,
            signal: report.signal,
            answers: 1,
        });
    }

    fn forget(&mut self, hour: u32) {
        let is_kept = |count: &Count| u64::from(hour.saturating_sub(count.hour)) < HOURS;
        self.counts.retain(is_kept);
    }

    /// Returns the counts of the last `hours`, the current one included.
    fn of(&self, now: Timestamp, hours: u64) -> impl Iterator<Item = &Count> {
        let current = hour(now);
        let is_in = move |count: &&Count| u64::from(current.saturating_sub(count.hour)) < hours;
        self.counts.iter().filter(is_in)
    }

    /// Returns the text for operators if the share of blocks passed `threshold` just now.
    fn passed(&mut self, now: Timestamp, threshold: f64) -> Option<String> {
        let (mut all, mut blocked) = (0, 0);
        for count in self.of(now, SHARE_HOURS) {
            all += u64::from(count.answers);
            if count.signal == Signal::Blocked {
                blocked += u64::from(count.answers);
            }
        }
        let is_above = all >= ANSWERS_MIN && blocked as f64 >= threshold * all as f64;
        let was_told = std::mem::replace(&mut self.is_told, is_above);
        (is_above && !was_told).then(|| format!("{blocked} of the last {all} answers are blocks"))
    }

    fn body(&self, now: Timestamp, hours: u64) -> AnswerCounts {
        let (mut statuses, mut signals) = (BTreeMap::new(), BTreeMap::new());
        let mut all = 0;
        for count in self.of(now, hours) {
            let number = u64::from(count.answers);
            let status = match count.status {
                0 => "none".to_owned(),
                status => status.to_string(),
            };
            *statuses.entry(status).or_default() += number;
            *signals.entry(count.signal.as_str().to_owned()).or_default() += number;
            all += number;
        }
        AnswerCounts {
            hours: hours as u32,
            answers: all,
            statuses,
            signals,
        }
    }
}

impl Default for Answers {
    fn default() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            all: Mutex::default(),
            hasher: foldhash::fast::RandomState::default(),
        }
    }
}

impl Answers {
    /// Counts an answer. Returns the text for operators if the share of blocks among the key's
    /// answers passed `threshold` with it.
    pub(crate) fn add(
        &self,
        now: Timestamp,
        key: &Key,
        report: &Report,
        threshold: f64,
    ) -> Option<String> {
        self.all.lock().add(now, report);
        let mut shard = self.shard(key).lock();
        if !shard.contains_key(key) {
            if shard.len() >= KEYS {
                make_room(&mut shard);
            }
            shard.insert(key.clone(), Day::default());
        }
        let day = shard.get_mut(key)?;
        day.add(now, report);
        let may_pass = report.signal == Signal::Blocked || day.is_told;
        may_pass.then(|| day.passed(now, threshold)).flatten()
    }

    /// Returns the counts of `key`, or of all keys, in the last `hours`.
    pub(crate) fn counts(&self, now: Timestamp, key: Option<&Key>, hours: u64) -> AnswerCounts {
        let hours = hours.clamp(1, HOURS);
        match key {
            None => self.all.lock().body(now, hours),
            Some(key) => {
                let shard = self.shard(key).lock();
                let none = Day::default();
                shard.get(key).unwrap_or(&none).body(now, hours)
            }
        }
    }

    fn shard(&self, key: &Key) -> &Mutex<Shard> {
        &self.shards[self.hasher.hash_one(key) as usize % SHARDS]
    }
}

/// Forgets the older half of the keys, by their last answer.
fn make_room(shard: &mut Shard) {
    let last = |day: &Day| day.counts.last().map_or(0, |count| count.hour);
    let mut hours: Vec<u32> = shard.values().map(last).collect();
    hours.sort_unstable();
    let middle = hours[hours.len() / 2];
    let mut left = hours.len() / 2;
    shard.retain(|_, day| {
        let is_kept = last(day) > middle || left == 0;
        left -= usize::from(!is_kept);
        is_kept
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(hours: u64) -> Timestamp {
        Timestamp::from_micros(hours * 3_600_000_000 + 1)
    }

    fn answer(status: u16, signal: Signal) -> Report {
        Report {
            status: Some(status),
            ..Report::of(signal)
        }
    }

    #[test]
    fn a_day_is_kept_and_a_block_is_no_limit() {
        let (answers, key) = (Answers::default(), Key::host("a.example").unwrap());
        let add = |hour, report: &Report| answers.add(at(hour), &key, report, 2.0);
        add(100, &answer(200, Signal::Ok));
        add(101, &answer(429, Signal::RateLimited));
        add(101, &answer(403, Signal::Blocked));
        add(101, &answer(403, Signal::UrlError));
        let counts = answers.counts(at(101), Some(&key), 24);
        assert_eq!((counts.answers, counts.statuses["403"]), (4, 2));
        assert_eq!(
            (counts.signals["blocked"], counts.signals["rate_limited"]),
            (1, 1)
        );
        assert_eq!(answers.counts(at(101), None, 24), counts);
        assert_eq!(answers.counts(at(101), Some(&key), 1).answers, 3);
        assert_eq!(answers.counts(at(124), Some(&key), 24).answers, 3);
        assert_eq!(answers.counts(at(125), Some(&key), 24).answers, 0);
        add(125, &answer(200, Signal::Ok));
        let kept = answers.shard(&key).lock()[&key].counts.len();
        assert_eq!(kept, 1, "old hours need no memory");
    }

    #[test]
    fn operators_are_told_once_when_a_share_of_blocks_is_passed() {
        let (answers, key) = (Answers::default(), Key::host("a.example").unwrap());
        let add = |hour, signal| answers.add(at(hour), &key, &answer(403, signal), 0.25);
        for _ in 0..6 {
            assert_eq!(add(1, Signal::Ok), None);
        }
        let blocks = (0..6).filter_map(|_| add(1, Signal::Blocked));
        assert_eq!(blocks.count(), 1);
        for _ in 0..30 {
            assert_eq!(add(1, Signal::Ok), None);
        }
        let again = (0..20).filter_map(|_| add(1, Signal::Blocked));
        assert_eq!(again.count(), 1, "it fell below in between");
    }

    #[test]
    fn strangers_cannot_fill_the_memory() {
        let (answers, key) = (Answers::default(), Key::host("a.example").unwrap());
        for status in 100..999 {
            answers.add(at(1), &key, &answer(status, Signal::Ok), 2.0);
        }
        assert!(answers.shard(&key).lock()[&key].counts.len() <= KINDS_MAX + 1);
        assert_eq!(answers.counts(at(1), Some(&key), 24).answers, 899);
        let mut shard = Shard::default();
        for i in 0..KEYS {
            shard.insert(Key::custom(&format!("k{i}")).unwrap(), Day::default());
        }
        make_room(&mut shard);
        assert_eq!(shard.len(), KEYS / 2);
    }
}
