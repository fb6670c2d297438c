//! Back from the end of a window, as what was sent leaves it.
//!
//! A window that slides still holds what was sent before its block, and takes in as much as leaves
//! it: what was sent in the start comes in again at the start's own pace. The ledger knows it.
//! Whoever keeps to that is refused by no window of any kind, so the way back need be no slower;
//! and once refused on the way, it is no faster.

use std::time::Duration;

use super::Mechanism;
use super::learning::Learning;
use crate::Timestamp;

/// How far it looks ahead, seconds or requests.
const AHEAD_S: f64 = 1.0;
const AHEAD_REQUESTS: f64 = 4.0;
/// The ledger remembers coarsely: what it says leaves later by this share of the length, and each
/// refusal on the way adds as much.
const LATER: f64 = 0.03;
/// The least rate on the way back, of the ceiling.
const LEAST: f64 = 0.01;
/// Refusals on the way back by doublings until the ceiling is doubted.
const DOUBLING_BEARS: u8 = 3;
/// The same from a window that was guessed.
const GUESS_BEARS: u8 = 2;
/// The same from a window that is known.
const KNOWN_BEARS: u8 = 6;

impl Learning {
    /// The way back is told by a window.
    pub(super) fn replays(&self) -> bool {
        self.window.is_known() && self.has(Mechanism::Replay)
    }

    /// The rate on the way back.
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

    /// The way back is over.
    pub(super) fn came_back(&self, now: Timestamp) -> bool {
        if self.replays() && self.strikes > 0 {
            self.room(now) >= self.top()
        } else {
            self.rate * 2.0 >= self.top()
        }
    }

    /// So many refusals on the way back are none of the ceiling's.
    pub(super) fn bears(&self) -> u8 {
        if !self.replays() {
            DOUBLING_BEARS
        } else if self.window.is_guess(&self.ledger) {
            GUESS_BEARS
        } else {
            KNOWN_BEARS
        }
    }

    /// Just below the ceiling.
    pub(super) fn top(&self) -> f64 {
        self.ceiling * (1.0 - self.config.margin)
    }

    /// What the window takes in for a while to come, requests per second: what it has room for, and
    /// what leaves it.
    fn room(&self, now: Timestamp) -> f64 {
        let ahead = AHEAD_S.max(AHEAD_REQUESTS / self.ceiling);
        let later = 1.0 + LATER * f64::from(self.strikes + 1);
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

    /// A cold start at a window that slides, of `count` requests in `length_s`: refusals and served
    /// requests of the second of its lengths.
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
    fn a_window_that_slides_is_used_again_as_it_empties() {
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
    fn without_a_window_it_doubles() {
        let mut law = cruising();
        law.recover(Timestamp::from_secs_f64(1e6));
        assert!((law.comeback(Timestamp::from_secs_f64(1e6)) - 2.5).abs() < 1e-9);
        assert_eq!(law.bears(), 3);
    }
}
