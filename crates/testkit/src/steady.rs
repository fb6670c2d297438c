//! The share of a limit that was used after the client had learned it, and the refusals then.

use std::ops::Range;

use super::log::{SECOND_US, is_refusal};
use super::{Kind, Truth};

/// The use of a host's limit in a period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Steady {
    /// Requests that were served, as a share of the number that the limit allows.
    pub share: f64,
    pub refused: usize,
}

impl Truth {
    /// Returns the use of `per_second` in a period, which is counted from the first arrival.
    /// Returns `None` if no request arrived in it.
    ///
    /// A limiter whose windows begin with a request is measured from the beginning of one window to
    /// the beginning of another. Any other period might have one window more or less. A limiter
    /// that counts continuously may allow up to `burst` requests more than its rate, or fewer. That
    /// depends on the tokens that were saved before.
    pub fn steady(&self, kind: Kind, per_second: f64, secs: Range<u64>) -> Option<Steady> {
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

    /// Returns the beginnings of windows that begin with a request and last `length_us`.
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

    /// Twenty requests arrive at once, first every 10.01 s and then every 12.5 s. A window of the
    /// limiter lasts 10 s.
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
