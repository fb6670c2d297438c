//! The interface of a simulated client: anything that limits itself.

use std::time::Duration;

use politely_core::signal::{Failure, Quota};
use politely_core::{Rng, Timestamp};

/// The answer to the question whether one more request may leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It leaves now. The number comes back with its [`Reply`].
    Go(u64),
    /// Acquire again at this time, or after the next reply, whichever is first.
    At(Timestamp),
    /// Acquire again after the next reply.
    AfterReply,
}

/// The outcome of a request.
#[derive(Clone, Copy, Debug)]
pub struct Reply {
    /// The number that [`Answer::Go`] carried.
    pub ticket: u64,
    /// When it left.
    pub sent: Timestamp,
    /// From leaving to the response.
    pub latency: Duration,
    /// The response's status. A request without a response has 504, as from a gateway.
    pub status: u16,
    /// Why there was no response.
    pub failure: Option<Failure>,
    /// The Retry-After of the response.
    pub retry_after: Option<Duration>,
    /// The quota that the response announced.
    pub quota: Option<Quota>,
    /// How many times this page was tried, this time included.
    pub attempt: u32,
    /// The number of the page, where pages may fail by their own fault.
    pub page: Option<u64>,
}

impl Reply {
    /// Returns whether the page was served.
    pub const fn ok(&self) -> bool {
        self.status < 400
    }

    /// Returns whether the host refused, because of the pace or of trouble. Rivals call this
    /// throttled.
    pub const fn throttled(&self) -> bool {
        matches!(self.status, 429 | 503)
    }
}

/// A client that limits itself: one law with its state, for one key.
pub trait Client {
    /// Decides whether one more request may leave at `now`. There is always one more to send.
    fn ask(&mut self, now: Timestamp) -> Answer;

    /// Learns the outcome of a request.
    fn hear(&mut self, now: Timestamp, reply: &Reply, rng: &mut Rng);

    /// Returns how long a connection sleeps after a refusal before its page joins the queue again.
    /// With zero the page joins at once, and the connection is free for another page.
    fn backoff(&mut self, _reply: &Reply, _rng: &mut Rng) -> Duration {
        Duration::ZERO
    }

    /// Returns the setpoint in requests per second, if the law has one. Used by plots.
    fn rate(&self, _now: Timestamp) -> Option<f64> {
        None
    }
}
