//! One shard: the slots of its keys, and the index from the hash of a key to its slot.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use politely_core::config::Config;
use politely_core::gate::LeaseId;
use politely_core::host::{Grant, Host};
use politely_core::key::Key;
use politely_core::{Rng, Timestamp};

use crate::backend::local::generation::Generation;
use crate::backend::local::index::Index;
use crate::backend::local::slab::Slab;
use crate::backend::local::waiters::Waiters;
use crate::snapshot::Snapshot;
use crate::stats::Stats;

pub(crate) struct Shard {
    pub(super) index: Index,
    pub(super) slots: Slab<Slot>,
    /// The slot at which the search for a key to evict goes on.
    pub(super) hand: u32,
    /// The slots that learned since [`Shard::take_learned`] was last called, each once. Some may be
    /// empty by now.
    pub(super) learned: Vec<u32>,
    pub(crate) config: Arc<Config>,
    /// The configurations that differ from that of all keys, by slot.
    own: BTreeMap<u32, Arc<Config>>,
    /// The version of the last snapshot of any key in this shard.
    pub(crate) snapshots: u64,
    /// The seed that makes random choices repeatable.
    seed: u64,
    pub(crate) stats: Stats,
}

/// A key's state in four cache lines and no more: a call that misses the cache loads each of them.
#[repr(align(64))]
pub(crate) struct Slot {
    pub(crate) key: Key,
    pub(crate) host: Host,
    pub(crate) generation: Generation,
    pub(crate) waiters: Option<Box<Waiters>>,
    /// Whether the key has its own configuration.
    pub(super) own: bool,
    /// Whether nothing was learned since the last snapshot.
    pub(crate) saved: bool,
    /// Whether the slot is on the shard's list of learned slots.
    pub(super) listed: bool,
}

const _: () = assert!(size_of::<Slot>() == 256, "a slot has four cache lines");

impl Shard {
    pub(super) fn new(config: Arc<Config>, seed: u64) -> Self {
        Self {
            index: Index::default(),
            slots: Slab::new(),
            hand: 0,
            learned: Vec::new(),
            config,
            own: BTreeMap::new(),
            snapshots: 0,
            seed,
            stats: Stats::default(),
        }
    }

    #[inline]
    pub(super) fn find(&self, key: &Key, hash: u64) -> Option<u32> {
        self.index.find(hash, |slot| {
            self.slots.get(slot).is_some_and(|slot| slot.key == *key)
        })
    }

    /// Returns the entry of a key that was found or inserted under this lock.
    ///
    /// # Panics
    /// If the slot is empty.
    #[inline]
    pub(crate) fn get(&mut self, slot: u32) -> Entry<'_> {
        self.entry(slot)
            .expect("the slot was found under this lock")
    }

    #[inline]
    fn entry(&mut self, slot: u32) -> Option<Entry<'_>> {
        let Slot {
            key,
            host,
            generation,
            waiters,
            own,
            saved,
            listed,
        } = self.slots.get_mut(slot)?;
        let own = own.then(|| &self.own[&slot]);
        let config = own.unwrap_or(&self.config);
        let (generation, seed, stats) = (*generation, self.seed, &mut self.stats);
        Some(Entry {
            key,
            host,
            config,
            slot,
            generation,
            waiters,
            saved,
            listed,
            learned: &mut self.learned,
            seed,
            stats,
        })
    }

    /// Returns the keys that learned since the last call, with their states.
    pub(crate) fn take_learned(&mut self) -> Vec<(Key, Snapshot)> {
        let learned = std::mem::take(&mut self.learned);
        self.snapshots += 1;
        let version = self.snapshots;
        let states = learned.into_iter().filter_map(|slot| {
            let slot = self.slots.get_mut(slot)?;
            if !std::mem::replace(&mut slot.listed, false) {
                return None;
            }
            slot.saved = true;
            let state = slot.host.snapshot();
            Some((slot.key.clone(), Snapshot { version, state }))
        });
        states.collect()
    }

    /// Sets `config` for all keys that have no configuration of their own.
    pub(crate) fn reconfigure(&mut self, config: &Arc<Config>, now: Timestamp) {
        let old = std::mem::replace(&mut self.config, Arc::clone(config));
        for slot in 0..self.slots.len() {
            let Some(known) = self.slots.get_mut(slot) else {
                continue;
            };
            if known.own {
                continue;
            }
            known.host.reconfigure(now, &old, config);
            if let Some(waiters) = &known.waiters {
                waiters.wake_head();
            }
        }
    }

    /// Gives the key in `slot` a configuration of its own, and begins its state anew.
    pub(crate) fn configure(&mut self, slot: u32, config: &Arc<Config>, now: Timestamp) {
        if let Some(known) = self.slots.get_mut(slot) {
            known.own = true;
            self.own.insert(slot, Arc::clone(config));
            self.replace(slot, Host::new(config, now));
        }
    }

    /// Replaces the state in `slot`. The new state numbers its leases anew and gets a new
    /// generation, so that permits of the old state cannot reach it. The head of the queue looks
    /// again.
    pub(crate) fn replace(&mut self, slot: u32, host: Host) {
        if let Some(slot) = self.slots.get_mut(slot) {
            slot.host = host;
            slot.generation = Generation::new();
            slot.saved = false;
            if let Some(waiters) = &slot.waiters {
                waiters.wake_head();
            }
        }
    }

    /// Returns the entry in `slot`, if it has the generation in `place`.
    #[inline]
    pub(crate) fn remembered(&mut self, slot: u32, place: u64) -> Option<Entry<'_>> {
        self.entry(slot)
            .filter(|entry| entry.generation.is(place >> 32))
    }

    /// Calls [`Host::pass`] of the state that `place` points to. Returns `None` if the key has
    /// waiters or a configuration of its own.
    #[inline(always)]
    pub(crate) fn pass(
        &mut self,
        slot: u32,
        place: u64,
        now: Timestamp,
    ) -> Option<(Generation, Grant)> {
        let known = self.slots.get_mut(slot)?;
        if known.own || known.waiters.is_some() || !known.generation.is(place >> 32) {
            return None;
        }
        let grant = known.host.pass(now, &self.config)?;
        self.stats.granted += 1;
        Some((known.generation, grant))
    }

    /// Returns the entry in `slot` if it is still of this `generation`.
    pub(crate) fn entry_of(&mut self, slot: u32, generation: Generation) -> Option<Entry<'_>> {
        self.entry(slot)
            .filter(|entry| entry.generation == generation)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter()
    }

    /// Calls `visit` with every key and its entry.
    pub(crate) fn each(&mut self, mut visit: impl FnMut(&Key, Entry<'_>)) {
        for slot in 0..self.slots.len() {
            if let Some(key) = self.slots.get(slot).map(|slot| slot.key.clone()) {
                visit(&key, self.get(slot));
            }
        }
    }

    /// Returns the bytes held, from capacities. Long keys and queues hold a little more.
    pub(crate) fn memory(&self) -> usize {
        self.slots.memory() + self.index.memory()
    }

    pub(super) fn insert(&mut self, slot: Slot, hash: u64, hasher: &impl BuildHasher) -> u32 {
        let index = self.slots.insert(slot);
        let hash_of = |slot| hash_of(&self.slots, slot, hasher);
        self.index.insert(hash, index, hash_of);
        index
    }
}

/// A slot in use, with everything that the methods of its host need.
pub(crate) struct Entry<'a> {
    pub(crate) key: &'a Key,
    pub(crate) host: &'a mut Host,
    pub(crate) config: &'a Config,
    pub(crate) slot: u32,
    pub(crate) generation: Generation,
    pub(crate) waiters: &'a mut Option<Box<Waiters>>,
    pub(crate) saved: &'a mut bool,
    listed: &'a mut bool,
    learned: &'a mut Vec<u32>,
    seed: u64,
    pub(crate) stats: &'a mut Stats,
}

impl Entry<'_> {
    /// Returns the random numbers for the report of a permit.
    pub(crate) fn rng(&self, lease: LeaseId) -> Rng {
        Rng::of_lease(self.seed, lease)
    }

    /// Marks the state as changed since the last snapshot.
    pub(crate) fn learned(&mut self) {
        *self.saved = false;
        if !*self.listed {
            *self.listed = true;
            self.learned.push(self.slot);
        }
    }
}

/// Returns the hash of the key in a slot of the index.
pub(super) fn hash_of(slots: &Slab<Slot>, slot: u32, hasher: &impl BuildHasher) -> u64 {
    let slot = slots.get(slot).expect("the index knows no empty slot");
    hash_key(&slot.key, hasher)
}

/// Hashes the bytes without the terminator that `str` adds. A key is hashed alone, so it needs
/// none.
pub(super) fn hash_key(key: &Key, hasher: &impl BuildHasher) -> u64 {
    let mut hash = hasher.build_hasher();
    hash.write(key.as_str().as_bytes());
    hash.finish()
}
