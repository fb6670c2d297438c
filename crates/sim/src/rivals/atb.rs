//! ATB, an adaptive token bucket for HTTP 429 (Farkiani, Liu and Crowley, "Rethinking API Rate
//! Limiting: A Client-Side Approach", arXiv 2510.04516v3, 2025-11, and the code published with it).
//!
//! A bucket of four, one request per minute at first. Every success multiplies the rate by 1.5
//! below the rate of the last congestion and by 1.2 above it. Every 429 or 5xx remembers the rate,
//! halves it and empties the bucket. Rates have two decimals. As published, the congestion rate
//! begins at 60, meant per minute and used per second, so the faster factor holds until the first
//! refusal.
//!
//! Its variant AATB shares counts between clients by UDP and is not simulated. The constants are
//! the paper's; the authors' repository could not be opened again to compare.

use politely_core::{Rng, Timestamp};

use super::pace::Bucket;
use crate::client::{Answer, Client, Reply};

const SIZE: f64 = 4.0;
/// Requests per second: one a minute, at two decimals.
const START: f64 = 0.02;
/// The smallest rate with two decimals.
const LEAST: f64 = 0.01;
const FAST: f64 = 1.5;
const SLOW: f64 = 1.2;

#[derive(Debug)]
pub(super) struct Atb {
    bucket: Bucket,
    congestion: f64,
}

impl Atb {
    pub(super) const fn new() -> Self {
        Self {
            bucket: Bucket::new(START, SIZE, 1.0),
            congestion: 60.0,
        }
    }
}

fn two_decimals(rate: f64) -> f64 {
    (rate * 100.0).round() / 100.0
}

impl Client for Atb {
    fn ask(&mut self, now: Timestamp) -> Answer {
        match self.bucket.take(now) {
            Ok(()) => Answer::Go(0),
            Err(wait) => Answer::At(now + wait),
        }
    }

    fn hear(&mut self, now: Timestamp, reply: &Reply, _rng: &mut Rng) {
        self.bucket.refill(now);
        let rate = self.bucket.rate;
        if reply.ok() {
            let factor = if rate < self.congestion { FAST } else { SLOW };
            self.bucket.rate = two_decimals((rate + LEAST).max(rate * factor));
        } else if reply.status == 429 || reply.status >= 500 {
            self.congestion = rate;
            self.bucket.rate = LEAST.max(two_decimals(rate / 2.0));
            self.bucket.tokens = 0.0;
        }
    }

    fn rate(&self, _now: Timestamp) -> Option<f64> {
        Some(self.bucket.rate)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{near, refused, served};
    use super::*;

    #[test]
    fn fast_up_to_the_last_congestion_slow_above_it() {
        let mut atb = Atb::new();
        let mut hear = |reply: Reply| {
            atb.hear(Timestamp::ZERO, &reply, &mut Rng::new(0));
            (atb.bucket.rate, atb.bucket.tokens)
        };
        for rate in [0.03, 0.05, 0.08, 0.12, 0.18, 0.27, 0.41, 0.62, 0.93, 1.4] {
            near(hear(served()).0, rate);
        }
        assert_eq!(hear(refused(429)), (0.7, 0.0));
        near(hear(served()).0, 1.05);
        near(hear(served()).0, 1.58);
        near(hear(served()).0, 1.9);
        near(hear(refused(404)).0, 1.9);
        near(hear(refused(503)).0, 0.95);
    }
}
