//! Finds the limit nobody publishes and rides just below it.
//!
//! | file | its part |
//! | --- | --- |
//! | `stages.rs` | start, trial, cruise, probe, recover: what a served request moves |
//! | `canary.rs` | after a refusal: when the single request goes that asks whether it is over |
//! | `verdict.rs` | what a block that has ended tells of the limit |
//! | `window.rs` | so many per window: its length, count and end, from blocks |
//! | `probing.rs` | when to ask for more, and what that may cost |
//! | `slots.rs` | a cap on requests at once, told from a rate |
//! | `queue.rs` | fewer at once when latency shows a queue |
//! | `noise.rs` | refusals that mean nothing |
//! | `quota.rs` | what the server announces, while it is true |
//! | `ledger.rs` | what was served when |
//! | `mechanism.rs`, `restore.rs` | the switches; back from bytes |
//!
//! Only what was sent after the last decision counts, and the gate in [`crate::host`] lets one request at a
//! time through while a refusal stands, so one burst of refusals is one event. The lower end of a bracket is
//! what a limiter cannot have refused: between two refusals a token bucket hands out what flows in, give or
//! take one. Sources: TCP's slow start and Vegas for start and queue, CUBIC's shape (RFC 9438) for the probe,
//! Kleinberg and Leighton (2003) for asking ever less often, `research/adaptive.md` for windows and canaries.

mod canary;
mod ledger;
mod mechanism;
mod noise;
mod probing;
mod queue;
mod quota;
mod restore;
mod slots;
mod stages;
mod verdict;
mod window;

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Law, Metrics, Sample, Setpoint};
use crate::Timestamp;
use crate::config::Limits;
use crate::signal::Signal;
use canary::Block;
use ledger::Ledger;
pub use mechanism::{DiscoverConfig, Mechanism};
use noise::Noise;
use probing::Probing;
use queue::Queue;
use quota::Announced;
use slots::Slots;
use window::Window;

/// No round trip is taken to be longer.
const ROUND_TRIP_MAX: Duration = Duration::from_mins(1);
/// The least rate it falls to, requests per second.
const RATE_MIN: f64 = 0.002;
/// … and the most it asks for.
const RATE_MAX: f64 = 1e6;

/// What it is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Stage {
    /// Growing by strides until the first refusal.
    Start,
    /// Narrowing the bracket.
    Trial,
    /// Riding just below the ceiling.
    Cruise,
    /// Asking for more.
    Probe,
    /// Back from a block or an outage, by doublings.
    Recover,
}

/// The law's state for one key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Discover {
    stage: Stage,
    rate: f64,
    ceiling: f64,
    stage_began: Timestamp,
    /// Served since, of what was sent since.
    stage_served: u32,
    /// The rate is certainly sustained (low) or certainly refused (high).
    low: f64,
    high: f64,
    /// A refused request, and how many had been served by then: the bucket was empty.
    anchor: Timestamp,
    anchor_served: u32,
    /// The highest rate that passed a trial since the last refusal.
    passed: f64,
    /// What a full bucket holds beyond the rate, as far as probes have shown.
    bank: f64,
    /// What the probe under test found beyond the ceiling.
    excess: f64,
    verifying: bool,
    /// Refusals while cruising, of late.
    strikes: u8,
    last_soft: Timestamp,
    round_trip: Duration,
    block: Option<Block>,
    /// The canary after the last refusal.
    next_canary: Timestamp,
    window: Window,
    probing: Probing,
    queue: Queue,
    slots: Slots,
    noise: Noise,
    ledger: Ledger,
    cuts: u32,
    /// When the last outage was over.
    outage_over: Timestamp,
    /// The rate the server announces, as long as it was true.
    announced: Announced,
    #[serde(skip)]
    config: Arc<DiscoverConfig>,
}

impl Discover {
    /// Starts at `rate` requests per second.
    pub fn new(config: Arc<DiscoverConfig>, rate: f64, now: Timestamp) -> Self {
        Self {
            stage: Stage::Start,
            rate: rate.clamp(RATE_MIN, RATE_MAX),
            ceiling: 0.0,
            stage_began: now,
            stage_served: 0,
            low: 0.0,
            high: f64::INFINITY,
            anchor: now,
            anchor_served: 0,
            passed: 0.0,
            bank: 0.0,
            excess: 0.0,
            verifying: false,
            strikes: 0,
            last_soft: Timestamp::ZERO,
            round_trip: Duration::from_millis(100),
            block: None,
            next_canary: Timestamp::ZERO,
            window: Window::default(),
            probing: Probing::new(now),
            queue: Queue::default(),
            slots: Slots::default(),
            noise: Noise::default(),
            ledger: Ledger::default(),
            cuts: 0,
            outage_over: Timestamp::ZERO,
            announced: Announced::default(),
            config,
        }
    }

    fn has(&self, mechanism: Mechanism) -> bool {
        self.config.without != Some(mechanism)
    }

    fn served(&mut self, sample: &Sample) {
        let now = sample.now;
        self.ledger.serve(sample.sent);
        self.probing.earn();
        self.round_trip = (self.round_trip * 9 + sample.latency.min(ROUND_TRIP_MAX)) / 10;
        self.slots.served(sample.beside);
        let starting = self.stage == Stage::Start && self.cuts == 0;
        let queue = self.has(Mechanism::Queue)
            && self.queue.served(sample.latency, sample.beside, starting);
        if let Some(block) = self.block {
            if sample.sent >= block.heard {
                self.block = None;
                self.block_over(&block, sample);
            }
            return;
        }
        if queue && self.stage == Stage::Start {
            self.cruise(self.rate, now);
            self.probing.rest(now);
        }
        if !sample.pressed {
            // Demand sets the pace: what follows begins anew.
            self.stage_began = now;
            self.stage_served = 0;
        } else if sample.sent >= self.stage_began {
            self.stage_served = self.stage_served.saturating_add(1);
            if self.stage == Stage::Cruise
                && self.stage_served == noise::PROOF
                && !self.held_back(now)
            {
                self.noise.prove(self.rate, now);
            }
            self.step(now);
        }
    }

    fn refused(&mut self, sample: &Sample) {
        if !sample.fresh {
            return;
        }
        self.probing.pay();
        if sample.signal == Signal::RateLimited {
            self.announced.refused(sample.quota, sample.beside);
        }
        let mut block = if let Some(block) = self.block {
            Block {
                canaries: block.canaries.saturating_add(1),
                refused: sample.sent,
                heard: sample.now,
                ..block
            }
        } else {
            self.cuts = self.cuts.saturating_add(1);
            Block {
                began: sample.sent,
                refused: sample.sent,
                heard: sample.now,
                canaries: 0,
                rate: self.rate_at(sample.now),
                beside: sample.beside,
                overloaded: false,
                told: false,
            }
        };
        block.overloaded |= sample.signal == Signal::Overloaded;
        if let Some(after) = sample.retry_after {
            block.told = true;
            let until = sample.now + after.saturating_sub(Duration::from_secs(1));
            block.refused = block.refused.max(until);
        }
        self.block = Some(block);
        let rate = if self.ceiling > 0.0 {
            self.ceiling
        } else {
            block.rate
        };
        let rounds = self.has(Mechanism::Rounds);
        self.next_canary =
            block.next_canary(&self.window, &self.ledger, rate, self.round_trip, rounds);
    }

    /// A block page: whatever rate that was, half of it, and no more asking for a day.
    fn blocked(&mut self, now: Timestamp) {
        self.cuts = self.cuts.saturating_add(1);
        let rate = self.rate_at(now);
        self.cruise(rate * 0.5, now);
        self.probing.forbid(now);
    }

    fn rate_at(&self, now: Timestamp) -> f64 {
        match self.stage {
            // What flows in while a canary is under way must not send the next one too soon.
            _ if self.block.is_some() && self.ceiling > 0.0 => self.rate.min(self.ceiling * 0.98),
            _ if self.block.is_some() => self.rate * 0.5,
            Stage::Probe => self.probe_rate(now),
            _ => self.rate,
        }
    }
}

impl Law for Discover {
    fn on_sample(&mut self, sample: &Sample) {
        if self.has(Mechanism::Quota) {
            self.announced.hear(sample.quota, sample.beside);
        }
        match sample.signal {
            Signal::Ok => self.served(sample),
            Signal::RateLimited | Signal::Overloaded => self.refused(sample),
            Signal::Blocked if sample.fresh => self.blocked(sample.now),
            _ => {}
        }
    }

    fn setpoint(&mut self, now: Timestamp, limits: &Limits) -> Setpoint {
        let queue = if self.has(Mechanism::Queue) {
            self.queue.cap()
        } else {
            limits.in_flight
        };
        let cap = queue.min(self.slots.cap().unwrap_or(u32::MAX));
        Setpoint {
            rate: match self.announced.rate() {
                Some(announced) if self.block.is_none() => announced,
                _ => self.rate_at(now),
            },
            in_flight: cap.min(limits.in_flight).max(1),
            burst: limits.burst,
        }
    }

    fn rest_until(&self) -> Option<Timestamp> {
        Some(self.next_canary)
    }

    fn metrics(&self) -> Metrics {
        // While it narrows down, what is known to pass, or at least what is refused.
        let known = [
            self.ceiling,
            self.low.max(self.passed),
            self.high.min(self.rate),
        ];
        Metrics {
            ceiling: (self.cuts > 0)
                .then(|| known.into_iter().find(|rate| *rate > 0.0))
                .flatten()
                .or(self.announced.rate()),
            suggested: None,
            cuts: self.cuts,
        }
    }
}
