//! A host that fails again and again is left alone for a while, then asked once.
//!
//! It trips after a run of failures, not after a share of them: a crawler's host sees five requests
//! where a service mesh sees five hundred, so a minimum throughput of 100 would never be reached. A
//! refusal (429) is not a failure here: it lowers the rate, and only fails a probe. Open, it
//! doubles its rest with every failed probe, jittered so that a fleet does not come back in step. A
//! probe that is never heard of again is simply asked for anew.
//!
//! The same mechanism serves as the quarantine of a host that shows us block pages: there the first
//! rests are long and the run short. We do not evade; we stop, say so, and look again much later.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Rng, Timestamp};

/// A rest lasts up to a tenth longer than it must: never shorter than promised, never in step.
const REST_JITTER: f64 = 1.1;

/// When a breaker trips and how long it rests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BreakerConfig {
    /// Failures in a row that trip it; 0 switches it off.
    pub trip_after: u16,
    /// The first rest.
    pub rest_min: Duration,
    /// The longest rest.
    pub rest_max: Duration,
}

/// Closed, open until a time, or half-open with one probe under way: 16 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Breaker {
    open_until: Timestamp,
    failures: u16,
    rests: u8,
    probing: bool,
}

impl Breaker {
    /// May a request pass? `Ok(true)`: yes, as the single probe; call [`Breaker::probe_sent`] when
    /// it is really granted.
    ///
    /// # Errors
    /// The end of the rest, or `now` while the probe is under way (its report will tell).
    pub fn check(&self, now: Timestamp) -> Result<bool, Timestamp> {
        match () {
            () if self.rests == 0 => Ok(false),
            () if now < self.open_until => Err(self.open_until),
            () if self.probing => Err(now),
            () => Ok(true),
        }
    }

    /// Does an outcome tell it anything? While it rests only its own probe does: what left before
    /// says nothing new, and must neither lengthen the rest nor make room for a second probe.
    pub const fn listens(&self, probe: bool) -> bool {
        self.rests == 0 || (probe && self.probing)
    }

    /// The probe has been granted.
    pub const fn probe_sent(&mut self) {
        self.probing = true;
    }

    /// The probe was cancelled or is lost: the next request is the probe.
    pub const fn probe_lost(&mut self) {
        self.probing = false;
    }

    /// A request got through.
    pub fn success(&mut self) {
        *self = Self::default();
    }

    /// A request failed. Says whether this opened the breaker.
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

    /// The probe was refused, not failed: rest as long again.
    pub fn probe_refused(&mut self, now: Timestamp, config: &BreakerConfig, rng: &mut Rng) {
        if self.probing {
            self.rests = self.rests.saturating_sub(1);
            self.open(now, config, rng);
        }
    }

    /// Not closed: resting until this time, or waiting for its probe.
    pub fn open_until(&self) -> Option<Timestamp> {
        (self.rests > 0).then_some(self.open_until)
    }

    /// Closes it: an operator's privilege.
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// After a restart with a clock that was set back: no rest is longer than the longest.
    pub fn rebase(&mut self, now: Timestamp, config: &BreakerConfig) {
        let longest = now + times(config.rest_max, REST_JITTER);
        self.open_until = self.open_until.min(longest);
    }

    /// Shut as long as either of two; the probe of one is the probe of both.
    pub(crate) fn join(&mut self, other: &Self) {
        self.open_until = self.open_until.max(other.open_until);
        self.failures = self.failures.max(other.failures);
        self.rests = self.rests.max(other.rests);
        self.probing |= other.probing;
    }

    /// Failures in a row so far.
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

/// `length` so many times, at most the longest there is.
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

    /// Before this, a rest without an end panicked.
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
