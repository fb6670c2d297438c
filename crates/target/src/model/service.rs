//! The service time of a host.

use std::time::Duration;

use politely_core::Rng;
use serde::{Deserialize, Serialize};

use super::SpecError;

/// Lognormal service times: never negative, with the long right tail that real hosts have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Service {
    /// The mean in milliseconds; 0 answers at once.
    pub mean_ms: f64,
    /// The standard deviation over the mean; 0 makes all times equal.
    #[serde(default)]
    pub cv: f64,
}

impl Service {
    /// Returns the mean.
    pub fn mean(&self) -> Duration {
        Duration::from_micros((self.mean_ms * 1000.0) as u64)
    }

    /// Checks that the mean is at most an hour and the spread at most tenfold.
    pub fn validate(&self) -> Result<(), SpecError> {
        if !(0.0..=3_600_000.0).contains(&self.mean_ms) {
            return Err(SpecError::new("mean_ms", "0 to 3600000", self.mean_ms));
        }
        if !(0.0..=10.0).contains(&self.cv) {
            return Err(SpecError::new("cv", "0 to 10", self.cv));
        }
        Ok(())
    }

    /// Draws one service time. Equal times draw nothing from the generator.
    pub fn sample(&self, rng: &mut Rng) -> Duration {
        if self.mean_ms <= 0.0 || self.cv <= 0.0 {
            return self.mean();
        }
        // Box and Muller: 1 - unit() is never 0, so the logarithm is finite.
        let radius = libm::sqrt(-2.0 * libm::log(1.0 - rng.unit()));
        let normal = radius * libm::cos(2.0 * std::f64::consts::PI * rng.unit());
        let variance = libm::log(self.cv.mul_add(self.cv, 1.0));
        let factor = libm::exp(libm::sqrt(variance).mul_add(normal, -variance / 2.0));
        Duration::from_micros((self.mean_ms * 1000.0 * factor) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_have_the_mean_and_the_spread_asked_for() {
        let service = Service {
            mean_ms: 200.0,
            cv: 0.3,
        };
        let mut rng = Rng::new(7);
        let samples: Vec<f64> = (0..100_000)
            .map(|_| service.sample(&mut rng).as_secs_f64() * 1e3)
            .collect();
        let mean = samples.iter().sum::<f64>() / samples.len() as f64;
        let variance =
            samples.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / samples.len() as f64;
        assert!((mean - 200.0).abs() < 1.0, "{mean}");
        assert!((variance.sqrt() / mean - 0.3).abs() < 0.01, "{variance}");
    }

    #[test]
    fn nonsense_is_refused() {
        for (mean_ms, cv) in [
            (-1.0, 0.0),
            (f64::NAN, 0.0),
            (1.0, -0.1),
            (1.0, f64::INFINITY),
            (1e9, 0.0),
        ] {
            assert!(
                Service { mean_ms, cv }.validate().is_err(),
                "{mean_ms} {cv}"
            );
        }
    }
}
