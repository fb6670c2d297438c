//! A limit per window is learned from its blocks: so many were served, then nothing until the window ended.
//!
//! Each hard block's end is known to lie between its last refusal and the canary that was served. From one
//! start of a window (the first request of all, or a block's end) to the next such end a whole number of
//! windows has passed; windows are round numbers, so one block often leaves a single choice.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// Windows people configure, seconds.
pub(super) const ROUND_S: [u64; 17] = [
    1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 43_200, 86_400,
];

/// Between these two moments.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Between {
    pub(super) from: Timestamp,
    pub(super) to: Timestamp,
}

/// What is known of a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Window {
    /// Its length; zero: unknown, or none.
    pub(super) length: Duration,
    /// When the last block ended.
    pub(super) reset: Option<Between>,
}

impl Window {
    /// A hard block has ended somewhere in `end`; the window it closed began somewhere in `start`, or before
    /// the first request if `start` is none.
    pub(super) fn learn(&mut self, first: Timestamp, end: Between) {
        let (least, most) = match self.reset {
            Some(start) => (end.from.since(start.to), end.to.since(start.from)),
            None => (end.from.since(first), Duration::MAX),
        };
        let known = self.length >= least && self.length <= most;
        if self.length.is_zero() || !known {
            self.length = ROUND_S
                .iter()
                .map(|&s| Duration::from_secs(s))
                .find(|round| *round >= least && *round <= most)
                .unwrap_or((least + most.min(least * 2)) / 2);
        }
        self.reset = Some(end);
    }
}
