//! A limit that other clients use too: a proxy's users, a tenant's other programs, one NAT address.
//!
//! The others arrive as a Poisson stream, do not limit themselves, and do not retry. They are drawn
//! from a seed as time passes, independently of the questions asked, so the same seed gives the
//! same arrivals. Of two requests in one microsecond, ours is first. A refusal's time therefore
//! stays exact: until then the others are refused too, and refusals cost nothing.

use std::time::Duration;

use politely_core::{Rng, Timestamp};

use super::{Limit, Quota, Verdict};

/// The arrival times of the other clients, without end.
#[derive(Clone, Debug, PartialEq)]
pub struct Others {
    per_s: f64,
    seed: u64,
    rng: Rng,
    next: Timestamp,
}

impl Others {
    fn new(per_s: f64, seed: u64) -> Self {
        let mut others = Self {
            per_s,
            seed,
            rng: Rng::new(seed),
            next: Timestamp::ZERO,
        };
        others.advance();
        others
    }

    fn advance(&mut self) {
        // 1 - unit() is never 0, so the logarithm is finite.
        let gap_s = -libm::log(1.0 - self.rng.unit()) / self.per_s;
        self.next = self.next + Duration::from_micros((gap_s * 1e6).round() as u64);
    }
}

impl Iterator for Others {
    type Item = Timestamp;

    fn next(&mut self) -> Option<Timestamp> {
        let next = self.next;
        self.advance();
        Some(next)
    }
}

/// A limit without slots, and the other clients that share it.
#[derive(Clone, Debug, PartialEq)]
pub struct Shared {
    of: Box<Limit>,
    others: Others,
}

impl Shared {
    /// Creates the limit. `of` has no slots, because nothing would free the slots of other clients.
    pub(super) fn new(of: Limit, others_per_s: f64, seed: u64) -> Self {
        Self {
            of: Box::new(of),
            others: Others::new(others_per_s, seed),
        }
    }

    /// Returns the limit with all arrivals up to now.
    pub const fn of(&self) -> &Limit {
        &self.of
    }

    /// Returns the future arrivals of the other clients.
    pub fn others(&self) -> Others {
        self.others.clone()
    }

    /// Serves or refuses all other clients that arrived before `now`.
    fn catch_up(&mut self, now: Timestamp) -> &mut Limit {
        while self.others.next < now {
            let _ = self.of.arrive(self.others.next);
            self.others.advance();
        }
        &mut self.of
    }

    pub(super) fn check(&mut self, now: Timestamp) -> Verdict {
        self.catch_up(now).check(now)
    }

    pub(super) fn take(&mut self, now: Timestamp, verdict: Verdict) {
        self.of.take(now, verdict);
    }

    pub(super) fn quota(&mut self, now: Timestamp) -> Option<Quota> {
        self.catch_up(now).quota(now)
    }

    /// Applies another phase, which also draws other arrivals.
    pub(super) fn shift(&mut self, phase: Duration) {
        self.of.shift(phase);
        let Others { per_s, seed, .. } = self.others;
        let rng = Rng::new(seed ^ phase.as_micros() as u64);
        self.others = Others {
            per_s,
            seed,
            rng,
            next: Timestamp::ZERO,
        };
        self.others.advance();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::LimitSpec;

    fn at(secs: f64) -> Timestamp {
        Timestamp::from_secs_f64(secs)
    }

    fn shared(rate: f64, burst: u32, others_per_s: f64) -> Limit {
        let spec = LimitSpec::Shared {
            others_per_s,
            of: Box::new(LimitSpec::TokenBucket { rate, burst }),
            seed: 1,
        };
        spec.build().unwrap()
    }

    /// Counts the accepted requests of a client that sends one every `every_s` for 1,000 s.
    fn accepted(limit: &mut Limit, every_s: f64) -> usize {
        let times = (0..).map(|index| at(f64::from(index) * every_s));
        times
            .take_while(|now| *now < at(1_000.0))
            .filter(|&now| limit.arrive(now).accepted())
            .count()
    }

    #[test]
    fn others_come_as_often_as_stated_and_irregularly() {
        let gaps: Vec<f64> = {
            let times: Vec<Timestamp> = Others::new(4.0, 7).take(40_001).collect();
            (times.windows(2))
                .map(|pair| pair[1].since(pair[0]).as_secs_f64())
                .collect()
        };
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((mean - 0.25).abs() < 0.005, "{mean}");
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.02, "{variance}");
    }

    #[test]
    fn what_others_take_is_gone() {
        // Twelve a second want ten: a client with regular requests gets slightly more than its
        // share.
        let got = accepted(&mut shared(10.0, 10, 4.0), 0.125);
        assert!((6_000..7_500).contains(&got), "{got}");
        assert_eq!(accepted(&mut shared(10.0, 10, 0.001), 0.125), 8_000);
    }

    #[test]
    fn who_asks_more_often_meets_the_same_others() {
        let mut seldom = shared(10.0, 10, 4.0);
        let mut often = seldom.clone();
        let _ = seldom.check(at(50.0));
        for tenth in 0..=500 {
            let _ = often.check(at(f64::from(tenth) / 10.0));
        }
        assert_eq!(seldom.quota(at(50.0)), often.quota(at(50.0)));
    }

    #[test]
    fn another_phase_brings_other_others() {
        let Limit::Shared(mut shared) = shared(10.0, 10, 4.0) else {
            panic!("a shared limit");
        };
        let before: Vec<Timestamp> = shared.others().take(5).collect();
        shared.shift(Duration::from_secs(1));
        assert_ne!(before, shared.others().take(5).collect::<Vec<_>>());
    }
}
