//! What a block that has ended tells of the limit.
//!
//! A canary was served again. How long the block lasted, how much had been served before it and in
//! which stage it came decide what it was: an outage, noise, a cap on requests at once, a window,
//! or a bucket that ran dry.

use std::time::Duration;

use super::canary::Block;
use super::learning::{Learning, Stage};
use super::noise::Lone;
use super::slots::Told;
use super::window::{Between, Window};
use super::{Mechanism, RATE_MIN, Sample};
use crate::Timestamp;

/// A block is *hard*, and not a bucket that fills again, if it lasts longer than this time and this
/// number of intervals.
const HARD: Duration = Duration::from_millis(1_200);
const HARD_INTERVALS: f64 = 3.0;
/// The numbers of intervals while nothing is known. A slow start may have met a slow bucket.
const HARD_INTERVALS_FIRST: f64 = 0.5;
const HARD_INTERVALS_LEAST: f64 = 5.0;
/// A canary that goes later than its time by this share of it, and this much, was kept back by us:
/// nobody asked meanwhile.
const LATE: f64 = 1.1;
const LATE_BY: Duration = Duration::from_millis(300);
/// A told wait is over up to so much later than the block remembers, since servers round.
const TOLD_WITHIN: Duration = Duration::from_secs(1);
/// Requests served before a hard block, for it to be a window's.
const WINDOW_SERVED: f64 = 3.0;
/// A window was used up if this share of what it holds was served.
const USED_UP: f64 = 0.8;
/// Requests at one rate that bound the limit from above.
const TELLING: f64 = 4.0;
/// In the first bracket they must last for this share of the time since the first request.
const TELLING_AGE: f64 = 0.125;
/// What a cap on requests at once leaves the rate: room enough to be no limit, nor a wait for each
/// slot that is free.
const NO_LIMIT: f64 = 6.0;
/// What a first refusal in the cruise leaves of the ceiling; a second one soon after is no
/// accident.
const LITTLE_LESS: f64 = 0.98;
/// The trial after the first, if that was refused although the start had served some at its rate.
const HARDLY_LESS: f64 = 0.95;
/// The second look after a probe, over the ceiling.
const SECOND_LOOK: f64 = 1.04;
/// A probe that got no further than this beyond what the bucket held last time found nothing.
const AS_BEFORE: (f64, f64) = (1.15, 0.3);
/// A window's rate this close to the one before is the same.
const SAME_RATE: f64 = 0.06;
/// At a window's rate this far from the one before, the pace must grow to it again.
const OTHER_RATE: f64 = 0.5;

/// Seconds from one moment to another, never zero.
fn span(from: Timestamp, to: Timestamp) -> f64 {
    to.since(from).as_secs_f64().max(1e-3)
}

/// What one block tells of the rate: certainly sustained, probably refused.
#[derive(Clone, Copy)]
struct Bracket {
    low: f64,
    high: f64,
}

impl Learning {
    pub(super) fn block_over(&mut self, block: &Block, canary: &Sample<'_>) {
        let now = canary.now;
        // What was served since the last refusal, the canary apart.
        let served = self.ledger.served().saturating_sub(self.anchor_served);
        let n = f64::from(served.saturating_sub(1));
        if self.is_lone_trouble(block, canary) {
            return;
        }
        if self.was_outage(block, canary) {
            return self.resume(block, now);
        }
        self.cuts = self.cuts.saturating_add(1);
        (0..=block.canaries).for_each(|_| self.probing.pay());
        let bracket = self.bracket(block, canary, n);
        self.anchor = block.refused.min(canary.sent);
        self.anchor_served = self.ledger.served().saturating_sub(1);
        self.passed = 0.0;
        if self.lies_low(block, now) {
            return;
        }
        if self.has(Mechanism::Noise) && block.canaries == 0 && !block.told {
            match self.noise.refused(n, block.rate, now) {
                Lone::Limit if block.overloaded => {}
                Lone::Limit => self.noise.forget_past(),
                Lone::Noise => return self.probing.refund(),
                Lone::Noticed(ceiling) => {
                    self.probing.forgive();
                    return self.cruise(ceiling, now);
                }
            }
        }
        if self.has(Mechanism::Slots) {
            match self.slots.refused(block.beside) {
                Told::Nothing => {}
                Told::Cap => return self.cruise(self.ceiling.max(block.rate) * NO_LIMIT, now),
                Told::NoCap => return self.cruise(self.ceiling / NO_LIMIT, now),
            }
        }
        if self.has(Mechanism::Windows) && self.was_window(block, canary, n) {
            return self.window_over(block, canary, n);
        }
        if self.window.fitted > 0 {
            let opened = canary.sent - self.window.length;
            let used = self.ledger.between(opened, block.began);
            if used >= USED_UP * self.ceiling * self.window.length.as_secs_f64() {
                self.window.used_up(&self.ledger, block.began, canary.sent);
                return self.window_rate(now);
            }
            self.window = Window::default();
        }
        if !self.window.is_known() {
            // Should this have been a window's end, the next one is told by it.
            let end = Between {
                from: self.anchor,
                to: canary.sent,
            };
            self.window.maybe_ended(end, n);
        }
        self.soft_over(block, bracket, now);
        self.last_soft = block.began;
    }

    /// Tokens flowed in for what was served, and less than one was there at either end.
    fn bracket(&self, block: &Block, canary: &Sample<'_>, n: f64) -> Bracket {
        let low = (n - 1.0) / span(self.anchor, block.began);
        // A bucket that rests may overflow: only the time at the rate that was refused bounds it
        // from above, and of few requests nothing can be told but that their rate was refused.
        let after = self.ledger.between(self.stage_began, block.began);
        let lasted = span(self.stage_began, block.refused.min(canary.sent));
        let first = self.ledger.first().unwrap_or(block.began);
        let age = span(first, block.began);
        let known = self.ceiling > 0.0;
        let high = if after >= TELLING && (known || lasted >= TELLING_AGE * age) {
            block.rate.min((after + 1.0) / lasted)
        } else if known {
            block.rate
        } else {
            // In a window that slides, what was sent before counts too: the limit may be as high as
            // the average so far.
            let average = (self.ledger.between(first, block.began) + 1.0) / age;
            block.rate.max(average)
        };
        Bracket {
            low: low.max(n / span(self.anchor, canary.sent)),
            high,
        }
    }

    /// The block began with the first refusal, which told of no window, and something slipped
    /// through meanwhile: `n` requests.
    fn is_first_again(&self, n: f64) -> bool {
        self.cuts == 2 && n < WINDOW_SERVED && self.ceiling == 0.0
    }

    /// Nothing passed for long although much had passed before.
    fn was_window(&self, block: &Block, canary: &Sample<'_>, n: f64) -> bool {
        let first = self.cuts == 1 || self.is_first_again(n);
        let intervals = |n: f64| Duration::from_secs_f64((n / block.rate).min(n / RATE_MIN));
        let least = if self.ceiling > 0.0 {
            HARD + intervals(HARD_INTERVALS)
        } else {
            (HARD + intervals(HARD_INTERVALS_FIRST)).max(intervals(HARD_INTERVALS_LEAST))
        };
        let hard = (block.canaries >= 1 || block.told) && self.lasted(block, canary) > least;
        // A limit known well is not taken for a window for one long block.
        let learnable = first || self.window.is_known() || self.ceiling == 0.0;
        hard && learnable && (n >= WINDOW_SERVED || first)
    }

    /// How long the host was shut, as far as it was asked: who comes back from a crash or had
    /// nothing to send asks late.
    fn lasted(&self, block: &Block, canary: &Sample<'_>) -> Duration {
        let told = if block.told {
            TOLD_WITHIN
        } else {
            Duration::ZERO
        };
        let due = self
            .next_canary
            .max(block.refused + told)
            .since(block.began);
        let asked = canary.sent.since(block.began);
        if asked > due.mul_f64(LATE) + LATE_BY {
            block.refused.since(block.began)
        } else {
            asked
        }
    }

    /// A bucket ran dry.
    fn soft_over(&mut self, block: &Block, bracket: Bracket, now: Timestamp) {
        match self.stage {
            Stage::Start => self.first_trial(block.rate, now),
            Stage::Trial => self.trial_over(block, bracket, now),
            Stage::Probe => self.probe_over(block, now),
            Stage::Recover if self.strikes < self.bears() => {
                // A window that slides still holds what was sent before the block.
                self.strikes = self.strikes.saturating_add(1);
                let rate = if self.replays() {
                    self.rate
                } else {
                    self.rate / 2.0
                };
                self.enter(Stage::Recover, rate, now);
            }
            Stage::Cruise | Stage::Recover => self.cruise_over(block, bracket, now),
        }
    }

    fn trial_over(&mut self, block: &Block, bracket: Bracket, now: Timestamp) {
        self.high = self.high.min(bracket.high);
        if self.verifying && self.high <= self.ceiling * SECOND_LOOK {
            // What the probe found was the bucket's.
            self.verifying = false;
            self.bank = self.bank.max(self.excess);
            self.probing.found_nothing(now);
            return self.cruise(self.ceiling, now);
        }
        self.verifying = false;
        self.low = self.low.max(bracket.low).min(self.high * 0.995);
        if bracket.low < self.low * 0.9 && bracket.high < self.low {
            self.low = bracket.low;
        }
        // A trial that counts what the start served begins before the refusal.
        if self.cuts == 2 && self.stage_began < self.last_soft && block.canaries == 0 {
            return self.enter(Stage::Trial, self.high * HARDLY_LESS, now);
        }
        self.next_trial(now);
    }

    fn probe_over(&mut self, block: &Block, now: Timestamp) {
        let lasted = block.began.since(self.stage_began).as_secs_f64();
        let served = self.ledger.between(self.stage_began, block.began);
        // The refused one would have been one more: without it, a few slow requests never exceed
        // anything.
        self.excess = served + 1.0 - self.ceiling * lasted;
        if self.excess <= AS_BEFORE.0 * self.bank + AS_BEFORE.1 {
            self.probing.found_nothing(now);
            return self.cruise(self.ceiling, now);
        }
        (self.low, self.high) = (self.ceiling, block.rate);
        if !self.has(Mechanism::Verify) {
            return self.next_trial(now);
        }
        self.verifying = true;
        self.enter(Stage::Trial, self.ceiling * SECOND_LOOK, now);
    }

    fn cruise_over(&mut self, block: &Block, bracket: Bracket, now: Timestamp) {
        let since_last = block.began.since(self.last_soft).as_secs_f64();
        if since_last > 40.0 / self.rate + 5.0 {
            self.strikes = 0;
        }
        self.strikes = self.strikes.saturating_add(1);
        if self.strikes == 1 {
            self.cruise(self.ceiling * LITTLE_LESS, now);
            return self.probing.rest(now);
        }
        self.high = bracket.high;
        self.low = bracket.low.min(self.high * 0.995).max(0.0);
        self.strikes = 0;
        self.probing.changed(now);
        self.next_trial(now);
    }

    /// A window was used up before its end.
    fn window_over(&mut self, block: &Block, canary: &Sample<'_>, n: f64) {
        if self.is_first_again(n) {
            self.window = Window::default();
        }
        let end = Between {
            from: block.refused.min(canary.sent),
            to: canary.sent,
        };
        self.window
            .learn(&self.ledger, block.began, end, block.rate);
        self.window_rate(canary.now);
    }

    fn window_rate(&mut self, now: Timestamp) {
        let mut rate = self.window.rate();
        if self.stage == Stage::Probe {
            // What was served well below the probe is allowed, however the block looks.
            rate = rate.max(self.noise.proven(now));
        }
        let old = self.ceiling;
        self.ceiling = rate;
        let off = if old > 0.0 {
            (rate / old - 1.0).abs()
        } else {
            f64::INFINITY
        };
        if off < (1.5 / self.window.count).max(SAME_RATE) {
            self.probing.found_nothing(now);
            self.cruise(rate, now);
        } else if off < OTHER_RATE {
            self.probing.changed(now);
            self.cruise(rate, now);
        } else {
            if self.window.is_guess(&self.ledger) {
                // Asked at once, as soon as it is back.
                self.probing.afford();
            } else {
                self.probing.changed(now);
                if old == 0.0 {
                    self.probing.be_patient(now);
                }
            }
            self.recover(now);
        }
    }
}

#[cfg(test)]
#[path = "verdict_tests.rs"]
pub(super) mod tests;
