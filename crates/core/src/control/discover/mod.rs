//! Finds a limit that the server does not publish, and keeps the rate just below it.
//!
//! | file | its part |
//! | --- | --- |
//! | `quiet.rs` | an application-limited key: a few numbers, stored inline |
//! | `learning.rs` | the state of a key that learns, and the effect of each outcome |
//! | `stages.rs` | start, trial, cruise, probe, recover: the effect of a served request |
//! | `trial.rs` | the bracket around the limit, and the trials that narrow it |
//! | `canary.rs` | the time of the next canary after a refusal |
//! | `verdict.rs` | the conclusion from a block that has ended |
//! | `window.rs` | the length, count and end of a window, learned from blocks |
//! | `replay.rs` | the way back after a window's end, at the pace at which sent requests leave it |
//! | `probing.rs` | the time of the next probe, and its budget |
//! | `slots.rs` | tells a cap on requests in flight from a rate |
//! | `queue.rs` | lowers the cap in flight when latency shows a queue |
//! | `trouble.rs` | tells an outage or a brown-out from a lower limit |
//! | `noise.rs` | tells random refusals from a limit |
//! | `quota.rs` | follows the server's announcements while they are true |
//! | `ledger.rs` | the history of served requests |
//! | `mechanism.rs` | a switch for each mechanism |
//! | `restore.rs` | checks and adjusts a state read from bytes |
//! | `join.rs` | merges two states of one key |
//!
//! A decision counts only requests that were sent after the previous decision. While a refusal
//! stands, the gate in [`crate::host`] lets through one request at a time. So one burst of refusals
//! is one congestion event.
//!
//! The lower end of a bracket is a rate that no limiter can have refused: between two refusals a
//! token bucket hands out the tokens that flow in, plus or minus one.
//!
//! Sources:
//!
//! - the start: TCP's slow start
//! - the queue: TCP Vegas
//! - the shape of a probe: CUBIC (RFC 9438)
//! - probes that become rarer: Kleinberg and Leighton (2003)

mod canary;
mod join;
mod learning;
mod ledger;
mod mechanism;
mod noise;
mod probing;
mod queue;
mod quiet;
mod quota;
mod replay;
mod restore;
mod slots;
mod stages;
mod trial;
mod trouble;
mod verdict;
mod window;

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Law, Metrics, Sample, Setpoint};
use crate::Timestamp;
use crate::config::Limits;
use crate::signal::{Quota, Signal};
use learning::Learning;
pub use mechanism::{DiscoverConfig, Mechanism};
use quiet::Quiet;

/// The longest round trip that is counted. A longer one counts as this.
const ROUND_TRIP_MAX: Duration = Duration::from_mins(1);
/// The lowest rate of the law, in requests per second.
const RATE_MIN: f64 = 0.002;
/// The highest rate of the law, in requests per second.
const RATE_MAX: f64 = 1e6;

/// The law's state for one key. It takes 48 bytes until the key learns, then about a kilobyte.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Discover(State);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum State {
    Quiet(Quiet),
    Learning(Box<Learning>),
}

impl Discover {
    /// Starts at `rate` requests per second.
    pub fn new(config: Arc<DiscoverConfig>, rate: f64, now: Timestamp) -> Self {
        Self(State::Quiet(Quiet::new(config, rate, now)))
    }

    /// Adapts a restored state to `config`. All its times move back by `back`, the time by which
    /// the clock was set back.
    pub(super) fn adopt(&mut self, config: &Arc<DiscoverConfig>, back: Duration) {
        match &mut self.0 {
            State::Quiet(quiet) => quiet.adopt(config, back),
            State::Learning(law) => law.adopt(config, back),
        }
    }

    /// Returns whether a quota of requests stops the key until the quota's reset.
    pub(super) fn stops_at(&self, quota: &Quota, under_way: u64) -> bool {
        match &self.0 {
            State::Quiet(_) => quota.remaining == Some(0),
            State::Learning(law) => law.stops_at(quota, under_way),
        }
    }

    /// Returns whether the law could have reached this state. Restored bytes may be anything.
    pub(super) fn plausible(&self) -> bool {
        match &self.0 {
            State::Quiet(quiet) => quiet.plausible(),
            State::Learning(law) => law.plausible(),
        }
    }
}

impl Law for Discover {
    #[inline]
    fn on_sample(&mut self, sample: &Sample<'_>) {
        match &mut self.0 {
            State::Quiet(quiet) => {
                if !quiet.keeps(sample) {
                    let mut law = quiet.learning(sample);
                    law.on_sample(sample);
                    self.0 = State::Learning(law);
                }
            }
            State::Learning(law) => law.on_sample(sample),
        }
    }

    #[inline]
    fn setpoint(&mut self, now: Timestamp, limits: &Limits) -> Setpoint {
        match &mut self.0 {
            State::Quiet(quiet) => quiet.setpoint(limits),
            State::Learning(law) => law.setpoint(now, limits),
        }
    }

    fn rest_until(&self) -> Option<Timestamp> {
        match &self.0 {
            State::Quiet(_) => None,
            State::Learning(law) => law.rest_until(),
        }
    }

    fn metrics(&self) -> Metrics {
        match &self.0 {
            State::Quiet(_) => Metrics::default(),
            State::Learning(law) => law.metrics(),
        }
    }
}
