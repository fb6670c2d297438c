//! Returns from the end of a window at the pace at which earlier requests leave the window.
//!
//! A sliding window still holds the requests that were sent before its block. It admits a request
//! for each one that leaves it. So it admits requests again at the pace at which they were sent one
//! window earlier, and the ledger holds that pace.
//!
//! No kind of window refuses requests at this pace, so the return need not be slower. After a
//! refusal on the way back, the return is not faster either.

use std::time::Duration;

use super::Mechanism;
use super::learning::Learning;
use crate::Timestamp;

/// Least time over which the pace is averaged ahead, in seconds.
const AHEAD_S: f64 = 1.0;
/// Least number of requests at the ceiling's rate over which the pace is averaged ahead.
const AHEAD_REQUESTS: f64 = 4.0;
/// Share of the window's length by which requests are assumed to leave it later, because the ledger
/// is not exact. Each refusal on the way back adds the same share.
const LATER: f64 = 0.03;
/// Lowest rate on the way back after a refusal, as a share of the ceiling.
const LEAST: f64 = 0.01;
/// Number of refusals during a return in doublings that do not change the ceiling.
const DOUBLING_BEARS: u8 = 3;
/// The same number during the return from a guessed window.
const GUESS_BEARS: u8 = 2;
/// The same number during the return from a known window.
const KNOWN_BEARS: u8 = 6;

impl Learning {
    /// Returns whether the recovery follows a window instead of doubling the rate.
    pub(super) fn replays(&self) -> bool {
        self.window.is_known() && self.has(Mechanism::Replay)
    }

    /// Returns the rate of the recovery, in requests per second.
    pub(super) fn comeback(&self, now: Timestamp) -> f64 {
        if !self.replays() {
            return self.rate;
        }
        let room = self.room(now).min(self.top());
        match self.strikes {
            0 => self.rate.max(room),
            _ => room.max(self.ceiling * LEAST),
        }
    }

    /// Returns whether the recovery is complete.
    pub(super) fn came_back(&self, now: Timestamp) -> bool {
        if self.replays() && self.strikes > 0 {
            self.room(now) >= self.top()
        } else {
            self.rate * 2.0 >= self.top()
        }
    }

    /// Returns the number of refusals during the recovery that do not change the ceiling.
    pub(super) fn bears(&self) -> u8 {
        if !self.replays() {
            DOUBLING_BEARS
        } else if self.window.is_guess(&self.ledger) {
            GUESS_BEARS
        } else {
            KNOWN_BEARS
        }
    }

    /// Returns the rate of the cruise, just below the ceiling, in requests per second.
    pub(super) fn top(&self) -> f64 {
        self.ceiling * (1.0 - self.config.margin)
    }

    /// Returns the rate that the window admits in the near future, in requests per second. It
    /// admits the requests that it has room for, and one for each request that leaves it.
    fn room(&self, now: Timestamp) -> f64 {
        let ahead = AHEAD_S.max(AHEAD_REQUESTS / self.ceiling);
        let later = 1.0 + LATER * (f64::from(self.strikes) + 1.0);
        let opened = now - self.window.length.mul_f64(later);
        let used = self.ledger.between(opened, now);
        let leaves = (self.ledger).between(opened, opened + Duration::from_secs_f64(ahead));
        let holds = self.ceiling * self.window.length.as_secs_f64() - 1.0;
        ((holds - used).max(0.0) + leaves) / ahead
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Arc;

    use super::super::DiscoverConfig;
    use super::super::learning::tests::{cruising, live};
    use super::*;
    use crate::signal::Signal;

    /// Runs a cold start for two lengths of a sliding window with `count` requests per `length_s`
    /// seconds. Returns the refused and the served requests of the second length.
    fn sliding(count: usize, length_s: f64, without: Option<Mechanism>) -> (u32, u32) {
        let config = DiscoverConfig {
            without,
            ..DiscoverConfig::default()
        };
        let began = Timestamp::from_secs_f64(1e6);
        let length = Duration::from_secs_f64(length_s);
        let law = Learning::new(Arc::new(config), 1.0, began);
        let mut log = VecDeque::new();
        let admits = |now: Timestamp| {
            while log.front().is_some_and(|sent| now - length >= *sent) {
                log.pop_front();
            }
            let admitted = log.len() < count;
            if admitted {
                log.push_back(now);
            }
            admitted
        };
        let (mut refused, mut served) = (0, 0);
        live(law, length * 2, admits, |_, now, signal| {
            if now >= began + length {
                refused += u32::from(signal == Signal::RateLimited);
                served += u32::from(signal == Signal::Ok);
            }
        });
        (refused, served)
    }

    #[test]
    fn a_sliding_window_is_used_again_while_it_empties() {
        for (count, length_s) in [(20, 10.0), (30, 60.0), (100, 30.0)] {
            let (refused, served) = sliding(count, length_s, None);
            let (_, slowly) = sliding(count, length_s, Some(Mechanism::Replay));
            assert!(refused <= 2, "{count} in {length_s} s: {refused} refused");
            assert!(
                served > slowly,
                "{count} in {length_s} s: {served} and {slowly}"
            );
        }
    }

    #[test]
    fn the_recovery_doubles_the_rate_if_no_window_is_known() {
        let mut law = cruising();
        law.recover(Timestamp::from_secs_f64(1e6));
        assert!((law.comeback(Timestamp::from_secs_f64(1e6)) - 2.5).abs() < 1e-9);
        assert_eq!(law.bears(), 3);
    }
}
