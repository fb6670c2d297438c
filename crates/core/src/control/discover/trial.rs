//! Narrows the bracket around the limit by trials.
//!
//! A trial keeps one rate for a while. If the rate is served for long enough, it becomes the
//! bracket's lower end. If it is refused, it becomes the upper end. The next trial lies in between.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::canary::Block;
use super::learning::{Learning, Stage};
use super::stages::{STEP_SERVED, stride};
use super::verdict::Bounds;
use crate::Timestamp;

/// A bracket whose ends differ by less than this share is closed.
const PRECISE: f64 = 0.012;
/// Position of the next trial in the bracket, from 0 (lower end) to 1 (upper end). It is near the
/// lower end, because a refusal costs more than time does.
const TRIAL_AT: f64 = 0.22;
/// Position of the next trial in a later bracket. It is higher, because the limit has moved and the
/// rate must follow it.
const TRIAL_AT_LATER: f64 = 0.35;
/// Position of the next trial among the first [`FIRST`] requests. It is lower, because one refusal
/// is a large share of them.
const TRIAL_AT_FIRST: f64 = 0.2;
/// Number of served requests up to which a key counts as new.
const FIRST: u32 = 60;
/// Position of a trial near the upper end. It applies after a single refusal, because the limit may
/// be hardly below the refused rate. It also applies to a new key's narrow bracket, because a trial
/// at its lower end would take long.
const TRIAL_AT_ONCE: f64 = 0.75;
/// A bracket is narrow when its upper end is less than this many times its lower end.
const NARROW: f64 = 1.2;
/// Position of the next trial while the credit of probes is above [`RICH`]. Such a host serves so
/// fast that a refusal costs less than the time of a further trial.
const TRIAL_AT_RICH: f64 = 0.5;
/// A credit that a slow host never earns during its first bracket.
const RICH: f32 = 4.0;
/// Credit of probes at which any bracket counts as narrow enough: it has cost too many refusals.
const TOO_DEEP: f32 = -3.0;
/// A first bracket is vague if its ends differ by more than this ratio. If the credit runs out
/// there, a probe follows at once.
const VAGUE: f64 = 1.5;
/// The ceiling after a passed trial, as a share of the trial's rate.
const PASSED: f64 = 0.995;
/// A trial lasts at least this many seconds divided by its tolerance. That is long enough to empty
/// a bucket of one second's rate.
const TRIAL_S: f64 = 0.7;
/// A trial serves at least this many requests divided by its tolerance.
const TRIAL_SERVED: f64 = 1.4;
/// Widest tolerance of a trial, as a share of its rate. A wide bracket needs no exact answer.
const ROUGH: f64 = 0.2;
/// Widest tolerance of a trial in the first bracket.
const ROUGH_FIRST: f64 = 0.25;
/// Rate of the second trial, as a share of the bracket's upper end. It applies if the first trial
/// was refused although the start had served requests at its rate.
pub(super) const HARDLY_LESS: f64 = 0.95;
/// Rate of the trial that tests the result of a probe, as a multiple of the ceiling.
const SECOND_LOOK: f64 = 1.04;
/// Share of the bracket's upper end that its lower end stays below.
const BELOW_HIGH: f64 = 0.995;

/// The rates between which the limit lies, in requests per second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Bracket {
    /// Lower end: a rate that was certainly sustained. Zero: none is known.
    pub(super) low: f64,
    /// Upper end: a rate that was refused.
    pub(super) high: f64,
    /// The highest rate that passed a trial since the last refusal. Zero: none did.
    passed: f64,
    /// Number of requests that a probe was served beyond the ceiling's rate. The present trial
    /// shows whether a full bucket lent them, or the limit has risen.
    excess: Option<f64>,
}

impl Bracket {
    pub(super) const fn new(low: f64, high: f64) -> Self {
        Self {
            low,
            high,
            passed: 0.0,
            excess: None,
        }
    }

    /// Returns the bracket after a block with these bounds while the ceiling was known.
    pub(super) fn of(bounds: Bounds) -> Self {
        let low = bounds.low.min(bounds.high * BELOW_HIGH).max(0.0);
        Self::new(low, bounds.high)
    }

    /// Returns the highest rate that is known to pass, or zero.
    pub(super) const fn floor(&self) -> f64 {
        self.low.max(self.passed)
    }

    pub(super) fn plausible(&self) -> bool {
        let rates = [self.low, self.passed, self.excess.unwrap_or(0.0).abs()];
        self.high > 0.0 && rates.iter().all(|rate| *rate >= 0.0 && rate.is_finite())
    }
}

impl Learning {
    /// Starts the first trial after the start was refused at `refused` requests per second. The
    /// trial tests the rate of the previous step, which was served for a short time. If the new
    /// rate was refused at once, the bucket had lent no tokens to the previous step. The requests
    /// served there then count for this trial.
    pub(super) fn first_trial(&mut self, refused: f64, now: Timestamp) {
        // The first request of a new step left at the old pace.
        let lent = self.cuts > 1 || self.stage_served > 1;
        let stage = Stage::Trial(Bracket::new(0.0, refused));
        self.enter(stage, refused / stride(refused * 0.9).max(1.35), now);
        if !lent {
            self.stage_served = STEP_SERVED;
            self.stage_began = now - Duration::from_secs_f64(f64::from(STEP_SERVED) / self.rate);
        }
    }

    /// Tests whether the limit has risen, after a probe was served `excess` requests beyond the
    /// ceiling's rate and refused at `refused` requests per second.
    pub(super) fn verify(&mut self, refused: f64, excess: f64, now: Timestamp) {
        let bracket = Bracket {
            excess: Some(excess),
            ..Bracket::new(self.ceiling, refused)
        };
        self.enter(Stage::Trial(bracket), self.ceiling * SECOND_LOOK, now);
    }

    /// Starts the next trial in `bracket`, or the cruise if the bracket is narrow enough.
    pub(super) fn next_trial(&mut self, bracket: Bracket, now: Timestamp) {
        let Bracket {
            low, high, passed, ..
        } = bracket;
        let floor = bracket.floor();
        if high <= floor * (1.0 + PRECISE) || self.probing.credit() <= TOO_DEEP && low > 0.0 {
            let vague = self.ceiling == 0.0 && high > floor * VAGUE;
            self.cruise(low.max(passed * PASSED), now);
            if vague {
                self.probing.afford();
            } else {
                self.probing.invest(now);
            }
            return;
        }
        let at = match self.cuts {
            ..2 => TRIAL_AT_ONCE,
            _ if self.ceiling == 0.0 && self.probing.credit() > RICH => TRIAL_AT_RICH,
            _ if self.ledger.served() < FIRST && high < floor * NARROW => TRIAL_AT_ONCE,
            _ if self.ledger.served() < FIRST => TRIAL_AT_FIRST,
            _ if self.ceiling > 0.0 => TRIAL_AT_LATER,
            _ => TRIAL_AT,
        };
        let rate = if floor > 0.0 {
            floor + at * (high - floor)
        } else {
            high * 0.6
        };
        self.enter(Stage::Trial(bracket), rate, now);
    }

    /// Ends the trial if its rate was served for long enough.
    pub(super) fn test(&mut self, bracket: Bracket, now: Timestamp) {
        let elapsed = now.since(self.stage_began).as_secs_f64();
        let width = (bracket.high / bracket.floor().max(1e-9) - 1.0).clamp(0.0, 1.0);
        let widest = if self.ceiling > 0.0 {
            ROUGH
        } else {
            ROUGH_FIRST
        };
        let tolerance = (width / 4.0).clamp(0.01, widest);
        let served = f64::from(self.stage_served);
        if served * tolerance < TRIAL_SERVED || elapsed * tolerance < TRIAL_S {
            return;
        }
        if self.held_back(now) {
            return self.cruise(bracket.low.max(self.rate * 0.6), now);
        }
        let since = now.since(self.anchor).as_secs_f64();
        let served = self.ledger.served().saturating_sub(self.anchor_served);
        let sustained = f64::from(served.saturating_sub(1)) / since;
        if bracket.excess.is_some() {
            self.probing.changed(now);
        }
        let bracket = Bracket {
            low: bracket.low.max(sustained.min(self.rate)),
            passed: self.rate,
            excess: None,
            ..bracket
        };
        self.next_trial(bracket, now);
    }

    /// Forgets which rate passed, because a refusal came since.
    pub(super) fn forget_passed(&mut self) {
        if let Stage::Trial(bracket) = &mut self.stage {
            bracket.passed = 0.0;
        }
    }

    /// Narrows the bracket after a block with these bounds has ended the trial.
    pub(super) fn trial_over(
        &mut self,
        mut bracket: Bracket,
        block: &Block,
        bounds: Bounds,
        now: Timestamp,
    ) {
        bracket.high = bracket.high.min(bounds.high);
        if let Some(excess) = bracket.excess.take()
            && bracket.high <= self.ceiling * SECOND_LOOK
        {
            // The bucket served the excess of the probe. The limit has not changed.
            self.bank = self.bank.max(excess);
            self.probing.found_nothing(now);
            return self.cruise(self.ceiling, now);
        }
        bracket.low = bracket.low.max(bounds.low).min(bracket.high * BELOW_HIGH);
        if bounds.low < bracket.low * 0.9 && bounds.high < bracket.low {
            bracket.low = bounds.low;
        }
        // A trial that began before the last refusal counts requests that the start served.
        if self.cuts == 2 && self.stage_began < self.last_soft && block.canaries == 0 {
            return self.enter(Stage::Trial(bracket), bracket.high * HARDLY_LESS, now);
        }
        self.next_trial(bracket, now);
    }
}

#[cfg(test)]
mod tests {
    use super::super::learning::tests::{fresh, near};
    use super::super::verdict::tests::at;
    use super::*;

    /// Returns a bracket in which a trial at `passed` requests per second passed.
    fn passed(low: f64, passed: f64, high: f64) -> Bracket {
        Bracket {
            passed,
            ..Bracket::new(low, high)
        }
    }

    #[test]
    fn after_a_narrow_bracket_the_cruise_is_just_below_the_rate_that_passed() {
        let mut law = fresh();
        law.next_trial(passed(9.0, 10.0, 10.1), at(0.0));
        assert_eq!(law.stage, Stage::Cruise);
        near(law.wish(at(0.0)), 9.95 * 0.99);
        law.next_trial(passed(9.0, 10.0, 12.0), at(0.0));
        assert!(matches!(law.stage, Stage::Trial(_)), "{law:?}");
    }

    #[test]
    fn the_next_trial_is_high_after_one_refusal_and_low_on_a_new_key() {
        let mut law = fresh();
        for (cuts, served, ceiling, expected) in [
            (1, 0, 0.0, 11.5),
            (2, 0, 0.0, 10.4),
            (2, 60, 0.0, 10.44),
            (2, 0, 10.0, 10.7),
        ] {
            (law.cuts, law.ceiling) = (cuts, ceiling);
            (0..served).for_each(|i| law.ledger.serve(at(f64::from(i))));
            law.next_trial(passed(9.0, 10.0, 12.0), at(0.0));
            near(law.wish(at(0.0)), expected);
        }
    }

    /// After too many refusals the bracket stays wide. Without the rule, the key would wait half a
    /// minute at the first bracket's lower end before the first probe.
    #[test]
    fn a_vague_first_bracket_is_probed_at_once_and_a_later_one_after_a_wait() {
        for (ceiling, high, at_once) in [(0.0, 2.0, true), (0.0, 1.4, false), (1.0, 2.0, false)] {
            let mut law = fresh();
            (0..9).for_each(|_| law.probing.pay());
            law.ceiling = ceiling;
            law.next_trial(Bracket::new(1.0, high), at(0.0));
            assert_eq!(law.stage, Stage::Cruise);
            assert_eq!(law.probing.due(at(0.1), true), at_once, "{ceiling} {high}");
        }
    }
}
