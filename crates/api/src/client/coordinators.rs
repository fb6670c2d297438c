//! Several coordinators that share their keys. One of them is called until it does not answer.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The base URLs, and which of them is called.
#[derive(Debug)]
pub(super) struct Coordinators {
    bases: Vec<String>,
    current: AtomicUsize,
}

impl Coordinators {
    /// Creates the list. Its first coordinator is called first.
    pub(super) const fn new(bases: Vec<String>) -> Self {
        Self {
            bases,
            current: AtomicUsize::new(0),
        }
    }

    pub(super) const fn count(&self) -> usize {
        self.bases.len()
    }

    /// Returns the number and the base URL of the coordinator to call.
    pub(super) fn current(&self) -> (usize, &str) {
        let current = self.current.load(Ordering::Relaxed);
        (current, &self.bases[current])
    }

    /// Moves on from `number`, which did not answer, unless another call has done so. Returns
    /// `false` if there is no other coordinator.
    pub(super) fn leave(&self, number: usize) -> bool {
        let next = (number + 1) % self.bases.len();
        // Of several calls that failed together, only one moves on.
        let _ = self
            .current
            .compare_exchange(number, next, Ordering::Relaxed, Ordering::Relaxed);
        self.bases.len() > 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_fail_together_move_on_once() {
        let coordinators = Coordinators::new(vec!["a".to_owned(), "b".to_owned(), "c".to_owned()]);
        let (first, _) = coordinators.current();
        for _ in 0..8 {
            assert!(coordinators.leave(first));
        }
        assert_eq!(coordinators.current(), (1, "b"));
        assert!(coordinators.leave(1) && coordinators.leave(2));
        assert_eq!(coordinators.current(), (0, "a"));
        assert!(!Coordinators::new(vec!["a".to_owned()]).leave(0));
    }
}
