//! Finds the cause of a block that has ended, and changes the bracket and the stage accordingly.
//!
//! A block has ended when a canary is served. Its cause is an outage, noise, a cap on requests in
//! flight, a used-up window, or an empty bucket. The cause follows from the block's duration, from
//! the number of requests served before it, and from the stage.

use std::time::Duration;

use super::canary::Block;
use super::learning::{Learning, Stage};
use super::noise::Lone;
use super::slots::Told;
use super::window::{Between, Window};
use super::{Mechanism, RATE_MIN, Sample};
use crate::Timestamp;

/// A block is *hard* if it lasts longer than this time plus [`HARD_INTERVALS`]. A bucket is full
/// enough again before that.
const HARD: Duration = Duration::from_millis(1_200);
/// Number of intervals between requests that [`HARD`] is extended by while a ceiling is known.
const HARD_INTERVALS: f64 = 3.0;
/// The same number while no ceiling is known.
const HARD_INTERVALS_FIRST: f64 = 0.5;
/// Least duration of a hard block while no ceiling is known, in intervals between requests. A slow
/// start may have met a slow bucket.
const HARD_INTERVALS_LEAST: f64 = 5.0;
/// A canary is late if it leaves after this many times its planned delay, plus [`LATE_BY`]. The
/// client delayed it, so the block may have ended long before.
const LATE: f64 = 1.1;
/// Additional delay from which a canary is late.
const LATE_BY: Duration = Duration::from_millis(300);
/// Longest time by which an announced wait ends after the time that the block holds. Servers round
/// their waits.
const TOLD_WITHIN: Duration = Duration::from_secs(1);
/// Least number of requests served before a hard block if a window caused it.
const WINDOW_SERVED: f64 = 3.0;
/// A window was used up if at least this share of its count was served.
const USED_UP: f64 = 0.8;
/// Least number of requests at one rate that give an upper bound of the limit.
const TELLING: f64 = 4.0;
/// In the first bracket, these requests must take at least this share of the time since the first
/// request.
const TELLING_AGE: f64 = 0.125;
/// Factor of the rate while a cap on requests in flight is the limit. The rate is then high enough
/// to be no limit, and a free slot is used without a long wait.
const NO_LIMIT: f64 = 6.0;
/// Share of the ceiling that remains after a first refusal in the cruise. The first one may be an
/// accident, a second one soon after is not.
const LITTLE_LESS: f64 = 0.98;
/// Rate of the second trial, as a share of the bracket's upper end. It applies if the first trial
/// was refused although the start had served requests at its rate.
const HARDLY_LESS: f64 = 0.95;
/// Rate of the trial that tests the result of a probe, as a multiple of the ceiling.
const SECOND_LOOK: f64 = 1.04;
/// A probe found nothing if its excess is at most the known bank times the first number, plus the
/// second number in requests.
const AS_BEFORE: (f64, f64) = (1.15, 0.3);
/// Two rates of a window are the same if they differ by less than this share.
const SAME_RATE: f64 = 0.06;
/// If a window's rate differs from the previous one by this share or more, the rate must grow to it
/// again.
const OTHER_RATE: f64 = 0.5;

/// Returns the seconds from one time to another, at least 0.001.
fn span(from: Timestamp, to: Timestamp) -> f64 {
    to.since(from).as_secs_f64().max(1e-3)
}

/// The bounds of the limit that follow from one block, in requests per second.
#[derive(Clone, Copy)]
struct Bracket {
    /// A rate that was certainly sustained.
    low: f64,
    /// A rate that was probably refused.
    high: f64,
}

impl Learning {
    /// Draws the conclusion from `block`, which the served `canary` has ended.
    pub(super) fn block_over(&mut self, block: &Block, canary: &Sample<'_>) {
        let now = canary.now;
        // Number of requests served since the last block, without the canary.
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
            let is_trying = matches!(self.stage, Stage::Probe | Stage::Trial);
            match self.noise.refused(n, block.rate, is_trying, now) {
                Lone::Limit if block.overloaded => {}
                Lone::Limit => self.noise.forget_past(),
                Lone::Noise => {
                    self.noise.share.failed(self.ledger.served());
                    return self.probing.refund();
                }
                Lone::Noticed(ceiling) => {
                    self.noise.share.failed(self.ledger.served());
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
            // This block may have been the end of a window. If so, its end helps to measure the
            // window at the next block.
            let end = Between {
                from: self.anchor,
                to: canary.sent,
            };
            self.window.maybe_ended(end, n);
        }
        self.soft_over(block, bracket, now);
        self.last_soft = block.began;
    }

    /// Returns the bounds of the limit after a block with `n` requests served before it. A token
    /// flowed in for each of them, and the bucket held less than one token at either end.
    fn bracket(&self, block: &Block, canary: &Sample<'_>, n: f64) -> Bracket {
        let low = (n - 1.0) / span(self.anchor, block.began);
        // A bucket may overflow while the rate is below the limit. So only the time at the refused
        // rate gives an upper bound. A few requests show only that their rate was refused.
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
            // In a sliding window, earlier requests count too. So the limit may be as high as the
            // average rate so far.
            let average = (self.ledger.between(first, block.began) + 1.0) / age;
            block.rate.max(average)
        };
        Bracket {
            low: low.max(n / span(self.anchor, canary.sent)),
            high,
        }
    }

    /// Returns whether this block continues the first one: only a few requests (`n`) were served in
    /// between, and no ceiling is known.
    fn is_first_again(&self, n: f64) -> bool {
        self.cuts == 2 && n < WINDOW_SERVED && self.ceiling == 0.0
    }

    /// Returns whether a window caused the block: it lasted long after enough requests were served.
    fn was_window(&self, block: &Block, canary: &Sample<'_>, n: f64) -> bool {
        let first = self.cuts == 1 || self.is_first_again(n);
        let intervals = |n: f64| Duration::from_secs_f64((n / block.rate).min(n / RATE_MIN));
        let least = if self.ceiling > 0.0 {
            HARD + intervals(HARD_INTERVALS)
        } else {
            (HARD + intervals(HARD_INTERVALS_FIRST)).max(intervals(HARD_INTERVALS_LEAST))
        };
        let hard = (block.canaries >= 1 || block.told) && self.lasted(block, canary) > least;
        // One long block does not turn a known ceiling into a window.
        let learnable = first || self.window.is_known() || self.ceiling == 0.0;
        hard && learnable && (n >= WINDOW_SERVED || first)
    }

    /// Returns how long the host refused, as far as canaries have shown. A late canary does not
    /// count, because the host may have served again long before it. Canaries are late after a
    /// crash of the client or without demand.
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

    /// Reacts to a soft block: a bucket was empty.
    fn soft_over(&mut self, block: &Block, bracket: Bracket, now: Timestamp) {
        match self.stage {
            Stage::Start => self.first_trial(block.rate, now),
            Stage::Trial => self.trial_over(block, bracket, now),
            Stage::Probe => self.probe_over(block, now),
            Stage::Recover if self.strikes < self.bears() => {
                // A sliding window still holds the requests that were sent before the block.
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
            // The bucket served the excess of the probe. The limit has not changed.
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
        // A trial that began before the last refusal counts requests that the start served.
        if self.cuts == 2 && self.stage_began < self.last_soft && block.canaries == 0 {
            return self.enter(Stage::Trial, self.high * HARDLY_LESS, now);
        }
        self.next_trial(now);
    }

    fn probe_over(&mut self, block: &Block, now: Timestamp) {
        let lasted = block.began.since(self.stage_began).as_secs_f64();
        let served = self.ledger.between(self.stage_began, block.began);
        // The refused request counts as one more. Without it, a few slow requests could never
        // exceed the ceiling.
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

    /// Learns from a window that was used up before its end.
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
            // A rate that was served well before the probe is allowed, whatever the block suggests.
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
                // A probe follows as soon as the rate has returned.
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
