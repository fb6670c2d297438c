//! Crawlee's throttling request manager (crawlee 1.11.0 for Python,
//! `_throttling_request_manager.py` and `autoscaled_pool.py`; the JavaScript one of the unreleased
//! 4.0 has the same law).
//!
//! There is no pacing: as many requests as the pool wants leave until a 429. It blocks the domain
//! for Retry-After, or for 2 s doubled with each further 429, at most 60 s even if the server asked
//! for more. A 429 during a block is the same event. A quiet time as long as the block after it
//! resets the doubling. Other refusals (503, 403) are errors of their pages, which return at once.
//!
//! The pool wants 10 requests in flight at first, and 5 % more every ten seconds in which at least
//! 90 % of them were in flight, at most 100. The machine is assumed to be idle. While nothing can
//! leave, it looks again every half second.

use std::time::Duration;

use politely_core::{Rng, Timestamp};

use crate::client::{Answer, Client, Reply};

const BASE: Duration = Duration::from_secs(2);
const MOST: Duration = Duration::from_mins(1);
/// Keeps the doubling in range; far above the cap.
const EXPONENT_MAX: u32 = 20;
const LOOK_AGAIN: Duration = Duration::from_millis(500);
const SCALE_EVERY: Duration = Duration::from_secs(10);
const CONCURRENCY_START: u32 = 10;
const CONCURRENCY_MAX: u32 = 100;

#[derive(Debug)]
pub(super) struct Crawlee {
    blocked_until: Timestamp,
    resets_at: Timestamp,
    refusals: u32,
    in_flight: u32,
    desired: u32,
    next_scale: Timestamp,
}

impl Crawlee {
    pub(super) fn new() -> Self {
        Self {
            blocked_until: Timestamp::ZERO,
            resets_at: Timestamp::ZERO,
            refusals: 0,
            in_flight: 0,
            desired: CONCURRENCY_START,
            next_scale: Timestamp::ZERO + SCALE_EVERY,
        }
    }

    fn scale(&mut self, now: Timestamp) {
        while self.next_scale <= now {
            self.next_scale = self.next_scale + SCALE_EVERY;
            if self.in_flight >= self.desired * 9 / 10 {
                self.desired = CONCURRENCY_MAX.min(self.desired + self.desired.div_ceil(20));
            }
        }
    }

    fn refused(&mut self, now: Timestamp, retry_after: Option<Duration>) {
        if now < self.blocked_until {
            return;
        }
        if now >= self.resets_at {
            self.refusals = 0;
        }
        self.refusals += 1;
        let delay = retry_after
            .filter(|asked| !asked.is_zero())
            .unwrap_or_else(|| BASE * 2_u32.pow((self.refusals - 1).min(EXPONENT_MAX)))
            .min(MOST);
        self.blocked_until = now + delay;
        self.resets_at = self.blocked_until + delay;
    }
}

impl Client for Crawlee {
    fn ask(&mut self, now: Timestamp) -> Answer {
        self.scale(now);
        if now < self.blocked_until {
            return Answer::At(now + LOOK_AGAIN);
        }
        if self.in_flight >= self.desired {
            return Answer::AfterReply;
        }
        self.in_flight += 1;
        Answer::Go(0)
    }

    fn hear(&mut self, now: Timestamp, reply: &Reply, _rng: &mut Rng) {
        self.scale(now);
        self.in_flight -= 1;
        if reply.status == 429 {
            self.refused(now, reply.retry_after);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: f64) -> Timestamp {
        Timestamp::from_secs_f64(secs)
    }

    #[test]
    fn a_burst_is_one_event_and_a_quiet_time_resets_the_doubling() {
        let mut crawlee = Crawlee::new();
        let mut refused = |s: f64, retry_after: Option<u64>| {
            crawlee.refused(at(s), retry_after.map(Duration::from_secs));
            crawlee.blocked_until
        };
        assert_eq!(refused(10.0, None), at(12.0));
        assert_eq!(refused(10.1, None), at(12.0));
        assert_eq!(refused(13.0, None), at(17.0));
        assert_eq!(refused(18.0, None), at(26.0));
        // 26 + 8 = 34: quiet for as long as the block.
        assert_eq!(refused(34.0, None), at(36.0));
        assert_eq!(refused(36.0, Some(30)), at(66.0));
        assert_eq!(refused(70.0, Some(0)), at(78.0));
        // Not the hour that the server asked for.
        assert_eq!(refused(78.0, Some(3600)), at(138.0));
    }

    #[test]
    fn the_pool_grows_by_a_twentieth_while_it_is_used() {
        let mut crawlee = Crawlee::new();
        crawlee.in_flight = 9;
        crawlee.scale(at(10.0));
        assert_eq!(crawlee.desired, 11);
        crawlee.in_flight = 8;
        crawlee.scale(at(20.0));
        assert_eq!(crawlee.desired, 11);
        crawlee.in_flight = 100;
        crawlee.scale(at(2_000.0));
        assert_eq!(crawlee.desired, 100);
    }
}
