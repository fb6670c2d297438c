//! Scrapy's `AutoThrottle` (`scrapy/extensions/throttle.py` and `core/downloader/__init__.py` at
//! 11079cb, 2026-08-21, 2.18.0; the law is unchanged in 2.19.0).
//!
//! The law is a delay between departures. After each response it is the mean of the delay and
//! `latency / N`, or at once the latter if that is longer, at most 60 s. An answer other than 200
//! can only lengthen it. The delay begins at 5 s; there are eight connections per domain and no
//! minimum. A 429 answers fast, so it does not lengthen the delay. Retry-After is not read. Scrapy
//! retries a page twice at once and then loses it; here the page returns to the crawler, also at
//! once.
//!
//! The real gap is the delay times U[0.5, 1.5), drawn anew *each time the timer ends*: a longer
//! draw sets the timer again (`_process_queue`, read again in 2.19.0). The mean gap is 1.22 times
//! the delay (measured with Scrapy).

use politely_core::{Rng, Timestamp};

use super::pace::secs;
use crate::client::{Answer, Client, Reply};

/// Seconds.
const START_S: f64 = 5.0;
/// Seconds.
const MOST_S: f64 = 60.0;
const CONNECTIONS: u32 = 8;

#[derive(Debug)]
pub(super) struct AutoThrottle {
    target: f64,
    delay: f64,
    in_flight: u32,
    last: Option<Timestamp>,
    timer: Timestamp,
    rng: Rng,
}

impl AutoThrottle {
    /// `target` is `AUTOTHROTTLE_TARGET_CONCURRENCY`, N.
    pub(super) const fn new(target: f64, rng: Rng) -> Self {
        Self {
            target,
            delay: START_S,
            in_flight: 0,
            last: None,
            timer: Timestamp::ZERO,
            rng,
        }
    }

    fn adjust(&mut self, latency: f64, status: u16) {
        let target = latency / self.target;
        let new = target.max(f64::midpoint(self.delay, target)).min(MOST_S);
        if status == 200 || new > self.delay {
            self.delay = new;
        }
    }
}

impl Client for AutoThrottle {
    fn ask(&mut self, now: Timestamp) -> Answer {
        if now < self.timer {
            return Answer::At(self.timer);
        }
        if let Some(last) = self.last {
            let due = last + secs(self.delay * self.rng.between(0.5, 1.5));
            if due > now {
                self.timer = due;
                return Answer::At(due);
            }
        }
        if self.in_flight == CONNECTIONS {
            return Answer::AfterReply;
        }
        self.in_flight += 1;
        self.last = Some(now);
        Answer::Go(0)
    }

    fn hear(&mut self, _now: Timestamp, reply: &Reply, _rng: &mut Rng) {
        self.in_flight -= 1;
        self.adjust(reply.latency.as_secs_f64(), reply.status);
    }

    fn rate(&self, _now: Timestamp) -> Option<f64> {
        Some(1.0 / self.delay)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::near;
    use super::*;

    /// Scrapy `tests/test_extension_throttle.py`, `test_adjustment` and
    /// `test_adjustment_bad_response`.
    #[test]
    fn scrapys_own_adjustments() {
        for (latency, target, delay, status, expected) in [
            (2.0, 2.0, 1.0, 200, 1.0),
            (1.0, 2.0, 1.0, 200, 0.75),
            (4.0, 2.0, 1.0, 200, 2.0),
            (2.0, 1.0, 1.0, 200, 2.0),
            (2.0, 4.0, 1.0, 200, 0.75),
            (2.0, 2.0, 0.5, 200, 1.0),
            (2.0, 2.0, 2.0, 200, 1.5),
            (2.0, 2.0, 1.0, 400, 1.0),
            (1.0, 2.0, 1.0, 400, 1.0),
            (4.0, 2.0, 1.0, 400, 2.0),
        ] {
            let mut law = AutoThrottle::new(target, Rng::new(0));
            law.delay = delay;
            law.adjust(latency, status);
            near(law.delay, expected);
        }
    }

    /// A jitter that is drawn again at each timer lengthens the mean gap.
    #[test]
    fn the_redrawn_gap_is_122_percent_of_the_delay() {
        let mut law = AutoThrottle::new(1.0, Rng::new(4));
        law.delay = 1.0;
        let (mut now, mut sent) = (Timestamp::ZERO, 0_u32);
        while sent < 20_000 {
            match law.ask(now) {
                Answer::Go(_) => {
                    sent += 1;
                    law.in_flight = 0;
                }
                Answer::At(at) => now = at,
                Answer::AfterReply => unreachable!("a connection is free"),
            }
        }
        let mean = now.as_secs_f64() / f64::from(sent);
        assert!((mean - 1.2186).abs() < 0.01, "{mean}");
    }
}
