//! Time and chance.

use politely_core::Rng;

/// True time in microseconds since the schedule began.
pub(super) type Micros = u64;

pub(super) const MS: Micros = 1_000;
pub(super) const SECOND: Micros = 1_000 * MS;
/// Real adapters give up a call after this time.
pub(super) const CALL_TIMEOUT: Micros = 500 * MS;
/// The largest drift of a machine's clock, in millionths.
pub(super) const DRIFT_PPM: u64 = 50;

/// A source of draws.
#[derive(Clone, Debug)]
pub(super) struct Dice(Rng);

impl Dice {
    pub(super) const fn new(seed: u64) -> Self {
        Self(Rng::new(seed))
    }

    /// Returns a generator whose draws do not depend on later draws of this one.
    pub(super) const fn split(&mut self) -> Self {
        Self::new(self.0.next_u64())
    }

    pub(super) const fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    pub(super) fn chance(&mut self, p: f64) -> bool {
        p > 0.0 && self.0.unit() < p
    }

    /// Draws a number of `low..=high`.
    pub(super) fn whole(&mut self, low: u64, high: u64) -> u64 {
        low + (self.0.unit() * (high - low + 1) as f64) as u64
    }

    /// Draws from `low..=high`, each order of magnitude being as likely.
    pub(super) fn magnitude(&mut self, low: f64, high: f64) -> f64 {
        low * libm_pow(high / low, self.0.unit())
    }

    /// Draws a number from `-most` to `most`.
    pub(super) fn around_zero(&mut self, most: u64) -> i64 {
        self.whole(0, 2 * most).cast_signed() - most.cast_signed()
    }

    pub(super) fn span(&mut self, low: Micros, high: Micros) -> Micros {
        self.magnitude(low as f64, high as f64) as Micros
    }

    pub(super) fn among<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.whole(0, of.len() as u64 - 1) as usize]
    }
}

/// Returns `base` to the power of `share`, by square roots: the same bits on every machine.
fn libm_pow(base: f64, share: f64) -> f64 {
    let (mut power, mut root, mut rest) = (1.0, base, share);
    for _ in 0..20 {
        root = root.sqrt();
        rest *= 2.0;
        if rest >= 1.0 {
            power *= root;
            rest -= 1.0;
        }
    }
    power
}
