//! Finds the limit nobody publishes and rides just below it.
//!
//! | file | its part |
//! | --- | --- |
//! | `quiet.rs` | a key that nobody waits for: a few numbers, inline |
//! | `learning.rs` | what is known once it learns, and what each outcome does to it |
//! | `stages.rs` | start, trial, cruise, probe, recover: what a served request moves |
//! | `canary.rs` | after a refusal: when the single request goes that asks whether it is over |
//! | `verdict.rs` | what a block that has ended tells of the limit |
//! | `window.rs` | so many per window: its length, count and end, from blocks |
//! | `replay.rs` | back from a window's end, as what was sent leaves it |
//! | `probing.rs` | when to ask for more, and what that may cost |
//! | `slots.rs` | a cap on requests at once, told from a rate |
//! | `queue.rs` | fewer at once when latency shows a queue |
//! | `trouble.rs` | an outage or a brown-out, which is no lower limit |
//! | `noise.rs` | refusals that mean nothing |
//! | `quota.rs` | what the server announces, while it is true |
//! | `ledger.rs` | what was served when |
//! | `mechanism.rs`, `restore.rs`, `join.rs` | the switches; back from bytes; one again of two |
//!
//! Only what was sent after the last decision counts, and the gate in [`crate::host`] lets one request at a
//! time through while a refusal stands, so one burst of refusals is one event. The lower end of a bracket is
//! what a limiter cannot have refused: between two refusals a token bucket hands out what flows in, give or
//! take one. Sources: TCP's slow start and Vegas for start and queue, CUBIC's shape (RFC 9438) for the probe,
//! Kleinberg and Leighton (2003) for asking ever less often, `research/adaptive.md` for windows and canaries.

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

/// No round trip is taken to be longer.
const ROUND_TRIP_MAX: Duration = Duration::from_mins(1);
/// The least rate it falls to, requests per second.
const RATE_MIN: f64 = 0.002;
/// … and the most it asks for.
const RATE_MAX: f64 = 1e6;

/// The law's state for one key: 48 bytes until it learns, then a kilobyte.
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

    /// Takes up what was learned; with a clock that was set back, all its times go back as far.
    pub(super) fn adopt(&mut self, config: &Arc<DiscoverConfig>, back: Duration) {
        match &mut self.0 {
            State::Quiet(quiet) => quiet.adopt(config, back),
            State::Learning(law) => law.adopt(config, back),
        }
    }

    /// Whether a quota of requests stops the key until its reset.
    pub(super) fn stops_at(&self, quota: &Quota, under_way: u64) -> bool {
        match &self.0 {
            State::Quiet(_) => quota.remaining == Some(0),
            State::Learning(law) => law.stops_at(quota, under_way),
        }
    }

    /// Could it have learned this? Bytes read back may be anything.
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
