//! Which state is it?
//!
//! A key that is kept remembers where its state was found, and a permit whose lease it is. Either may be asked for after that slot
//! has been another's, and a key in another limiter: so each state has a number that no other in this process has.

use std::sync::atomic::{AtomicU64, Ordering};

/// So many states have a number of their own. Those born later share theirs with others, though not within a permit's life.
const UNIQUE: u32 = 1 << 31;

static BIRTHS: AtomicU64 = AtomicU64::new(0);

/// A state's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Birth(u32);

impl Birth {
    pub(crate) fn new() -> Self {
        Self::nth(BIRTHS.fetch_add(1, Ordering::Relaxed))
    }

    const fn nth(births: u64) -> Self {
        if births < UNIQUE as u64 {
            Self(births as u32)
        } else {
            Self(births as u32 | UNIQUE)
        }
    }

    /// Its number, if no other state has it.
    pub(crate) fn unique(self) -> Option<u32> {
        (self.0 < UNIQUE).then_some(self.0)
    }

    /// Is it the one of this number?
    #[inline]
    pub(crate) fn is(self, number: u64) -> bool {
        u64::from(self.0) == number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_its_own_end_after_two_billion_births() {
        let last = Birth::nth(u64::from(UNIQUE) - 1);
        assert_eq!(last.unique(), Some(UNIQUE - 1));
        let later = [0, 1, u64::from(UNIQUE)].map(|n| Birth::nth(u64::from(UNIQUE) + n));
        assert!(later.iter().all(|birth| birth.unique().is_none()));
        assert_ne!(later[0], later[1], "a permit's slot tells them apart");
    }
}
