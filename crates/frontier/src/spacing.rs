//! The pause of a domain between two units of work.

use std::time::Duration;

use politely_core::Rng;

/// A pause between the end of a unit of work and the next unit of the same domain.
///
/// The limits of a host are the limiter's. This pause is for crawls that want more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spacing {
    /// Always this long.
    Fixed(Duration),
    /// Random, from this long to twice this long. The interval is the minimum.
    Minimum(Duration),
    /// Random with an exponential distribution, at most ten times this long. The interval is the
    /// mean.
    Mean(Duration),
}

impl Spacing {
    /// Returns the next pause.
    pub fn draw(self, rng: &mut Rng) -> Duration {
        match self {
            Self::Fixed(length) => length,
            Self::Minimum(least) => scale(least, 1.0 + rng.unit()),
            // The cut at ten means takes 0.05 % from the mean.
            Self::Mean(mean) => scale(mean, (-(1.0 - rng.unit()).ln()).min(10.0)),
        }
    }
}

impl Default for Spacing {
    fn default() -> Self {
        Self::Fixed(Duration::ZERO)
    }
}

fn scale(length: Duration, factor: f64) -> Duration {
    Duration::try_from_secs_f64(length.as_secs_f64() * factor).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gaps(spacing: Spacing) -> Vec<f64> {
        let mut rng = Rng::new(7);
        let gap = |_| spacing.draw(&mut rng).as_secs_f64();
        (0..100_000).map(gap).collect()
    }

    #[test]
    fn the_interval_is_the_least_or_the_mean_gap() {
        let second = Duration::from_secs(1);
        assert!(gaps(Spacing::Minimum(second)).iter().all(|gap| *gap >= 1.0));
        let random = gaps(Spacing::Mean(second));
        let mean = random.iter().sum::<f64>() / random.len() as f64;
        assert!((mean - 1.0).abs() < 0.01, "{mean}");
        assert_eq!(Spacing::Fixed(second).draw(&mut Rng::new(1)), second);
    }

    #[test]
    fn the_longest_interval_does_not_overflow() {
        for spacing in [Spacing::Minimum, Spacing::Mean] {
            assert!(gaps(spacing(Duration::MAX))[0] > 0.0);
        }
    }
}
