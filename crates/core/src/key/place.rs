//! A hint about where a key's state was found last.
//!
//! Among a million states, a look-up reads three cold cache lines: the key's name, a word of the
//! table, and the state. A key that is used again remembers the place and the identity of its
//! state. So the call neither waits for the table's word nor compares names. This saves a quarter
//! of the time of a call, as measured.

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A hint that has a meaning only to the registry that set it. Any two hints are equal.
#[derive(Debug)]
pub(super) struct Place(AtomicU64);

impl Place {
    pub(super) const fn unknown() -> Self {
        Self(AtomicU64::new(0))
    }

    #[inline]
    pub(super) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    #[inline]
    pub(super) fn set(&self, place: u64) {
        // An unchanged value is not stored again, so that threads that share a key do not
        // invalidate each other's cache lines.
        if self.get() != place {
            self.0.store(place, Relaxed);
        }
    }
}

impl Clone for Place {
    fn clone(&self) -> Self {
        Self(AtomicU64::new(self.get()))
    }
}

impl PartialEq for Place {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Place {}

impl Hash for Place {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl PartialOrd for Place {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Place {
    fn cmp(&self, _: &Self) -> Ordering {
        Ordering::Equal
    }
}
