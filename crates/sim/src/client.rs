//! Who is simulated: anything that limits itself.

use std::time::Duration;

use politely_core::signal::Quota;
use politely_core::{Rng, Timestamp};

/// May one more request leave?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Now, and it does; the number comes back with its [`Reply`].
    Go(u64),
    /// Ask again at this time, or after the next reply, whichever is first.
    At(Timestamp),
    /// Ask again after the next reply.
    AfterReply,
}

/// What became of a request.
#[derive(Clone, Copy, Debug)]
pub struct Reply {
    /// What [`Answer::Go`] carried.
    pub ticket: u64,
    /// When it left.
    pub sent: Timestamp,
    /// From leaving to the response.
    pub latency: Duration,
    /// The response's status.
    pub status: u16,
    /// How long the server asked to be left alone.
    pub retry_after: Option<Duration>,
    /// What it announced.
    pub quota: Option<Quota>,
    /// How often this page was tried, this time included.
    pub attempt: u32,
}

impl Reply {
    /// Served.
    pub const fn ok(&self) -> bool {
        self.status < 400
    }

    /// Refused for going too fast, or for trouble: what rivals call throttled.
    pub const fn throttled(&self) -> bool {
        matches!(self.status, 429 | 503)
    }
}

/// A client that limits itself: one law with its state, for one key.
pub trait Client {
    /// May one more request leave at `now`? There is always one more to send.
    fn ask(&mut self, now: Timestamp) -> Answer;

    /// Hears what became of one.
    fn hear(&mut self, now: Timestamp, reply: &Reply, rng: &mut Rng);

    /// How long a connection sleeps after a refusal before its page stands in line again. Zero: at once,
    /// and the connection is free for another page.
    fn backoff(&mut self, _reply: &Reply, _rng: &mut Rng) -> Duration {
        Duration::ZERO
    }

    /// The rate it aims for, requests per second, where it has one: for plots.
    fn rate(&self, _now: Timestamp) -> Option<f64> {
        None
    }
}
