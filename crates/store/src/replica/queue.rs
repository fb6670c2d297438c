//! The callers of one process that wait for a key.

use std::collections::BTreeMap;
use std::time::Duration;

use politely_core::Timestamp;
use politely_core::arrival::Arrival;
use politely_core::host::{Ask, Wait};

use super::commit::{PendingGrant, WaiterReply};
use crate::node::{NodeContext, Ticket};

/// A caller in the queue.
#[derive(Clone, Debug)]
pub(crate) struct Waiter {
    pub(crate) ask: Ask,
    /// Whether the caller wants the first answer that is known, even if it is a refusal.
    pub(crate) once: bool,
}

/// The callers in the order of their arrival, and the node's place among the nodes in line.
#[derive(Default)]
pub(super) struct WaitQueue {
    waiters: BTreeMap<(Arrival, Ticket), Waiter>,
    /// The highest ticket so far.
    last: Ticket,
    /// The callers with this ticket or a lower one were in the queue when the key had to wait.
    waited: Ticket,
    /// Whether a caller wants an answer and the known state is too old to give one.
    pub(super) needs_read: bool,
    /// The local time since when the nodes before this one in line could have been served.
    pub(super) open_since: Option<Timestamp>,
    /// Whether another node has written since this node was last served.
    pub(super) is_contended: bool,
}

impl WaitQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.waiters.len()
    }

    /// Adds a caller. Returns whether it is the first.
    pub(super) fn insert(&mut self, arrival: Arrival, ticket: Ticket, waiter: Waiter) -> bool {
        self.waiters.insert((arrival, ticket), waiter);
        self.last = self.last.max(ticket);
        let first = self.waiters.first_key_value();
        first.is_some_and(|((_, first), _)| *first == ticket)
    }

    /// Removes a caller. Returns whether it was in the queue.
    pub(super) fn remove(&mut self, arrival: Arrival, ticket: Ticket) -> bool {
        self.waiters.remove(&(arrival, ticket)).is_some()
    }

    /// Puts back the caller of a grant that did not come about, unless the caller has left.
    pub(super) fn put_back(&mut self, pending: &PendingGrant, context: &mut NodeContext) -> bool {
        let waits = !context.left.remove(&pending.ticket);
        if waits {
            let place = (pending.arrival, pending.ticket);
            self.waiters.insert(place, pending.waiter.clone());
        }
        waits
    }

    pub(super) fn first(&self) -> Option<((Arrival, Ticket), Waiter)> {
        let first = self.waiters.first_key_value();
        first.map(|(place, waiter)| (*place, waiter.clone()))
    }

    /// Notes that the key grants nothing to the callers in the queue now.
    pub(super) fn note_wait(&mut self) {
        self.waited = self.last;
    }

    /// Returns whether the caller was in the queue when the key had to wait.
    pub(super) const fn has_waited(&self, ticket: Ticket) -> bool {
        ticket <= self.waited
    }

    pub(super) fn pop_first(&mut self) {
        self.waiters.pop_first();
    }

    /// Removes the first caller if it asked for the same as `ask` and may start `ahead` of now.
    /// Returns its ticket.
    pub(super) fn pop_first_of(&mut self, ask: &Ask, ahead: Duration) -> Option<Ticket> {
        let ((_, ticket), Waiter { ask: theirs, .. }) = self.first()?;
        let horizon = theirs.horizon;
        let is_same = theirs
            == Ask {
                horizon,
                ..ask.clone()
            };
        (is_same && ahead <= horizon).then(|| {
            self.pop_first();
            ticket
        })
    }

    /// Empties the queue and returns the tickets.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Ticket> + use<> {
        let waiters = std::mem::take(&mut self.waiters);
        waiters.into_keys().map(|(_, ticket)| ticket)
    }

    /// Returns the number of callers that arrived before `arrival`.
    pub(super) fn before(&self, arrival: Arrival) -> usize {
        self.waiters.range(..(arrival, 0)).count()
    }

    pub(super) fn asks(&self) -> impl Iterator<Item = &Ask> {
        self.waiters.values().map(|waiter| &waiter.ask)
    }

    /// Returns whether a caller wants an answer as soon as one is known.
    pub(super) fn wants_answer(&self) -> bool {
        self.waiters.values().any(|waiter| waiter.once)
    }

    /// Refuses the callers that want an answer as soon as one is known.
    pub(super) fn refuse_impatient(&mut self, replies: &mut Vec<WaiterReply>, wait: Wait) {
        self.waiters.retain(|(_, ticket), waiter| {
            if waiter.once {
                replies.push(WaiterReply::Refused(*ticket, wait));
            }
            !waiter.once
        });
    }
}
