//! Several limits at once: a request is accepted if all of them accept it, and only then charged to
//! any.

use std::time::Duration;

use politely_core::Timestamp;

use super::{Limit, Quota, Verdict};

/// Several limits, for example per second and per day, or a rate and a number of slots.
#[derive(Clone, Debug, PartialEq)]
pub struct All {
    of: Vec<Limit>,
}

impl All {
    /// Creates the limit. At most one of `of` may queue.
    pub(super) const fn new(of: Vec<Limit>) -> Self {
        Self { of }
    }

    /// Returns the strictest verdict: a refusal without a time, the latest time, a queue, the
    /// longest delay.
    pub(super) fn check(&mut self, now: Timestamp) -> Verdict {
        let (mut delay, mut queued) = (Duration::ZERO, false);
        let mut refused: Option<Duration> = None;
        for limit in &mut self.of {
            match limit.check(now) {
                Verdict::Serve { after } => delay = delay.max(after),
                Verdict::Queue { after } => (delay, queued) = (delay.max(after), true),
                Verdict::Refuse { retry_after: None } => {
                    return Verdict::Refuse { retry_after: None };
                }
                Verdict::Refuse {
                    retry_after: Some(wait),
                } => refused = refused.max(Some(wait)),
            }
        }
        match refused {
            Some(_) => Verdict::Refuse {
                retry_after: refused,
            },
            None if queued => Verdict::Queue { after: delay },
            None => Verdict::Serve { after: delay },
        }
    }

    pub(super) fn take(&mut self, now: Timestamp, verdict: Verdict) {
        for limit in &mut self.of {
            limit.take(now, verdict);
        }
    }

    pub(super) fn depart(&mut self, now: Timestamp) -> u32 {
        // Every member is notified; only the member that queues starts a request.
        self.of
            .iter_mut()
            .map(|limit| limit.depart(now))
            .max()
            .unwrap_or(0)
    }

    pub(super) fn abandon(&mut self) {
        self.of.iter_mut().for_each(Limit::abandon);
    }

    pub(super) fn adopt(&mut self, running: u32, queued: u32) {
        // A request that queues in one member holds its slot in the others.
        let waits_in = (self.of.iter().position(|limit| limit.queue_len_max() > 0))
            .or_else(|| self.of.iter().position(Limit::has_slots));
        for (at, limit) in self.of.iter_mut().enumerate() {
            if Some(at) == waits_in {
                limit.adopt(running, queued);
            } else {
                limit.adopt(running + queued, 0);
            }
        }
    }

    pub(super) fn shift(&mut self, phase: Duration) {
        for limit in &mut self.of {
            limit.shift(phase);
        }
    }

    pub(super) fn has_slots(&self) -> bool {
        self.of.iter().any(Limit::has_slots)
    }

    pub(super) fn queue_len_max(&self) -> u32 {
        self.of.iter().map(Limit::queue_len_max).max().unwrap_or(0)
    }

    /// Returns the quota that runs out first.
    pub(super) fn quota(&mut self, now: Timestamp) -> Option<Quota> {
        self.of
            .iter_mut()
            .filter_map(|limit| limit.quota(now))
            .min_by_key(|quota| quota.remaining)
    }
}
