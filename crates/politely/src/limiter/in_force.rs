//! The policy in force.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;

use super::share::Shares;
use crate::policy::RuleBook;

/// The rules in force, and the queues of their shares.
#[derive(Default)]
pub(super) struct InForce {
    /// Whether there ever was a policy. Keys may follow rules that are gone.
    is_set: AtomicBool,
    book: RwLock<Arc<RuleBook>>,
    shares: Arc<Shares>,
}

impl InForce {
    pub(super) fn of(book: Option<Arc<RuleBook>>) -> Self {
        Self {
            is_set: AtomicBool::new(book.is_some()),
            book: RwLock::new(book.unwrap_or_default()),
            shares: Arc::default(),
        }
    }

    #[inline]
    pub(super) fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Relaxed)
    }

    pub(super) fn replace(&self, book: RuleBook) {
        *self.book.write() = Arc::new(book);
        self.is_set.store(true, Ordering::Relaxed);
    }

    pub(super) fn book(&self) -> Option<Arc<RuleBook>> {
        self.is_set().then(|| Arc::clone(&self.book.read()))
    }

    pub(super) const fn shares(&self) -> &Arc<Shares> {
        &self.shares
    }
}
