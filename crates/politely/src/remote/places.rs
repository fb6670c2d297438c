//! Several coordinators that share their keys. One of them is called until it does not answer.

use std::sync::atomic::{AtomicUsize, Ordering};

pub(super) struct Places {
    bases: Vec<String>,
    current: AtomicUsize,
}

impl Places {
    /// Creates the list. Its first coordinator is called first.
    pub(super) const fn new(bases: Vec<String>) -> Self {
        Self {
            bases,
            current: AtomicUsize::new(0),
        }
    }

    /// Returns the number and the base URL of the coordinator to call.
    pub(super) fn current(&self) -> (usize, &str) {
        let current = self.current.load(Ordering::Relaxed);
        (current, &self.bases[current])
    }

    /// Moves on from `place`, which did not answer, unless another call has done so. Returns
    /// `false` if there is no other coordinator.
    pub(super) fn leave(&self, place: usize) -> bool {
        let next = (place + 1) % self.bases.len();
        // Of several calls that failed together, only one moves on.
        let _ = self
            .current
            .compare_exchange(place, next, Ordering::Relaxed, Ordering::Relaxed);
        self.bases.len() > 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_fail_together_move_on_once() {
        let places = Places::new(vec!["a".to_owned(), "b".to_owned(), "c".to_owned()]);
        let (first, _) = places.current();
        for _ in 0..8 {
            assert!(places.leave(first));
        }
        assert_eq!(places.current(), (1, "b"));
        assert!(places.leave(1) && places.leave(2));
        assert_eq!(places.current(), (0, "a"));
        assert!(!Places::new(vec!["a".to_owned()]).leave(0));
    }
}
