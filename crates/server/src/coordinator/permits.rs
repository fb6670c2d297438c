//! The permits that are out, by number, and what was answered to those that came back.
//!
//! A permit's number is its name on the wire. It is never used twice: it begins with how often this coordinator was
//! started. A report is answered again as it was the first time, as long as it is remembered.

use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::{Mutex, MutexGuard};
use politely::core::Timestamp;
use politely::core::key::Key;
use politely::wire::Next;
use politely::{Permit, Slot};

use crate::watch::Worker;

const SHARDS: u64 = 64;
/// Numbers per start of the coordinator.
const BOOT_SHIFT: u32 = 40;
/// Answers remembered per shard: 256 k in all, about 30 MB.
const REMEMBERED: usize = 4_096;
/// An expired permit is known this much longer, so that a late report still finds its key.
const LATE: Duration = Duration::from_mins(1);

/// A permit's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Number(pub(crate) u64);

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

impl FromStr for Number {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        u64::from_str_radix(text, 16).map(Self)
    }
}

/// One departure that was granted.
pub(crate) struct Out {
    /// Until its outcome is known.
    pub(crate) permit: Option<Permit>,
    /// From then on until its body has come, with what was answered.
    pub(crate) heard: Option<(Slot, Answered)>,
    /// Its lease ran out; it is kept for a late report.
    pub(crate) expired: bool,
    pub(crate) key: Key,
    pub(crate) worker: Arc<Worker>,
    pub(crate) wish: u64,
    pub(crate) start: Timestamp,
    pub(crate) until: Timestamp,
    pub(crate) interval: Duration,
    /// Departures granted together with it, itself included.
    pub(crate) slots: u16,
}

/// What was answered.
#[derive(Clone)]
pub(crate) struct Answered {
    pub(crate) next: Next,
    pub(crate) rate: f64,
    pub(crate) hold_until: Timestamp,
}

pub(crate) enum Entry {
    Out(Box<Out>),
    Answered(Answered),
}

pub(crate) struct Permits {
    shards: Box<[Mutex<Shard>]>,
    next: AtomicU64,
    live: AtomicU64,
}

#[derive(Default)]
pub(crate) struct Shard {
    entries: HashMap<u64, Entry, foldhash::fast::RandomState>,
    /// When which is looked at again; about in order, since leases are about equally long.
    due: VecDeque<(Timestamp, Number)>,
    answered: VecDeque<Number>,
}

impl Permits {
    /// For the `boot`th start.
    pub(crate) fn new(boot: u64) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            next: AtomicU64::new((boot << BOOT_SHIFT) + 1),
            live: AtomicU64::new(0),
        }
    }

    pub(crate) fn live(&self) -> u64 {
        self.live.load(Ordering::Relaxed)
    }

    /// So many numbers in a row, never given before.
    pub(crate) fn numbers(&self, count: u16) -> Number {
        Number(self.next.fetch_add(u64::from(count), Ordering::Relaxed))
    }

    pub(crate) fn shard(&self, number: Number) -> MutexGuard<'_, Shard> {
        self.shards[(number.0 % SHARDS) as usize].lock()
    }

    pub(crate) fn put(&self, number: Number, out: Out) {
        self.live.fetch_add(1, Ordering::Relaxed);
        let mut shard = self.shard(number);
        shard.due.push_back((out.until, number));
        shard.entries.insert(number.0, Entry::Out(Box::new(out)));
    }

    /// Takes a permit off the list for good.
    pub(crate) fn take(&self, number: Number, worker: &Worker) -> Option<Box<Out>> {
        let mut shard = self.shard(number);
        match shard.entries.get(&number.0) {
            Some(Entry::Out(out)) if std::ptr::eq(Arc::as_ptr(&out.worker), worker) => {}
            _ => return None,
        }
        let Some(Entry::Out(out)) = shard.entries.remove(&number.0) else {
            return None;
        };
        if !out.expired {
            self.live.fetch_sub(1, Ordering::Relaxed);
        }
        Some(out)
    }

    /// Takes what was reported off the list and remembers what was answered.
    pub(crate) fn settle(
        &self,
        shard: &mut Shard,
        number: Number,
        answered: Answered,
    ) -> Option<Box<Out>> {
        let before = shard.entries.insert(number.0, Entry::Answered(answered));
        shard.answered.push_back(number);
        if shard.answered.len() > REMEMBERED
            && let Some(oldest) = shard.answered.pop_front()
        {
            shard.entries.remove(&oldest.0);
        }
        let Some(Entry::Out(out)) = before else {
            return None;
        };
        if !out.expired {
            self.live.fetch_sub(1, Ordering::Relaxed);
        }
        Some(out)
    }

    /// Calls `gone` with each permit whose lease ran out and, a while later, forgets it.
    pub(crate) fn sweep(&self, now: Timestamp, mut gone: impl FnMut(Number, &Out)) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            while let Some(&(at, number)) = shard.due.front()
                && at <= now
            {
                shard.due.pop_front();
                let Some(Entry::Out(out)) = shard.entries.get_mut(&number.0) else {
                    continue;
                };
                let again = if out.expired {
                    None
                } else if out.until > now {
                    Some(out.until)
                } else {
                    out.expired = true;
                    self.live.fetch_sub(1, Ordering::Relaxed);
                    gone(number, out);
                    // A body that never came leaves nothing to report.
                    out.permit.is_some().then(|| now + LATE)
                };
                match again {
                    Some(at) => shard.due.push_back((at, number)),
                    None => shard.forget(number),
                }
            }
        }
    }

    /// The permits of `key` that are out, the oldest first, at most `most`.
    pub(crate) fn of_key<T>(
        &self,
        key: &Key,
        most: usize,
        show: impl Fn(Number, &Out) -> T,
    ) -> Vec<T> {
        let mut found = Vec::new();
        for shard in &self.shards {
            for (&number, entry) in &shard.lock().entries {
                if let Entry::Out(out) = entry
                    && out.key == *key
                    && !out.expired
                {
                    found.push((out.start, Number(number), show(Number(number), out)));
                }
            }
        }
        found.sort_unstable_by_key(|(start, number, _)| (*start, *number));
        found.truncate(most);
        found.into_iter().map(|(_, _, shown)| shown).collect()
    }
}

impl Shard {
    pub(crate) fn get(&mut self, number: Number) -> Option<&mut Entry> {
        self.entries.get_mut(&number.0)
    }

    fn forget(&mut self, number: Number) {
        if let Some(Entry::Out(out)) = self.entries.remove(&number.0)
            && let Some(permit) = out.permit
        {
            permit.abandon();
        }
    }
}
