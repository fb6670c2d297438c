//! Those who wait for a key, in order.
//!
//! Only the head of the line looks at the key; the others sleep until it is their turn. So a hundred
//! waiters cost one timer, nobody overtakes, and nobody starves. Whoever leaves the line, served or
//! dropped, wakes the one behind.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::sync::Notify;

pub use politely_core::arrival::Arrival as Turn;

/// One in the line.
pub(crate) type Ticket = Arc<Notify>;

/// The line of one key, in order of turn.
#[derive(Debug, Default)]
pub(crate) struct Waiters(VecDeque<(Turn, Ticket)>);

impl Waiters {
    /// Joins behind all who came before: the end, but for those who stood in another key's line.
    pub(crate) fn join(&mut self, turn: Turn) -> Ticket {
        let ticket = Ticket::default();
        let at = self.0.partition_point(|(other, _)| *other <= turn);
        self.0.insert(at, (turn, Arc::clone(&ticket)));
        ticket
    }

    /// Does somebody wait who came before `turn`?
    pub(crate) fn is_before(&self, turn: Turn) -> bool {
        self.0.front().is_some_and(|(head, _)| *head < turn)
    }

    /// How many wait who came before `turn`?
    pub(crate) fn before(&self, turn: Turn) -> usize {
        self.0.partition_point(|(other, _)| *other < turn)
    }

    /// Is it this one's turn?
    pub(crate) fn is_head(&self, ticket: &Ticket) -> bool {
        self.0
            .front()
            .is_some_and(|(_, head)| Arc::ptr_eq(head, ticket))
    }

    /// Takes the waiter that joined with `turn` out of the line and wakes the next head. The place
    /// is found by its turn: a search from the front blocks the key when a long line ends.
    pub(crate) fn leave(&mut self, turn: Turn, ticket: &Ticket) {
        let first = self.0.partition_point(|(other, _)| *other < turn);
        let mut same = self
            .0
            .range(first..)
            .take_while(|(other, _)| *other == turn);
        let Some(at) = same.position(|(_, other)| Arc::ptr_eq(other, ticket)) else {
            return;
        };
        let at = first + at;
        self.0.remove(at);
        if at == 0 {
            self.wake_head();
        }
    }

    /// Something changed: the head should look again.
    pub(crate) fn wake_head(&self) {
        if let Some((_, head)) = self.0.front() {
            head.notify_one();
        }
    }

    pub(crate) fn wake_all(&self) {
        self.0.iter().for_each(|(_, ticket)| ticket.notify_one());
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
