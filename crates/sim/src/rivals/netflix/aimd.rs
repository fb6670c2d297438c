//! `AIMDLimit`: a drop, or a mean round trip above five seconds, removes a tenth; a window that
//! used half the limit adds one.

use politely_core::Rng;

use super::{Law, START, Sample};

const BACKOFF: f64 = 0.9;
/// Seconds.
const TIMEOUT_S: f64 = 5.0;
const MAX: u32 = 200;

#[derive(Debug)]
pub(in super::super) struct Aimd {
    limit: u32,
}

impl Aimd {
    pub(in super::super) const fn new() -> Self {
        Self {
            limit: START as u32,
        }
    }
}

impl Law for Aimd {
    fn update(&mut self, sample: Sample, _rng: &mut Rng) {
        if sample.dropped || sample.rtt > TIMEOUT_S {
            self.limit = (f64::from(self.limit) * BACKOFF) as u32;
        } else if sample.in_flight * 2 >= self.limit {
            self.limit += 1;
        }
        self.limit = self.limit.clamp(1, MAX);
    }

    fn limit(&self) -> u32 {
        self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upstream's `AIMDLimitTest`, and the bounds.
    #[test]
    fn upstreams_own_steps() {
        for (limit, rtt, in_flight, dropped, expected) in [
            (20, 0.001, 10, false, 21),
            (20, 0.001, 9, false, 20),
            (30, 0.0, 0, true, 27),
            (30, 5.1, 30, false, 27),
            (200, 0.001, 200, false, 200),
            (1, 0.001, 1, true, 1),
        ] {
            let mut aimd = Aimd { limit };
            let sample = Sample {
                rtt,
                in_flight,
                dropped,
            };
            aimd.update(sample, &mut Rng::new(0));
            assert_eq!(aimd.limit, expected);
        }
    }
}
