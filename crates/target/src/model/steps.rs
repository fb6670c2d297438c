//! A limit that changes at known times, as when an operator loads a new configuration.
//!
//! Each phase starts with a fresh state (full bucket, empty log), as a restarted server does.
//! Requests that run or wait in the queue go on and keep their slots.

use std::time::Duration;

use politely_core::Timestamp;

use super::{Limit, Quota, Verdict};

/// One limit after another.
#[derive(Clone, Debug, PartialEq)]
pub struct Steps {
    phases: Vec<(Timestamp, Limit)>,
    phase: usize,
    running: u32,
    queued: u32,
}

impl Steps {
    /// Creates the limit. `phases` is not empty, ordered by time, and the first is at zero.
    pub(super) const fn new(phases: Vec<(Timestamp, Limit)>) -> Self {
        Self {
            phases,
            phase: 0,
            running: 0,
            queued: 0,
        }
    }

    fn roll(&mut self, now: Timestamp) -> &mut Limit {
        while self
            .phases
            .get(self.phase + 1)
            .is_some_and(|(from, _)| *from <= now)
        {
            self.phase += 1;
            let (running, queued) = (self.running, self.queued);
            self.phases[self.phase].1.adopt(running, queued);
        }
        &mut self.phases[self.phase].1
    }

    pub(super) fn check(&mut self, now: Timestamp) -> Verdict {
        let verdict = self.roll(now).check(now);
        let Verdict::Refuse {
            retry_after: Some(wait),
        } = verdict
        else {
            return verdict;
        };
        match self.phases.get(self.phase + 1) {
            Some((from, next)) if *from <= now + wait => {
                // The next phase starts fresh and accepts at once, unless all its slots are taken
                // over.
                let mut next = next.clone();
                next.adopt(self.running, self.queued);
                match next.check(*from) {
                    Verdict::Refuse { retry_after } => Verdict::Refuse { retry_after },
                    _ => Verdict::refuse_until(now, *from),
                }
            }
            _ => verdict,
        }
    }

    pub(super) fn take(&mut self, now: Timestamp, verdict: Verdict) {
        match verdict {
            Verdict::Queue { .. } => self.queued += 1,
            _ => self.running += 1,
        }
        self.roll(now).take(now, verdict);
    }

    pub(super) fn depart(&mut self, now: Timestamp) -> u32 {
        let queued = self.queued;
        let inner = self.roll(now);
        let starts = inner.depart(now);
        // A phase without slots lets all requests go on that waited in the phase before.
        let starts = if inner.has_slots() { starts } else { queued };
        self.queued -= starts;
        self.running = (self.running + starts).saturating_sub(1);
        starts
    }

    pub(super) fn abandon(&mut self) {
        self.queued = self.queued.saturating_sub(1);
        self.phases[self.phase].1.abandon();
    }

    pub(super) fn adopt(&mut self, running: u32, queued: u32) {
        (self.running, self.queued) = (running, queued);
        self.phases[self.phase].1.adopt(running, queued);
    }

    pub(super) fn shift(&mut self, phase: Duration) {
        for (_, limit) in &mut self.phases {
            limit.shift(phase);
        }
    }

    pub(super) fn has_slots(&self) -> bool {
        self.phases.iter().any(|(_, limit)| limit.has_slots())
    }

    pub(super) fn queue_len_max(&self) -> u32 {
        self.phases
            .iter()
            .map(|(_, limit)| limit.queue_len_max())
            .max()
            .unwrap_or(0)
    }

    pub(super) fn quota(&mut self, now: Timestamp) -> Option<Quota> {
        self.roll(now).quota(now)
    }
}
