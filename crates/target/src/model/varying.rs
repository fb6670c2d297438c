//! A token bucket whose rate changes all the time: at random, or through a day.
//!
//! The rate is constant within a piece of time, and the tokens stay when it changes.
//! [`super::Steps`] starts each phase with a full bucket instead, which would give away a burst
//! with every small change. Within a piece the arithmetic is the token bucket's own, so a refusal's
//! time is exact over any number of pieces.

use std::f64::consts::PI;
use std::time::Duration;

use politely_core::{Rng, Timestamp};

use super::{Quota, TokenBucket, Verdict};

/// The number of pieces of a day: a quarter of an hour each.
pub(super) const DAY_PIECES: u64 = 96;

/// How the rate changes from piece to piece. Rates are in microtokens per second.
#[derive(Clone, Debug, PartialEq)]
enum Curve {
    Walk {
        /// Natural logarithms, as is `at`.
        low: f64,
        high: f64,
        step: f64,
        at: f64,
        seed: u64,
        rng: Rng,
    },
    Day {
        low: f64,
        high: f64,
        /// Pieces before time zero, including a fraction of one.
        phase: f64,
    },
}

impl Curve {
    /// Returns the rate of a piece. Pieces are requested in order.
    fn rate(&mut self, piece: u64) -> u64 {
        match self {
            Self::Walk {
                low,
                high,
                step,
                at,
                rng,
                ..
            } => {
                if piece > 0 {
                    *at += rng.between(-*step, *step);
                    // Reflected at the bounds: a clamped walk would stay at them half of the time.
                    if *at < *low {
                        *at = 2.0 * *low - *at;
                    }
                    if *at > *high {
                        *at = 2.0 * *high - *at;
                    }
                    *at = at.clamp(*low, *high);
                }
                libm::exp(*at).round() as u64
            }
            Self::Day { low, high, phase } => {
                let pieces = DAY_PIECES as f64;
                // The middle of the piece. Whole days are removed first, for the precision of the
                // cosine.
                let of_day = ((piece % DAY_PIECES) as f64 + 0.5 + *phase) / pieces;
                let height = (1.0 - libm::cos(2.0 * PI * of_day)) / 2.0;
                (*high - *low).mul_add(height, *low).round() as u64
            }
        }
    }
}

/// A token bucket at a rate that varies.
#[derive(Clone, Debug, PartialEq)]
pub struct Varying {
    curve: Curve,
    /// The length of a piece, in microseconds.
    every: u64,
    piece: u64,
    bucket: TokenBucket,
    burst: u32,
}

impl Varying {
    /// Changes the rate at intervals by at most `factor` up or down, between `low` and `high`
    /// microtokens per second, from their geometric mean.
    pub(super) fn walk(
        (low, high): (u64, u64),
        factor: f64,
        every: Duration,
        burst: u32,
        seed: u64,
    ) -> Self {
        let (low, high) = (libm::log(low as f64), libm::log(high as f64));
        let curve = Curve::Walk {
            low,
            high,
            step: libm::log(factor),
            at: f64::midpoint(low, high),
            seed,
            rng: Rng::new(seed),
        };
        Self::new(curve, every, burst)
    }

    /// Changes the rate as a cosine: from `low` microtokens per second at the beginning of a
    /// `period` to `high` in the middle and back.
    pub(super) fn day((low, high): (u64, u64), period: Duration, burst: u32) -> Self {
        let curve = Curve::Day {
            low: low as f64,
            high: high as f64,
            phase: 0.0,
        };
        Self::new(curve, period / DAY_PIECES as u32, burst)
    }

    fn new(mut curve: Curve, every: Duration, burst: u32) -> Self {
        let bucket = TokenBucket::new(curve.rate(0), burst);
        Self {
            curve,
            every: every.as_micros() as u64,
            piece: 0,
            bucket,
            burst,
        }
    }

    /// When the current piece ends.
    const fn end(&self) -> Timestamp {
        Timestamp::from_micros((self.piece + 1).saturating_mul(self.every))
    }

    fn roll(&mut self, now: Timestamp) {
        while self.end() <= now {
            let end = self.end();
            self.piece += 1;
            let rate = self.curve.rate(self.piece);
            self.bucket.set_rate(end, rate);
        }
    }

    pub(super) fn check(&mut self, now: Timestamp) -> Verdict {
        self.roll(now);
        let verdict = self.bucket.check(now);
        match verdict {
            Verdict::Refuse {
                retry_after: Some(wait),
            } if now + wait > self.end() => self.refuse(now),
            _ => verdict,
        }
    }

    /// Returns a refusal whose token comes in a later piece, found by walking through the pieces.
    fn refuse(&self, now: Timestamp) -> Verdict {
        let mut ahead = self.clone();
        let mut at = self.end();
        loop {
            ahead.roll(at);
            match ahead.bucket.check(at) {
                Verdict::Refuse {
                    retry_after: Some(wait),
                } if at + wait > ahead.end() => at = ahead.end(),
                Verdict::Refuse {
                    retry_after: Some(wait),
                } => return Verdict::refuse_until(now, at + wait),
                _ => return Verdict::refuse_until(now, at),
            }
        }
    }

    pub(super) const fn take(&mut self) {
        self.bucket.take();
    }

    /// Returns the quota at the current rate.
    pub(super) fn quota(&mut self, now: Timestamp) -> Quota {
        self.roll(now);
        self.bucket.quota(now)
    }

    /// Applies another time of day, or another walk.
    pub(super) fn shift(&mut self, by: Duration) {
        match &mut self.curve {
            Curve::Walk {
                low,
                high,
                at,
                seed,
                rng,
                ..
            } => {
                *at = f64::midpoint(*low, *high);
                *rng = Rng::new(*seed ^ by.as_micros() as u64);
            }
            Curve::Day { phase, .. } => {
                let period = u128::from(self.every * DAY_PIECES);
                *phase = (by.as_micros() % period) as f64 / self.every as f64;
            }
        }
        *self = Self::new(
            self.curve.clone(),
            Duration::from_micros(self.every),
            self.burst,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Limit, LimitSpec};

    fn at(secs: f64) -> Timestamp {
        Timestamp::from_secs_f64(secs)
    }

    fn day() -> Varying {
        // 1 to 3 per second over 96 seconds: a piece lasts a second.
        Varying::day((1_000_000, 3_000_000), Duration::from_secs(96), 1)
    }

    fn walk(seed: u64) -> Varying {
        Varying::walk(
            (5_000_000, 20_000_000),
            1.1,
            Duration::from_secs(10),
            10,
            seed,
        )
    }

    #[test]
    fn a_day_is_low_at_its_ends_and_high_in_the_middle() {
        let mut curve = day().curve;
        let rates: Vec<u64> = (0..192).map(|piece| curve.rate(piece)).collect();
        assert!(rates[0] < 1_001_000 && rates[47] > 2_999_000 && rates[95] < 1_001_000);
        assert_eq!(rates[..96], rates[96..], "every day is as the last");
        let mean = rates.iter().sum::<u64>() / 192;
        assert!((1_999_999..=2_000_001).contains(&mean), "{mean}");
    }

    #[test]
    fn shifted_by_half_a_period_a_day_begins_at_noon() {
        let mut noon = day();
        noon.shift(Duration::from_secs(48 + 96));
        let mut curve = day().curve;
        let wanted = curve.rate(48);
        assert!(noon.curve.rate(0).abs_diff(wanted) <= 1);
    }

    #[test]
    fn a_walk_stays_between_its_bounds_and_does_not_jump() {
        let mut curve = walk(1).curve;
        let mut last = curve.rate(0);
        assert_eq!(last, 10_000_000, "the geometric mean");
        let (mut least, mut most) = (last, last);
        for piece in 1..10_000 {
            let rate = curve.rate(piece);
            assert!((4_999_999..=20_000_001).contains(&rate));
            let factor = rate as f64 / last as f64;
            assert!((1.0 / 1.1001..=1.1001).contains(&factor), "{factor}");
            (least, most, last) = (least.min(rate), most.max(rate), rate);
        }
        assert!(least < 5_100_000 && most > 19_500_000, "{least} {most}");
    }

    #[test]
    fn another_seed_or_phase_is_another_walk_and_the_same_is_the_same() {
        let rates = |mut limit: Varying| -> Vec<u64> {
            (0..20).map(|piece| limit.curve.rate(piece)).collect()
        };
        let shifted = |secs| {
            let mut limit = walk(1);
            limit.shift(Duration::from_secs(secs));
            limit
        };
        assert_eq!(rates(walk(1)), rates(walk(1)));
        assert_ne!(rates(walk(1)), rates(walk(2)));
        assert_ne!(rates(walk(1)), rates(shifted(5)));
        assert_eq!(rates(shifted(5)), rates(shifted(5)));
    }

    /// As steps with fresh buckets, ten-second pieces would give a burst of ten each: twice the
    /// rate.
    #[test]
    fn a_change_of_rate_gives_no_tokens_away() {
        let spec = LimitSpec::Walk {
            low: 1.0,
            high: 1.0,
            burst: 10,
            every_s: 10.0,
            factor: 1.0,
            seed: 1,
        };
        let (mut limit, mut now, mut accepted) = (spec.build().unwrap(), at(0.0), 0);
        while now < at(1_000.0) {
            match limit.arrive(now) {
                Verdict::Refuse { retry_after } => now = now + retry_after.unwrap(),
                _ => accepted += 1,
            }
        }
        assert_eq!(accepted, 10 + 999);
    }

    #[test]
    fn a_token_that_takes_many_pieces_comes_exactly_on_time() {
        let spec = LimitSpec::Day {
            low: 0.01,
            high: 0.02,
            burst: 1,
            period_s: 96.0,
        };
        let mut limit = spec.build().unwrap();
        assert!(limit.arrive(at(0.5)).accepted());
        let Verdict::Refuse {
            retry_after: Some(wait),
        } = limit.check(at(0.7))
        else {
            panic!("accepted");
        };
        let early = at(0.7) + wait - Duration::from_micros(1);
        let accepts = |limit: &Limit, now| limit.clone().check(now).accepted();
        assert!(!accepts(&limit, early) && accepts(&limit, at(0.7) + wait));
        // At 0.015 per second on average.
        assert!((60.0..72.0).contains(&wait.as_secs_f64()), "{wait:?}");
    }
}
