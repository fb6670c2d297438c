//! The keys that each client created, and a cap on their number.
//!
//! A client at its cap gets room for new keys when its idle keys are evicted. That is tried at most
//! once per [`EVICT_EVERY`], because it visits all keys. A key that was restored after a restart
//! counts for no client.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use hashbrown::{HashMap, HashSet};
use parking_lot::Mutex;
use politely::Limiter;
use politely::core::Timestamp;
use politely::core::key::Key;

/// The shortest time between two evictions of idle keys.
const EVICT_EVERY: Duration = Duration::from_secs(1);

type Hashes = HashSet<u64, foldhash::fast::RandomState>;

/// The number of keys that each client created, by the hash of its name.
#[derive(Default)]
pub(crate) struct KeyOwners {
    most: AtomicUsize,
    hasher: foldhash::quality::RandomState,
    state: Mutex<State>,
    refused: AtomicU64,
}

#[derive(Default)]
struct State {
    /// The hashes of the keys that each client created. Some keys may be evicted by now.
    clients: HashMap<u64, Hashes, foldhash::fast::RandomState>,
    /// The earliest time of the next eviction.
    next: Timestamp,
}

/// A client has as many keys as the cap allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooManyKeys {
    pub(crate) most: usize,
}

impl KeyOwners {
    /// Creates an empty table that allows each client `most` keys.
    pub(crate) fn new(most: usize) -> Self {
        let owners = Self::default();
        owners.set_most(most);
        owners
    }

    /// Changes the cap for keys that are created from now on.
    pub(crate) fn set_most(&self, most: usize) {
        self.most.store(most, Ordering::Relaxed);
    }

    /// Returns the number of requests for a new key that were refused.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Counts those of `keys` that `limiter` does not know for `client`, which is about to create
    /// them.
    ///
    /// # Errors
    /// The client would exceed the cap. Then none is counted.
    pub(crate) fn take(
        &self,
        client: &str,
        keys: &[Key],
        limiter: &Limiter,
        now: Timestamp,
    ) -> Result<(), TooManyKeys> {
        if keys.iter().all(|key| limiter.knows(key)) {
            return Ok(());
        }
        let new = keys.iter().filter(|key| !limiter.knows(key));
        let new: Hashes = new.map(|key| self.hasher.hash_one(key.as_str())).collect();
        let client = self.hasher.hash_one(client);
        let mut state = self.state.lock();
        if self.insert(&mut state, client, &new) {
            return Ok(());
        }
        if state.next <= now {
            state.next = now + EVICT_EVERY;
            self.evict_idle(&mut state, client, limiter);
            if self.insert(&mut state, client, &new) {
                return Ok(());
            }
        }
        drop(state);
        self.refused.fetch_add(1, Ordering::Relaxed);
        let most = self.most.load(Ordering::Relaxed);
        Err(TooManyKeys { most })
    }

    /// Adds `new` to the keys of `client`. Returns `false` and adds none beyond the cap.
    fn insert(&self, state: &mut State, client: u64, new: &Hashes) -> bool {
        let most = self.most.load(Ordering::Relaxed);
        let owned = state.clients.get(&client);
        let more = new
            .iter()
            .filter(|hash| owned.is_none_or(|owned| !owned.contains(*hash)));
        if owned.map_or(0, Hashes::len) + more.count() > most {
            return false;
        }
        state.clients.entry(client).or_default().extend(new);
        true
    }

    /// Evicts idle keys of `client`, and forgets those that are not known any more.
    fn evict_idle(&self, state: &mut State, client: u64, limiter: &Limiter) {
        let Some(owned) = state.clients.get(&client) else {
            return;
        };
        limiter.evict_idle(|key| owned.contains(&self.hasher.hash_one(key.as_str())));
        // A client whose keys are all unknown by now is forgotten too.
        let mut known = Hashes::default();
        limiter.evict_idle(|key| {
            known.insert(self.hasher.hash_one(key.as_str()));
            false
        });
        state.clients.retain(|_, owned| {
            owned.retain(|hash| known.contains(hash));
            !owned.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use politely::Clock;
    use politely::core::config::Config;

    use super::*;

    fn key(name: &str) -> Key {
        Key::parse(name).unwrap()
    }

    #[test]
    fn a_client_creates_no_more_keys_than_its_cap() {
        let micros = Arc::new(AtomicU64::new(1_000_000_000));
        let now = Arc::clone(&micros);
        let clock = Clock::given(move || Timestamp::from_micros(now.load(Ordering::Relaxed)));
        let config = Config::fixed(1.0, 1.0);
        let limiter = Limiter::builder().config(config).clock(clock);
        let limiter = limiter.build().unwrap();
        let owners = KeyOwners::new(2);
        let full = Err(TooManyKeys { most: 2 });
        let ask = |client: &str, names: &[&str]| {
            let keys: Vec<_> = names.iter().map(|name| key(name)).collect();
            let taken = owners.take(client, &keys, &limiter, limiter.now());
            if taken.is_ok() {
                for key in &keys {
                    let _ = limiter.try_acquire(key).map(politely::Permit::abandon);
                }
            }
            taken
        };
        assert_eq!(ask("a", &["1.example"]), Ok(()));
        assert_eq!(
            ask("a", &["2.example", "3.example"]),
            full,
            "none of both is counted"
        );
        assert_eq!(ask("a", &["2.example"]), Ok(()));
        assert_eq!(ask("a", &["3.example"]), full);
        assert_eq!(
            ask("a", &["1.example", "2.example"]),
            Ok(()),
            "known keys stay"
        );
        assert_eq!(
            ask("b", &["3.example"]),
            Ok(()),
            "another client is not affected"
        );
        assert_eq!(ask("a", &["3.example"]), Ok(()), "it is known now");
        assert_eq!(owners.refused(), 2);
        // Once its leases have ended and its buckets are full, its idle keys make room.
        let day = Duration::from_hours(25).as_micros() as u64;
        micros.fetch_add(day, Ordering::Relaxed);
        assert_eq!(ask("a", &["4.example", "5.example"]), Ok(()));
        assert!(!limiter.knows(&key("1.example")) && limiter.knows(&key("3.example")));
    }
}
