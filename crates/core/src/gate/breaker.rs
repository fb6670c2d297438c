//! The circuit breaker: it stops requests to a host that fails repeatedly, then sends one probe.
//!
//! The breaker opens after a number of consecutive failures. It does not use a share of failures,
//! because a crawler sends a host few requests and would never reach a minimum throughput of 100. A
//! refusal (429) is no failure here: it lowers the rate, and it only fails a probe. Each failed
//! probe doubles the rest. The rest is jittered, so that a fleet does not return at the same
//! moment. If a probe is lost, the next request is the probe.
//!
//! The same type is the quarantine of a host that shows block pages. There the first rest is long
//! and few failures suffice. The crawler does not evade a block: it stops, reports the block, and
//! tries again much later.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Rng, Timestamp};

/// Upper bound of the factor that lengthens a rest. The lower bound is 1, so a rest is never
/// shorter than configured. The jitter keeps the processes of a fleet from returning at the same
/// moment.
const REST_JITTER: f64 = 1.1;

/// When a breaker trips and how long it rests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BreakerConfig {
    /// Consecutive failures that open the breaker; 0 disables it.
    pub trip_after: u16,
    /// The first rest.
    pub rest_min: Duration,
    /// The longest rest.
    pub rest_max: Duration,
}

/// A circuit breaker, 16 bytes: closed, open until a time, or half-open with at most one probe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Breaker {
    open_until: Timestamp,
    failures: u16,
    rests: u8,
    probing: bool,
}

impl Breaker {
    /// Returns whether a request that passes now is the probe. Call [`Breaker::probe_sent`] once a
    /// probe is granted.
    ///
    /// # Errors
    /// The time to ask again: the end of the rest, or `now` while the probe is in flight. Its
    /// report then decides.
    pub fn check(&self, now: Timestamp) -> Result<bool, Timestamp> {
        match () {
            () if self.rests == 0 => Ok(false),
            () if now < self.open_until => Err(self.open_until),
            () if self.probing => Err(now),
            () => Ok(true),
        }
    }

    /// Returns whether an outcome counts. `probe` tells whether it is the probe's.
    ///
    /// While the breaker is not closed, only the probe's outcome counts. Requests that left earlier
    /// add no information. They must not lengthen the rest or allow a second probe.
    pub const fn listens(&self, probe: bool) -> bool {
        self.rests == 0 || (probe && self.probing)
    }

    /// Notes that the probe was granted.
    pub const fn probe_sent(&mut self) {
        self.probing = true;
    }

    /// Notes that the probe was cancelled or lost. The next request is the probe.
    pub const fn probe_lost(&mut self) {
        self.probing = false;
    }

    /// Notes a success and closes the breaker.
    pub fn success(&mut self) {
        *self = Self::default();
    }

    /// Notes a failure. Returns whether this opened the breaker.
    pub fn failure(&mut self, now: Timestamp, config: &BreakerConfig, rng: &mut Rng) -> bool {
        self.failures = self.failures.saturating_add(1);
        let tripped = match self.rests {
            0 => config.trip_after > 0 && self.failures >= config.trip_after,
            _ => self.probing,
        };
        if tripped {
            self.open(now, config, rng);
        }
        tripped
    }

    /// Notes that the host refused the probe, which is no failure. The rest starts again at the
    /// same length.
    pub fn probe_refused(&mut self, now: Timestamp, config: &BreakerConfig, rng: &mut Rng) {
        if self.probing {
            self.rests = self.rests.saturating_sub(1);
            self.open(now, config, rng);
        }
    }

    /// Returns when the rest ends or ended, or `None` if the breaker is closed. After that time the
    /// breaker is half-open.
    pub fn open_until(&self) -> Option<Timestamp> {
        (self.rests > 0).then_some(self.open_until)
    }

    /// Lets one more probe leave at once.
    pub(crate) fn check_next(&mut self, now: Timestamp) {
        self.open_until = now;
        self.probing = false;
    }

    /// Returns how often the breaker opened since it was last closed.
    pub(crate) const fn rests(&self) -> u8 {
        self.rests
    }

    /// Closes the breaker, as an operator asks.
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// Bounds the rest by the longest one, after a restart whose clock was set back.
    pub fn rebase(&mut self, now: Timestamp, config: &BreakerConfig) {
        let longest = now + times(config.rest_max, REST_JITTER);
        self.open_until = self.open_until.min(longest);
    }

    /// Merges two states. The result is open as long as either of them, and a probe of either is
    /// its probe.
    pub(crate) fn join(&mut self, other: &Self) {
        self.open_until = self.open_until.max(other.open_until);
        self.failures = self.failures.max(other.failures);
        self.rests = self.rests.max(other.rests);
        self.probing |= other.probing;
    }

    /// Returns the number of consecutive failures.
    pub const fn failures(&self) -> u16 {
        self.failures
    }

    fn open(&mut self, now: Timestamp, config: &BreakerConfig, rng: &mut Rng) {
        let full = config
            .rest_min
            .saturating_mul(1 << u32::from(self.rests).min(20))
            .min(config.rest_max);
        self.open_until = now + times(full, rng.between(1.0, REST_JITTER));
        self.rests = self.rests.saturating_add(1);
        self.probing = false;
    }
}

/// Returns `length` times `factor`, at most [`Duration::MAX`].
fn times(length: Duration, factor: f64) -> Duration {
    Duration::try_from_secs_f64(length.as_secs_f64() * factor).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: BreakerConfig = BreakerConfig {
        trip_after: 3,
        rest_min: Duration::from_secs(1),
        rest_max: Duration::from_mins(1),
    };

    fn tripped() -> (Breaker, Timestamp, Rng) {
        let (mut breaker, mut rng) = (Breaker::default(), Rng::new(1));
        assert!(!breaker.failure(Timestamp::ZERO, &CONFIG, &mut rng));
        assert!(!breaker.failure(Timestamp::ZERO, &CONFIG, &mut rng));
        assert!(breaker.failure(Timestamp::ZERO, &CONFIG, &mut rng));
        let until = breaker.open_until().unwrap();
        (breaker, until, rng)
    }

    #[test]
    fn it_opens_after_a_run_and_lets_one_probe_through() {
        let (mut breaker, until, _) = tripped();
        assert!(
            until >= Timestamp::from_micros(1_000_000)
                && until <= Timestamp::from_micros(1_100_000)
        );
        assert_eq!(breaker.check(Timestamp::ZERO), Err(until));
        assert_eq!(breaker.check(until), Ok(true));
        breaker.probe_sent();
        assert!(breaker.check(until).is_err(), "one probe at a time");
        breaker.success();
        assert_eq!(breaker.check(until), Ok(false));
    }

    #[test]
    fn rests_double_up_to_the_longest() {
        let (mut breaker, mut until, mut rng) = tripped();
        let mut rests = Vec::new();
        for _ in 0..9 {
            breaker.probe_sent();
            assert!(breaker.failure(until, &CONFIG, &mut rng));
            let next = breaker.open_until().unwrap();
            rests.push(next.since(until).as_secs());
            until = next;
        }
        assert!(
            rests
                .windows(2)
                .all(|pair| pair[1] >= pair[0] || pair[0] >= 60),
            "{rests:?}"
        );
        assert!(rests[8] >= 60 && rests[8] <= 66);
    }

    #[test]
    fn stragglers_of_the_failing_run_do_not_lengthen_the_rest() {
        let (mut breaker, until, mut rng) = tripped();
        for _ in 0..10 {
            assert!(!breaker.failure(Timestamp::ZERO, &CONFIG, &mut rng));
        }
        assert_eq!(breaker.open_until(), Some(until));
    }

    #[test]
    fn a_lost_probe_is_asked_for_again() {
        let (mut breaker, until, _) = tripped();
        breaker.probe_sent();
        breaker.probe_lost();
        assert_eq!(breaker.check(until), Ok(true));
    }

    #[test]
    fn a_refused_probe_rests_as_long_again() {
        let (mut breaker, until, mut rng) = tripped();
        breaker.probe_sent();
        breaker.probe_refused(until, &CONFIG, &mut rng);
        let rest = breaker.open_until().unwrap().since(until);
        assert!(rest >= Duration::from_secs(1) && rest <= Duration::from_millis(1_100));
    }

    /// Regression: an endless rest panicked.
    #[test]
    fn the_longest_rest_there_is() {
        let config = BreakerConfig {
            trip_after: 1,
            rest_min: Duration::MAX,
            rest_max: Duration::MAX,
        };
        let mut breaker = Breaker::default();
        assert!(breaker.failure(Timestamp::ZERO, &config, &mut Rng::new(1)));
        breaker.rebase(Timestamp::ZERO, &config);
        assert_eq!(breaker.open_until(), Some(Timestamp::ZERO + Duration::MAX));
    }
}
