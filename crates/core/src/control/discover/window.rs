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
    /// A hard block has ended somewhere in `end`; the window it closed began somewhere in `start`.
    /// Says how long the window is.
    pub(super) fn learn(&mut self, start: Between, end: Between) {
        let least = end.from.since(start.to);
        let most = end.to.since(start.from);
        let round = ROUND_S
            .iter()
            .map(|&s| Duration::from_secs(s))
            .find(|round| *round >= least && *round <= most + Duration::from_millis(100));
        let kept = self.length >= least && self.length <= most && !self.length.is_zero();
        if !kept {
            self.length = round.unwrap_or((least + most) / 2);
        }
        self.reset = Some(end);
    }
}
