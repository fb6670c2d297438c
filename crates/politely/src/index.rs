//! From a key's hash to its slot, in one look at memory.
//!
//! A million keys are far more than a cache holds, so what counts is how many cold lines a call must wait
//! for one after the other, and how many pages they lie in. A general table answers with two lines (its control
//! bytes, then its bucket); here one word of four bytes says all: in a table of 2^b words its low b bits are the
//! slot, plus one, and the others are the hash's own. The b bits of the hash that are missing said where the
//! search begins, so to move a word its key is hashed again: only a table that grows or loses a key does that.
//! Linear probing at most three quarters full; removal closes the gap, so there are no tombstones.

/// Open addressing over words, a power of two of them, at most three quarters used; zero is empty.
#[derive(Debug, Default)]
pub(crate) struct Index {
    words: Vec<u32>,
    len: usize,
}

/// The fewest words kept.
const WORDS_MIN: usize = 16;

impl Index {
    /// The slot of `hash` for which `is_it` holds.
    #[inline]
    pub(crate) fn find(&self, hash: u64, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        self.position(hash, is_it).map(|at| self.slot(at))
    }

    /// Enters a slot that is not there yet. `hash_of` tells the hash of those that are.
    pub(crate) fn insert(&mut self, hash: u64, slot: u32, hash_of: impl Fn(u32) -> u64) {
        // The slot's number, too, stays below three quarters of the words: it has room beside the tag.
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

    /// Takes a slot out. `hash_of` tells the hash of those that are there.
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
            // Whoever would be found from the gap on may move into it.
            let home = self.home(hash_of(self.slot(at)));
            let from_home = at.wrapping_sub(home) & self.mask();
            if from_home >= at.wrapping_sub(gap) & self.mask() {
                self.words[gap] = self.words[at];
                gap = at;
            }
        }
        self.words[gap] = 0;
    }

    /// Bytes held.
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
        /// As a map does, with hashes that collide as much as they like.
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
