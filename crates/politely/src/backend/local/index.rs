//! The index from a key's hash to its slot, with one memory access per look-up.
//!
//! A million keys are far more than a cache holds. So the cost of a call depends on the number of
//! cold cache lines that it loads one after the other. It also depends on the number of pages that
//! they lie in. A general hash table loads two lines: its control bytes, then its bucket. Here one
//! word of four bytes is enough.
//!
//! In a table of 2^b words, the low b bits of a word are the slot plus one. The other bits are
//! those of the hash. The low b bits of the hash determine where the search begins, so they are not
//! stored. To move a word, its key must be hashed again. That happens only when a table grows or
//! loses a key.
//!
//! The table uses linear probing and is at most three quarters full. A removal closes the gap, so
//! there are no tombstones.

/// A hash table with open addressing over a power of two of words. Zero marks an empty word.
#[derive(Debug, Default)]
pub(crate) struct Index {
    words: Vec<u32>,
    len: usize,
}

/// The minimum number of words.
const WORDS_MIN: usize = 16;

impl Index {
    /// Returns the slot of `hash` for which `is_it` returns `true`.
    #[inline]
    pub(crate) fn find(&self, hash: u64, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        self.position(hash, is_it).map(|at| self.slot(at))
    }

    /// Inserts a new slot. `hash_of` returns the hash of a slot that is in the index.
    pub(crate) fn insert(&mut self, hash: u64, slot: u32, hash_of: impl Fn(u32) -> u64) {
        // The slot's number stays below three quarters of the words too, so it fits beside the tag.
        let least = (self.len.max(slot as usize) + 1) * 4 / 3 + 1;
        if least > self.words.len() {
            let slots: Vec<u32> = self.slots().collect();
            self.words = vec![0; least.next_power_of_two().max(WORDS_MIN)];
            for slot in slots {
                self.put(hash_of(slot), slot);
            }
        }
        self.len += 1;
        self.put(hash, slot);
    }

    /// Removes a slot. `hash_of` returns the hash of a slot that is in the index.
    pub(crate) fn remove(&mut self, hash: u64, gone: u32, hash_of: impl Fn(u32) -> u64) {
        let Some(mut gap) = self.position(hash, |slot| slot == gone) else {
            return;
        };
        self.len -= 1;
        let mut at = gap;
        loop {
            at = self.next(at);
            if self.words[at] == 0 {
                break;
            }
            // A word may move into the gap if a search for it passes the gap.
            let home = self.home(hash_of(self.slot(at)));
            let from_home = at.wrapping_sub(home) & self.mask();
            if from_home >= at.wrapping_sub(gap) & self.mask() {
                self.words[gap] = self.words[at];
                gap = at;
            }
        }
        self.words[gap] = 0;
    }

    /// Returns the bytes held.
    pub(crate) fn memory(&self) -> usize {
        self.words.capacity() * size_of::<u32>()
    }

    #[inline]
    fn position(&self, hash: u64, is_it: impl Fn(u32) -> bool) -> Option<usize> {
        let mask = self.words.len().checked_sub(1)?;
        let mut at = hash as usize & mask;
        loop {
            let word = self.words[at];
            if word == 0 {
                return None;
            }
            if (word ^ hash as u32) & !(mask as u32) == 0 && is_it((word & mask as u32) - 1) {
                return Some(at);
            }
            at = (at + 1) & mask;
        }
    }

    fn put(&mut self, hash: u64, slot: u32) {
        let mut at = self.home(hash);
        while self.words[at] != 0 {
            at = self.next(at);
        }
        self.words[at] = (hash as u32 & !(self.mask() as u32)) | (slot + 1);
    }

    fn slots(&self) -> impl Iterator<Item = u32> {
        let mask = self.words.len().wrapping_sub(1) as u32;
        let used = self.words.iter().filter(|word| **word != 0);
        used.map(move |word| (word & mask) - 1)
    }

    fn slot(&self, at: usize) -> u32 {
        (self.words[at] & self.mask() as u32) - 1
    }

    fn home(&self, hash: u64) -> usize {
        hash as usize & self.mask()
    }

    fn next(&self, at: usize) -> usize {
        (at + 1) & self.mask()
    }

    fn mask(&self) -> usize {
        self.words.len() - 1
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The index behaves as a map does, also with many hash collisions.
        #[test]
        fn it_finds_what_was_put_and_not_taken(
            steps in prop::collection::vec((any::<bool>(), 0_u32..60, 1_u64..40), 0..300),
            spread in 0_u32..34,
        ) {
            let (mut index, mut model) = (Index::default(), BTreeMap::new());
            for (put, slot, hash) in steps {
                let hash = hash << spread;
                if put && !model.contains_key(&slot) {
                    index.insert(hash, slot, |slot| model[&slot]);
                    model.insert(slot, hash);
                } else if let (false, Some(hash)) = (put, model.get(&slot)) {
                    index.remove(*hash, slot, |slot| model[&slot]);
                    model.remove(&slot);
                }
                for (slot, hash) in &model {
                    prop_assert_eq!(index.find(*hash, |found| found == *slot), Some(*slot));
                }
                prop_assert_eq!(index.len, model.len());
                prop_assert_eq!(index.slots().count(), model.len());
            }
        }
    }

    #[test]
    fn an_empty_one_knows_nothing() {
        assert_eq!(Index::default().find(7, |_| true), None);
        Index::default().remove(7, 0, |_| 0);
    }
}
