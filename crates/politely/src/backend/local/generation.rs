//! Generations of states.
//!
//! A [`Key`](crate::Key) stores where its state was found, and a permit stores which state its
//! lease belongs to. Meanwhile the slot may hold another state, and the key may be used in another
//! limiter. So each state has a generation number that is unique in this process.

use std::sync::atomic::{AtomicU64, Ordering};

/// The number of states with a unique generation. Later states share theirs with others, but not
/// within the life of a permit.
const UNIQUE: u32 = 1 << 31;

static CREATED: AtomicU64 = AtomicU64::new(0);

/// The generation of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Generation(u32);

impl Generation {
    pub(crate) fn new() -> Self {
        Self::nth(CREATED.fetch_add(1, Ordering::Relaxed))
    }

    const fn nth(created: u64) -> Self {
        if created < UNIQUE as u64 {
            Self(created as u32)
        } else {
            Self(created as u32 | UNIQUE)
        }
    }

    /// Returns the generation if no other state has it.
    pub(crate) fn unique(self) -> Option<u32> {
        (self.0 < UNIQUE).then_some(self.0)
    }

    /// Returns whether this is the generation with this number.
    #[inline]
    pub(crate) fn is(self, number: u64) -> bool {
        u64::from(self.0) == number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_unique_for_two_billion_states() {
        let last = Generation::nth(u64::from(UNIQUE) - 1);
        assert_eq!(last.unique(), Some(UNIQUE - 1));
        let later = [0, 1, u64::from(UNIQUE)].map(|n| Generation::nth(u64::from(UNIQUE) + n));
        assert!(later.iter().all(|birth| birth.unique().is_none()));
        assert_ne!(later[0], later[1], "a permit's slot tells them apart");
    }
}
