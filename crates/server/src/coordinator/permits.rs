//! The granted permits by number, and the answers to their reports.
//!
//! A permit's number is its name on the wire, or a part of it. The number begins with the number of
//! the coordinator's start, so it is never used twice. A repeated report gets the answer of the
//! first one while that is remembered.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::{Mutex, MutexGuard};
use politely::core::Timestamp;
use politely::core::key::Key;
use politely::core::lock::SessionId;
use politely::core::signal::Resource;
use politely::{Permit, Plan, Slot};

use super::answers::{Answered, Answers};
use super::names::{Name, Number};
use super::signer::Signer;
use crate::watch::Worker;

const SHARDS: u64 = 64;
/// Bits for the numbers of one start of the coordinator.
const BOOT_SHIFT: u32 = 40;
/// The time for which an expired permit is remembered, so that a late report still finds its key.
const LATE: Duration = Duration::from_mins(1);

/// One granted slot.
pub(crate) struct Out {
    /// The permit, until its outcome is known.
    pub(crate) permit: Option<Permit>,
    /// The slot and the answer to its report, from the response's head until its body has ended.
    pub(crate) heard: Option<Box<(Slot, Answered)>>,
    /// Whether its lease has ended. It is kept for a late report.
    pub(crate) expired: bool,
    pub(crate) key: Key,
    /// The further keys that it was granted for.
    pub(crate) others: Box<[Key]>,
    pub(crate) worker: Arc<Worker>,
    pub(crate) wish: u64,
    pub(crate) start: Timestamp,
    pub(crate) until: Timestamp,
    pub(crate) interval: Duration,
    /// The number of slots that were granted together, this one included.
    pub(crate) slots: u16,
    /// The URL that its item named. `None` for several slots, and after a restart.
    pub(crate) resource: Option<Resource>,
    /// What the policy said about its request. `None` after a restart.
    pub(crate) plan: Option<Arc<Plan>>,
    /// The session that the permit ends with.
    pub(crate) session: Option<SessionId>,
}

/// The entry of a permit number.
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
    /// Creates an empty table for the coordinator's start number `boot`.
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

    /// Reserves `count` consecutive new numbers and returns the first.
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

    /// Adds a permit that another coordinator granted. Returns `false` and abandons `out` if
    /// another call has added it already.
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

    /// Removes a permit if `worker` holds it.
    pub(crate) fn take(&self, number: Number, worker: &Worker) -> Option<Out> {
        let mut shard = self.shard(number);
        if !shard.out.get(&number.0)?.is_held_by(worker) {
            return None;
        }
        self.remove(&mut shard, number)
    }

    /// Binds a permit to a session.
    pub(crate) fn bind(&self, number: Number, session: SessionId) {
        if let Some(Entry::Out(out)) = self.shard(number).get(number) {
            out.session = Some(session);
        }
    }

    /// Removes the permits of a session. Looks at all granted permits.
    pub(crate) fn take_of_session(&self, session: SessionId) -> Vec<(Number, Out)> {
        let mut taken = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock();
            let of_session = |_: &u64, out: &mut Out| out.session == Some(session);
            for (number, out) in shard.out.extract_if(of_session) {
                self.live
                    .fetch_sub(u64::from(!out.expired), Ordering::Relaxed);
                taken.push((Number(number), out));
            }
        }
        taken
    }

    /// Returns whether this slot has not ended and was granted for `wish`.
    pub(crate) fn is_of_wish(&self, number: Number, wish: u64) -> bool {
        match self.shard(number).get(number) {
            Some(Entry::Out(out)) => out.wish == wish,
            _ => false,
        }
    }

    /// Removes a reported permit and remembers the answer to its report.
    pub(crate) fn settle(&self, shard: &mut Shard, number: Number, answered: Answered) {
        self.remove(shard, number);
        // The numbers in a shard are `SHARDS` apart, so the quotients are consecutive.
        shard.answers.put(number.0 / SHARDS, answered);
    }

    fn remove(&self, shard: &mut Shard, number: Number) -> Option<Out> {
        let out = shard.out.remove(&number.0)?;
        self.live
            .fetch_sub(u64::from(!out.expired), Ordering::Relaxed);
        Some(out)
    }

    /// Abandons all granted permits without ending their leases, so that other coordinators can
    /// adopt them.
    pub(crate) fn abandon(&self) {
        for shard in &self.shards {
            for (_, out) in shard.lock().out.drain() {
                self.live
                    .fetch_sub(u64::from(!out.expired), Ordering::Relaxed);
                out.abandon();
            }
        }
    }

    /// Expires permits whose leases have ended, calls `expired` with each, and forgets them after
    /// [`LATE`]. Returns those that it forgets.
    ///
    /// Looks at all granted permits, which are few compared with the permits that come and go
    /// between two sweeps.
    pub(crate) fn sweep(&self, now: Timestamp, mut expired: impl FnMut(&Out)) -> Vec<u64> {
        let mut forgotten = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock();
            for (number, out) in shard.out.extract_if(|_, out| {
                if !out.expired && out.until <= now {
                    out.expired = true;
                    self.live.fetch_sub(1, Ordering::Relaxed);
                    expired(out);
                }
                out.expired && out.until + LATE <= now
            }) {
                forgotten.push(number);
                out.abandon();
            }
        }
        forgotten
    }

    /// Returns at most `most` granted permits of `key`, oldest first.
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
    /// Returns a permit of one slot that `worker` holds for `keys`, the first of which gets its
    /// outcome.
    ///
    /// # Panics
    /// If there are no keys.
    pub(super) fn new(
        permit: Permit,
        keys: &[Key],
        worker: Arc<Worker>,
        start: Timestamp,
        lease: Duration,
    ) -> Self {
        Self {
            permit: Some(permit),
            heard: None,
            expired: false,
            key: keys[0].clone(),
            others: keys[1..].into(),
            worker,
            wish: 0,
            start,
            until: start + lease,
            interval: Duration::ZERO,
            slots: 1,
            resource: None,
            plan: None,
            session: None,
        }
    }

    /// Returns the keys that it was granted for.
    pub(super) fn keys(&self) -> impl Iterator<Item = Key> {
        std::iter::once(&self.key).chain(&self.others).cloned()
    }

    /// Drops the permit without ending its leases.
    pub(crate) fn abandon(self) {
        if let Some(permit) = self.permit {
            permit.abandon();
        }
        if let Some(heard) = self.heard {
            heard.0.abandon();
        }
    }

    /// Returns the signed name of the permit with this number.
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

    /// Returns whether `worker` holds it. Compares names, because a worker's counts may have been
    /// dropped and created again.
    pub(crate) fn is_held_by(&self, worker: &Worker) -> bool {
        self.worker.name() == worker.name()
    }
}
