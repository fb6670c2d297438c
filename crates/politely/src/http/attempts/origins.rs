//! A small set of origins, for facts that the next request needs.

use std::fmt;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::fast::RandomState;
use url::Url;

/// Number of origins remembered: 8 KiB. A forgotten origin costs one repeated request.
const SLOTS: usize = 1024;

/// A set of up to 1,024 origins (scheme, host and port) that threads share. An origin may be
/// forgotten when another is added.
pub struct Origins {
    slots: Box<[AtomicU64]>,
    hasher: RandomState,
}

impl Default for Origins {
    fn default() -> Self {
        Self {
            slots: (0..SLOTS).map(|_| AtomicU64::new(0)).collect(),
            hasher: RandomState::default(),
        }
    }
}

impl Origins {
    /// Returns the name of the origin of `url` in this set.
    pub fn origin(&self, url: &Url) -> u64 {
        let origin = (url.scheme(), url.host_str(), url.port_or_known_default());
        self.hasher.hash_one(origin) | 1
    }

    /// Adds an origin.
    pub fn add(&self, origin: u64) {
        self.slot(origin).store(origin, Ordering::Relaxed);
    }

    /// Returns whether the set has an origin.
    pub fn has(&self, origin: u64) -> bool {
        self.slot(origin).load(Ordering::Relaxed) == origin
    }

    pub(crate) fn remove(&self, origin: u64) {
        let slot = self.slot(origin);
        let _ = slot.compare_exchange(origin, 0, Ordering::Relaxed, Ordering::Relaxed);
    }

    fn slot(&self, origin: u64) -> &AtomicU64 {
        &self.slots[(origin >> 32) as usize % SLOTS]
    }
}

impl fmt::Debug for Origins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Origins").finish_non_exhaustive()
    }
}
