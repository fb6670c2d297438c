//! The sliding log: the times of all accepted requests in the last window, counted exactly.

use std::collections::VecDeque;
use std::time::Duration;

use politely_core::Timestamp;

use super::{Quota, Verdict};

/// At most `count` requests in every window. Memory: 8 bytes per accepted request in the window.
#[derive(Clone, Debug, PartialEq)]
pub struct SlidingLog {
    count: usize,
    window: Duration,
    log: VecDeque<Timestamp>,
}

impl SlidingLog {
    pub(super) const fn new(count: usize, window: Duration) -> Self {
        Self {
            count,
            window,
            log: VecDeque::new(),
        }
    }

    /// Removes entries. An entry leaves exactly one window after it came.
    fn forget(&mut self, now: Timestamp) {
        while self.log.front().is_some_and(|&at| at + self.window <= now) {
            self.log.pop_front();
        }
    }

    pub(super) fn check(&mut self, now: Timestamp) -> Verdict {
        self.forget(now);
        match self.log.front() {
            Some(&oldest) if self.log.len() >= self.count => {
                Verdict::refuse_until(now, oldest + self.window)
            }
            _ => Verdict::NOW,
        }
    }

    pub(super) fn take(&mut self, now: Timestamp) {
        self.log.push_back(now);
    }

    pub(super) fn quota(&mut self, now: Timestamp) -> Quota {
        self.forget(now);
        Quota {
            limit: self.count as u64,
            remaining: self.count.saturating_sub(self.log.len()) as u64,
            reset: self
                .log
                .back()
                .map_or(Duration::ZERO, |&newest| (newest + self.window).since(now)),
            window: self.window,
        }
    }
}
