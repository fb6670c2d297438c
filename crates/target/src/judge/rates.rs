//! The pace of arrivals: peak rates and the smallest gap.

use std::collections::VecDeque;
use std::time::Duration;

use politely_core::Timestamp;

/// The most arrivals in any window of one length, exactly. Memory is 8 bytes per arrival in the
/// window.
#[derive(Debug)]
pub(super) struct Peak {
    window: Duration,
    arrivals: VecDeque<Timestamp>,
    most: usize,
}

impl Peak {
    pub(super) const fn new(window: Duration) -> Self {
        Self {
            window,
            arrivals: VecDeque::new(),
            most: 0,
        }
    }

    pub(super) fn arrive(&mut self, now: Timestamp) {
        while self
            .arrivals
            .front()
            .is_some_and(|&at| at + self.window <= now)
        {
            self.arrivals.pop_front();
        }
        self.arrivals.push_back(now);
        self.most = self.most.max(self.arrivals.len());
    }

    /// Requests per second.
    pub(super) fn rate(&self) -> f64 {
        self.most as f64 / self.window.as_secs_f64()
    }
}

/// The requests that were accepted last. Memory is 8 bytes per request in the window.
#[derive(Debug)]
pub(super) struct Last {
    window: Duration,
    arrivals: VecDeque<Timestamp>,
}

impl Last {
    pub(super) const fn new(window: Duration) -> Self {
        Self {
            window,
            arrivals: VecDeque::new(),
        }
    }

    pub(super) fn accept(&mut self, at: Timestamp) {
        self.arrivals.push_back(at);
        while (self.arrivals.front()).is_some_and(|&first| first + self.window <= at) {
            self.arrivals.pop_front();
        }
    }

    /// Returns the requests per second from the first of them to the last, or `None` for fewer than
    /// two requests.
    pub(super) fn rate(&self) -> Option<f64> {
        let (first, last) = (self.arrivals.front()?, self.arrivals.back()?);
        let length_s = last.since(*first).as_secs_f64();
        (length_s > 0.0).then(|| (self.arrivals.len() - 1) as f64 / length_s)
    }
}

/// Returns the largest `arrivals - rate x W` over all windows W: how many requests a sender at
/// `rate` was ahead at most. A sender with that rate and a burst keeps promise P1 exactly if this
/// is at most `burst + 1`.
///
/// A single pass: a bucket that leaks at the rate, and takes one per arrival, holds this value for
/// the windows that end now.
pub fn arrivals_above(arrivals: impl IntoIterator<Item = Timestamp>, rate: f64) -> f64 {
    let (mut level, mut most) = (0.0_f64, 0.0_f64);
    let mut last = None;
    for at in arrivals {
        let elapsed = last.map_or(0.0, |last| at.since(last).as_secs_f64());
        level = (level - rate * elapsed).max(0.0) + 1.0;
        most = most.max(level);
        last = Some(at);
    }
    most
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_peak_counts_half_open_windows() {
        let mut peak = Peak::new(Duration::from_secs(5));
        for at in [0.0, 0.1, 4.9, 5.0, 5.05, 20.0] {
            peak.arrive(Timestamp::from_secs_f64(at));
        }
        assert!(
            (peak.rate() - 4.0 / 5.0).abs() < 1e-9,
            "0.1, 4.9, 5.0 and 5.05"
        );
    }

    #[test]
    fn the_last_rate_leaves_out_what_is_older_than_its_window() {
        let mut last = Last::new(Duration::from_secs(10));
        assert_eq!(last.rate(), None);
        for at in [0.0, 0.1, 0.2, 20.0, 22.0, 24.0, 26.0, 28.0] {
            last.accept(Timestamp::from_secs_f64(at));
        }
        assert_eq!(last.rate(), Some(0.5));
    }

    proptest! {
        #[test]
        fn one_pass_finds_the_worst_of_all_windows(
            gaps in prop::collection::vec(0_u64..500_000, 1..60), rate in 0.1_f64..50.0,
        ) {
            let arrivals: Vec<Timestamp> = gaps
                .iter()
                .scan(0, |at, gap| {
                    *at += gap;
                    Some(Timestamp::from_micros(*at))
                })
                .collect();
            let mut worst = 0.0_f64;
            for (first, from) in arrivals.iter().enumerate() {
                for (more, to) in arrivals[first..].iter().enumerate() {
                    worst = worst.max(more as f64 + 1.0 - rate * to.since(*from).as_secs_f64());
                }
            }
            prop_assert!((arrivals_above(arrivals, rate) - worst).abs() < 1e-6);
        }
    }
}
