//! A limit on concurrent requests: further ones are refused (nginx `limit_conn`) or wait (a worker
//! pool and its listen queue).

use std::time::Duration;

use super::{Quota, Verdict};

/// `slots` requests run, `queue` wait, and the rest is refused. The time until a slot is free is
/// unknown, so a refusal announces no time.
#[derive(Clone, Debug, PartialEq)]
pub struct Concurrency {
    slots: u32,
    queue: u32,
    running: u32,
    queued: u32,
}

impl Concurrency {
    /// Creates the limit. A `queue` of 0 refuses every request that finds no slot.
    pub(super) const fn new(slots: u32, queue: u32) -> Self {
        Self {
            slots,
            queue,
            running: 0,
            queued: 0,
        }
    }

    pub(super) const fn check(&self) -> Verdict {
        // No request overtakes the queue, not even into slots that a step up has just added.
        if self.running < self.slots && self.queued == 0 {
            Verdict::NOW
        } else if self.queued < self.queue {
            Verdict::Queue {
                after: Duration::ZERO,
            }
        } else {
            Verdict::Refuse { retry_after: None }
        }
    }

    /// Takes the place that `verdict` names. A request that queues in another member holds its slot
    /// here.
    pub(super) const fn take(&mut self, verdict: Verdict) {
        if matches!(verdict, Verdict::Queue { .. }) && self.queue > 0 {
            self.queued += 1;
        } else {
            self.running += 1;
        }
    }

    pub(super) fn depart(&mut self) -> u32 {
        self.running = self.running.saturating_sub(1);
        // None if a step down left more running than there are slots.
        let starts = self.queued.min(self.slots.saturating_sub(self.running));
        self.queued -= starts;
        self.running += starts;
        starts
    }

    /// Removes a request that was queued here, or held a slot here while it queued elsewhere.
    pub(super) const fn abandon(&mut self) {
        if self.queued > 0 {
            self.queued -= 1;
        } else {
            self.running = self.running.saturating_sub(1);
        }
    }

    pub(super) const fn adopt(&mut self, running: u32, queued: u32) {
        (self.running, self.queued) = (running, queued);
    }

    pub(super) const fn queue_len_max(&self) -> u32 {
        self.queue
    }

    pub(super) fn quota(&self) -> Quota {
        Quota {
            limit: u64::from(self.slots),
            remaining: u64::from(self.slots.saturating_sub(self.running)),
            reset: Duration::ZERO,
            window: Duration::ZERO,
        }
    }
}
