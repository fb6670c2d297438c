//! The way of a grant from a confirmed write to its caller.
//!
//! If the caller has left, the grant goes to the next caller that asked this node for the same. A
//! caller of several keys takes the first grant and leaves the other queues, so this is common. A
//! cancellation would cost two writes of the key, and the time of both.

use std::time::Duration;

use politely_core::Timestamp;
use politely_core::gate::{LeaseId, grace};
use politely_core::host::{AcquireRequest, Unused, Wait};
use politely_core::key::Key;

use super::{Node, Ticket};
use crate::event::Event;
use crate::held_lease::safe_length;
use crate::replica::{PendingGrant, WaiterReply};

/// A permit that the engine has confirmed. All times are local.
#[derive(Clone, Debug, PartialEq)]
pub struct Grant {
    /// The lease of the first request. Further requests have the ids that follow.
    pub lease: LeaseId,
    /// The number of requests.
    pub slots: u16,
    /// The time from which the first request may be sent.
    pub start: Timestamp,
    /// The time until which the first request may be sent.
    pub valid_until: Timestamp,
    /// The rate of the key in requests per second, which spaces the requests of a run.
    pub rate: f64,
    /// The time after its start for which a holder may rely on the lease.
    pub lasts: Duration,
    /// The refund of the first request if it is not sent.
    pub unused: Unused,
    /// The request that was granted.
    pub ask: AcquireRequest,
    /// The key could not grant it when it was first asked. A wait for the engine does not count.
    pub has_waited: bool,
}

/// The answer to one caller.
#[derive(Debug)]
pub struct Reply {
    /// The caller's ticket.
    pub ticket: Ticket,
    /// The permit, or how long the key must wait. The time is local.
    pub result: Result<Grant, Wait>,
}

impl Node {
    /// Returns the answers that are ready. Permits of callers that have left go to the next callers
    /// or are cancelled.
    pub fn poll_replies(&mut self, local: Timestamp) -> Vec<Reply> {
        let ready = std::mem::take(&mut self.replies);
        let mut replies = Vec::with_capacity(ready.len());
        for (id, reply) in ready {
            if !self.context.left.remove(&reply.ticket) {
                replies.push(reply);
            } else if let Ok(grant) = reply.result {
                replies.extend(self.pass_on_or_cancel(id, grant, local));
            }
        }
        replies
    }

    /// Takes back a permit of `key` that no request has used and that no caller has seen.
    ///
    /// The next caller gets it from [`Node::poll_replies`]. Without one, it is cancelled.
    pub fn give_back(&mut self, key: &Key, grant: Grant, local: Timestamp) {
        let id = self.replica(key, local);
        if let Some(reply) = self.pass_on_or_cancel(id, grant, local) {
            self.replies.push((id, reply));
        }
        self.has_news = true;
    }

    fn pass_on_or_cancel(&mut self, id: usize, grant: Grant, local: Timestamp) -> Option<Reply> {
        let length = grant.valid_until.since(grant.start);
        // The next caller needs some time to send its request.
        let is_fresh = 2 * grant.valid_until.since(local) >= length;
        let replica = self.table.get_mut(id).filter(|_| is_fresh);
        let ahead = grant.start.since(local);
        let next = replica.and_then(|replica| replica.pop_caller_of(&grant.ask, ahead));
        if let Some((ticket, has_waited)) = next {
            self.context.counts.passed_on += u64::from(grant.slots);
            let result = Ok(Grant {
                has_waited,
                ..grant
            });
            return Some(Reply { ticket, result });
        }
        let counts = &mut self.context.counts;
        counts.cancelled += u64::from(grant.slots);
        let cancelled = Event::cancelled(grant.lease, grant.slots, grant.unused);
        self.cancel_grant(id, cancelled, local);
        None
    }

    fn cancel_grant(
        &mut self,
        id: usize,
        cancelled: impl Iterator<Item = Event>,
        local: Timestamp,
    ) {
        if let Some(replica) = self.table.get_mut(id) {
            cancelled.for_each(|event| {
                replica.apply(event, &self.context, local);
            });
        }
        self.table.wake(id);
    }

    /// Turns what a replica says to its waiters into replies to callers.
    pub(super) fn collect(&mut self, id: usize, replies: &mut Vec<WaiterReply>, local: Timestamp) {
        for reply in replies.drain(..) {
            match reply {
                // A grant must not overtake one that waits for confirmation.
                WaiterReply::Granted(mut pending)
                    if pending.unconfirmed_since.is_some()
                        || self.unconfirmed.iter().any(|(_, of, _)| *of == id) =>
                {
                    pending
                        .unconfirmed_since
                        .get_or_insert(self.context.clock.loss());
                    self.unconfirmed.push((local, id, pending));
                    self.heartbeats.next_at = local;
                }
                WaiterReply::Granted(pending) => self.deliver(id, &pending, local),
                WaiterReply::Refused(ticket, wait) => {
                    let at = self.context.clock.local(wait.at);
                    let result = Err(Wait { at, ..wait });
                    self.replies.push((id, Reply { ticket, result }));
                }
            }
        }
    }

    pub(super) fn deliver(&mut self, id: usize, pending: &PendingGrant, local: Timestamp) {
        let grant = &pending.grant;
        let start = self.context.clock.local(grant.start).min(pending.starts);
        let grace = grace(grant.interval());
        if start + grace < local {
            // The confirmation took too long. Sent now, the request would be one of a burst.
            self.take_back(id, pending, local);
            return;
        }
        self.context.counts.granted += u64::from(grant.slots);
        // A permit that is confirmed late is valid for less. Otherwise its request could leave a
        // whole interval after its start, and the way to the host would come on top (P1).
        let valid_until = (start.max(local) + grace).min(start + grace * 3 / 2);
        // A late start does not extend the lease.
        let late = local.since(start);
        let granted = Grant {
            lease: grant.lease,
            slots: grant.slots,
            start: start.max(local),
            valid_until,
            rate: grant.rate,
            lasts: safe_length(self.context.config.lease).saturating_sub(late),
            unused: grant.unused,
            ask: pending.waiter.ask.clone(),
            has_waited: pending.has_waited,
        };
        let reply = Reply {
            ticket: pending.ticket,
            result: Ok(granted),
        };
        self.replies.push((id, reply));
    }

    /// Cancels a grant that cannot be used, and puts its caller back into the queue.
    pub(super) fn take_back(&mut self, id: usize, pending: &PendingGrant, local: Timestamp) {
        let grant = &pending.grant;
        let cancelled = Event::cancelled(grant.lease, grant.slots, grant.unused);
        self.cancel_grant(id, cancelled, local);
        if let Some(replica) = self.table.get_mut(id) {
            replica.put_back(pending, &mut self.context);
        }
    }
}
