//! Those who wait for a key, in order.
//!
//! Only the head of the line looks at the key; the others sleep until it is their turn. So a hundred
//! waiters cost one timer, nobody overtakes, and nobody starves. Whoever leaves the line, served or
//! dropped, wakes the one behind.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::Notify;

/// One in the line.
pub(crate) type Ticket = Arc<Notify>;

/// The line of one key.
#[derive(Debug, Default)]
pub(crate) struct Waiters(VecDeque<Ticket>);

impl Waiters {
    /// Joins at the end.
    pub(crate) fn join(&mut self) -> Ticket {
        let ticket = Ticket::default();
        self.0.push_back(Arc::clone(&ticket));
        ticket
    }

    /// Is it this one's turn?
    pub(crate) fn is_head(&self, ticket: &Ticket) -> bool {
        self.0.front().is_some_and(|head| Arc::ptr_eq(head, ticket))
    }

    /// Leaves the line from wherever it stands; the next head is woken.
    pub(crate) fn leave(&mut self, ticket: &Ticket) {
        let Some(at) = self.0.iter().position(|other| Arc::ptr_eq(other, ticket)) else {
            return;
        };
        self.0.remove(at);
        if at == 0 {
            self.wake_head();
        }
    }

    /// Something changed: the head should look again.
    pub(crate) fn wake_head(&self) {
        if let Some(head) = self.0.front() {
            head.notify_one();
        }
    }

    pub(crate) fn wake_all(&self) {
        self.0.iter().for_each(|ticket| ticket.notify_one());
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
