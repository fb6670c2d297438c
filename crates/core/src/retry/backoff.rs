//! Backoff: the delay before a request is sent again.
//!
//! Clients that fail at the same time also retry at the same time, unless a random jitter spreads
//! them. The jitters are those of Brooker, "Exponential Backoff and Jitter" (AWS Architecture Blog
//! 2015). *Full* spreads widest and costs the least work. *Equal* keeps a minimum. *Decorrelated*
//! grows from the previous delay instead of the count. *Additive* is common in hand-written
//! clients.
//!
//! Jitter spreads the clients of one overloaded server. It does not replace pacing: while first
//! attempts are unlimited, no backoff relieves the server.

use std::time::Duration;

use crate::Rng;

/// How a random jitter changes a delay `d = min(base x factor^n, cap)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Jitter {
    /// No jitter: `d`.
    None,
    /// `U[0, d)`.
    Full,
    /// `d/2 + U[0, d/2)`.
    Equal,
    /// `min(cap, U[base, 3 x previous delay))`. The first time, the previous delay is `base`.
    /// Ignores `factor`.
    Decorrelated,
    /// `min(d + U[0, x), cap)`.
    Additive(Duration),
}

/// A rule for delays, in whole microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    base_us: u64,
    factor: f64,
    cap_us: u64,
    jitter: Jitter,
}

/// Why a backoff is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidBackoff {
    /// The base is below a microsecond.
    #[error("the backoff's base must be at least 1 µs")]
    Base,
    /// The cap is below the base.
    #[error("the backoff's cap must not be below its base")]
    Cap,
    /// The factor is below one or not a number.
    #[error("the backoff's factor must be a finite number, at least 1")]
    Factor,
}

impl Backoff {
    /// 1 s doubling to 60 s, full jitter. A crawler meets a host about once per second, and
    /// breakers wait for at most a minute.
    pub const CRAWLER: Self = Self {
        base_us: 1_000_000,
        factor: 2.0,
        cap_us: 60_000_000,
        jitter: Jitter::Full,
    };

    /// The backoff of a job scraper: 300 ms doubling, with up to 120 ms more, at most 4 s in all.
    pub const JOB_SCRAPER: Self = Self {
        base_us: 300_000,
        factor: 2.0,
        cap_us: 4_000_000,
        jitter: Jitter::Additive(Duration::from_millis(120)),
    };

    /// Returns a rule for delays of `base x factor^n`, at most `cap`, changed by `jitter`.
    pub fn new(
        base: Duration,
        factor: f64,
        cap: Duration,
        jitter: Jitter,
    ) -> Result<Self, InvalidBackoff> {
        let (base_us, cap_us) = (micros(base), micros(cap));
        if base_us == 0 {
            return Err(InvalidBackoff::Base);
        }
        if cap_us < base_us {
            return Err(InvalidBackoff::Cap);
        }
        if !factor.is_finite() || factor < 1.0 {
            return Err(InvalidBackoff::Factor);
        }
        Ok(Self {
            base_us,
            factor,
            cap_us,
            jitter,
        })
    }

    /// Returns the delay before retry `n`; the first retry is 0. `previous` is the delay before the
    /// previous retry.
    pub fn delay(&self, n: u32, previous: Option<Duration>, rng: &mut Rng) -> Duration {
        let grown = self.grown_us(n);
        Duration::from_micros(match self.jitter {
            Jitter::None => grown,
            Jitter::Full => below(grown, rng),
            Jitter::Equal => grown / 2 + below(grown - grown / 2, rng),
            Jitter::Decorrelated => {
                let previous = previous.map_or(self.base_us, micros).max(self.base_us);
                let spread = previous.saturating_mul(3) - self.base_us;
                self.base_us
                    .saturating_add(below(spread, rng))
                    .min(self.cap_us)
            }
            Jitter::Additive(most) => grown
                .saturating_add(below(micros(most), rng))
                .min(self.cap_us),
        })
    }

    /// Returns this rule with other numbers, where they are given. The cap is at least the base.
    #[must_use]
    pub fn with(
        mut self,
        base: Option<Duration>,
        factor: Option<f64>,
        cap: Option<Duration>,
        jitter: Option<Jitter>,
    ) -> Self {
        self.base_us = base.map_or(self.base_us, micros).max(1);
        self.factor = factor
            .filter(|factor| *factor >= 1.0)
            .unwrap_or(self.factor);
        self.cap_us = cap.map_or(self.cap_us, micros).max(self.base_us);
        self.jitter = jitter.unwrap_or(self.jitter);
        self
    }

    /// Returns `delay`, or the cap if that is shorter.
    pub(super) fn capped(&self, delay: Duration) -> Duration {
        delay.min(Duration::from_micros(self.cap_us))
    }

    /// Returns `min(base x factor^n, cap)`. It multiplies squares, because the last digit of `powi`
    /// differs between machines.
    fn grown_us(&self, mut n: u32) -> u64 {
        let (mut grown, mut factor) = (self.base_us as f64, self.factor);
        while n > 0 {
            if n & 1 == 1 {
                grown *= factor;
            }
            factor *= factor;
            n >>= 1;
        }
        // Infinity converts to the largest integer. With base >= 1 and factor >= 1 there is no NaN.
        (grown as u64).min(self.cap_us)
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Returns a uniform number in `[0, end)`, or zero if that range is empty.
fn below(end: u64, rng: &mut Rng) -> u64 {
    ((u128::from(rng.next_u64()) * u128::from(end)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Rng; // proptest's prelude has an `Rng` of its own

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn backoff(jitter: Jitter) -> Backoff {
        Backoff::new(ms(100), 2.0, ms(10_000), jitter).unwrap()
    }

    #[test]
    fn without_jitter_it_doubles_up_to_the_cap() {
        let delays: Vec<_> = (0..9)
            .map(|n| backoff(Jitter::None).delay(n, None, &mut Rng::new(0)))
            .collect();
        assert_eq!(
            delays,
            [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000].map(ms)
        );
    }

    #[test]
    fn a_factor_need_not_be_whole() {
        let backoff = Backoff::new(ms(100), 1.5, ms(1000), Jitter::None).unwrap();
        let delays: Vec<_> = (0..4)
            .map(|n| backoff.delay(n, None, &mut Rng::new(0)).as_micros())
            .collect();
        assert_eq!(delays, [100_000, 150_000, 225_000, 337_500]);
    }

    /// Regression: `1 << attempt` wrapped to a zero delay at the 64th retry.
    #[test]
    fn no_count_overflows() {
        for n in [62, 63, 64, 1024, u32::MAX] {
            assert_eq!(
                backoff(Jitter::None).delay(n, None, &mut Rng::new(0)),
                ms(10_000)
            );
        }
        let endless = Backoff::new(
            ms(1),
            f64::MAX,
            Duration::MAX,
            Jitter::Additive(Duration::MAX),
        )
        .unwrap();
        assert_eq!(
            endless.delay(u32::MAX, None, &mut Rng::new(0)),
            Duration::from_micros(u64::MAX)
        );
        let still = Backoff::new(ms(7), 1.0, ms(7), Jitter::None).unwrap();
        assert_eq!(still.delay(u32::MAX, None, &mut Rng::new(0)), ms(7));
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        let of = |base, factor, cap| Backoff::new(base, factor, cap, Jitter::Full).unwrap_err();
        assert_eq!(
            of(Duration::from_nanos(999), 2.0, ms(1)),
            InvalidBackoff::Base
        );
        assert_eq!(of(ms(2), 2.0, ms(1)), InvalidBackoff::Cap);
        for factor in [0.99, -2.0, f64::NAN, f64::INFINITY] {
            assert_eq!(of(ms(1), factor, ms(1)), InvalidBackoff::Factor);
        }
    }

    #[test]
    fn full_jitter_reaches_both_ends() {
        let mut rng = Rng::new(3);
        let draws: Vec<_> = (0..10_000)
            .map(|_| backoff(Jitter::Full).delay(0, None, &mut rng))
            .collect();
        assert!(*draws.iter().min().unwrap() < ms(1) && *draws.iter().max().unwrap() > ms(99));
        let mean = draws.iter().sum::<Duration>() / 10_000;
        assert!(ms(49) < mean && mean < ms(51), "{mean:?}");
    }

    proptest! {
        #[test]
        fn each_jitter_keeps_its_bounds(
            base_us in 1_u64..10_000_000,
            cap_factor in 1_u64..1000,
            factor in 1.0_f64..10.0,
            n in prop_oneof![0_u32..12, any::<u32>()],
            previous_us in prop::option::of(0_u64..100_000_000),
            extra_us in 0_u64..1_000_000,
            seed: u64,
        ) {
            let (base, cap) = (Duration::from_micros(base_us), Duration::from_micros(base_us * cap_factor));
            let previous = previous_us.map(Duration::from_micros);
            let extra = Duration::from_micros(extra_us);
            let mut rng = Rng::new(seed);
            let mut delay = |jitter| Backoff::new(base, factor, cap, jitter).unwrap().delay(n, previous, &mut rng);

            let d = delay(Jitter::None);
            prop_assert!(base <= d && d <= cap);
            prop_assert!(delay(Jitter::Full) < d);
            let equal = delay(Jitter::Equal);
            prop_assert!(equal < d && equal.as_micros() >= d.as_micros() / 2);
            let additive = delay(Jitter::Additive(extra));
            prop_assert!(d <= additive && additive <= (d + extra).min(cap));
            let decorrelated = delay(Jitter::Decorrelated);
            prop_assert!(base <= decorrelated && decorrelated <= cap.min(previous.unwrap_or(base).max(base) * 3));
        }
    }
}
