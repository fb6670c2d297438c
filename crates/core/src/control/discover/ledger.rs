//! The history of served requests. It shows later, approximately, how much of a window was used.
//!
//! The history is a list of points (time, number served so far). When it is full, it drops the
//! point whose neighbours are closest together in relation to the point's age. Between two points,
//! requests are assumed to be evenly spaced. A point takes eight bytes, because it holds the time
//! since the point before it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// The most points in a history.
const POINTS: usize = 48;
/// Number of points by which the list's memory grows.
const ROOM: usize = 16;

/// The number of requests served up to a time.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    at: Timestamp,
    served: u32,
}

/// A point as it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Step {
    /// Time since the step before; zero in the first step.
    gap: Gap,
    served: u32,
}

/// A time between two points: in microseconds, or with the highest bit set in units of 1,024
/// microseconds. So it is exact up to 35 minutes, and 25 days at most.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Gap(u32);

impl Gap {
    const COARSE: u32 = 1 << 31;

    fn of(micros: u64) -> Self {
        match u32::try_from(micros) {
            Ok(micros) if micros < Self::COARSE => Self(micros),
            _ => Self((micros >> 10).min(u64::from(Self::COARSE - 1)) as u32 | Self::COARSE),
        }
    }

    const fn micros(self) -> u64 {
        if self.0 < Self::COARSE {
            self.0 as u64
        } else {
            ((self.0 - Self::COARSE) as u64) << 10
        }
    }
}

/// The number of served requests over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Ledger {
    steps: Vec<Step>,
    /// The time of the last step.
    last: Timestamp,
    served: u32,
}

impl Ledger {
    pub(super) fn rebase(&mut self, back: Duration) {
        let moved = |point: Point| Point {
            at: point.at - back,
            ..point
        };
        let mut points: Vec<Point> = self.newest_first().map(moved).collect();
        points.reverse();
        // Times before the epoch become the epoch. Points with the same time become one.
        points.dedup_by(|next, kept| {
            let same = next.at == kept.at;
            if same {
                kept.served = next.served;
            }
            same
        });
        self.steps.clear();
        self.last = Timestamp::ZERO;
        for Point { at, served } in points {
            self.push(at, served);
        }
    }

    pub(super) fn plausible(&self) -> bool {
        let ascends = |pair: &[Step]| pair[1].gap.0 > 0 && pair[0].served < pair[1].served;
        self.steps.len() <= POINTS
            && self.steps.windows(2).all(ascends)
            && self.steps.last().map_or(0, |step| step.served) == self.served
            && self.served < u32::MAX
    }

    fn newest_first(&self) -> impl Iterator<Item = Point> {
        let mut next = self.last;
        self.steps.iter().rev().map(move |step| {
            let at = next;
            next = at - Duration::from_micros(step.gap.micros());
            let served = step.served;
            Point { at, served }
        })
    }

    /// Records a served request that was sent at `at`.
    pub(super) fn serve(&mut self, at: Timestamp) {
        if self.served == u32::MAX - 1 {
            // The count is full, after a hundred days at 500 per second, so the history starts
            // again.
            *self = Self::default();
        }
        self.served += 1;
        let served = self.served;
        match self.steps.as_mut_slice() {
            [.., last] if at <= self.last => last.served = served,
            [_, .., last] if last.gap.micros() < 50_000 => {
                let gap = Gap::of(last.gap.micros() + at.micros_since(self.last));
                (*last, self.last) = (Step { gap, served }, at);
            }
            _ => {
                if self.steps.len() >= POINTS {
                    self.thin(at);
                } else if self.steps.len() == self.steps.capacity() {
                    self.steps.reserve_exact(ROOM);
                }
                self.push(at, served);
            }
        }
    }

    fn push(&mut self, at: Timestamp, served: u32) {
        let gap = if self.steps.is_empty() {
            Gap(0)
        } else {
            Gap::of(at.micros_since(self.last))
        };
        self.steps.push(Step { gap, served });
        self.last = at;
    }

    /// Returns when the last request was sent.
    pub(super) fn last(&self) -> Option<Timestamp> {
        (!self.steps.is_empty()).then_some(self.last)
    }

    /// Returns the number of all served requests.
    pub(super) const fn served(&self) -> u32 {
        self.served
    }

    /// Returns how many requests were sent up to `at`.
    fn until(&self, at: Timestamp) -> f64 {
        let mut next: Option<Point> = None;
        for last in self.newest_first() {
            if last.at <= at {
                let Some(next) = next else {
                    return f64::from(self.served);
                };
                let gap = next.at.micros_since(last.at);
                let share = at.micros_since(last.at) as f64 / gap as f64;
                // The request at `next.at` itself was sent after `at`.
                let between = next.served.saturating_sub(last.served + 1);
                return f64::from(last.served) + share * f64::from(between);
            }
            next = Some(last);
        }
        0.0
    }

    /// Returns how many requests were sent after `from` and up to `to`.
    pub(super) fn between(&self, from: Timestamp, to: Timestamp) -> f64 {
        (self.until(to) - self.until(from)).max(0.0)
    }

    /// Returns approximately when the first of the last `count` requests was sent.
    pub(super) fn since_last(&self, count: f64) -> Option<Timestamp> {
        let before = f64::from(self.served) - count;
        let mut next: Option<Point> = None;
        for last in self.newest_first() {
            if f64::from(last.served) <= before {
                let next = next?;
                let share =
                    (before + 1.0 - f64::from(last.served)) / f64::from(next.served - last.served);
                let gap = next.at.since(last.at);
                return Some(last.at + gap.mul_f64(share.clamp(0.0, 1.0)));
            }
            next = Some(last);
        }
        next.map(|first| first.at)
    }

    /// Returns when the first request was sent.
    pub(super) fn first(&self) -> Option<Timestamp> {
        self.newest_first().last().map(|point| point.at)
    }

    /// Drops the point with the least information: its neighbours are closest together in relation
    /// to its age.
    fn thin(&mut self, now: Timestamp) {
        let mut age = now.micros_since(self.last);
        let mut least = (f64::INFINITY, 1);
        // From the newest point to the oldest: the times follow from the gaps.
        for (i, pair) in self.steps.windows(2).enumerate().skip(1).rev() {
            let (before, after) = (pair[0].gap.micros(), pair[1].gap.micros());
            age += after;
            let said = (before + after) as f64 / (age as f64 + 1e6);
            if said <= least.0 {
                least = (said, i);
            }
        }
        let dropped = self.steps.remove(least.1);
        if let Some(next) = self.steps.get_mut(least.1) {
            next.gap = Gap::of(next.gap.micros() + dropped.gap.micros());
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(secs: f64) -> Timestamp {
        Timestamp::from_secs_f64(secs)
    }

    fn one_each(times: impl IntoIterator<Item = f64>) -> Ledger {
        let mut ledger = Ledger::default();
        times.into_iter().for_each(|secs| ledger.serve(at(secs)));
        ledger
    }

    /// Returns how many of `times` lie after `from` and up to `to`.
    fn truth(times: &[f64], from: f64, to: f64) -> f64 {
        let up_to = |end| times.iter().filter(|time| at(**time) <= at(end)).count();
        up_to(to) as f64 - up_to(from) as f64
    }

    #[test]
    fn an_even_pace_is_counted_within_two_after_many_points_were_dropped() {
        let times: Vec<f64> = (0..5_000).map(|i| f64::from(i) * 0.3).collect();
        let ledger = one_each(times.iter().copied());
        for (from, to) in [
            (0.0, 1_500.0),
            (0.0, 10.0),
            (777.7, 900.1),
            (1_490.0, 1_499.0),
        ] {
            let off = ledger.between(at(from), at(to)) - truth(&times, from, to);
            assert!(off.abs() <= 2.0, "{from} to {to}: {off}");
        }
    }

    #[test]
    fn recent_requests_are_counted_best() {
        let quiet = (0..100).map(|i| f64::from(i) * 10.0);
        let lately = (0..10).map(|i| 1_000.0 + f64::from(i) * 0.1);
        let ledger = one_each(quiet.chain(lately));
        let of_late = ledger.between(at(999.95), at(1_001.0));
        assert!((of_late - 10.0).abs() <= 1.0, "{of_late}");
    }

    #[test]
    fn the_time_of_the_first_of_the_last_requests_is_known() {
        let ledger = one_each((0..10).map(f64::from));
        assert_eq!(ledger.since_last(3.0), Some(at(7.0)));
        assert_eq!(ledger.since_last(10.0), Some(at(0.0)));
        assert_eq!(Ledger::default().since_last(3.0), None);
    }

    #[test]
    fn a_clock_set_back_beyond_the_beginning_loses_times_but_no_counts() {
        let mut ledger = one_each((0..10).map(f64::from));
        ledger.rebase(Duration::from_secs(5));
        assert!(ledger.plausible(), "{ledger:?}");
        assert_eq!(ledger.served(), 10);
        let after = ledger.between(Timestamp::ZERO, at(4.0));
        assert!((after - 4.0).abs() < 1e-9, "{after}");
    }

    #[test]
    fn a_count_that_is_full_begins_anew() {
        let served = u32::MAX - 1;
        let steps = vec![Step {
            gap: Gap(0),
            served,
        }];
        let last = at(1.0);
        let mut ledger = Ledger {
            steps,
            last,
            served,
        };
        ledger.serve(at(2.0));
        assert!(ledger.plausible(), "{ledger:?}");
        assert_eq!((ledger.served(), ledger.first()), (1, Some(at(2.0))));
    }

    #[test]
    fn a_gap_is_exact_up_to_half_an_hour_and_within_a_millisecond_up_to_weeks() {
        for micros in [0, 1, 49_999, 1_800_000_000, u64::from(u32::MAX / 2)] {
            assert_eq!(Gap::of(micros).micros(), micros);
        }
        for micros in [2_147_483_648, 86_400_000_000, 2_000_000_000_000] {
            let off = micros - Gap::of(micros).micros();
            assert!(off < 1_024, "{micros}: {off}");
        }
        assert!(Gap::of(u64::MAX).micros() > 25 * 86_400_000_000);
    }

    proptest! {
        /// While the list is not full, requests 50 ms or more apart have a point each.
        #[test]
        fn few_requests_are_counted_exactly(
            gaps in prop::collection::vec(0.05_f64..100.0, 1..POINTS),
            from in 0.0..3_000.0,
            length in 0.0..3_000.0,
        ) {
            let mut last = 0.0;
            let times: Vec<f64> = gaps.iter().map(|gap| { last += gap; last }).collect();
            let ledger = one_each(times.iter().copied());
            let counted = ledger.between(at(from), at(from + length));
            prop_assert!((counted - truth(&times, from, from + length)).abs() < 1e-6);
        }

        /// The list stays valid for any gaps and any order of answers.
        #[test]
        fn a_full_list_ascends_and_stays_short(
            gaps in prop::collection::vec(-2.0_f64..50.0, 1..400),
        ) {
            let mut last = 0.0;
            let ledger = one_each(gaps.iter().map(|gap| { last = f64::max(last + gap, 0.0); last }));
            prop_assert!(ledger.plausible(), "{ledger:?}");
            prop_assert_eq!(ledger.served() as usize, gaps.len());
            prop_assert!(ledger.between(Timestamp::ZERO, Timestamp::NEVER) <= gaps.len() as f64);
        }
    }
}
