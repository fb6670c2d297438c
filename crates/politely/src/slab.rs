//! Places that never move: what is pushed stays where it is, chunk by chunk.
//!
//! A `Vec` of a million cache-aligned slots must be copied whenever it grows (an aligned block cannot be
//! extended in place), and what it leaves behind is of no use to its next, larger self: `fetch` over
//! 100,000 hosts held 424 MB that way. Chunks are never copied and waste less than one chunk.

use std::ops::{Index, IndexMut};

/// Places per chunk: a power of two, so that finding one is a shift and a mask.
const CHUNK: usize = 32;

/// A growing sequence of places.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    chunks: Vec<Vec<T>>,
}

impl<T> Slab<T> {
    pub(crate) const fn new() -> Self {
        Self { chunks: Vec::new() }
    }

    pub(crate) fn len(&self) -> usize {
        match self.chunks.split_last() {
            None => 0,
            Some((last, full)) => full.len() * CHUNK + last.len(),
        }
    }

    /// Puts a value at the end, at `len()` before the call.
    pub(crate) fn push(&mut self, value: T) {
        match self.chunks.last_mut() {
            Some(last) if last.len() < CHUNK => last.push(value),
            _ => {
                let mut chunk = Vec::with_capacity(CHUNK);
                chunk.push(value);
                self.chunks.push(chunk);
            }
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.chunks.iter().flatten()
    }

    /// Bytes held.
    pub(crate) fn memory(&self) -> usize {
        self.chunks.len() * CHUNK * size_of::<T>() + self.chunks.capacity() * size_of::<Vec<T>>()
    }
}

impl<T> Index<usize> for Slab<T> {
    type Output = T;

    fn index(&self, at: usize) -> &T {
        &self.chunks[at / CHUNK][at % CHUNK]
    }
}

impl<T> IndexMut<usize> for Slab<T> {
    fn index_mut(&mut self, at: usize) -> &mut T {
        &mut self.chunks[at / CHUNK][at % CHUNK]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_pushed_stays_where_it_is() {
        let mut slab = Slab::new();
        for i in 0..1_000 {
            assert_eq!(slab.len(), i);
            slab.push(i);
        }
        slab[777] = 0;
        assert_eq!((slab[0], slab[776], slab[777], slab[999]), (0, 776, 0, 999));
        assert!(
            slab.iter()
                .copied()
                .eq((0..1_000).map(|i| if i == 777 { 0 } else { i }))
        );
        assert!(
            slab.memory() < 1_100 * size_of::<usize>() * 2,
            "no more than a chunk is spare"
        );
    }
}
