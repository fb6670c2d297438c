//! The registry: all keys of one process, in shards, with a bounded number.
//!
//! A shard is a mutex around a slab of states and an index from the hash of a key to its slot. A
//! key that was used before stores its shard, slot and generation ([`Key::place`]), and so does a
//! permit. Neither has to hash or compare a text. The slab grows chunk by chunk, since a million
//! idle keys should cost only what they hold. `registry/room.rs` bounds their number.

mod room;

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use politely_core::config::Config;
use politely_core::gate::LeaseId;
use politely_core::host::{Grant, Host};
use politely_core::key::Key;
use politely_core::{Rng, Timestamp};

use super::generation::Generation;
use super::index::Index;
use super::slab::Slab;
use super::waiters::Waiters;
use crate::clock::Clock;
use crate::saved_states::SavedStates;
use crate::snapshot::Snapshot;
use crate::stats::Stats;
use crate::sync::{AtomicU64, AtomicUsize, Mutex, MutexGuard};

/// The number of shards. It is high enough that two threads seldom meet. With one thread it was
/// measured no slower (research: 64 against 1,024).
const SHARDS: usize = 64;

pub(crate) struct Registry {
    shards: Box<[Arc<SharedShard>]>,
    hasher: foldhash::fast::RandomState,
    keys: AtomicUsize,
    capacity: usize,
    /// The time, in microseconds, until which no key is checked for eviction. It is set when no key
    /// could go.
    full_until: AtomicU64,
    /// The states of keys that left memory.
    saved_states: Option<Arc<dyn SavedStates>>,
}

/// A shard behind its lock. Permits share the ownership of their shard. So two threads with permits
/// of different keys do not contend for one reference count.
pub(crate) struct SharedShard {
    pub(crate) clock: Clock,
    state: Mutex<Shard>,
}

impl SharedShard {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Shard> {
        self.state.lock()
    }
}

pub(crate) struct Shard {
    index: Index,
    slots: Slab<Slot>,
    /// The slot at which the search for a key to evict goes on.
    hand: u32,
    /// The slots that learned since [`Shard::take_learned`] was last called, each once. Some may be
    /// empty by now.
    learned: Vec<u32>,
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
    own: bool,
    /// Whether nothing was learned since the last snapshot.
    pub(crate) saved: bool,
    /// Whether the slot is on the shard's list of learned slots.
    listed: bool,
}

const _: () = assert!(size_of::<Slot>() == 256, "a slot has four cache lines");

/// The registry is full of keys that cannot be evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no room for another key")]
pub struct Full;

impl Registry {
    pub(crate) fn new(
        config: &Arc<Config>,
        clock: &Clock,
        capacity: usize,
        seed: u64,
        saved_states: Option<Arc<dyn SavedStates>>,
    ) -> Self {
        let shard = |_| {
            let state = Shard {
                index: Index::default(),
                slots: Slab::new(),
                hand: 0,
                learned: Vec::new(),
                config: Arc::clone(config),
                own: BTreeMap::new(),
                snapshots: 0,
                seed,
                stats: Stats::default(),
            };
            Arc::new(SharedShard {
                clock: clock.clone(),
                state: Mutex::new(state),
            })
        };
        Self {
            shards: (0..SHARDS).map(shard).collect(),
            hasher: foldhash::fast::RandomState::default(),
            keys: AtomicUsize::new(0),
            capacity,
            full_until: AtomicU64::new(0),
            saved_states,
        }
    }

    /// Returns the slot of `key` if the key is in memory.
    #[inline]
    pub(crate) fn find_in_memory(&self, key: &Key) -> Option<Found<'_>> {
        if let Some(found) = self.remembered(key.place()) {
            return Some(found);
        }
        let (shard, hash) = self.shard(key);
        let locked = self.shards[shard].lock();
        let slot = locked.find(key, hash)?;
        Some(self.found(key, shard, locked, slot))
    }

    /// Returns the slot of `key` if the key is known. A saved key comes back into memory if there
    /// is room.
    #[inline]
    pub(crate) fn find(&self, key: &Key, now: Timestamp) -> Option<Found<'_>> {
        if self.saved_states.is_none() {
            return self.find_in_memory(key);
        }
        self.find_or(key, now, |_| None).ok().flatten()
    }

    /// Returns what `read` returns of the state of `key`, if the key is known. A saved key stays
    /// out of memory.
    pub(crate) fn read<T>(
        &self,
        key: &Key,
        now: Timestamp,
        read: impl FnOnce(&mut Host, &Config) -> T,
    ) -> Option<T> {
        if let Some(mut found) = self.find_in_memory(key) {
            let entry = found.entry();
            return Some(read(entry.host, entry.config));
        }
        self.saved_states.as_ref()?;
        let (shard, _) = self.shard(key);
        let locked = self.shards[shard].lock();
        let mut host = self.load(key, now, &locked.config).ok()??;
        Some(read(&mut host, &locked.config))
    }

    /// Returns the slot of `key`, which is created if the key is new.
    pub(crate) fn find_or_make(&self, key: &Key, now: Timestamp) -> Result<Found<'_>, Full> {
        let new = |config: &Config| Some(Host::new(config, now));
        self.find_or(key, now, new)?.ok_or(Full)
    }

    /// Returns the slot of `key`. A key that is not in memory gets its saved state, or else the
    /// state that `make` returns.
    fn find_or(
        &self,
        key: &Key,
        now: Timestamp,
        make: impl FnOnce(&Config) -> Option<Host>,
    ) -> Result<Option<Found<'_>>, Full> {
        if let Some(found) = self.remembered(key.place()) {
            return Ok(Some(found));
        }
        let (shard, hash) = self.shard(key);
        let mut locked = self.shards[shard].lock();
        let slot = if let Some(slot) = locked.find(key, hash) {
            slot
        } else {
            let saved = self.load(key, now, &locked.config)?;
            let Some(host) = saved.or_else(|| make(&locked.config)) else {
                return Ok(None);
            };
            self.newcomer(&mut locked, key, hash, now, host)?
        };
        Ok(Some(self.found(key, shard, locked, slot)))
    }

    /// Replaces the state of `key`, or creates the key with this state.
    pub(crate) fn put(&self, key: &Key, now: Timestamp, host: Host) -> Result<(), Full> {
        let (shard, hash) = self.shard(key);
        let mut locked = self.shards[shard].lock();
        match locked.find(key, hash) {
            Some(slot) => locked.replace(slot, host),
            None => {
                self.newcomer(&mut locked, key, hash, now, host)?;
            }
        }
        Ok(())
    }

    /// Returns the slot at the place that a key stores, if the same state is still there.
    #[inline]
    fn remembered(&self, place: u64) -> Option<Found<'_>> {
        let (shared, slot) = self.believed(place)?;
        let mut shard = shared.lock();
        shard.remembered(slot, place)?;
        Some(Found {
            shared,
            shard,
            slot,
        })
    }

    /// Returns the slot that a key's [`Key::place`] points to. The slot may hold another key by
    /// now: [`Shard::remembered`] checks that.
    #[inline]
    pub(crate) fn believed(&self, place: u64) -> Option<(&Arc<SharedShard>, u32)> {
        let at = (place as u32).checked_sub(1)?;
        Some((&self.shards[at as usize % SHARDS], at / SHARDS as u32))
    }

    /// Stores in `key` where it was found, if that fits into one word.
    fn found<'a>(
        &'a self,
        key: &Key,
        at: usize,
        shard: MutexGuard<'a, Shard>,
        slot: u32,
    ) -> Found<'a> {
        let generation = shard
            .slots
            .get(slot)
            .and_then(|slot| slot.generation.unique());
        let place = u64::from(slot) * SHARDS as u64 + at as u64 + 1;
        let place = u32::try_from(place).ok().zip(generation);
        key.found_at(place.map_or(0, |(place, generation)| {
            u64::from(generation) << 32 | u64::from(place)
        }));
        Found {
            shared: &self.shards[at],
            shard,
            slot,
        }
    }

    /// Returns the number of the key's shard, and the key's hash for the shard's index.
    fn shard(&self, key: &Key) -> (usize, u64) {
        let hash = hash_key(key, &self.hasher);
        // The index uses the low half of the hash, and the shard number uses some of the high half.
        ((hash >> 40) as usize % SHARDS, hash)
    }

    pub(crate) fn shards(&self) -> &[Arc<SharedShard>] {
        &self.shards
    }

    /// Returns the configuration of keys that are not known yet.
    pub(crate) fn config(&self) -> Arc<Config> {
        Arc::clone(&self.shards[0].lock().config)
    }

    pub(crate) fn len(&self) -> usize {
        self.keys.load(Ordering::Relaxed)
    }

    #[cold]
    fn newcomer(
        &self,
        shard: &mut Shard,
        key: &Key,
        hash: u64,
        now: Timestamp,
        host: Host,
    ) -> Result<u32, Full> {
        if !self.count_one_more() && !self.make_room(shard, now) {
            return Err(Full);
        }
        let slot = Slot {
            key: key.clone(),
            host,
            generation: Generation::new(),
            waiters: None,
            own: false,
            saved: false,
            listed: false,
        };
        Ok(shard.insert(slot, hash, &self.hasher))
    }
}

impl Shard {
    #[inline]
    fn find(&self, key: &Key, hash: u64) -> Option<u32> {
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

    fn insert(&mut self, slot: Slot, hash: u64, hasher: &impl BuildHasher) -> u32 {
        let index = self.slots.insert(slot);
        let hash_of = |slot| hash_of(&self.slots, slot, hasher);
        self.index.insert(hash, index, hash_of);
        index
    }
}

/// The slot of a key, whose shard is locked.
pub(crate) struct Found<'a> {
    pub(crate) shared: &'a Arc<SharedShard>,
    pub(crate) shard: MutexGuard<'a, Shard>,
    pub(crate) slot: u32,
}

impl Found<'_> {
    #[inline]
    pub(crate) fn entry(&mut self) -> Entry<'_> {
        self.shard.get(self.slot)
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
fn hash_of(slots: &Slab<Slot>, slot: u32, hasher: &impl BuildHasher) -> u64 {
    let slot = slots.get(slot).expect("the index knows no empty slot");
    hash_key(&slot.key, hasher)
}

/// Hashes the bytes without the terminator that `str` adds. A key is hashed alone, so it needs
/// none.
fn hash_key(key: &Key, hasher: &impl BuildHasher) -> u64 {
    let mut hash = hasher.build_hasher();
    hash.write(key.as_str().as_bytes());
    hash.finish()
}
