//! Randomness that comes in.

use crate::gate::LeaseId;

/// A seeded generator (`SplitMix64`, Steele et al. 2014): one word of state, the same stream on
/// every machine and in every version. Not for secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rng(u64);

impl Rng {
    /// A generator whose whole stream follows from `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the generator of the jitter of one lease's report.
    ///
    /// A report gets the same jitter in every process and at every repetition, so all of them come
    /// to the same state.
    pub const fn of_lease(seed: u64, lease: LeaseId) -> Self {
        // The bits above these hold the epoch and the maker of a shared key's leases.
        Self::new(seed ^ (lease.0 & 0xfff))
    }

    /// The next 64 bits.
    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Uniform in `[low, high)`; `low` if the range is empty.
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low).max(0.0) * self.unit()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_is_the_published_one() {
        // First outputs of SplitMix64 for seed 1234567, from the reference implementation.
        let mut rng = Rng::new(1_234_567);
        assert_eq!(
            [rng.next_u64(), rng.next_u64()],
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]
        );
    }

    #[test]
    fn unit_stays_below_one() {
        let mut rng = Rng::new(1);
        assert!(
            (0..10_000)
                .map(|_| rng.unit())
                .all(|x| (0.0..1.0).contains(&x))
        );
    }
}
