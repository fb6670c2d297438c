//! aimd-bucket, an npm package (gadget-inc/aimd-bucket `src/index.ts` at f5b038f, 2025-07-02; the
//! law read again at 143806a).
//!
//! A token bucket with as many tokens as its rate. Every completion with at least five outcomes in
//! the last 30 s changes the rate. If more than a fifth of the outcomes failed, the rate halves (at
//! least 1/s); otherwise it grows by 1/s. There is no cooldown: each completion halves again while
//! the window contains the failures. By default the rate starts at its maximum, half of the largest
//! safe integer: without limit.
//!
//! Waiters are served after a completion, or when a timer of `max(100 ms, 1/rate)` ends.

use std::collections::VecDeque;
use std::time::Duration;

use politely_core::{Rng, Timestamp};

use super::pace::{Bucket, secs};
use crate::client::{Answer, Client, Reply};

/// Requests per second: half of JavaScript's largest safe integer.
const START: f64 = 4_503_599_627_370_495.5;
/// Requests per second.
const LEAST: f64 = 1.0;
/// Requests per second, per completion.
const STEP: f64 = 1.0;
const DECREASE: f64 = 0.5;
/// A larger share of failures halves the rate.
const THRESHOLD: f64 = 0.2;
const OUTCOMES_MIN: usize = 5;
const WINDOW: Duration = Duration::from_secs(30);
/// Seconds.
const TIMER_MIN_S: f64 = 0.1;

#[derive(Debug)]
pub(super) struct AimdBucket {
    bucket: Bucket,
    outcomes: VecDeque<(Timestamp, bool)>,
    failures: usize,
    timer: Option<Timestamp>,
}

impl AimdBucket {
    pub(super) const fn new() -> Self {
        Self {
            bucket: Bucket::new(START, START, START),
            outcomes: VecDeque::new(),
            failures: 0,
            timer: None,
        }
    }
}

impl Client for AimdBucket {
    fn ask(&mut self, now: Timestamp) -> Answer {
        if self.bucket.take(now).is_ok() {
            return Answer::Go(0);
        }
        let timer = match self.timer {
            Some(at) if now < at => at,
            _ => now + secs(TIMER_MIN_S.max(1.0 / self.bucket.rate)),
        };
        self.timer = Some(timer);
        Answer::At(timer)
    }

    fn hear(&mut self, now: Timestamp, reply: &Reply, _rng: &mut Rng) {
        let failed = !reply.ok();
        self.outcomes.push_back((now, failed));
        self.failures += usize::from(failed);
        while let Some(&(at, failed)) = self.outcomes.front()
            && now.since(at) > WINDOW
        {
            self.outcomes.pop_front();
            self.failures -= usize::from(failed);
        }
        if self.outcomes.len() >= OUTCOMES_MIN {
            let share = self.failures as f64 / self.outcomes.len() as f64;
            self.bucket.rate = if share > THRESHOLD {
                LEAST.max(self.bucket.rate * DECREASE)
            } else {
                self.bucket.rate + STEP
            };
            self.bucket.capacity = self.bucket.rate.max(1.0);
        }
        self.bucket.refill(now);
    }

    fn rate(&self, _now: Timestamp) -> Option<f64> {
        // Without limit at first, so there is nothing to plot.
        (self.bucket.rate < 1e6).then_some(self.bucket.rate)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{near, refused, served};
    use super::*;

    fn hear(bucket: &mut AimdBucket, s: f64, reply: &Reply) -> f64 {
        bucket.hear(Timestamp::from_secs_f64(s), reply, &mut Rng::new(0));
        bucket.bucket.rate
    }

    #[test]
    fn one_more_per_completion_half_per_completion_above_a_fifth() {
        let mut bucket = AimdBucket::new();
        bucket.bucket = Bucket::new(10.0, 10.0, 10.0);
        for _ in 0..4 {
            near(hear(&mut bucket, 1.0, &served()), 10.0);
        }
        near(hear(&mut bucket, 1.0, &served()), 11.0);
        // 1 of 6, then 2 of 7: only the second is above a fifth.
        near(hear(&mut bucket, 2.0, &refused(429)), 12.0);
        near(hear(&mut bucket, 2.0, &refused(500)), 6.0);
        near(hear(&mut bucket, 2.0, &served()), 3.0);
        near(hear(&mut bucket, 2.0, &served()), 1.5);
        near(hear(&mut bucket, 2.0, &served()), 2.5);
        // The window of 30 s has forgotten all of that: too few outcomes.
        near(hear(&mut bucket, 33.0, &refused(429)), 2.5);
    }

    #[test]
    fn never_below_one() {
        let mut bucket = AimdBucket::new();
        for _ in 0..100 {
            hear(&mut bucket, 1.0, &refused(429));
        }
        near(bucket.bucket.rate, 1.0);
        near(bucket.bucket.tokens, 1.0);
    }
}
