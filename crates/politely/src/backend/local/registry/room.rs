//! Room for new keys: which key may leave memory, and how does it come back?
//!
//! **Bounded.** At capacity, a new key takes the place of a key that would lose nothing. Such a key
//! has no lease, waiter, hold, open breaker, consecutive refusals, debt or operator's number. It
//! has no learned ceiling that is neither saved nor a day old. If there is no such key, the new key
//! is refused. No hold is forgotten to make room.
//!
//! **Saved.** With [`SavedStates`](crate::SavedStates), a key whose state was saved after its last
//! change leaves even with refusals, debts and learned limits: its present state and its saved
//! state are the same bytes. When it is asked for, the saved state comes back. Such a registry
//! evicts no key whose saved state is out of date.

use std::sync::atomic::Ordering;
use std::time::Duration;

use politely_core::Timestamp;
use politely_core::config::Config;
use politely_core::host::Host;
use politely_core::key::Key;

use super::{Full, Registry, Shard, hash_key, hash_of};

/// A learned ceiling that was not saved is kept at least this long.
const LEARNED_KEPT: Duration = Duration::from_hours(24);
/// The number of keys that a full registry checks for eviction before it checks the whole shard.
const EVICTION_LOOKS: u32 = 32;
/// The pause after a check of all keys in vain. Without it, each unknown key would cost a full
/// walk.
const FULL_FOR: Duration = Duration::from_millis(50);

impl Registry {
    /// Returns the saved state of a key that is not in memory.
    ///
    /// The key's shard is locked, so the state is the one that was saved before the key left. A
    /// state that cannot be decoded counts as unknown.
    pub(super) fn load(
        &self,
        key: &Key,
        now: Timestamp,
        config: &Config,
    ) -> Result<Option<Host>, Full> {
        let Some(saved_states) = &self.saved_states else {
            return Ok(None);
        };
        // Without its saved state, the key would begin anew. So it is refused.
        let state = saved_states.state_of(key).map_err(|_| Full)?;
        let restored = state.and_then(|state| Host::restore(&state, now, config).ok());
        Ok(restored.map(|mut host| {
            host.forget_leases();
            host
        }))
    }

    /// Allows the next search for a key to evict: a key was saved, so it may go now.
    pub(crate) fn look_again(&self) {
        self.full_until.store(0, Ordering::Relaxed);
    }

    /// Evicts the keys for which `may_go` returns true, if that loses nothing.
    pub(crate) fn evict_idle(&self, now: Timestamp, may_go: &mut dyn FnMut(&Key) -> bool) {
        for shared in &self.shards {
            let mut shard = shared.lock();
            for slot in 0..shard.slots.len() {
                let known = shard.slots.get(slot).map(|slot| &slot.key);
                if known.is_some_and(&mut *may_go) && self.evict(&mut shard, slot, now) {
                    self.keys.fetch_sub(1, Ordering::Relaxed);
                }
            }
        }
        self.look_again();
    }

    /// Checks and counts in one atomic step. Otherwise two new keys could take the last place.
    pub(super) fn count_one_more(&self) -> bool {
        let one_more = |keys| (keys < self.capacity).then_some(keys + 1);
        self.keys
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more)
            .is_ok()
    }

    /// Evicts a key. Its place in the count goes to the new key.
    pub(super) fn make_room(&self, shard: &mut Shard, now: Timestamp) -> bool {
        if self.full_until.load(Ordering::Relaxed) > now.as_micros() {
            return false;
        }
        let here = self.evict_one(shard, now);
        // Other shards are tried only if they are not locked: two new keys must not wait for each
        // other.
        let made = here
            || self
                .shards
                .iter()
                .filter_map(|other| other.state.try_lock())
                .any(|mut other| self.evict_one(&mut other, now));
        if !made {
            let until = now + FULL_FOR;
            self.full_until.store(until.as_micros(), Ordering::Relaxed);
        }
        made
    }

    fn evict_one(&self, shard: &mut Shard, now: Timestamp) -> bool {
        let mut looks = EVICTION_LOOKS.min(shard.slots.len());
        let mut tried = 0;
        while tried < shard.slots.len() {
            if tried == looks {
                looks = shard.slots.len();
            }
            shard.hand = (shard.hand + 1) % shard.slots.len();
            tried += 1;
            if self.evict(shard, shard.hand, now) {
                return true;
            }
        }
        false
    }

    /// Evicts the key in slot `at` if that loses nothing. Returns whether it did.
    fn evict(&self, shard: &mut Shard, at: u32, now: Timestamp) -> bool {
        if !self.may_leave(shard, at, now) {
            return false;
        }
        let Some(slot) = shard.slots.get(at) else {
            return false;
        };
        let hash = hash_key(&slot.key, &self.hasher);
        let hash_of = |slot| hash_of(&shard.slots, slot, &self.hasher);
        shard.index.remove(hash, at, hash_of);
        shard.slots.remove(at);
        shard.stats.evicted += 1;
        shard.tidy();
        true
    }

    /// Returns whether nothing is lost when the key in slot `at` leaves memory.
    fn may_leave(&self, shard: &mut Shard, at: u32, now: Timestamp) -> bool {
        let Some(slot) = shard.slots.get_mut(at) else {
            return false;
        };
        if slot.waiters.is_some() || slot.own {
            return false;
        }
        let is_old = now.since(slot.host.last_grant()) >= LEARNED_KEPT;
        let Some(saved_states) = &self.saved_states else {
            let forgettable = slot.saved || is_old;
            return slot.host.evictable(now, forgettable, &shard.config);
        };
        // Something was learned that no snapshot has.
        let is_behind = slot.listed && !slot.saved;
        if is_behind || !slot.host.may_leave(now) {
            return false;
        }
        match saved_states.state_of(&slot.key) {
            Ok(Some(state)) if state == slot.host.snapshot() => true,
            Ok(None) if slot.host.evictable(now, is_old, &shard.config) => true,
            Ok(_) => {
                // The next save includes the key, which may leave after it.
                if !std::mem::replace(&mut slot.listed, true) {
                    shard.learned.push(at);
                }
                false
            }
            Err(_) => false,
        }
    }
}

impl Shard {
    /// Removes evicted keys from the list of learned slots once it is long, so that it cannot grow
    /// forever.
    fn tidy(&mut self) {
        if self.learned.len() > 2 * self.slots.len() as usize {
            self.learned.sort_unstable();
            self.learned.dedup();
            let slots = &self.slots;
            let listed = |slot: &u32| slots.get(*slot).is_some_and(|slot| slot.listed);
            self.learned.retain(listed);
        }
    }
}
