//! `VegasLimit`: the queue estimated from the round trip, as in TCP Vegas.
//!
//! `queue = ceil(limit (1 - least round trip / round trip))`, `l = log10(limit)`, at least 1. A
//! drop removes `l`; a queue up to `l` adds `6 l`, below `3 l` adds `l`, above `6 l` removes `l`.
//! Windows that used less than half the limit change nothing. The least round trip is forgotten
//! every 15 to 30 windows per unit of the limit.

use politely_core::Rng;

use super::{Law, START, Sample};

const MAX: f64 = 1000.0;
const PROBE: f64 = 30.0;

#[derive(Debug)]
pub(in super::super) struct Vegas {
    limit: f64,
    max: f64,
    /// Least round trip, seconds.
    least: Option<f64>,
    windows: u32,
    probe_share: f64,
}

impl Vegas {
    pub(in super::super) fn new(rng: &mut Rng) -> Self {
        Self {
            limit: START,
            max: MAX,
            least: None,
            windows: 0,
            probe_share: rng.between(0.5, 1.0),
        }
    }
}

/// The decimal logarithm, whole, at least 1.
fn log10(limit: f64) -> f64 {
    libm::log10(limit.floor()).floor().max(1.0)
}

impl Law for Vegas {
    fn update(&mut self, sample: Sample, rng: &mut Rng) {
        self.windows += 1;
        if self.probe_share * PROBE * self.limit <= f64::from(self.windows) {
            self.probe_share = rng.between(0.5, 1.0);
            self.windows = 0;
            self.least = Some(sample.rtt);
            return;
        }
        let Some(least) = self.least.filter(|least| sample.rtt >= *least) else {
            self.least = Some(sample.rtt);
            return;
        };
        let step = log10(self.limit);
        let queue = (self.limit * (1.0 - least / sample.rtt)).ceil();
        let limit = if sample.dropped {
            self.limit - step
        } else if f64::from(sample.in_flight) * 2.0 < self.limit {
            return;
        } else if queue <= step {
            self.limit + 6.0 * step
        } else if queue < 3.0 * step {
            self.limit + step
        } else if queue > 6.0 * step {
            self.limit - step
        } else {
            return;
        };
        self.limit = limit.clamp(1.0, self.max);
    }

    fn limit(&self) -> u32 {
        self.limit as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upstream's `VegasLimitTest`: its constant alpha 3 and beta 6 are the defaults for limits
    /// below 100.
    #[test]
    fn upstreams_own_steps() {
        let rng = &mut Rng::new(0);
        for (limit, max, first, second, expected) in [
            (10_000.0, 20_000.0, (10.0, 5000), (10.0, 6000), 10_024),
            (10.0, 20.0, (0.010, 10), (0.010, 11), 16),
            (10.0, 20.0, (0.010, 10), (0.050, 11), 9),
            (10.0, 20.0, (0.010, 10), (0.014, 14), 10),
        ] {
            let mut vegas = Vegas::new(rng);
            (vegas.limit, vegas.max) = (limit, max);
            for (expected, (rtt, in_flight)) in [(limit as u32, first), (expected, second)] {
                let sample = Sample {
                    rtt,
                    in_flight,
                    dropped: false,
                };
                vegas.update(sample, rng);
                assert_eq!(vegas.limit(), expected);
            }
        }
    }

    #[test]
    fn drops_take_one_and_idleness_and_probes_nothing() {
        let rng = &mut Rng::new(0);
        let mut vegas = Vegas::new(rng);
        let mut update = |rtt, in_flight, dropped| {
            let sample = Sample {
                rtt,
                in_flight,
                dropped,
            };
            vegas.update(sample, &mut Rng::new(0));
            (vegas.limit(), vegas.least)
        };
        assert_eq!(update(0.1, 4, true), (4, Some(0.1)));
        assert_eq!(update(0.1, 4, true), (3, Some(0.1)));
        assert_eq!(update(0.1, 1, false), (3, Some(0.1)));
        // A limit of 3 is probed every 45 to 90 windows.
        assert_eq!(update(0.09, 1, false), (3, Some(0.09)));
        let probed = (0..90).any(|_| update(0.5, 1, false).1 == Some(0.5));
        assert!(probed);
    }
}
