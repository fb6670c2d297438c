//! `Gradient2Limit`: the long mean of round trips over the short one, between a half and one, times
//! the limit, plus a queue of four, a fifth of the way.
//!
//! Drops are ignored, so a refusal that answers fast looks good. Windows that used less than half
//! the limit change nothing. The long mean weighs 600 windows (2/601 each, the first ten plainly);
//! while it is more than twice the short one it shrinks by a twentieth.

use politely_core::Rng;

use super::{Law, START, Sample};

const SMOOTHING: f64 = 0.2;
const TOLERANCE: f64 = 1.5;
const QUEUE: f64 = 4.0;
const MIN: f64 = 1.0;
const MAX: f64 = 200.0;
const WARM_UP: u32 = 10;
const LONG_WINDOW: f64 = 600.0;

/// A mean that is plain at first and exponential then (`ExpAvgMeasurement`).
#[derive(Clone, Copy, Debug, Default)]
struct Long {
    mean: f64,
    sum: f64,
    count: u32,
}

impl Long {
    fn add(&mut self, sample: f64, window: f64) -> f64 {
        if self.count < WARM_UP {
            self.count += 1;
            self.sum += sample;
            self.mean = self.sum / f64::from(self.count);
        } else {
            let factor = 2.0 / (window + 1.0);
            self.mean = self.mean * (1.0 - factor) + sample * factor;
        }
        self.mean
    }
}

#[derive(Debug)]
pub(in super::super) struct Gradient2 {
    limit: f64,
    long: Long,
}

impl Gradient2 {
    pub(in super::super) fn new() -> Self {
        Self {
            limit: START,
            long: Long::default(),
        }
    }
}

impl Law for Gradient2 {
    fn update(&mut self, sample: Sample, _rng: &mut Rng) {
        let long = self.long.add(sample.rtt, LONG_WINDOW);
        if long / sample.rtt > 2.0 {
            self.long.mean *= 0.95;
        }
        if f64::from(sample.in_flight) < self.limit / 2.0 {
            return;
        }
        let gradient = (TOLERANCE * long / sample.rtt).clamp(0.5, 1.0);
        let target = self.limit * gradient + QUEUE;
        let smoothed = self.limit * (1.0 - SMOOTHING) + target * SMOOTHING;
        self.limit = smoothed.clamp(MIN, MAX);
    }

    fn limit(&self) -> u32 {
        self.limit as u32
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::near;
    use super::*;

    /// Upstream's `ExpAvgMeasurementTest`.
    #[test]
    fn upstreams_own_mean() {
        let mut long = Long::default();
        for (i, mean) in [10.0, 10.5, 11.0, 11.5, 12.0, 12.5, 13.0, 13.5, 14.0, 14.5]
            .into_iter()
            .enumerate()
        {
            near(long.add(10.0 + i as f64, 100.0), mean);
        }
        assert!((long.add(100.0, 100.0) - 16.2).abs() < 0.1);
    }

    /// By hand from the formula; upstream has no test of its law.
    #[test]
    fn steps_by_hand() {
        let mut law = Gradient2::new();
        let mut update = |rtt, in_flight, dropped| {
            let sample = Sample {
                rtt,
                in_flight,
                dropped,
            };
            law.update(sample, &mut Rng::new(0));
            law.limit
        };
        near(update(0.1, 4, false), 4.8);
        // A drop changes nothing.
        near(update(0.1, 4, true), 5.6);
        near(update(0.1, 2, false), 5.6);
        // Long mean (0.3 + 0.4) / 4 = 0.175, gradient 1.5 x 0.175 / 0.4 = 0.65625.
        near(
            update(0.4, 5, false),
            0.8 * 5.6 + 0.2 * (5.6 * 0.656_25 + 4.0),
        );
        // At least a half.
        let before = 0.8 * 5.6 + 0.2 * (5.6 * 0.656_25 + 4.0);
        near(
            update(40.0, 6, false),
            0.8 * before + 0.2 * (before * 0.5 + 4.0),
        );
    }
}
