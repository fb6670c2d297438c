//! What a key's law knows once it learns, and what each outcome does to it.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::canary::Block;
use super::ledger::Ledger;
use super::noise::{self, Noise};
use super::probing::Probing;
use super::queue::Queue;
use super::quota::Announced;
use super::slots::Slots;
use super::window::Window;
use super::{
    DiscoverConfig, Law, Limits, Mechanism, Metrics, RATE_MAX, RATE_MIN, ROUND_TRIP_MAX, Sample,
    Setpoint, Signal,
};
use crate::Timestamp;
use crate::signal::Quota;

/// What a block page leaves of the rate it came at, and each further one.
const BLOCK_LEAVES: f64 = 0.8;
const BLOCK_LEAVES_AGAIN: f64 = 0.5;

/// What it is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Stage {
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

/// What is known of one key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Learning {
    pub(super) stage: Stage,
    pub(super) rate: f64,
    pub(super) ceiling: f64,
    pub(super) stage_began: Timestamp,
    /// Served since, of what was sent since.
    pub(super) stage_served: u32,
    /// The rate is certainly sustained (low) or certainly refused (high).
    pub(super) low: f64,
    pub(super) high: f64,
    /// A refused request, and how many had been served by then: the bucket was empty.
    pub(super) anchor: Timestamp,
    pub(super) anchor_served: u32,
    /// The highest rate that passed a trial since the last refusal.
    pub(super) passed: f64,
    /// What a full bucket holds beyond the rate, as far as probes have shown.
    pub(super) bank: f64,
    /// What the probe under test found beyond the ceiling.
    pub(super) excess: f64,
    pub(super) verifying: bool,
    /// Refusals while cruising, of late.
    pub(super) strikes: u8,
    pub(super) last_soft: Timestamp,
    pub(super) round_trip: Duration,
    pub(super) block: Option<Block>,
    /// The canary after the last refusal.
    pub(super) next_canary: Timestamp,
    pub(super) window: Window,
    pub(super) probing: Probing,
    pub(super) queue: Queue,
    pub(super) slots: Slots,
    pub(super) noise: Noise,
    pub(super) ledger: Ledger,
    pub(super) cuts: u32,
    /// When the last outage was over; zero without one.
    pub(super) outage_over: Timestamp,
    /// Share of the rate that is in use on the way back from an outage; 1 otherwise.
    pub(super) ramp: f32,
    /// Whether a refusal was a 429 or the like. Then 503s are none of the limit's.
    pub(super) says_429: bool,
    /// How many requests had been served at the last lone failure that no limit causes.
    pub(super) failed_at: u32,
    /// How many had been served when a block page last came.
    pub(super) blocked_after: Option<u32>,
    /// The rate the server announces, as long as it was true.
    pub(super) announced: Announced,
    #[serde(skip)]
    pub(super) config: Arc<DiscoverConfig>,
}

impl Learning {
    /// Starts at `rate` requests per second.
    pub(super) fn new(config: Arc<DiscoverConfig>, rate: f64, now: Timestamp) -> Self {
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
            ramp: 1.0,
            says_429: false,
            failed_at: 0,
            blocked_after: None,
            announced: Announced::starting_at(rate.clamp(RATE_MIN, RATE_MAX)),
            config,
        }
    }

    pub(super) fn has(&self, mechanism: Mechanism) -> bool {
        self.config.without != Some(mechanism)
    }

    /// Whether a quota of requests stops the key until its reset.
    pub(super) fn stops_at(&self, quota: &Quota, under_way: u64) -> bool {
        self.has(Mechanism::Quota) && self.announced.stops_at(quota, under_way)
    }

    fn served(&mut self, sample: &Sample<'_>) {
        let now = sample.now;
        self.pause_over(sample);
        self.ledger.serve(sample.sent);
        if self.blocked_after.is_some() && sample.sent < self.stage_began {
            // On its way when the block page came: that stands.
            self.blocked_after = Some(self.ledger.served());
        }
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
        if self.ramp < 1.0 {
            self.ramps_up(sample);
        } else if !sample.pressed {
            // Demand sets the pace: what follows begins anew.
            self.stage_began = now;
            self.stage_served = 0;
        } else if sample.sent >= self.stage_began {
            self.stage_served = self.stage_served.saturating_add(1);
            if self.stage == Stage::Cruise && self.stage_served == noise::PROOF {
                self.prove(now);
            }
            self.step(now);
        }
    }

    fn refused(&mut self, sample: &Sample<'_>) {
        if !sample.fresh {
            return;
        }
        let rate = self.wish(sample.now);
        if sample.signal == Signal::RateLimited {
            self.announced.refused(sample.quotas, sample.beside);
        }
        let mut block = if let Some(block) = self.block {
            Block {
                canaries: block.canaries.saturating_add(1),
                refused: sample.sent,
                heard: sample.now,
                ..block
            }
        } else {
            Block {
                began: sample.sent,
                refused: sample.sent,
                heard: sample.now,
                canaries: 0,
                rate,
                beside: sample.beside,
                overloaded: false,
                is_trouble: false,
                told: false,
            }
        };
        block.overloaded |= sample.signal == Signal::Overloaded;
        self.says_429 |= sample.signal == Signal::RateLimited;
        block.is_trouble |= sample.is_trouble || block.overloaded && self.says_429;
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

    /// A block page: no more asking for a day. Those that follow with nothing served in between are
    /// the same block.
    fn blocked(&mut self, now: Timestamp) {
        self.probing.forbid(now);
        let left = match self.blocked_after.replace(self.ledger.served()) {
            Some(served) if served == self.ledger.served() => return,
            Some(_) => BLOCK_LEAVES_AGAIN,
            None => BLOCK_LEAVES,
        };
        self.cuts = self.cuts.saturating_add(1);
        let rate = self.rate_at(now);
        self.cruise(rate * left, now);
    }

    /// The rate it asks for.
    #[inline]
    pub(super) fn wish(&self, now: Timestamp) -> f64 {
        match self.announced.rate() {
            Some(announced) if self.block.is_none() => announced,
            _ => self.rate_at(now),
        }
    }

    #[inline]
    fn rate_at(&self, now: Timestamp) -> f64 {
        let rate = match self.stage {
            // What flows in while a canary is under way must not send the next one too soon.
            _ if self.block.is_some() && self.ceiling > 0.0 => self.rate.min(self.ceiling * 0.98),
            _ if self.block.is_some() => self.rate * 0.5,
            Stage::Probe => self.probe_rate(now),
            Stage::Recover => self.comeback(now),
            _ => self.rate,
        };
        rate * f64::from(self.ramp)
    }
}

impl Law for Learning {
    fn on_sample(&mut self, sample: &Sample<'_>) {
        if self.has(Mechanism::Quota) {
            self.announced.hear(sample);
        }
        match sample.signal {
            Signal::Ok => self.served(sample),
            Signal::RateLimited | Signal::Overloaded => self.refused(sample),
            Signal::Blocked if sample.fresh => self.blocked(sample.now),
            _ => {}
        }
    }

    #[inline]
    fn setpoint(&mut self, now: Timestamp, limits: &Limits) -> Setpoint {
        let queue = if self.has(Mechanism::Queue) {
            self.queue.cap()
        } else {
            limits.in_flight
        };
        let cap = queue.min(self.slots.cap().unwrap_or(u32::MAX));
        Setpoint {
            rate: self.wish(now),
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
        // A block that stands counts as a cut until it proves to be an outage.
        let cuts = self.cuts.saturating_add(u32::from(self.block.is_some()));
        Metrics {
            ceiling: (cuts > 0)
                .then(|| known.into_iter().find(|rate| *rate > 0.0))
                .flatten()
                .or(self.announced.rate()),
            suggested: None,
            cuts,
        }
    }
}

#[cfg(test)]
#[path = "learning_tests.rs"]
pub(super) mod tests;
