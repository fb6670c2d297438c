//! Envoy's adaptive concurrency filter, the gradient controller
//! (`extensions/filters/http/adaptive_concurrency/controller/gradient_controller.cc` at 054694f),
//! used as a client.
//!
//! Ten times a second: `gradient = (least round trip x 1.25) / median round trip`, between 0.5 and
//! 2; `limit = limit x gradient + sqrt(limit x gradient)`, between 3 and 1000. The least round trip
//! is the median of 50 requests at a limit of 3. It is measured at the start, every 60 to 69 s, and
//! after five windows at the least limit. Only latency counts: a refusal is a fast answer.
//!
//! Both intervals are those of the documentation's example (`adaptive_concurrency_filter.rst` at
//! 149521d), since the filter has no defaults for them; everything else is default. Newer versions
//! can measure without holding back. As a filter it would answer 503 to excess requests; a client
//! waits instead. The median is exact here; Envoy's comes from a log-linear histogram.

use std::time::Duration;

use politely_core::{Rng, Timestamp};

use super::pace::secs;
use crate::client::{Answer, Client, Reply};

const UPDATE_EVERY: Duration = Duration::from_millis(100);
/// Seconds.
const MEASURE_EVERY_S: f64 = 60.0;
/// The next measurement is delayed by up to this share.
const MEASURE_JITTER: f64 = 0.15;
const MEASURE_REQUESTS: usize = 50;
const BUFFER: f64 = 0.25;
const MIN: u32 = 3;
const MAX: u32 = 1000;
const AT_MIN_MAX: u32 = 5;

#[derive(Debug)]
pub(super) struct Envoy {
    limit: u32,
    in_flight: u32,
    /// Round trips, microseconds.
    samples: Vec<u64>,
    least_us: u64,
    /// The limit to restore after the current measurement.
    deferred: Option<u32>,
    /// Requests sent before this are no samples.
    epoch: Timestamp,
    at_min: u32,
    next_update: Timestamp,
    next_measure: Timestamp,
}

impl Envoy {
    pub(super) fn new() -> Self {
        Self {
            limit: MIN,
            in_flight: 0,
            samples: Vec::new(),
            least_us: 0,
            deferred: Some(MIN),
            epoch: Timestamp::ZERO,
            at_min: 0,
            next_update: Timestamp::NEVER,
            next_measure: Timestamp::NEVER,
        }
    }

    fn median(&mut self) -> u64 {
        self.samples.sort_unstable();
        let median = self.samples[(self.samples.len() - 1) / 2];
        self.samples.clear();
        median
    }

    fn set(&mut self, limit: u32, now: Timestamp) {
        let stays = self.limit == MIN && limit == MIN;
        self.at_min = if stays && self.deferred.is_none() {
            self.at_min + 1
        } else {
            0
        };
        self.limit = limit;
        if self.at_min >= AT_MIN_MAX {
            self.next_measure = now;
        }
    }

    /// Runs the timers that are due.
    fn tick(&mut self, now: Timestamp) {
        loop {
            if self.next_measure <= now && self.next_measure <= self.next_update {
                self.epoch = self.next_measure;
                self.next_measure = Timestamp::NEVER;
                self.next_update = Timestamp::NEVER;
                self.deferred = Some(self.limit);
                self.set(MIN, now);
                self.samples.clear();
            } else if self.next_update <= now {
                let at = self.next_update;
                self.next_update = at + UPDATE_EVERY;
                if !self.samples.is_empty() {
                    let limit = new_limit(self.limit, self.least_us, self.median());
                    self.set(limit, at);
                }
            } else {
                return;
            }
        }
    }
}

fn new_limit(limit: u32, least_us: u64, median_us: u64) -> u32 {
    let buffered = least_us as f64 * (1.0 + BUFFER);
    let gradient = (buffered.floor() / median_us as f64).clamp(0.5, 2.0);
    let limit = f64::from(limit) * gradient;
    ((limit + limit.sqrt()) as u32).clamp(MIN, MAX)
}

impl Client for Envoy {
    fn ask(&mut self, now: Timestamp) -> Answer {
        self.tick(now);
        if self.in_flight < self.limit {
            self.in_flight += 1;
            return Answer::Go(0);
        }
        Answer::At(self.next_update)
    }

    fn hear(&mut self, now: Timestamp, reply: &Reply, rng: &mut Rng) {
        self.tick(now);
        self.in_flight -= 1;
        if reply.sent < self.epoch {
            return;
        }
        self.samples.push((reply.latency.as_micros() as u64).max(1));
        if let Some(limit) = self.deferred
            && self.samples.len() >= MEASURE_REQUESTS
        {
            self.least_us = self.median();
            self.set(limit, now);
            self.deferred = None;
            let jitter = rng.between(0.0, MEASURE_JITTER);
            self.next_measure = now + secs(MEASURE_EVERY_S * (1.0 + jitter));
            self.next_update = now + UPDATE_EVERY;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::served;
    use super::*;

    /// By hand from the formula.
    #[test]
    fn steps_by_hand() {
        for (limit, least, median, expected) in [
            // 1.25 x 16 = 20, + 4.47.
            (16, 100, 100, 24),
            // 0.5 x 16 = 8, + 2.83.
            (16, 100, 1000, 10),
            // 2 x 16 = 32, + 5.66.
            (16, 100, 10, 37),
            (3, 100, 1000, 3),
            (900, 100, 100, 1000),
        ] {
            assert_eq!(new_limit(limit, least, median), expected);
        }
    }

    #[test]
    fn fifty_at_a_limit_of_three_then_ten_updates_a_second_then_again() {
        let mut envoy = Envoy::new();
        let rng = &mut Rng::new(0);
        let mut hear = |ms: u64, latency_ms: u64| {
            let mut reply = served();
            reply.sent = Timestamp::from_micros((ms - latency_ms) * 1000);
            reply.latency = Duration::from_millis(latency_ms);
            envoy.in_flight = 1;
            envoy.hear(Timestamp::from_micros(ms * 1000), &reply, rng);
            (envoy.limit, envoy.least_us)
        };
        for i in 0..50 {
            assert_eq!(hear(1000 + i, 100), (3, if i == 49 { 100_000 } else { 0 }));
        }
        hear(1100, 100);
        // 3 x 1.25 + sqrt(3.75) = 5.69 at 1149 ms.
        assert_eq!(hear(1149, 100).0, 5);
        // Between 60 and 69 s later: at three again.
        assert_eq!(hear(80_000, 100).0, 3);
    }
}
