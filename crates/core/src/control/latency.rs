//! A key's latencies in sixteen bytes: the median, the 95th percentile, and the normal median.
//!
//! A histogram per host would take kilobytes. Instead, each quantile is tracked by stochastic
//! approximation on a logarithmic scale (Robbins and Monro 1951; "frugal" quantiles, Ma et al.
//! 2013). An estimate moves up by `step x q` if a sample lies above it, and down by `step x (1 -
//! q)` if below. After a few dozen samples it is within about ten per cent of the true quantile.
//! That is enough to see a doubling.
//!
//! The scale is the bits of a float, read as an integer. The exponent is the logarithm to base two,
//! and the mantissa interpolates linearly in between. The scale grows with the latency and has an
//! exact inverse. It costs nothing and is the same on every machine.

use std::cmp::Reverse;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::join;

/// Step of the estimates in octaves (factors of two). One sample moves the settled median by half
/// of it.
const STEP: f32 = 0.15;
/// Share of the difference by which the normal median follows a higher median per sample. It is
/// small, so that a growing queue shows as a difference.
const NORMAL_RISE: f32 = 0.02;
/// Number of samples before a rise is reported. Fewer samples depend more on chance than on the
/// host.
const WARM_UP: u8 = 16;
/// Least difference between the median and its normal value that counts as a rise, in octaves.
const NOISE: f32 = 0.1;

/// The latency quantiles of one key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// The median, in octaves of a microsecond.
    p50: f32,
    /// The 95th percentile, in octaves of a microsecond.
    p95: f32,
    /// The normal median, in octaves of a microsecond. It follows a lower median at once and a
    /// higher one slowly.
    normal: f32,
    /// Number of samples so far, at most 255.
    samples: u8,
}

impl Latency {
    /// Records one latency. Zero counts as a microsecond.
    pub fn record(&mut self, latency: Duration) {
        let x = octaves(latency);
        if self.samples == 0 {
            (self.p50, self.p95, self.normal) = (x, x, x);
        }
        self.samples = self.samples.saturating_add(1);
        // The first steps are large, because the initial value is one sample and may be far off.
        let step = STEP * (1.0 + 8.0 / f32::from(self.samples));
        self.p50 += step * if x > self.p50 { 0.5 } else { -0.5 };
        self.p95 += step * if x > self.p95 { 0.95 } else { -0.05 };
        self.p95 = self.p95.max(self.p50);
        let rise = self.p50 - self.normal;
        self.normal += if rise > 0.0 { rise * NORMAL_RISE } else { rise };
    }

    /// Merges `other`, a continuation of the same earlier state. The higher median wins.
    pub(crate) fn join(&mut self, other: &Self) {
        join::least(self, other, |latency| Reverse(latency.p50()));
    }

    /// Returns whether there is no sample.
    pub const fn is_empty(&self) -> bool {
        self.samples == 0
    }

    /// Returns the median, if there is a sample.
    pub fn p50(&self) -> Option<Duration> {
        (self.samples > 0).then(|| micros(self.p50))
    }

    /// Returns the 95th percentile, if there is a sample.
    pub fn p95(&self) -> Option<Duration> {
        (self.samples > 0).then(|| micros(self.p95))
    }

    /// Returns the ratio of the median to its normal value. It is 1 before 16 samples, and for a
    /// difference that noise can explain.
    pub fn rise(&self) -> f64 {
        if self.samples < WARM_UP || self.p50 - self.normal < NOISE {
            return 1.0;
        }
        f64::from(micros_f32(self.p50) / micros_f32(self.normal))
    }

    /// Returns the time by which the median exceeds its normal value.
    pub fn excess(&self) -> Duration {
        micros(self.p50).saturating_sub(micros(self.normal))
    }
}

/// Returns the latency on the logarithmic scale, in octaves. Zero counts as a microsecond.
fn octaves(latency: Duration) -> f32 {
    let micros = latency.as_secs() as f32 * 1e6 + latency.subsec_micros() as f32;
    micros.max(1.0).to_bits() as f32 / MANTISSA
}

fn micros(octaves: f32) -> Duration {
    Duration::from_micros(micros_f32(octaves) as u64)
}

fn micros_f32(octaves: f32) -> f32 {
    f32::from_bits((octaves * MANTISSA) as u32)
}

/// The size of one octave in the bits of an `f32`.
const MANTISSA: f32 = (1 << 23) as f32;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    fn ms(ms: f64) -> Duration {
        Duration::from_secs_f64(ms / 1e3)
    }

    #[test]
    fn quantiles_of_a_uniform_latency_are_found() {
        let (mut latency, mut rng) = (Latency::default(), Rng::new(7));
        for _ in 0..500 {
            latency.record(ms(rng.between(100.0, 300.0)));
        }
        let p50 = latency.p50().unwrap().as_secs_f64() * 1e3;
        let p95 = latency.p95().unwrap().as_secs_f64() * 1e3;
        assert!((170.0..230.0).contains(&p50), "{p50}");
        assert!((265.0..330.0).contains(&p95), "{p95}");
        assert!(
            latency.rise() < 1.25,
            "noise is no rise: {}",
            latency.rise()
        );
    }

    #[test]
    fn a_growing_queue_is_a_rise_until_the_normal_median_follows() {
        let mut latency = Latency::default();
        for _ in 0..50 {
            latency.record(ms(100.0));
        }
        for _ in 0..25 {
            latency.record(ms(400.0));
        }
        assert!(latency.rise() > 2.0, "{}", latency.rise());
        for _ in 0..500 {
            latency.record(ms(400.0));
        }
        assert!(latency.rise() < 1.2, "{}", latency.rise());
    }

    #[test]
    fn few_samples_show_no_rise() {
        let mut latency = Latency::default();
        latency.record(ms(1.0));
        latency.record(ms(1000.0));
        assert!((latency.rise() - 1.0).abs() < f64::EPSILON);
    }
}
