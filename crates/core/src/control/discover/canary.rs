//! After a refusal, one request at a time asks whether it is over.
//!
//! The first goes after one interval. If it is served, the refusal was *soft*: a bucket was empty, or a
//! window had a moment left. If not, the host has shut for a while (*hard*), most likely until a window
//! ends, and windows are round numbers: the next canaries go where one would end that began with the first
//! request or with the end of the last block, each at least twice as far from the refusal as the one before.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::ledger::Ledger;
use super::window::{ROUND_S, Window};
use crate::Timestamp;

/// A canary asks this much after the moment it expects to be free.
const AFTER: Duration = Duration::from_millis(60);
/// The second canary asks as if this much had passed: no window is shorter than a second.
const SECOND: Duration = Duration::from_millis(400);
/// A host in trouble is asked at least this often.
const OUTAGE_MAX: Duration = Duration::from_mins(1);
/// From one canary to the next, the time since the refusal grows at least so much, and at most this.
const GROWTH: (f64, f64) = (1.8, 3.2);

/// A refusal and what came after it, until a request was served again.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Block {
    /// When the first refused request was sent.
    pub(super) began: Timestamp,
    /// When the last refused one was sent, or until when the server asked to be left alone.
    pub(super) refused: Timestamp,
    /// When the last refusal was heard: what was sent before knows nothing of it.
    pub(super) heard: Timestamp,
    /// Refused canaries.
    pub(super) canaries: u16,
    /// The rate that was asked for.
    pub(super) rate: f64,
    /// Requests under way beside the refused one.
    pub(super) beside: u16,
    /// The server is in trouble rather than counting.
    pub(super) overloaded: bool,
    /// It said until when.
    pub(super) told: bool,
}

impl Block {
    pub(super) fn rebase(&mut self, back: Duration) {
        for time in [&mut self.began, &mut self.refused, &mut self.heard] {
            *time = *time - back;
        }
    }

    pub(super) fn plausible(&self) -> bool {
        self.rate > 0.0 && self.rate.is_finite()
    }

    /// When the next canary goes. `window` and `ledger`: what is known of when one may end. `round_trip`: a usual one.
    /// `rounds`: believe in round numbers.
    pub(super) fn next_canary(
        &self,
        window: &Window,
        ledger: &Ledger,
        rate: f64,
        round_trip: Duration,
        rounds: bool,
    ) -> Timestamp {
        let interval = Duration::from_secs_f64((1.0 / rate).clamp(1e-6, 60.0));
        if self.canaries == 0 {
            let pause = round_trip.mul_f64(1.2).min(Duration::from_secs(1));
            let soon = self.began + interval.max(pause);
            // A window that was used up opens again when its first request is as old as it is long.
            let opens = ledger
                .since_last(window.count)
                .filter(|_| window.fitted > 0);
            return opens.map_or(soon, |at| soon.max(at + window.length + AFTER));
        }
        let elapsed = self.heard.since(self.began).max(SECOND);
        if self.overloaded {
            // No window: trouble, and the breaker's to time.
            return self.heard + elapsed.clamp(interval, OUTAGE_MAX);
        }
        let (least, most) = (
            self.began + elapsed.mul_f64(GROWTH.0).max(interval),
            self.began + elapsed.mul_f64(GROWTH.1).max(interval.mul_f64(2.0)),
        );
        let starts = [ledger.first(), window.reset.map(|reset| reset.to)]
            .into_iter()
            .flatten();
        ROUND_S
            .iter()
            .flat_map(|&window| {
                starts
                    .clone()
                    .map(move |start| start + Duration::from_secs(window) + AFTER)
            })
            .filter(|at| rounds && (least..=most).contains(at))
            .min()
            .unwrap_or(self.began + elapsed.mul_f64(2.2).max(interval))
    }
}
