//! Finds the limit nobody publishes and rides just below it.

mod canary;
mod ledger;
mod noise;
mod probing;
mod queue;
mod quota;
mod slots;
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
use noise::{Lone, Noise};
use probing::Probing;
use queue::Queue;
use quota::Announced;
use slots::Slots;
use window::{Between, Window};

/// The constants of [`Discover`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DiscoverConfig {
    /// How far below the learned ceiling it rides. Default 0.01.
    pub margin: f64,
    /// Switches a mechanism off, to see what it is worth. Default none.
    pub without: Option<Mechanism>,
}

impl Default for DiscoverConfig {
    fn default() -> Self {
        Self {
            margin: 0.01,
            without: None,
        }
    }
}

/// What the law is made of; each can be switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mechanism {
    /// Learning a window from its blocks.
    Windows,
    /// Asking again where windows end, instead of at ever longer intervals.
    Rounds,
    /// Paying for probes, and waiting longer after each that found nothing.
    Budget,
    /// A second look after a probe that got far.
    Verify,
    /// Telling a cap on requests at once from a rate.
    Slots,
    /// Fewer at once when latency shows a queue.
    Queue,
    /// Telling noise from limits.
    Noise,
    /// Believing what the server announces.
    Quota,
    /// Keeping the ceiling through an outage.
    Outage,
}

impl Mechanism {
    /// All of them, by name.
    pub const ALL: [(&str, Self); 9] = [
        ("windows", Self::Windows),
        ("rounds", Self::Rounds),
        ("budget", Self::Budget),
        ("verify", Self::Verify),
        ("slots", Self::Slots),
        ("queue", Self::Queue),
        ("noise", Self::Noise),
        ("quota", Self::Quota),
        ("outage", Self::Outage),
    ];
}

/// No round trip is taken to be longer.
const ROUND_TRIP_MAX: Duration = Duration::from_mins(1);
/// The least rate it falls to, requests per second.
const RATE_MIN: f64 = 0.002;
/// … and the most it asks for.
const RATE_MAX: f64 = 1e6;
/// The bracket is narrow enough.
const PRECISE: f64 = 0.012;
/// Where in the bracket the next trial goes: nearer the lower end, since a refusal costs more than time.
const TRIAL_AT: f64 = 0.35;

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

    /// Takes up what was learned; with a clock that was set back, all its times go back as far.
    pub(super) fn adopt(&mut self, config: &Arc<DiscoverConfig>, back: Duration) {
        self.config = Arc::clone(config);
        for time in [
            &mut self.stage_began,
            &mut self.anchor,
            &mut self.last_soft,
            &mut self.next_canary,
            &mut self.outage_over,
        ] {
            *time = *time - back;
        }
        if let Some(block) = &mut self.block {
            block.rebase(back);
        }
        self.window.rebase(back);
        self.probing.rebase(back);
        self.noise.rebase(back);
        self.ledger.rebase(back);
    }

    /// Could it have learned this? Bytes read back may be anything.
    pub(super) fn plausible(&self) -> bool {
        let rates = [self.ceiling, self.low, self.passed, self.bank, self.excess.abs()];
        self.rate >= RATE_MIN
            && self.rate.is_finite()
            && self.high > 0.0
            && rates.iter().all(|rate| *rate >= 0.0 && rate.is_finite())
            && self.anchor_served <= self.ledger.served()
            && self.round_trip <= ROUND_TRIP_MAX
            && self.block.is_none_or(|block| block.plausible())
            && self.window.plausible()
            && self.probing.plausible()
            && self.queue.plausible()
            && self.slots.plausible()
            && self.noise.plausible()
            && self.announced.plausible()
            && self.ledger.plausible()
    }

    fn has(&self, mechanism: Mechanism) -> bool {
        self.config.without != Some(mechanism)
    }

    fn enter(&mut self, stage: Stage, rate: f64, now: Timestamp) {
        self.stage = stage;
        self.rate = rate.clamp(RATE_MIN, RATE_MAX);
        self.stage_began = now;
        self.stage_served = 0;
    }

    fn cruise(&mut self, ceiling: f64, now: Timestamp) {
        self.ceiling = ceiling.max(RATE_MIN);
        self.enter(
            Stage::Cruise,
            self.ceiling * (1.0 - self.config.margin),
            now,
        );
    }

    fn recover(&mut self, now: Timestamp) {
        self.strikes = 0;
        self.enter(Stage::Recover, self.ceiling * 0.25, now);
    }

    fn next_trial(&mut self, now: Timestamp) {
        let low = self.low.max(self.passed);
        if self.high <= low * (1.0 + PRECISE) || self.probing.credit() <= -12.0 && self.low > 0.0 {
            self.cruise(self.low.max(self.passed * 0.995), now);
            self.probing.invest(now);
            return;
        }
        let rate = if low > 0.0 {
            low + TRIAL_AT * (self.high - low)
        } else {
            self.high * 0.6
        };
        self.enter(Stage::Trial, rate, now);
    }

    /// The rate of a probe: as good as the ceiling at first, then steeply up.
    fn probe_rate(&self, now: Timestamp) -> f64 {
        let scale = (20.0 / self.ceiling)
            .max(20.0)
            .max(self.window.length.as_secs_f64());
        let x = now.since(self.stage_began).as_secs_f64() / scale;
        self.ceiling * (1.0 + x * x * x)
    }

    /// Something else than the rate held requests back: the demand, or the cap in flight.
    fn held_back(&self, now: Timestamp) -> bool {
        let elapsed = now.since(self.stage_began).as_secs_f64() - self.round_trip.as_secs_f64();
        f64::from(self.stage_served) < 0.6 * self.rate * elapsed
    }

    fn step(&mut self, now: Timestamp) {
        let elapsed = now.since(self.stage_began).as_secs_f64();
        let served = self.stage_served;
        match self.stage {
            Stage::Start => {
                let enough = if self.rate < 4.0 { 4 } else { 6 };
                if served >= enough
                    && elapsed >= (self.rate / 16.0).clamp(1.0, 5.0)
                    && !self.held_back(now)
                {
                    self.enter(Stage::Start, self.rate * stride(self.rate), now);
                }
            }
            Stage::Recover => {
                if served >= 4 {
                    let top = self.ceiling * (1.0 - self.config.margin);
                    if self.rate * 2.0 >= top {
                        self.cruise(self.ceiling, now);
                        self.probing.rest(now);
                    } else {
                        self.enter(Stage::Recover, self.rate * 2.0, now);
                    }
                }
            }
            Stage::Trial => {
                let width = (self.high / self.low.max(self.passed).max(1e-9) - 1.0).clamp(0.0, 1.0);
                let tolerance = (width / 4.0).clamp(0.01, 0.2);
                if served < 8 || f64::from(served) * tolerance < 1.0 || elapsed * tolerance < 0.7 {
                    return;
                }
                if self.held_back(now) {
                    self.cruise(self.low.max(self.rate * 0.6), now);
                    return;
                }
                let since = now.since(self.anchor).as_secs_f64();
                let sustained = f64::from(self.ledger.served().saturating_sub(self.anchor_served + 1)) / since;
                self.low = self.low.max(sustained.min(self.rate));
                self.passed = self.rate;
                if self.verifying {
                    self.verifying = false;
                    self.probing.changed(now);
                }
                self.next_trial(now);
            }
            Stage::Cruise => {
                if self.probing.due(now) {
                    self.enter(Stage::Probe, self.ceiling, now);
                }
            }
            Stage::Probe => {
                let elapsed = elapsed - self.round_trip.as_secs_f64();
                if served >= 20 && f64::from(served) < 0.75 * self.ceiling * elapsed {
                    self.probing.found_nothing(now);
                    self.cruise(self.ceiling, now);
                }
            }
        }
    }

    fn served(&mut self, sample: &Sample) {
        let now = sample.now;
        self.ledger.serve(sample.sent);
        self.probing.earn();
        self.round_trip = (self.round_trip * 9 + sample.latency.min(ROUND_TRIP_MAX)) / 10;
        self.slots.served(sample.beside);
        let starting = self.stage == Stage::Start && self.cuts == 0;
        let queue = self.has(Mechanism::Queue) && self.queue.served(sample.latency, sample.beside, starting);
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
            if self.stage == Stage::Cruise && self.stage_served == noise::PROOF && !self.held_back(now) {
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
        match &mut self.block {
            Some(block) => {
                block.canaries = block.canaries.saturating_add(1);
                block.refused = sample.sent;
                block.heard = sample.now;
            }
            None => {
                self.cuts = self.cuts.saturating_add(1);
                self.block = Some(Block {
                    began: sample.sent,
                    refused: sample.sent,
                    heard: sample.now,
                    canaries: 0,
                    rate: self.rate_at(sample.now),
                    beside: sample.beside,
                    overloaded: false,
                    told: false,
                });
            }
        }
        let mut block = self.block.expect("just set");
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
        self.next_canary = block.next_canary(&self.window, &self.ledger, rate, self.round_trip);
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

    fn block_over(&mut self, block: &Block, canary: &Sample) {
        let now = canary.now;
        let lasted = canary.sent.since(block.began);
        // What was served since the last refusal, the canary apart.
        let (since, before) = (self.anchor, self.anchor_served);
        let n = f64::from((self.ledger.served() - before).saturating_sub(1));
        let refused = block.refused.min(canary.sent);
        self.anchor = refused;
        self.anchor_served = self.ledger.served().saturating_sub(1);
        self.passed = 0.0;
        let first = self.cuts == 1;
        let again = canary.sent.since(self.outage_over) < (lasted * 5).max(Duration::from_mins(1));
        if block.overloaded && block.canaries >= 3 {
            self.outage_over = canary.sent;
        }
        let outage = block.overloaded && block.canaries >= 3 && self.ceiling > 0.0 && !again;
        if outage && self.has(Mechanism::Outage) {
            return self.recover(now);
        }
        if self.has(Mechanism::Noise) && block.canaries == 0 && !block.told {
            match self.noise.refused(n, block.rate, now) {
                Lone::Limit => {}
                Lone::Noise => return self.probing.refund(),
                Lone::Noticed(ceiling) => {
                    self.probing.forgive();
                    return self.cruise(ceiling, now);
                }
            }
        }
        if self.has(Mechanism::Slots) && self.slots.refused(block.beside) {
            // The rate is not what limits.
            return self.cruise(self.ceiling.max(block.rate) * 3.0, now);
        }
        let interval = Duration::from_secs_f64(1.2 + (3.0 / block.rate).min(3.0 / RATE_MIN));
        let hard = (block.canaries >= 1 || block.told) && lasted > interval;
        let learnable = first || self.window.is_known() || self.ceiling == 0.0;
        if self.has(Mechanism::Windows) && hard && learnable && (n >= 3.0 || first) {
            return self.window_over(block, canary);
        }
        // Tokens flowed in for the served ones; less than one was there at either end.
        let span = |from: Timestamp, to: Timestamp| to.since(from).as_secs_f64().max(1e-3);
        let low = ((n - 1.0) / span(since, block.began)).max(n / span(since, canary.sent));
        // A bucket that rests may overflow: only the time at the rate that was refused bounds it from above.
        let after = self.ledger.between(self.stage_began, block.began);
        // Of so few nothing can be told but that the rate was refused.
        let high = if after >= 4.0 { (after + 1.0) / span(self.stage_began, refused) } else { block.rate };
        if self.window.fitted > 0 {
            let used = self
                .ledger
                .between(canary.sent - self.window.length, block.began);
            if used >= 0.8 * self.ceiling * self.window.length.as_secs_f64() {
                self.window.used_up(&self.ledger, block.began, canary.sent);
                return self.window_rate(now);
            }
            self.window = Window::default();
        }

        if !self.window.is_known() {
            // Should this have been a window's end, the next one is told by it.
            let end = Between {
                from: refused,
                to: canary.sent,
            };
            self.window.maybe_ended(end, n);
        }
        match self.stage {
            Stage::Start => {
                (self.low, self.high) = (0.0, block.rate);
                self.enter(Stage::Trial, block.rate / stride(block.rate * 0.9).max(1.35), now);
            }
            Stage::Trial => {
                self.high = self.high.min(block.rate).min(high);
                if self.verifying && self.high <= self.ceiling * 1.04 {
                    self.verifying = false;
                    self.bank = self.bank.max(self.excess);
                    self.probing.found_nothing(now);
                    return self.cruise(self.ceiling, now);
                }
                self.verifying = false;
                self.low = self.low.max(low).min(self.high * 0.995);
                if low < self.low * 0.9 && high < self.low {
                    self.low = low;
                }
                self.next_trial(now);
            }
            Stage::Probe => {
                let served = self.ledger.between(self.stage_began, block.began);
                let expected = self.ceiling * block.began.since(self.stage_began).as_secs_f64();
                self.excess = served - expected;
                if self.excess <= 1.15 * self.bank + 0.3 {
                    self.probing.found_nothing(now);
                    self.cruise(self.ceiling, now);
                } else {
                    (self.low, self.high) = (self.ceiling, block.rate);
                    self.verifying = true;
                    self.enter(Stage::Trial, self.ceiling * 1.04, now);
                }
            }
            Stage::Recover if self.strikes < 3 => {
                // A window that slides still holds what was sent before the block.
                self.strikes = self.strikes.saturating_add(1);
                self.enter(Stage::Recover, self.rate / 2.0, now);
            }
            Stage::Cruise | Stage::Recover => {
                let since_soft = block.began.since(self.last_soft).as_secs_f64();
                if since_soft > 40.0 / self.rate + 5.0 {
                    self.strikes = 0;
                }
                self.strikes = self.strikes.saturating_add(1);
                if self.strikes == 1 {
                    self.cruise(self.ceiling * 0.98, now);
                    self.probing.rest(now);
                } else {
                    self.high = block.rate.min(high);
                    self.low = low.min(self.high * 0.995).max(0.0);
                    self.strikes = 0;
                    self.probing.changed(now);
                    self.next_trial(now);
                }
            }
        }
        self.last_soft = block.began;
    }

    /// A window was used up before its end.
    fn window_over(&mut self, block: &Block, canary: &Sample) {
        let end = Between {
            from: block.refused.min(canary.sent),
            to: canary.sent,
        };
        self.window
            .learn(&self.ledger, block.began, end, block.rate);
        self.window_rate(canary.now);
    }

    fn window_rate(&mut self, now: Timestamp) {
        let (old, rate) = (self.ceiling, self.window.rate());
        self.ceiling = rate;
        let off = if old > 0.0 {
            (rate / old - 1.0).abs()
        } else {
            f64::INFINITY
        };
        if off < (1.5 / self.window.count).max(0.06) {
            self.probing.found_nothing(now);
            self.cruise(rate, now);
        } else if off < 0.5 {
            self.probing.changed(now);
            self.cruise(rate, now);
        } else {
            self.probing.changed(now);
            self.recover(now);
        }
    }
}

/// From one stage of the start to the next: boldly while little is at stake.
fn stride(rate: f64) -> f64 {
    match rate {
        ..4.0 => 2.0,
        ..16.0 => 1.5,
        _ => 1.25,
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
        let cap = self.queue.cap().min(self.slots.cap().unwrap_or(u32::MAX));
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
        let known = [self.ceiling, self.low.max(self.passed), self.high.min(self.rate)];
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
