//! Learns a limit per window from its blocks: some requests are served, then none until the window
//! ends.
//!
//! The end of each hard block lies between its last refusal and the served canary. A whole number
//! of windows lies between two such ends, or between the first request and an end. Windows have
//! round lengths, so one block often leaves a single candidate.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::ledger::Ledger;
use crate::Timestamp;

/// Lengths of windows that operators configure, in seconds.
pub(super) const ROUND_S: [u64; 17] = [
    1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 43_200, 86_400,
];

/// Round lengths that are rarely configured, in seconds.
const UNUSUAL_S: [u64; 3] = [2, 15, 20];

/// The earliest and the latest time of an event.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Between {
    pub(super) from: Timestamp,
    pub(super) to: Timestamp,
}

/// Uncertainty of a window's end, as a share of the length, up to which the end identifies the
/// length.
const TOLD: f64 = 0.4;
/// Uncertainty of the first window's end, as a share of the time since the first request. Up to it,
/// the next round length is a candidate even if such a window ends later.
const NARROW: f64 = 0.1;

/// The shortest window.
const LENGTH_MIN: Duration = Duration::from_secs(1);
/// The longest window that is plausible.
const LENGTH_MAX: Duration = Duration::from_hours(24 * 400);
/// Penalty of a length that is not round, in octaves (factors of two) of the count. Such a length
/// must fit this much better.
const ODD: f64 = 0.1;
/// Counts that differ by less than this, in octaves, are the same.
const SAME: f64 = 0.15;

/// The learned window of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Window {
    /// Length of the window. Zero: unknown, or no window.
    pub(super) length: Duration,
    /// Requests that the window holds.
    pub(super) count: f64,
    /// The last known end of a window.
    pub(super) reset: Option<Between>,
    /// Number of consecutive blocks that fitted the length and the count.
    pub(super) fitted: u16,
}

impl Window {
    /// Narrows down length, count and phase by a block that began at `began` and ended within
    /// `end`. `rate` is the rate at the block's beginning, in requests per second.
    pub(super) fn learn(&mut self, ledger: &Ledger, began: Timestamp, end: Between, rate: f64) {
        let blocked = end.from.since(began);
        let Some(reset) = self.reset else {
            // A window that begins with a request began at the first request or before it. A window
            // aligned to the clock may also have begun after it.
            let first = ledger.first().unwrap_or(began);
            let (least, most) = (end.from.since(first), end.to.since(first));
            let narrow = end.to.since(end.from) < most.mul_f64(NARROW);
            let fits = |round: &Duration| {
                *round >= least
                    && (narrow || *round <= most && !UNUSUAL_S.contains(&round.as_secs()))
            };
            let middle = ((least + most) / 2).max(LENGTH_MIN);
            self.length = rounds().find(fits).unwrap_or(middle);
            self.count = f64::from(ledger.served().max(2) - 1);
            self.reset = Some(end);
            return;
        };
        let drift = Duration::from_secs_f64((1.0 / rate).clamp(1e-6, 60.0));
        let middle = (end.from.since(reset.to) + end.to.since(reset.from)) / 2;
        let odd = [middle, middle / 2].map(|length| (length, ODD));
        let sure = self.fitted > 0 || self.is_round();
        let known = (self.length, if sure { 0.0 } else { ODD });
        let candidates = rounds()
            .map(|length| (length, 0.01))
            .chain(odd)
            .chain([known]);
        let best = candidates
            .filter(|(length, _)| *length >= blocked)
            .filter_map(|(length, penalty)| {
                let end = same_phase(reset, length, end, drift)?;
                let count = ledger
                    .between(middle_of(end) - length, began)
                    .round()
                    .max(1.0);
                let off = libm::fabs(libm::log2(count / self.count));
                Some((length, count, end, off, off.max(SAME) + penalty))
            })
            .min_by(|a, b| a.4.total_cmp(&b.4));
        if let Some((length, count, end, off, _)) = best {
            let fits = off <= SAME && length == self.length;
            // A canary that waited for the expected end does not confirm the length.
            let told = end.to.since(end.from) < length / 5;
            self.fitted = match (fits, told) {
                (true, true) => self.fitted.saturating_add(1),
                (true, false) => self.fitted,
                (false, _) => 0,
            };
            (self.length, self.count, self.reset) = (length, count, Some(end));
        } else {
            // The block lasted longer than every candidate, so the learning starts again.
            *self = Self {
                length: blocked,
                count: self.count,
                reset: Some(end),
                fitted: 0,
            };
        }
    }

    pub(super) fn rebase(&mut self, back: Duration) {
        if let Some(reset) = &mut self.reset {
            (reset.from, reset.to) = (reset.from - back, reset.to - back);
        }
    }

    pub(super) fn plausible(&self) -> bool {
        let known = self.is_known();
        self.count.is_finite()
            && self.length <= LENGTH_MAX
            && (!known || self.count >= 1.0)
            && (!known || self.reset.is_some_and(|reset| reset.from <= reset.to))
    }

    /// Records a possible end of a window: a block ended after `served` requests, perhaps because
    /// its window was used up just before its end.
    pub(super) fn maybe_ended(&mut self, end: Between, served: f64) {
        (self.reset, self.count) = (Some(end), served.max(1.0));
    }

    /// Corrects the count of a window that was used up at `began`. A request was served again at
    /// `end`.
    pub(super) fn used_up(&mut self, ledger: &Ledger, began: Timestamp, end: Timestamp) {
        let count = ledger.between(end - self.length, began).round().max(1.0);
        if libm::fabs(libm::log2(count / self.count)) > SAME {
            self.fitted = 0;
        }
        self.count = count;
    }

    /// Returns the rate that the window allows, in requests per second. Call it only for a known
    /// window.
    pub(super) fn rate(&self) -> f64 {
        self.count / self.length.as_secs_f64()
    }

    /// Returns whether the length is uncertain: it follows from one block that also fits other
    /// lengths, or it is not round.
    pub(super) fn is_guess(&self, ledger: &Ledger) -> bool {
        let (Some(first), Some(end)) = (ledger.first(), self.reset) else {
            return false;
        };
        let told = (end.from..=end.to).contains(&(first + self.length))
            && end.to.since(end.from) < self.length.mul_f64(TOLD);
        self.is_known() && self.fitted == 0 && !(told && self.is_round())
    }

    /// Returns whether the length is one that operators configure.
    pub(super) fn is_round(&self) -> bool {
        rounds().any(|round| round == self.length)
    }

    /// Returns whether a window is known.
    pub(super) const fn is_known(&self) -> bool {
        !self.length.is_zero()
    }
}

/// Returns the lengths of [`ROUND_S`], the shortest first.
pub(super) fn rounds() -> impl Iterator<Item = Duration> + Clone {
    ROUND_S.iter().map(|&s| Duration::from_secs(s))
}

fn middle_of(span: Between) -> Timestamp {
    span.from + span.to.since(span.from) / 2
}

/// Returns the intersection of two ends, modulo the length, if a whole number of windows lies
/// between them.
fn same_phase(before: Between, length: Duration, end: Between, drift: Duration) -> Option<Between> {
    let micros = length.as_micros() as u64;
    let windows = end.to.micros_since(before.from).checked_div(micros)?;
    let gone = Duration::from_micros(windows * micros);
    // A window that begins with a request begins up to one interval after the previous one has
    // ended.
    let drift = drift * windows.min(1_000) as u32;
    let both = Between {
        from: end.from.max(before.from + gone),
        to: end.to.min(before.to + gone + drift),
    };
    (windows > 0 && both.from <= both.to).then_some(both)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Interval between requests while blocked, in seconds.
    const CANARY_S: f64 = 0.3;

    fn at(secs: f64) -> Timestamp {
        Timestamp::from_secs_f64(secs)
    }

    fn between(from: f64, to: f64) -> Between {
        Between {
            from: at(from),
            to: at(to),
        }
    }

    /// Returns the window learned from `blocks` blocks. The host allows `count` requests per
    /// `length_s`, aligned to the clock. The client's first request comes `from_s` seconds into a
    /// window.
    fn learned(count: u32, length_s: f64, rate: f64, from_s: f64, blocks: u32) -> Window {
        let (mut window, mut ledger) = (Window::default(), Ledger::default());
        let mut now = 20.0 * length_s + from_s;
        let (mut current, mut used) = (0.0, 0);
        let mut block: Option<(f64, f64)> = None;
        let mut ended = 0;
        while ended < blocks {
            let window_now = (now / length_s).floor();
            if window_now > current {
                (current, used) = (window_now, 0);
            }
            if used < count {
                used += 1;
                ledger.serve(at(now));
                if let Some((began, refused)) = block.take() {
                    window.learn(&ledger, at(began), between(refused, now), rate);
                    ended += 1;
                }
                now += 1.0 / rate;
            } else {
                block = Some((block.map_or(now, |(began, _)| began), now));
                now += CANARY_S;
            }
        }
        window
    }

    fn holds(window: &Window, count: f64, length_s: f64) {
        assert_eq!(
            window.length,
            Duration::from_secs_f64(length_s),
            "{window:?}"
        );
        assert!((window.count - count).abs() <= 1.0, "{window:?}");
        assert!(window.plausible());
    }

    #[test]
    fn a_window_of_20_per_10_seconds_is_learned_from_two_blocks() {
        let window = learned(20, 10.0, 4.0, 0.2, 2);
        holds(&window, 20.0, 10.0);
        assert_eq!(window.fitted, 1);
    }

    #[test]
    fn a_wrong_length_after_a_start_in_mid_window_is_corrected_at_the_next_block() {
        let guess = learned(20, 10.0, 4.0, 6.8, 1);
        assert_eq!(guess.length, Duration::from_secs(15), "{guess:?}");
        holds(&learned(20, 10.0, 4.0, 6.8, 2), 20.0, 10.0);
        assert_eq!(learned(20, 10.0, 4.0, 6.8, 3).fitted, 1);
    }

    #[test]
    fn a_window_of_seven_seconds_is_found_although_it_is_not_round() {
        let window = learned(21, 7.0, 6.0, 0.2, 3);
        let off = window.length.as_secs_f64() - 7.0;
        assert!(off.abs() <= CANARY_S, "{window:?}");
        assert!((window.rate() - 3.0).abs() < 0.2, "{window:?}");
    }

    #[test]
    fn a_minute_is_not_taken_for_its_halves() {
        for from_s in [0.2, 20.0, 45.0] {
            holds(&learned(120, 60.0, 5.0, from_s, 4), 120.0, 60.0);
        }
    }

    #[test]
    fn windows_that_begin_with_a_request_drift_by_its_interval() {
        let (before, length) = (between(100.0, 100.1), Duration::from_secs(10));
        let third = between(130.6, 130.8);
        let half = Duration::from_millis(500);
        assert!(same_phase(before, length, third, half).is_some());
        assert_eq!(same_phase(before, length, third, Duration::ZERO), None);
        // Three windows drift by at most three intervals.
        assert_eq!(
            same_phase(before, length, between(131.7, 131.9), half),
            None
        );
    }

    #[test]
    fn the_end_is_as_precise_as_the_better_of_two_measurements() {
        let (before, length) = (between(100.0, 100.1), Duration::from_secs(10));
        let end = same_phase(before, length, between(109.0, 113.0), Duration::ZERO);
        assert_eq!(end, Some(between(110.0, 110.1)));
    }

    #[test]
    fn another_count_is_no_fit() {
        let mut window = learned(20, 10.0, 4.0, 0.2, 3);
        let mut ledger = Ledger::default();
        (0..10).for_each(|i| ledger.serve(at(1_000.0 + f64::from(i) * 0.25)));
        window.used_up(&ledger, at(1_002.5), at(1_009.0));
        assert_eq!((window.count.round() as u32, window.fitted), (10, 0));
    }
}
