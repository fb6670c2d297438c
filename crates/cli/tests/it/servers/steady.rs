//! How much of a limit was used once it was known, and what that cost.

use std::ops::Range;

use super::log::{SECOND_US, is_refusal};
use super::{Kind, Truth};

/// A host between two moments of its life.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Steady {
    /// Answered as asked for, of what could have been.
    pub(crate) share: f64,
    pub(crate) refused: usize,
}

impl Truth {
    /// What was used of `per_second` between two moments after the first arrival; none if nobody
    /// came then.
    ///
    /// A limiter that counts from a request on is looked at from the beginning of one of its
    /// windows to the beginning of another: anything else might have one window more in it or less.
    /// One that counts continuously may give `burst` more than its rate, or less, depending on what
    /// had been saved.
    pub(crate) fn steady(&self, kind: Kind, per_second: f64, secs: Range<u64>) -> Option<Steady> {
        let (first, _) = *self.arrivals.first()?;
        let mut ends = [secs.start, secs.end].map(|end| first + end * SECOND_US);
        if let Kind::FixedWindow { window_ms, .. } = kind {
            let begins = self.windows(u64::from(window_ms) * 1_000);
            for end in &mut ends {
                *end = begins
                    .iter()
                    .copied()
                    .find(|begin| begin >= end)
                    .or(begins.last().copied())?;
            }
        }
        let [from_us, to_us] = ends;
        let within = self
            .arrivals
            .iter()
            .filter(|(at, _)| (from_us..to_us).contains(at));
        let requests = within.clone().count();
        let refused = within.filter(|(_, status)| is_refusal(*status)).count();
        let could = per_second * to_us.saturating_sub(from_us) as f64 / 1e6;
        (requests > 0).then(|| Steady {
            share: (requests - refused) as f64 / could,
            refused,
        })
    }

    /// When windows began that begin with a request and are forgotten `length_us` later.
    fn windows(&self, length_us: u64) -> Vec<u64> {
        let mut begins = Vec::new();
        for (at, _) in &self.arrivals {
            if begins.last().is_none_or(|last| at - last >= length_us) {
                begins.push(*at);
            }
        }
        begins
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn truth(arrivals: impl Iterator<Item = (u64, u16)>) -> Truth {
        Truth {
            arrivals: arrivals.map(|(ms, status)| (ms * 1_000, status)).collect(),
            ..Truth::default()
        }
    }

    fn steady(truth: &Truth, kind: Kind, secs: Range<u64>) -> Option<Steady> {
        truth.steady(kind, kind.per_second().expect("a limit"), secs)
    }

    const TWO: Kind = Kind::Leaky {
        per_second: 2,
        burst: 0,
    };
    const WINDOW: Kind = Kind::FixedWindow {
        requests: 20,
        window_ms: 10_000,
    };

    #[test]
    fn half_of_what_is_allowed_is_half_and_refusals_are_no_use() {
        let truth = truth((0_u64..100).flat_map(|s| [(s * 1_000, 200), (s * 1_000 + 100, 429)]));
        let seen = steady(&truth, TWO, 40..80).expect("somebody came");
        assert_eq!(seen.refused, 40);
        assert!((seen.share - 0.5).abs() < 1e-9, "{seen:?}");
        assert_eq!(steady(&truth, TWO, 200..300), None);
    }

    /// All twenty at once, three seconds into each window of the clock, drifting by 10 ms.
    #[test]
    fn whole_windows_are_counted_and_who_comes_late_for_the_next_has_wasted_time() {
        let bursts = |every_ms| truth((0_u64..300).map(|n| (3_000 + n / 20 * every_ms, 200)));
        for cut in 40..50 {
            let seen = steady(&bursts(10_010), WINDOW, cut..cut + 50).expect("they came");
            assert!((seen.share - 10.0 / 10.01).abs() < 1e-9, "{seen:?}");
            let seen = steady(&bursts(12_500), WINDOW, cut..cut + 50).expect("they came");
            assert!((seen.share - 0.8).abs() < 1e-9, "{seen:?}");
        }
    }
}
