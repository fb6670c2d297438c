//! The share of blocks among the answers of a key in the last hours. When it passes a threshold,
//! operators are told once, and again after it fell below.

use std::hash::BuildHasher;
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use politely::core::Timestamp;
use politely::core::key::Key;
use politely::core::signal::Signal;

const HOUR: Duration = Duration::from_hours(1);
/// The hours whose answers the share is measured in, the current one included.
const HOURS: usize = 2;
/// The fewest answers that have a share.
const ANSWERS_MIN: u64 = 10;
const SHARDS: usize = 64;
/// The most keys per shard: 65,536 in all.
const KEYS: usize = 1_024;
/// The share of blocks that operators are told of, unless the key's rule names another.
pub(crate) const BLOCK_SHARE: f64 = 1.0 / 3.0;

/// The answers of all keys.
pub(crate) struct BlockShares {
    shards: Box<[Mutex<Shard>]>,
    hasher: foldhash::fast::RandomState,
}

type Shard = HashMap<Key, Recent, foldhash::fast::RandomState>;

/// The answers of a key.
#[derive(Default)]
struct Recent {
    /// The current hour.
    hour: u64,
    /// All answers and the blocks of each hour, the current one first.
    hours: [(u64, u64); HOURS],
    /// Whether operators were told of the share of blocks.
    is_told: bool,
}

impl Recent {
    fn add(&mut self, hour: u64, is_block: bool) {
        let passed = hour.saturating_sub(self.hour).min(HOURS as u64) as usize;
        self.hours.rotate_right(passed % HOURS);
        self.hours[..passed].fill((0, 0));
        self.hour = hour.max(self.hour);
        self.hours[0].0 += 1;
        self.hours[0].1 += u64::from(is_block);
    }

    /// Returns the text for operators if the share of blocks passed `threshold` just now.
    fn passed(&mut self, threshold: f64) -> Option<String> {
        let all: u64 = self.hours.iter().map(|(all, _)| all).sum();
        let blocked: u64 = self.hours.iter().map(|(_, blocked)| blocked).sum();
        let is_above = all >= ANSWERS_MIN && blocked as f64 >= threshold * all as f64;
        let was_told = std::mem::replace(&mut self.is_told, is_above);
        (is_above && !was_told).then(|| format!("{blocked} of the last {all} answers are blocks"))
    }
}

impl Default for BlockShares {
    fn default() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: foldhash::fast::RandomState::default(),
        }
    }
}

impl BlockShares {
    /// Counts an answer. Returns the text for operators if the share of blocks among the key's
    /// answers passed `threshold` with it.
    pub(crate) fn add(
        &self,
        now: Timestamp,
        key: &Key,
        signal: Signal,
        threshold: f64,
    ) -> Option<String> {
        let shard = &self.shards[self.hasher.hash_one(key) as usize % SHARDS];
        let mut shard = shard.lock();
        if !shard.contains_key(key) {
            if shard.len() >= KEYS {
                make_room(&mut shard);
            }
            shard.insert(key.clone(), Recent::default());
        }
        let recent = shard.get_mut(key)?;
        let is_block = signal == Signal::Blocked;
        recent.add(now.as_micros() / HOUR.as_micros() as u64, is_block);
        let may_pass = is_block || recent.is_told;
        may_pass.then(|| recent.passed(threshold)).flatten()
    }
}

/// Forgets the older half of the keys, by their last answer.
fn make_room(shard: &mut Shard) {
    let mut hours: Vec<u64> = shard.values().map(|recent| recent.hour).collect();
    hours.sort_unstable();
    let middle = hours[hours.len() / 2];
    let mut left = hours.len() / 2;
    shard.retain(|_, recent| {
        let is_kept = recent.hour > middle || left == 0;
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

    #[test]
    fn operators_are_told_once_when_a_share_of_blocks_is_passed() {
        let (shares, key) = (BlockShares::default(), Key::host("a.example").unwrap());
        let add = |hour, signal| shares.add(at(hour), &key, signal, 0.25);
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
    fn answers_of_two_hours_count() {
        let mut recent = Recent::default();
        let sums = |recent: &Recent| recent.hours.map(|(all, _)| all);
        recent.add(100, false);
        recent.add(100, true);
        recent.add(101, false);
        assert_eq!(sums(&recent), [1, 2]);
        recent.add(102, false);
        assert_eq!(sums(&recent), [1, 1]);
        recent.add(104, false);
        assert_eq!(sums(&recent), [1, 0]);
        // The clock was set back.
        recent.add(90, false);
        assert_eq!(sums(&recent), [2, 0]);
    }

    #[test]
    fn strangers_cannot_fill_the_memory() {
        let mut shard = Shard::default();
        for i in 0..KEYS {
            shard.insert(Key::custom(&format!("k{i}")).unwrap(), Recent::default());
        }
        make_room(&mut shard);
        assert_eq!(shard.len(), KEYS / 2);
    }
}
