//! A key's latencies in sixteen bytes: median, 95th percentile, and what is normal.
//!
//! A histogram per host would cost kilobytes. Each quantile is tracked by stochastic approximation
//! on a logarithmic scale instead (Robbins and Monro 1951; "frugal" quantiles, Ma et al. 2013): up
//! by `step x q` when a sample lies above, down by `step x (1 - q)` when below. Within about ten
//! per cent of the truth after a few dozen samples, which is enough to see a doubling.
//!
//! The scale is the bits of a float read as a number: its exponent is the logarithm to base two,
//! its mantissa a straight line in between. It grows with the latency, has an exact inverse, costs
//! nothing and is the same on every machine.

use std::cmp::Reverse;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::join;

/// One sample moves the median by at most half of this, in octaves.
const STEP: f32 = 0.15;
/// The normal median follows a higher one this much slower, so that a queue building up stands out.
const NORMAL_RISE: f32 = 0.02;
/// Samples before anything is said: fewer tell more of chance than of the host.
const WARM_UP: u8 = 16;
/// A median no further above its normal value than this, in octaves, has not risen.
const NOISE: f32 = 0.1;

/// Latency quantiles of one key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    p50: f32,
    p95: f32,
    normal: f32,
    samples: u8,
}

impl Latency {
    /// Takes one latency in. Zero counts as a microsecond.
    pub fn record(&mut self, latency: Duration) {
        let x = octaves(latency);
        if self.samples == 0 {
            (self.p50, self.p95, self.normal) = (x, x, x);
        }
        self.samples = self.samples.saturating_add(1);
        // Large first steps: the start value is one sample and may be far off.
        let step = STEP * (1.0 + 8.0 / f32::from(self.samples));
        self.p50 += step * if x > self.p50 { 0.5 } else { -0.5 };
        self.p95 += step * if x > self.p95 { 0.95 } else { -0.05 };
        self.p95 = self.p95.max(self.p50);
        let rise = self.p50 - self.normal;
        self.normal += if rise > 0.0 { rise * NORMAL_RISE } else { rise };
    }

    /// The slower of two: what little each has seen since they were one is not in the other.
    pub(crate) fn join(&mut self, other: &Self) {
        join::least(self, other, |latency| Reverse(latency.p50()));
    }

    /// The median, once known.
    pub fn p50(&self) -> Option<Duration> {
        (self.samples > 0).then(|| micros(self.p50))
    }

    /// The 95th percentile, once known.
    pub fn p95(&self) -> Option<Duration> {
        (self.samples > 0).then(|| micros(self.p95))
    }

    /// How many times its normal value the median is; 1 until enough is known, and for what noise
    /// alone may do.
    pub fn rise(&self) -> f64 {
        if self.samples < WARM_UP || self.p50 - self.normal < NOISE {
            return 1.0;
        }
        f64::from(micros_f32(self.p50) / micros_f32(self.normal))
    }

    /// How far the median stands above its normal value.
    pub fn excess(&self) -> Duration {
        micros(self.p50).saturating_sub(micros(self.normal))
    }
}

/// A place on the scale; zero counts as a microsecond.
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

/// One octave in the bits of an `f32`.
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
    fn a_queue_building_up_stands_out_and_a_new_normal_is_accepted() {
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
    fn few_samples_say_nothing() {
        let mut latency = Latency::default();
        latency.record(ms(1.0));
        latency.record(ms(1000.0));
        assert!((latency.rise() - 1.0).abs() < f64::EPSILON);
    }
}
