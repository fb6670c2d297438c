//! A fixed rate, as most crawlers are configured.

use politely_core::{Rng, Timestamp};

use super::pace::Pace;
use crate::client::{Answer, Client, Reply};

/// A number of requests per second, whatever the host answers.
#[derive(Debug)]
pub(super) struct Fixed {
    rate: f64,
    pace: Pace,
}

impl Fixed {
    pub(super) fn new(rate: f64) -> Self {
        Self {
            rate,
            pace: Pace::default(),
        }
    }
}

impl Client for Fixed {
    fn ask(&mut self, now: Timestamp) -> Answer {
        self.pace.ask(now, self.rate)
    }

    fn hear(&mut self, _now: Timestamp, _reply: &Reply, _rng: &mut Rng) {}

    fn rate(&self, _now: Timestamp) -> Option<f64> {
        Some(self.rate)
    }
}
