//! Additive increase, multiplicative decrease of a rate: the textbook law (Chiu and Jain 1989), as
//! hand-written clients have it.
//!
//! One request per second at first, 0.1/s more every second, times 0.5 or 0.9 at a refusal, at most
//! once a second, never below 0.1/s. The constants are typical and not one project's.

use std::time::Duration;

use politely_core::{Rng, Timestamp};

use super::pace::Pace;
use crate::client::{Answer, Client, Reply};

/// Requests per second.
const START: f64 = 1.0;
/// Requests per second.
const LEAST: f64 = 0.1;
/// Requests per second, every second.
const STEP: f64 = 0.1;
/// Refusals within this span are one event.
const COOLDOWN: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Aimd {
    decrease: f64,
    rate: f64,
    pace: Pace,
    heard: Timestamp,
    decreased: Option<Timestamp>,
}

impl Aimd {
    /// Creates the law; a refusal multiplies the rate by `decrease`.
    pub(super) fn new(decrease: f64) -> Self {
        Self {
            decrease,
            rate: START,
            pace: Pace::default(),
            heard: Timestamp::ZERO,
            decreased: None,
        }
    }
}

impl Client for Aimd {
    fn ask(&mut self, now: Timestamp) -> Answer {
        self.pace.ask(now, self.rate)
    }

    fn hear(&mut self, now: Timestamp, reply: &Reply, _rng: &mut Rng) {
        self.rate += STEP * now.since(self.heard).as_secs_f64();
        self.heard = now;
        let calm = self.decreased.is_none_or(|at| now.since(at) >= COOLDOWN);
        if reply.throttled() && calm {
            self.rate = LEAST.max(self.rate * self.decrease);
            self.decreased = Some(now);
        }
    }

    fn rate(&self, _now: Timestamp) -> Option<f64> {
        Some(self.rate)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{near, refused, served};
    use super::*;

    #[test]
    fn a_tenth_more_a_second_and_one_cut_a_second() {
        let mut aimd = Aimd::new(0.5);
        let mut hear = |s: f64, reply: Reply| {
            aimd.hear(Timestamp::from_secs_f64(s), &reply, &mut Rng::new(0));
            aimd.rate
        };
        near(hear(10.0, served()), 2.0);
        near(hear(20.0, refused(429)), 1.5);
        near(hear(20.5, refused(429)), 1.55);
        near(hear(21.0, refused(503)), 0.8);
        near(hear(22.0, refused(404)), 0.9);
    }
}
