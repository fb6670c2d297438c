//! The permits that are out, by number, and what was answered to those that came back.
//!
//! A permit's number is its name on the wire, or part of it. It is never used twice: it begins with
//! how often this coordinator was started. A report is answered again as it was the first time, as
//! long as it is remembered.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::{Mutex, MutexGuard};
use politely::core::Timestamp;
use politely::core::key::Key;
use politely::{Permit, Slot};

use super::answers::{Answered, Answers};
use super::names::{Name, Number};
use super::signer::Signer;
use crate::watch::Worker;

const SHARDS: u64 = 64;
/// Numbers per start of the coordinator.
const BOOT_SHIFT: u32 = 40;
/// An expired permit is known this much longer, so that a late report still finds its key.
const LATE: Duration = Duration::from_mins(1);

/// One departure that was granted.
pub(crate) struct Out {
    /// Until its outcome is known.
    pub(crate) permit: Option<Permit>,
    /// From then on until its body has come, with what was answered.
    pub(crate) heard: Option<Box<(Slot, Answered)>>,
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

/// What is known of a number.
pub(crate) enum Entry<'a> {
    Out(&'a mut Out),
    Answered(&'a Answered),
}

pub(crate) struct Permits {
    shards: Box<[Mutex<Shard>]>,
    next: AtomicU64,
    live: AtomicU64,
}

#[derive(Default)]
pub(crate) struct Shard {
    out: HashMap<u64, Out, foldhash::fast::RandomState>,
    answers: Answers,
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
        self.shard(number).out.insert(number.0, out);
    }

    /// Puts a permit that was granted elsewhere, unless another call was faster: then the one that
    /// it put stays.
    pub(crate) fn put_adopted(&self, number: Number, out: Out) -> bool {
        let mut shard = self.shard(number);
        if shard.get(number).is_some() {
            out.abandon();
            return false;
        }
        self.live
            .fetch_add(u64::from(!out.expired), Ordering::Relaxed);
        shard.out.insert(number.0, out);
        true
    }

    /// Takes a permit that `worker` holds off the list for good.
    pub(crate) fn take(&self, number: Number, worker: &Worker) -> Option<Out> {
        let mut shard = self.shard(number);
        if !shard.out.get(&number.0)?.is_held_by(worker) {
            return None;
        }
        self.remove(&mut shard, number)
    }

    /// Whether this departure is out and was granted for `wish`.
    pub(crate) fn is_of_wish(&self, number: Number, wish: u64) -> bool {
        match self.shard(number).get(number) {
            Some(Entry::Out(out)) => out.wish == wish,
            _ => false,
        }
    }

    /// Takes what was reported off the list and remembers what was answered.
    pub(crate) fn settle(&self, shard: &mut Shard, number: Number, answered: Answered) {
        self.remove(shard, number);
        // Of those in this shard: their numbers are this far apart.
        shard.answers.put(number.0 / SHARDS, answered);
    }

    fn remove(&self, shard: &mut Shard, number: Number) -> Option<Out> {
        let out = shard.out.remove(&number.0)?;
        self.live
            .fetch_sub(u64::from(!out.expired), Ordering::Relaxed);
        Some(out)
    }

    /// Lets go of all that are out: their leases are whoever's comes with them.
    pub(crate) fn abandon(&self) {
        for shard in &self.shards {
            for (_, out) in shard.lock().out.drain() {
                self.live
                    .fetch_sub(u64::from(!out.expired), Ordering::Relaxed);
                out.abandon();
            }
        }
    }

    /// Calls `gone` with each permit whose lease ran out and, a while later, forgets it. Looks at
    /// all that are out: they are few beside those that come and go meanwhile.
    pub(crate) fn sweep(&self, now: Timestamp, mut gone: impl FnMut(Number, &Out)) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            for (_, out) in shard.out.extract_if(|number, out| {
                if !out.expired && out.until <= now {
                    out.expired = true;
                    self.live.fetch_sub(1, Ordering::Relaxed);
                    gone(Number(*number), out);
                }
                // A body that never came leaves nothing to report.
                out.expired && (out.permit.is_none() || out.until + LATE <= now)
            }) {
                if let Some(permit) = out.permit {
                    permit.abandon();
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
            for (&number, out) in &shard.lock().out {
                if out.key == *key && !out.expired {
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
    pub(crate) fn get(&mut self, number: Number) -> Option<Entry<'_>> {
        let Self { out, answers } = self;
        match out.get_mut(&number.0) {
            Some(out) => Some(Entry::Out(out)),
            None => answers.get(number.0 / SHARDS).map(Entry::Answered),
        }
    }
}

impl Out {
    /// Its leases are left to themselves.
    pub(crate) fn abandon(self) {
        if let Some(permit) = self.permit {
            permit.abandon();
        }
        if let Some(heard) = self.heard {
            heard.0.abandon();
        }
    }

    /// The name under which its holder reports it, if it has this number.
    pub(super) fn name(&self, number: Number, signer: &Signer) -> Name {
        let leases = self.permit.as_ref().map_or_else(Vec::new, Permit::leases);
        let name = Name {
            number,
            slots: self.slots,
            mac: None,
            leases,
        };
        signer.sign(self.worker.name(), name)
    }

    /// Returns whether `worker` holds it. Names are compared, as books give way to others' books.
    pub(crate) fn is_held_by(&self, worker: &Worker) -> bool {
        self.worker.name() == worker.name()
    }
}
