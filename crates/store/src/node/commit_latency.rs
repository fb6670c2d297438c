//! The latency of the latest commits.

use std::collections::VecDeque;
use std::time::Duration;

/// The number of remembered commits, which take 16 KiB.
const KEPT: usize = 4_096;

/// The latencies of the latest commits.
#[derive(Debug, Default)]
pub(crate) struct CommitLatency {
    micros: VecDeque<u32>,
}

impl CommitLatency {
    pub(crate) fn add(&mut self, length: Duration) {
        if self.micros.len() == KEPT {
            self.micros.pop_front();
        }
        let micros = u32::try_from(length.as_micros()).unwrap_or(u32::MAX);
        self.micros.push_back(micros);
    }

    /// Returns the median and the 99th percentile, zero if there was no commit.
    pub(crate) fn quantiles(&self) -> (Duration, Duration) {
        let mut sorted: Vec<u32> = self.micros.iter().copied().collect();
        sorted.sort_unstable();
        let at = |share: usize| {
            let micros = sorted.get(sorted.len() * share / 100).copied();
            Duration::from_micros(micros.unwrap_or(0).into())
        };
        (at(50), at(99))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn only_the_last_count() {
        let mut latency = CommitLatency::default();
        assert_eq!(latency.quantiles(), (ms(0), ms(0)));
        latency.add(ms(7));
        assert_eq!(latency.quantiles(), (ms(7), ms(7)));
        for i in 0..KEPT as u64 {
            latency.add(ms(i));
        }
        assert_eq!(latency.quantiles(), (ms(2_048), ms(4_055)));
        (0..KEPT).for_each(|_| latency.add(Duration::MAX));
        assert_eq!(
            latency.quantiles().0,
            Duration::from_micros(u32::MAX.into())
        );
    }
}
