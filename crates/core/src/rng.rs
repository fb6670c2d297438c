//! The random numbers of the core, which its callers pass in.

use crate::gate::LeaseId;

/// A seeded generator (`SplitMix64`, Steele et al. 2014) with one word of state. It gives the same
/// numbers on every machine and in every version. It is not for secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rng(u64);

impl Rng {
    /// Returns a generator. Its numbers depend on `seed` alone.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the generator of the jitter of one lease's report.
    ///
    /// A report gets the same jitter in every process and at every repetition, so all of them come
    /// to the same state.
    pub const fn of_lease(seed: u64, lease: LeaseId) -> Self {
        // The higher bits hold the epoch of a shared key and the process that granted the lease.
        // They differ between processes.
        Self::new(seed ^ (lease.0 & 0xfff))
    }

    /// Returns the next 64 bits.
    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number in `[0, 1)` with uniform distribution.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns a number in `[low, high)` with uniform distribution, or `low` if the range is empty.
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low).max(0.0) * self.unit()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_is_the_published_one() {
        // The first numbers of `SplitMix64` for seed 1234567, from the reference implementation.
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
