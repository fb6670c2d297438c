//! Plans the canaries after a refusal: single requests that test whether the host serves again.
//!
//! The first canary leaves one interval after the refusal. If it is served, the refusal was *soft*:
//! a bucket was empty, or a window had a moment left. If it is refused, the block is *hard*: the
//! host refuses for a while, most likely until a window ends.
//!
//! Windows have round lengths. So each later canary leaves when a window of a round length would
//! end. Such a window began with the first request or at the end of the last block. Each canary is
//! at least about twice as far from the refusal as the previous one.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::ledger::Ledger;
use super::window::{ROUND_S, Window};
use crate::Timestamp;

/// Delay of a canary after the expected end of a window.
const AFTER: Duration = Duration::from_millis(60);
/// Longest further delay for windows that are counted from the first request. Each later window
/// begins with a request, so it may begin late.
const DRIFT_MAX: Duration = Duration::from_secs(1);
/// The time since the refusal counts as at least this. Windows last a second or longer.
const SECOND: Duration = Duration::from_millis(400);
/// In an outage the wait until the next canary is this many times the outage's length so far.
const OUTAGE_GROWTH: f64 = 1.5;
/// Longest wait between canaries in the first five minutes of an outage.
const OUTAGE_SOON: Duration = Duration::from_secs(30);
/// Longest wait between canaries later in an outage. In between, the longest wait is a tenth of the
/// outage's length.
const OUTAGE_MAX: Duration = Duration::from_mins(1);
/// Least and greatest factor by which the time since the refusal grows from canary to canary.
const GROWTH: (f64, f64) = (2.0, 3.4);
/// Number of canaries after which the least factor is [`GROWTH_LATER`].
const LATER: u16 = 4;
/// Least factor for later canaries. If a canary is refused after ten seconds, the next one must not
/// skip the end of fifteen seconds.
const GROWTH_LATER: f64 = 1.95;
/// Greatest factor after two refused canaries while no window is known. They exclude a bucket, and
/// among the first requests each refusal is a large share.
const GROWTH_FIRST: f64 = 4.5;
/// Factor where no round window could end in the allowed range.
const GROWTH_ELSE: f64 = 2.4;

/// A refusal and the refused canaries after it, until a request is served again.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Block {
    /// When the first refused request was sent.
    pub(super) began: Timestamp,
    /// When the last refused request was sent, or the end of the announced wait, if that is later.
    /// A second is subtracted from the wait, because servers round it.
    pub(super) refused: Timestamp,
    /// When the last refusal arrived. A request sent before this time says nothing about the
    /// block's end.
    pub(super) heard: Timestamp,
    /// Number of refused canaries.
    pub(super) canaries: u16,
    /// The law's rate when the block began, in requests per second.
    pub(super) rate: f64,
    /// Requests in flight beside the first refused one.
    pub(super) beside: u16,
    /// Whether the host was overloaded, rather than refusing by count.
    pub(super) overloaded: bool,
    /// Whether one of the failures was of a kind that no limit causes.
    pub(super) is_trouble: bool,
    /// Whether the server announced a wait.
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

    fn growth_min(&self) -> f64 {
        if self.canaries >= LATER {
            GROWTH_LATER
        } else {
            GROWTH.0
        }
    }

    /// Returns the time of the next canary. `window` and `ledger` show when a window may end.
    /// `rate` is the ceiling or the refused rate, in requests per second. `round_trip` is a usual
    /// round trip. `rounds` is true if windows of round lengths are expected.
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
            // A used-up window opens again when its first request is as old as the window is long.
            let opens = ledger
                .since_last(window.count)
                .filter(|_| window.fitted > 0);
            return opens.map_or(soon, |at| soon.max(at + window.length + AFTER));
        }
        let elapsed = self.heard.since(self.began).max(SECOND);
        if self.overloaded {
            // An outage has no window; the breaker also spaces its requests.
            let most = (elapsed / 10).clamp(OUTAGE_SOON, OUTAGE_MAX);
            return self.heard + elapsed.mul_f64(OUTAGE_GROWTH).max(interval).min(most);
        }
        let growth_max = if self.canaries > 1 && !window.is_known() {
            GROWTH_FIRST
        } else {
            GROWTH.1
        };
        let (least, most) = (
            self.began + elapsed.mul_f64(self.growth_min()).max(interval),
            self.began + elapsed.mul_f64(growth_max).max(interval.mul_f64(2.0)),
        );
        // A window that begins with a request begins up to one interval after the previous one has
        // ended.
        let drift = interval.min(DRIFT_MAX);
        let first = ledger.first().map(|first| first + drift);
        let starts = [first, window.reset.map(|reset| reset.to)]
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
            .unwrap_or(self.began + elapsed.mul_f64(GROWTH_ELSE).max(interval))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::window::Between;
    use super::*;

    const ROUND_TRIP: Duration = Duration::from_millis(100);

    fn at(secs: f64) -> Timestamp {
        Timestamp::from_secs_f64(secs)
    }

    /// Returns a block whose first request was refused at `secs`. The answer came one round trip
    /// later.
    fn refused(secs: f64) -> Block {
        Block {
            began: at(secs),
            refused: at(secs),
            heard: at(secs) + ROUND_TRIP,
            canaries: 0,
            rate: 4.0,
            beside: 0,
            overloaded: false,
            is_trouble: false,
            told: false,
        }
    }

    /// Sends the next canary, which is refused too, and returns its time.
    fn again(block: &mut Block, window: &Window, ledger: &Ledger) -> Timestamp {
        let sent = block.next_canary(window, ledger, block.rate, ROUND_TRIP, true);
        block.refused = sent;
        block.heard = sent + ROUND_TRIP;
        block.canaries += 1;
        sent
    }

    /// Returns a ledger with one request at each of these seconds.
    fn served(secs: &[f64]) -> Ledger {
        let mut ledger = Ledger::default();
        for secs in secs {
            ledger.serve(at(*secs));
        }
        ledger
    }

    #[test]
    fn the_first_canary_leaves_after_one_interval_or_one_round_trip() {
        let (window, ledger) = (Window::default(), Ledger::default());
        let first = |rate| refused(50.0).next_canary(&window, &ledger, rate, ROUND_TRIP, true);
        assert_eq!(first(4.0), at(50.25));
        assert_eq!(first(1_000.0), at(50.12));
    }

    #[test]
    fn later_canaries_leave_at_the_ends_of_round_windows_since_the_first_request() {
        let (mut block, window, ledger) = (refused(3.0), Window::default(), served(&[0.0, 2.0]));
        let asked: Vec<_> = (0..5)
            .map(|_| again(&mut block, &window, &ledger))
            .collect();
        // The ends of five, ten and twenty seconds, each one interval later.
        assert_eq!(asked[2..], [at(5.31), at(10.31), at(20.31)]);
    }

    /// Two refused canaries exclude a bucket. Without the larger factor the third would be refused
    /// at 8.4 s.
    #[test]
    fn in_the_first_block_the_third_canary_leaves_at_the_end_of_a_round_window() {
        let (mut block, ledger) = (refused(5.9), served(&[0.0, 2.0]));
        let asked: Vec<_> = (0..3)
            .map(|_| again(&mut block, &Window::default(), &ledger))
            .collect();
        assert_eq!(asked[2], at(10.31));
    }

    /// With express-rate-limit the second window of ten seconds began with the first request after
    /// the first window's end. A canary 20.06 s after the first request came 20 ms too soon, and
    /// the next one went ten seconds later.
    #[test]
    fn a_later_window_begins_with_a_request() {
        let (window, ledger) = (Window::default(), served(&[0.0, 9.95, 10.06, 13.0]));
        let mut block = refused(13.1);
        let asked: Vec<_> = (0..5)
            .map(|_| again(&mut block, &window, &ledger))
            .collect();
        let waits = asked.iter().find(|asked| **asked > at(20.06 + 0.02));
        assert_eq!(waits, Some(&at(20.31)), "{asked:?}");
    }

    /// A counter of two weighted windows of ten seconds received a canary at 10.17 s, 80 ms too
    /// soon. The next one went at 20.17 s.
    #[test]
    fn a_canary_refused_at_ten_seconds_is_followed_by_one_at_fifteen() {
        let block = Block {
            rate: 9.0,
            refused: at(10.17),
            heard: at(10.173),
            canaries: 4,
            ..refused(5.06)
        };
        let (window, ledger) = (Window::default(), served(&[0.0, 4.95]));
        let next = block.next_canary(&window, &ledger, block.rate, ROUND_TRIP, true);
        assert_eq!(next.as_micros() / 1_000, 15_171);
    }

    #[test]
    fn a_canary_leaves_at_the_end_of_a_round_window_since_the_last_block() {
        let reset = Between {
            from: at(99.0),
            to: at(100.0),
        };
        let window = Window {
            reset: Some(reset),
            ..Window::default()
        };
        let (mut block, ledger) = (refused(107.0), served(&[51.3]));
        let asked: Vec<_> = (0..4)
            .map(|_| again(&mut block, &window, &ledger))
            .collect();
        assert!(asked.contains(&at(110.06)), "{asked:?}");
    }

    #[test]
    fn the_first_canary_waits_for_the_end_of_a_known_window() {
        let window = Window {
            length: Duration::from_secs(10),
            count: 3.0,
            reset: None,
            fitted: 1,
        };
        let ledger = served(&[0.0, 1.0, 2.0, 3.0]);
        let first = refused(4.0).next_canary(&window, &ledger, 4.0, ROUND_TRIP, true);
        assert_eq!(first, at(11.06));
    }

    #[test]
    fn in_an_outage_a_canary_leaves_every_half_minute_and_later_every_minute() {
        let (window, ledger) = (Window::default(), Ledger::default());
        let mut block = Block {
            overloaded: true,
            ..refused(0.0)
        };
        let asked: Vec<_> = (0..40)
            .map(|_| again(&mut block, &window, &ledger))
            .collect();
        for pair in asked.windows(2) {
            let apart = pair[1].since(pair[0]);
            let early = pair[1] < at(300.0);
            let most = if early { OUTAGE_SOON } else { OUTAGE_MAX };
            assert!(apart <= most + ROUND_TRIP, "{apart:?}");
        }
        // An outage of five minutes costs the first refusal and at most fourteen canaries. Later
        // there is hardly more than one per minute.
        assert!(asked[14] > at(300.0), "{asked:?}");
        assert!(asked[39] > at(25.0 * 60.0), "{asked:?}");
    }

    proptest! {
        /// A window of an hour costs a dozen refusals, not a thousand, and the key does not wait
        /// hours too long.
        #[test]
        fn the_delays_of_canaries_grow_by_bounded_factors(
            first in 0.0..1e5,
            began in 0.0..1e5,
            rate in 0.002..1e3,
            rounds: bool,
        ) {
            let (window, ledger) = (Window::default(), served(&[first]));
            let mut block = Block { rate, ..refused(first + began) };
            again(&mut block, &window, &ledger);
            for _ in 0..8 {
                let elapsed = block.heard.since(block.began).max(SECOND).as_secs_f64();
                let next = block.next_canary(&window, &ledger, rate, ROUND_TRIP, rounds);
                let after = next.since(block.began).as_secs_f64();
                let interval = (1.0 / rate).min(60.0);
                prop_assert!(after >= block.growth_min() * elapsed - 1e-3, "{after} {elapsed}");
                prop_assert!(after <= (GROWTH_FIRST * elapsed).max(2.0 * interval) + 1e-3, "{after} {elapsed}");
                again(&mut block, &window, &ledger);
            }
        }
    }
}
