//! The state of a key that learns, and the effect of each outcome on it.

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

/// Share of the rate that remains after the first block page.
const BLOCK_LEAVES: f64 = 0.8;
/// Share of the rate that remains after each later block page.
const BLOCK_LEAVES_AGAIN: f64 = 0.5;

/// The stage of the search for a host's limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Stage {
    /// The rate grows in strides until the first refusal.
    Start,
    /// A trial narrows the bracket.
    Trial,
    /// The rate stays just below the ceiling.
    Cruise,
    /// The rate climbs above the ceiling, to see whether the limit has risen.
    Probe,
    /// The rate returns from a block or a brown-out.
    Recover,
}

/// The state of a key that learns. All rates are in requests per second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Learning {
    pub(super) stage: Stage,
    pub(super) rate: f64,
    /// The learned limit. Zero: no limit is known.
    pub(super) ceiling: f64,
    /// When the stage began. Times in which no request could be served are left out.
    pub(super) stage_began: Timestamp,
    /// Number of requests that were sent and served since the stage began.
    pub(super) stage_served: u32,
    /// Lower end of the bracket: a rate that was certainly sustained.
    pub(super) low: f64,
    /// Upper end of the bracket: a rate that was refused. Infinite before the first refusal.
    pub(super) high: f64,
    /// When the last block's last refused request was sent: the bucket was empty then. Before the
    /// first block: when the key was created.
    pub(super) anchor: Timestamp,
    /// Number of requests served up to the anchor.
    pub(super) anchor_served: u32,
    /// The highest rate that passed a trial since the last refusal.
    pub(super) passed: f64,
    /// Number of requests that a full bucket serves beyond the ceiling's rate, as measured by
    /// probes.
    pub(super) bank: f64,
    /// Number of requests that the probe under test was served beyond the ceiling's rate.
    pub(super) excess: f64,
    /// Whether the trial tests the result of a probe.
    pub(super) verifying: bool,
    /// Number of recent refusals in the cruise or on the way back from a block.
    pub(super) strikes: u8,
    /// When the last soft block began.
    pub(super) last_soft: Timestamp,
    /// Moving average of the latency of served requests.
    pub(super) round_trip: Duration,
    /// The block that lasts now.
    pub(super) block: Option<Block>,
    /// Time of the canary after the last refusal.
    pub(super) next_canary: Timestamp,
    pub(super) window: Window,
    pub(super) probing: Probing,
    pub(super) queue: Queue,
    pub(super) slots: Slots,
    pub(super) noise: Noise,
    pub(super) ledger: Ledger,
    /// Number of blocks and block pages so far. Outages and rare lone failures do not count.
    pub(super) cuts: u32,
    /// When the last outage, with the ramp after it, was over. Zero: there was no outage.
    pub(super) outage_over: Timestamp,
    /// Share of the rate that is used on the way back from an outage, in (0, 1]. Otherwise 1.
    pub(super) ramp: f32,
    /// Whether a refusal was a 429 or similar. The limit then does not cause the host's 503s.
    pub(super) says_429: bool,
    /// Number of requests served at the last lone failure of a kind that no limit causes.
    pub(super) failed_at: u32,
    /// Number of requests served when the last block page came.
    pub(super) blocked_after: Option<u32>,
    /// The quotas that the server announces, and the rate that follows from them.
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

    /// Returns whether a quota of requests stops the key until the quota's reset.
    pub(super) fn stops_at(&self, quota: &Quota, under_way: u64) -> bool {
        self.has(Mechanism::Quota) && self.announced.stops_at(quota, under_way)
    }

    fn served(&mut self, sample: &Sample<'_>) {
        let now = sample.now;
        self.pause_over(sample);
        self.ledger.serve(sample.sent);
        if self.blocked_after.is_some() && sample.sent < self.stage_began {
            // The request was sent before the block page came, so it does not end the block.
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
            // The demand sets the pace, so the measurement of the stage starts again.
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
        if !sample.fresh || self.is_late_news(sample) {
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

    /// Lowers the rate after a block page and forbids probes for a day. Further block pages count
    /// as the same block if no request was served in between.
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

    /// Returns the rate that the law asks for, in requests per second.
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
            // Tokens that flow in while a canary is in flight must not let the next canary leave
            // too soon.
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
        // While the bracket narrows, the ceiling is the rate that is known to pass. If there is
        // none, it is the rate that was refused.
        let known = [
            self.ceiling,
            self.low.max(self.passed),
            self.high.min(self.rate),
        ];
        // A block that lasts counts as a cut until it proves to be an outage.
        let cuts = self.cuts.saturating_add(u32::from(self.block.is_some()));
        Metrics {
            ceiling: (cuts > 0)
                .then(|| known.into_iter().find(|rate| *rate > 0.0))
                .flatten()
                .or(self.announced.rate()),
            suggested: None,
            cuts,
            noise: self.noise.share.now(self.ledger.served()),
        }
    }
}

#[cfg(test)]
#[path = "learning_tests.rs"]
pub(super) mod tests;
