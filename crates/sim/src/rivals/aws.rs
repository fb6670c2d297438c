//! The AWS SDKs' "adaptive" retry mode: a rate that follows CUBIC after the first refusal.
//!
//! The law of the rate is in botocore `retries/{adaptive,bucket,throttling}.py` at 0e6e240
//! (2026-08-07), and the same in smithy-rs `client_rate_limiter.rs` at 56ee88c (2026-08-21). The
//! rate is unlimited until the first throttle. Responses are counted in half seconds; the measured
//! rate is 0.8 of the last half second and 0.2 of its old value. A throttle takes
//! `min(measured, rate)` as the new maximum and 0.7 of it as the rate. A success puts the rate on a
//! cubic that reaches the maximum again after `cbrt(0.75 maximum)` seconds and grows beyond it. The
//! rate is never above twice the measured rate and never below 0.5/s. Each throttle acts, even if
//! many come from one burst.
//!
//! A call has two retries. Their law is separate, and three versions are in use. A call without
//! retries left fails, and its page returns to the crawler.
//!
//! - [`Spec::V20`], which botocore and most SDKs ship: one token per attempt, sleep
//!   `U[0, min(2^i, 20 s))`.
//! - [`Spec::V20Rust`], smithy-rs before 2.1: a retry pays 10 tokens if it can and sleeps as above.
//!   If it cannot, it sleeps until there would be 10, at most 20 s, and pays none.
//! - [`Spec::V21`], "retry behavior 2.1": as 2.0, but the first sleep is below 1 s for a throttle
//!   and below 50 ms for another failure, and the retry quota is dearer.
//!
//! The quota of retries is 500. A retry costs 5 (in 2.1 a throttle 5, other failures 14), and a
//! success returns what its last retry cost, or 1. 503 counts as a throttle, as S3's `SlowDown`
//! does. Retry-After is not read; 2.1 reads `x-amz-retry-after`, which no host here sends.

use std::time::Duration;

use politely_core::{Rng, Timestamp};

use super::pace::{Bucket, Sleepers, secs};
use crate::client::{Answer, Client, Reply};

const BETA: f64 = 0.7;
const SCALE: f64 = 0.4;
const SMOOTHING: f64 = 0.8;
/// Half seconds in a second.
const BUCKETS_PER_S: f64 = 2.0;
/// Requests per second.
const RATE_MIN: f64 = 0.5;
/// The rate may be this many times the measured one.
const HEADROOM: f64 = 2.0;
const ATTEMPTS_MAX: u64 = 3;
/// Seconds.
const BACKOFF_MAX_S: f64 = 20.0;
const QUOTA: f64 = 500.0;
const RUST_RETRY_TOKENS: f64 = 10.0;
/// A ticket is the number of the attempt of its call, from 1, plus this bit if the last failure was
/// no throttle.
const OTHER_FAILURE: u64 = 1 << 8;

/// The version of the retry law.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spec {
    V20,
    V20Rust,
    V21,
}

/// The cubic: the rate and the time of the last throttle.
#[derive(Clone, Copy, Debug, Default)]
struct Cubic {
    max: f64,
    /// Seconds.
    throttled_at: f64,
}

impl Cubic {
    /// Returns the seconds from a throttle until the maximum is reached again.
    fn plateau(self) -> f64 {
        libm::cbrt(self.max * (1.0 - BETA) / SCALE)
    }

    fn success(self, at: f64) -> f64 {
        let t = at - self.throttled_at - self.plateau();
        SCALE * (t * t * t) + self.max
    }

    fn throttle(&mut self, rate: f64, at: f64) -> f64 {
        (self.max, self.throttled_at) = (rate, at);
        rate * BETA
    }
}

/// Responses per second.
#[derive(Clone, Copy, Debug, Default)]
struct Clocker {
    measured: f64,
    bucket: f64,
    count: f64,
}

impl Clocker {
    fn record(&mut self, at: f64) -> f64 {
        let bucket = (at * BUCKETS_PER_S).floor() / BUCKETS_PER_S;
        self.count += 1.0;
        if bucket > self.bucket {
            let current = self.count / (bucket - self.bucket);
            self.measured = current * SMOOTHING + self.measured * (1.0 - SMOOTHING);
            (self.bucket, self.count) = (bucket, 0.0);
        }
        self.measured
    }
}

#[derive(Debug)]
pub(super) struct Aws {
    spec: Spec,
    enabled: bool,
    bucket: Bucket,
    cubic: Cubic,
    clocker: Clocker,
    quota: f64,
    /// Calls between attempts, by the number of the next attempt.
    sleepers: Sleepers,
}

impl Aws {
    pub(super) fn new(spec: Spec) -> Self {
        Self {
            spec,
            enabled: false,
            bucket: Bucket::new(RATE_MIN, 1.0, 0.0),
            cubic: Cubic::default(),
            clocker: Clocker::default(),
            quota: QUOTA,
            sleepers: Sleepers::default(),
        }
    }

    fn update(&mut self, now: Timestamp, throttled: bool) {
        let at = now.as_secs_f64();
        let measured = self.clocker.record(at);
        let rate = if throttled {
            let rate = if self.enabled {
                measured.min(self.bucket.rate)
            } else {
                measured
            };
            self.enabled = true;
            self.cubic.throttle(rate, at)
        } else {
            self.cubic.success(at)
        };
        let rate = rate.min(HEADROOM * measured);
        self.bucket.refill(now);
        self.bucket.rate = rate.max(RATE_MIN);
        self.bucket.capacity = rate.max(1.0);
        self.bucket.tokens = self.bucket.tokens.min(self.bucket.capacity);
    }

    /// Returns the cost of a retry.
    fn cost(&self, throttled: bool) -> f64 {
        if self.spec == Spec::V21 && !throttled {
            14.0
        } else {
            5.0
        }
    }

    /// Returns how long the retry after attempt number `attempt` sleeps, in seconds.
    fn sleep(&mut self, attempt: u64, throttled: bool, now: Timestamp, rng: &mut Rng) -> f64 {
        if self.spec == Spec::V20Rust && self.enabled {
            self.bucket.refill(now);
            let short = RUST_RETRY_TOKENS - self.bucket.tokens;
            if short > 0.0 {
                return (short / self.bucket.rate).min(BACKOFF_MAX_S);
            }
            self.bucket.tokens -= RUST_RETRY_TOKENS;
        }
        let base = if self.spec == Spec::V21 && !throttled {
            0.05
        } else {
            1.0
        };
        // There are at most three attempts.
        let grown: f64 = if attempt == 1 { base } else { base * 2.0 };
        rng.unit() * grown.min(BACKOFF_MAX_S)
    }
}

impl Client for Aws {
    fn ask(&mut self, now: Timestamp) -> Answer {
        let retry = self.sleepers.woken(now);
        let free = !self.enabled || (self.spec == Spec::V20Rust && retry.is_some());
        if !free && let Err(wait) = self.bucket.take(now) {
            return Answer::At(now + wait);
        }
        Answer::Go(self.sleepers.wake(now).unwrap_or(1))
    }

    fn hear(&mut self, now: Timestamp, reply: &Reply, _rng: &mut Rng) {
        self.update(now, reply.throttled());
        if reply.ok() {
            let reward = match attempt(reply) {
                1 => 1.0,
                _ => self.cost(reply.ticket & OTHER_FAILURE == 0),
            };
            self.quota = QUOTA.min(self.quota + reward);
        }
    }

    fn backoff(&mut self, reply: &Reply, rng: &mut Rng) -> Duration {
        let throttled = reply.throttled();
        let cost = self.cost(throttled);
        let retriable = throttled || matches!(reply.status, 500 | 502 | 504);
        if !retriable || attempt(reply) >= ATTEMPTS_MAX || self.quota < cost {
            return Duration::ZERO;
        }
        self.quota -= cost;
        let now = reply.sent + reply.latency;
        let sleep = secs(self.sleep(attempt(reply), throttled, now, rng));
        let sleep = sleep.max(Duration::from_micros(1));
        let other = if throttled { 0 } else { OTHER_FAILURE };
        self.sleepers
            .sleep(now + sleep, (attempt(reply) + 1) | other);
        sleep
    }

    fn rate(&self, _now: Timestamp) -> Option<f64> {
        self.enabled.then_some(self.bucket.rate)
    }
}

/// Returns the number of this attempt of its call, from 1.
const fn attempt(reply: &Reply) -> u64 {
    reply.ticket & !OTHER_FAILURE
}

#[cfg(test)]
mod tests {
    use super::super::tests::{near, refused, served};
    use super::*;

    /// botocore `tests/unit/retries/test_throttling.py`.
    #[test]
    fn botocores_cubic() {
        let mut cubic = Cubic {
            max: 10.0,
            throttled_at: 0.0,
        };
        near(cubic.plateau(), 1.957_433_820_584_431_7);
        near(cubic.success(cubic.plateau()), 10.0);
        near(cubic.throttle(8.0, 1.0), 5.6);
        near(cubic.plateau(), 1.817_120_592_832_139_7);
    }

    /// smithy-rs `test_calculated_rate_with_successes`, after aws-sdk-go-v2.
    #[test]
    fn the_sdks_rates_with_successes() {
        let cubic = Cubic {
            max: 10.0,
            throttled_at: 5.0,
        };
        for (at, rate) in [
            (5.0, 7.0),
            (6.0, 9.648_936_009_66),
            (7.0, 10.000_030_849_917_364),
            (8.0, 10.453_284_520_772_092),
            (9.0, 13.408_697_022_224_185),
            (10.0, 21.266_268_354_273_64),
            (11.0, 36.425_998_516_920_465),
        ] {
            near(cubic.success(at), rate);
        }
    }

    /// smithy-rs `test_calculated_rate_with_throttles`, after aws-sdk-go-v2. The test sets the
    /// maximum to the rate after the cut.
    #[test]
    fn the_sdks_rates_with_throttles() {
        let mut cubic = Cubic {
            max: 10.0,
            throttled_at: 5.0,
        };
        let mut rate = 0.0;
        for (throttled, at, expected) in [
            (false, 5.0, 7.0),
            (false, 6.0, 9.648_936_009_66),
            (true, 7.0, 6.754_255_206_761_999),
            (true, 8.0, 4.727_978_644_733_399),
            (false, 9.0, 4.670_125_557_970_046),
            (false, 10.0, 4.770_870_456_867_401),
            (false, 11.0, 6.011_819_748_005_445),
            (false, 12.0, 10.792_973_431_384_178),
        ] {
            if throttled {
                rate = cubic.throttle(rate, at);
                cubic.max = rate;
            } else {
                rate = cubic.success(at);
            }
            near(rate, expected);
        }
    }

    /// smithy-rs `test_client_sending_rates`: the whole limiter, a response every 200 ms.
    #[test]
    fn the_sdks_sending_rates() {
        let mut aws = Aws::new(Spec::V20);
        for (i, (throttled, measured, rate)) in [
            (false, 0.0, 0.5),
            (false, 0.0, 0.5),
            (false, 4.8, 0.5),
            (false, 4.8, 0.5),
            (false, 4.16, 0.5),
            (false, 4.16, 0.691_2),
            (false, 4.16, 1.097_6),
            (false, 5.632, 1.638_4),
            (false, 5.632, 2.332_8),
            (true, 4.326_4, 3.028_48),
            (false, 4.326_4, 3.486_639_173_470_26),
            (false, 4.326_4, 3.821_874_416_040_255),
            (false, 5.665_28, 4.053_385_727_709_987),
            (false, 5.665_28, 4.200_373_108_479_454),
            (false, 4.333_056, 4.282_036_558_348_658),
            (true, 4.333_056, 2.997_425_590_844_06),
            (false, 4.333_056, 3.452_226_394_386_346_3),
        ]
        .into_iter()
        .enumerate()
        {
            aws.update(Timestamp::from_micros((i as u64 + 1) * 200_000), throttled);
            near(aws.clocker.measured, measured);
            near(aws.bucket.rate, rate);
        }
    }

    /// botocore `tests/unit/retries/test_adaptive.py`, `TestRateClocker`.
    #[test]
    fn botocores_clocker() {
        let mut clocker = Clocker::default();
        near(clocker.record(1.0), 0.8);
        for at in 2..=20 {
            clocker.record(f64::from(at));
        }
        near((clocker.measured * 1e7).round() / 1e7, 1.0);
        let mut clocker = Clocker::default();
        for at in [0.1, 0.2, 0.3, 0.4, 0.49] {
            near(clocker.record(at), 0.0);
        }
        near(clocker.record(0.5), 12.0 * 0.8);
    }

    #[test]
    fn three_attempts_then_the_page_goes_back() {
        let mut aws = Aws::new(Spec::V20);
        let mut rng = Rng::new(1);
        let mut reply = refused(429);
        reply.ticket = 1;
        assert!(aws.backoff(&reply, &mut rng) <= Duration::from_secs(1));
        reply.ticket = 2;
        assert!(!aws.backoff(&reply, &mut rng).is_zero());
        reply.ticket = 3;
        assert!(aws.backoff(&reply, &mut rng).is_zero());
        // Sleeping calls return in the order of their waking, with their attempt numbers.
        let late = Timestamp::from_secs_f64(30.0);
        let mut went = [aws.ask(late), aws.ask(late)].map(|answer| match answer {
            Answer::Go(ticket) => ticket,
            _ => 0,
        });
        went.sort_unstable();
        assert_eq!(went, [2, 3]);
        assert_eq!(aws.ask(late), Answer::Go(1));
    }

    #[test]
    fn a_hundred_throttled_retries_spend_the_quota_and_successes_refill_it() {
        for (spec, status, retries) in [
            (Spec::V20, 429, 100),
            (Spec::V20, 500, 100),
            (Spec::V21, 429, 100),
            (Spec::V21, 500, 35),
        ] {
            let mut aws = Aws::new(spec);
            let mut rng = Rng::new(1);
            let mut reply = refused(status);
            reply.ticket = 1;
            let went = (0..200)
                .filter(|_| !aws.backoff(&reply, &mut rng).is_zero())
                .count();
            assert_eq!(went, retries, "{spec:?} {status}");
            let mut ok = served();
            ok.ticket = 1;
            let before = aws.quota;
            aws.hear(Timestamp::from_micros(1), &ok, &mut rng);
            near(aws.quota, before + 1.0);
            ok.ticket = 2;
            aws.hear(Timestamp::from_micros(1), &ok, &mut rng);
            near(aws.quota, before + 6.0);
            ok.ticket = 2 | OTHER_FAILURE;
            aws.hear(Timestamp::from_micros(1), &ok, &mut rng);
            let other = if spec == Spec::V21 { 14.0 } else { 5.0 };
            near(aws.quota, before + 6.0 + other);
        }
    }
}
