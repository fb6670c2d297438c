//! Backoff alone: sixteen connections, each sleeping with full jitter after a refusal.
//!
//! This is a client that follows Brooker, "Exponential Backoff and Jitter" (AWS Architecture Blog,
//! 2015) and does nothing else: base 1 s, cap 20 s, no bound on attempts, first tries unlimited.
//! The jitter is the library's.

use std::time::Duration;

use politely_core::retry::{Backoff, Jitter};
use politely_core::{Rng, Timestamp};

use super::pace::Sleepers;
use crate::client::{Answer, Client, Reply};

const CONNECTIONS: u32 = 16;
const BASE: Duration = Duration::from_secs(1);
const CAP: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub(super) struct FullJitter {
    backoff: Backoff,
    busy: u32,
    sleepers: Sleepers,
}

impl FullJitter {
    pub(super) fn new() -> Self {
        Self {
            backoff: Backoff::new(BASE, 2.0, CAP, Jitter::Full).expect("constants in range"),
            busy: 0,
            sleepers: Sleepers::default(),
        }
    }
}

impl Client for FullJitter {
    fn ask(&mut self, now: Timestamp) -> Answer {
        if self.sleepers.wake(now).is_some() {
            // Its connection is counted already.
            return Answer::Go(0);
        }
        if self.busy == CONNECTIONS {
            return Answer::AfterReply;
        }
        self.busy += 1;
        Answer::Go(0)
    }

    fn hear(&mut self, _now: Timestamp, reply: &Reply, _rng: &mut Rng) {
        if reply.ok() {
            self.busy -= 1;
        }
    }

    fn backoff(&mut self, reply: &Reply, rng: &mut Rng) -> Duration {
        let delay = self.backoff.delay(reply.attempt - 1, None, rng);
        // A draw of zero would free the connection.
        let delay = delay.max(Duration::from_micros(1));
        self.sleepers.sleep(reply.sent + reply.latency + delay, 0);
        delay
    }
}
