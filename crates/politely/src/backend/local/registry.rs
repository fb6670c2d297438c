//! The registry: all keys of one process, in shards, with a bounded number.
//!
//! A shard is a mutex around a slab of states and an index from the hash of a key to its slot. A
//! key that was used before stores its shard, slot and generation ([`Key::place`]), and so does a
//! permit. Neither has to hash or compare a text. The slab grows chunk by chunk, since a million
//! idle keys should cost only what they hold. `registry/shard.rs` is one shard, and
//! `registry/room.rs` bounds the number of keys.

mod room;
mod shard;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use politely_core::Timestamp;
use politely_core::config::Config;
use politely_core::host::Host;
use politely_core::key::Key;

use super::generation::Generation;
use crate::clock::Clock;
use crate::saved_states::SavedStates;
use crate::sync::{AtomicU64, AtomicUsize, Mutex, MutexGuard};
pub(crate) use shard::{Entry, Shard, Slot};
use shard::{hash_key, hash_of};

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
            Arc::new(SharedShard {
                clock: clock.clone(),
                state: Mutex::new(Shard::new(Arc::clone(config), seed)),
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
