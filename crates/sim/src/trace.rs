//! What happened in a run: every request, and its fate.

use std::time::Duration;

use politely_core::Timestamp;

/// The fate of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Served.
    Served,
    /// Refused by the limit.
    Refused,
    /// Accepted by the limit, and failed at random.
    Noise,
    /// Answered by an outage.
    Down,
    /// Answered by the block page.
    Blocked,
    /// Accepted by the limit, and the page failed as it always does.
    Bad,
}

/// One request of a run.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// When it left and reached the host.
    pub sent: Timestamp,
    /// From leaving to the response.
    pub latency: Duration,
    /// Its fate.
    pub fate: Fate,
    /// The worker that sent it.
    pub worker: u32,
    /// It left during a Retry-After that its client knew.
    pub in_hold: bool,
}

/// The events of a run.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// Every answered request, in order of its answer.
    pub requests: Vec<Request>,
    /// The first client's setpoint, and from when it applied.
    pub rates: Vec<(Timestamp, f64)>,
    /// When the run ended.
    pub end: Timestamp,
}
