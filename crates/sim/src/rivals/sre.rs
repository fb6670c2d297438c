//! Adaptive throttling of Google's SRE book (Beyer et al., "Site Reliability Engineering", 2016,
//! chapter 21, "Handling Overload").
//!
//! Over two minutes, `requests` are those that the application tried to make, and `accepts` those
//! that the backend accepted. The client drops a new request itself with probability
//! `max(0, (requests - K accepts) / (requests + 1))`, K = 2. It is a valve for outages: the backend
//! always sees K times what it accepts, so it refuses 1 - 1/K of it.
//!
//! The law needs a demand to drop from, which it does not define, and a greedy one would be
//! infinite. Here it is 50 tries per second, Poisson. A dropped try costs nothing.

use std::collections::VecDeque;
use std::time::Duration;

use politely_core::{Rng, Timestamp};

use super::pace::secs;
use crate::client::{Answer, Client, Reply};

const K: f64 = 2.0;
const WINDOW: Duration = Duration::from_mins(2);
/// Tries per second.
const DEMAND: f64 = 50.0;

#[derive(Debug)]
pub(super) struct SreThrottle {
    rng: Rng,
    next: Timestamp,
    requests: VecDeque<Timestamp>,
    accepts: VecDeque<Timestamp>,
}

impl SreThrottle {
    pub(super) fn new(rng: Rng) -> Self {
        Self {
            rng,
            next: Timestamp::ZERO,
            requests: VecDeque::new(),
            accepts: VecDeque::new(),
        }
    }

    /// The probability with which a try at `now` is dropped.
    fn drop_probability(&mut self, now: Timestamp) -> f64 {
        let cut = now - WINDOW;
        for times in [&mut self.requests, &mut self.accepts] {
            while times.front().is_some_and(|&at| at < cut) {
                times.pop_front();
            }
        }
        let (requests, accepts) = (self.requests.len() as f64, self.accepts.len() as f64);
        ((requests - K * accepts) / (requests + 1.0)).max(0.0)
    }
}

impl Client for SreThrottle {
    fn ask(&mut self, now: Timestamp) -> Answer {
        while self.next <= now {
            let at = self.next;
            let drop = self.drop_probability(at);
            self.requests.push_back(at);
            self.next = at + secs(-libm::log(1.0 - self.rng.unit()) / DEMAND);
            if self.rng.unit() >= drop {
                return Answer::Go(0);
            }
        }
        Answer::At(self.next)
    }

    fn hear(&mut self, now: Timestamp, reply: &Reply, _rng: &mut Rng) {
        if reply.ok() {
            self.accepts.push_back(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::near;
    use super::*;

    #[test]
    fn the_books_formula_over_two_minutes() {
        let mut sre = SreThrottle::new(Rng::new(0));
        let at = Timestamp::from_secs_f64;
        near(sre.drop_probability(at(200.0)), 0.0);
        sre.requests = (0..99).map(|_| at(200.0)).collect();
        sre.accepts = (0..40).map(|_| at(250.0)).collect();
        near(sre.drop_probability(at(310.0)), 0.19);
        sre.accepts = (0..60).map(|_| at(250.0)).collect();
        near(sre.drop_probability(at(310.0)), 0.0);
        // The requests are older than two minutes, the accepts not.
        near(sre.drop_probability(at(321.0)), 0.0);
        assert_eq!((sre.requests.len(), sre.accepts.len()), (0, 60));
    }
}
