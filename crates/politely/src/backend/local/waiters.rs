//! The queue of a key's waiters.
//!
//! Only the head of the queue looks at the key, and the others sleep. So a hundred waiters cost one
//! timer. No waiter overtakes another, and none starves. A waiter that leaves the queue, served or
//! dropped, wakes the next one.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::sync::Notify;

pub use politely_core::arrival::Arrival;

/// One waiter's handle.
pub(crate) type Ticket = Arc<Notify>;

/// The waiters of one key, in order of arrival.
#[derive(Debug, Default)]
pub(crate) struct Waiters(VecDeque<(Arrival, Ticket)>);

impl Waiters {
    /// Inserts a waiter behind all earlier arrivals. That is the end, unless it waited in another
    /// key's queue before.
    pub(crate) fn join(&mut self, arrival: Arrival) -> Ticket {
        let ticket = Ticket::default();
        let at = self.0.partition_point(|(other, _)| *other <= arrival);
        self.0.insert(at, (arrival, Arc::clone(&ticket)));
        ticket
    }

    /// Returns whether a waiter arrived before `arrival`.
    pub(crate) fn is_before(&self, arrival: Arrival) -> bool {
        self.0.front().is_some_and(|(head, _)| *head < arrival)
    }

    /// Returns the number of waiters that arrived before `arrival`.
    pub(crate) fn before(&self, arrival: Arrival) -> usize {
        self.0.partition_point(|(other, _)| *other < arrival)
    }

    /// Returns whether `ticket` is the head of the queue.
    pub(crate) fn is_head(&self, ticket: &Ticket) -> bool {
        self.0
            .front()
            .is_some_and(|(_, head)| Arc::ptr_eq(head, ticket))
    }

    /// Removes the waiter that joined with `arrival`, and wakes the next head if it was the head.
    ///
    /// Its place is found by its arrival: a search from the front blocks the key when a long queue
    /// ends.
    pub(crate) fn leave(&mut self, arrival: Arrival, ticket: &Ticket) {
        let first = self.0.partition_point(|(other, _)| *other < arrival);
        let mut same = self
            .0
            .range(first..)
            .take_while(|(other, _)| *other == arrival);
        let Some(at) = same.position(|(_, other)| Arc::ptr_eq(other, ticket)) else {
            return;
        };
        let at = first + at;
        self.0.remove(at);
        if at == 0 {
            self.wake_head();
        }
    }

    /// Wakes the head, which looks at the key again.
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
