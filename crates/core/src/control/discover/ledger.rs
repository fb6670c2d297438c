//! What was served when, coarsely: how much of a window was used can be asked long after.
//!
//! A list of (time, served so far), thinned as it ages: of three neighbours the middle one goes where it
//! says least for its age. Between two of them, serving is taken to be even.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// Points kept.
const POINTS: usize = 48;

/// When and how many so far.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Point {
    at: Timestamp,
    served: u32,
}

/// Served requests over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Ledger {
    points: Vec<Point>,
    served: u32,
}

impl Ledger {
    pub(super) fn rebase(&mut self, back: Duration) {
        for point in &mut self.points {
            point.at = point.at - back;
        }
        // Further back than it remembers: what was sent at the beginning of time was sent at once.
        self.points.dedup_by(|next, kept| {
            let same = next.at == kept.at;
            if same {
                kept.served = next.served;
            }
            same
        });
    }

    pub(super) fn plausible(&self) -> bool {
        let ascends = |pair: &[Point]| pair[0].at < pair[1].at && pair[0].served < pair[1].served;
        self.points.len() <= POINTS
            && self.points.windows(2).all(ascends)
            && self.points.last().map_or(0, |point| point.served) == self.served
            && self.served < u32::MAX
    }

    /// One more, sent at `at`.
    pub(super) fn serve(&mut self, at: Timestamp) {
        if self.served == u32::MAX - 1 {
            // A hundred days at 500 a second: what matters is the difference.
            *self = Self::default();
        }
        self.served += 1;
        let served = self.served;
        match self.points.as_mut_slice() {
            [.., last] if at <= last.at => last.served = served,
            [.., before, last] if last.at.micros_since(before.at) < 50_000 => {
                *last = Point { at, served };
            }
            _ => {
                if self.points.len() >= POINTS {
                    self.thin(at);
                }
                self.points.push(Point { at, served });
            }
        }
    }

    /// All of them.
    pub(super) const fn served(&self) -> u32 {
        self.served
    }

    /// How many were sent up to `at`.
    fn until(&self, at: Timestamp) -> f64 {
        let after = self.points.partition_point(|point| point.at <= at);
        let Some(next) = self.points.get(after) else {
            return f64::from(self.served);
        };
        let Some(last) = after.checked_sub(1).map(|i| self.points[i]) else {
            return 0.0;
        };
        let share = at.micros_since(last.at) as f64 / next.at.micros_since(last.at) as f64;
        // The one at `next` itself came last.
        f64::from(last.served) + share * f64::from(next.served.saturating_sub(last.served + 1))
    }

    /// How many were sent after `from`, up to `to`.
    pub(super) fn between(&self, from: Timestamp, to: Timestamp) -> f64 {
        (self.until(to) - self.until(from)).max(0.0)
    }

    /// When the first of the last `count` was sent, about.
    pub(super) fn since_last(&self, count: f64) -> Option<Timestamp> {
        let before = f64::from(self.served) - count;
        let next = self
            .points
            .partition_point(|point| f64::from(point.served) <= before);
        let next_point = self.points.get(next)?;
        let Some(last) = next.checked_sub(1).map(|i| self.points[i]) else {
            return self.first();
        };
        let share =
            (before + 1.0 - f64::from(last.served)) / f64::from(next_point.served - last.served);
        let gap = next_point.at.since(last.at);
        Some(last.at + gap.mul_f64(share.clamp(0.0, 1.0)))
    }

    /// When the first was sent.
    pub(super) fn first(&self) -> Option<Timestamp> {
        self.points.first().map(|point| point.at)
    }

    /// Drops the point that says least: the narrowest gap around it, for its age.
    fn thin(&mut self, now: Timestamp) {
        let said = |i: usize| {
            let gap = self.points[i + 1].at.micros_since(self.points[i - 1].at) as f64;
            gap / (now.micros_since(self.points[i].at) as f64 + 1e6)
        };
        let least = (1..self.points.len() - 1).min_by(|&a, &b| said(a).total_cmp(&said(b)));
        self.points.remove(least.unwrap_or(0));
    }
}
