//! The five stages, and the effect of a served request in each.
//!
//! - *Start* raises the rate in strides until the first refusal.
//! - *Trial* narrows the bracket. A rate that is served for long enough becomes its lower end. A
//!   refused rate becomes its upper end.
//! - *Cruise* stays just below the ceiling, a rate that was served.
//! - *Probe* raises the rate above the ceiling, gently at first and then steeply. So it finds a
//!   small rise of the limit as surely as a large one.
//! - *Recover* returns from a block or a brown-out. It doubles the rate, or follows a known window
//!   (`replay.rs`).

use std::time::Duration;

use super::learning::{Learning, Stage};
use super::noise::PROOF;
use super::{Mechanism, RATE_MAX, RATE_MIN};
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
/// Shortest step of the start, in seconds. A bucket of one second's rate is then used up before the
/// rate has doubled twice.
const STEP_S: f64 = 0.5;
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
/// Minimum number of served requests per step of the start.
const STEP_SERVED: u32 = 4;
/// Share of the ceiling at which the recovery starts.
const COMEBACK: f64 = 0.25;
/// Number of served requests between two steps of the recovery.
pub(super) const COMEBACK_SERVED: u32 = 4;
/// A probe reaches twice the ceiling after this many seconds or requests, or after one window,
/// whichever takes longest.
const PROBE_SCALE: f64 = 20.0;
/// Requests that may have been served without an answer yet, in addition to those of two round
/// trips.
const PROBE_UNHEARD: f64 = 4.0;

impl Learning {
    pub(super) fn enter(&mut self, stage: Stage, rate: f64, now: Timestamp) {
        self.stage = stage;
        self.rate = rate.clamp(RATE_MIN, RATE_MAX);
        self.stage_began = now;
        self.stage_served = 0;
    }

    pub(super) fn cruise(&mut self, ceiling: f64, now: Timestamp) {
        self.ceiling = ceiling.max(RATE_MIN);
        if !self.verifying {
            // The excess is no longer needed. A zero takes no room in the encoded state.
            self.excess = 0.0;
        }
        self.enter(Stage::Cruise, self.top(), now);
    }

    pub(super) fn recover(&mut self, now: Timestamp) {
        self.recover_at(self.ceiling * COMEBACK, now);
    }

    pub(super) fn recover_at(&mut self, rate: f64, now: Timestamp) {
        self.strikes = 0;
        self.enter(Stage::Recover, rate, now);
    }

    pub(super) fn next_trial(&mut self, now: Timestamp) {
        let low = self.low.max(self.passed);
        if self.high <= low * (1.0 + PRECISE) || self.probing.credit() <= TOO_DEEP && self.low > 0.0
        {
            let vague = self.ceiling == 0.0 && self.high > low * VAGUE;
            self.cruise(self.low.max(self.passed * PASSED), now);
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
            _ if self.ledger.served() < FIRST && self.high < low * NARROW => TRIAL_AT_ONCE,
            _ if self.ledger.served() < FIRST => TRIAL_AT_FIRST,
            _ if self.ceiling > 0.0 => TRIAL_AT_LATER,
            _ => TRIAL_AT,
        };
        let rate = if low > 0.0 {
            low + at * (self.high - low)
        } else {
            self.high * 0.6
        };
        self.enter(Stage::Trial, rate, now);
    }

    /// Starts the first trial after the start was refused at `refused` requests per second. The
    /// trial tests the rate of the previous step, which was served for a short time. If the new
    /// rate was refused at once, the bucket had lent no tokens to the previous step. The requests
    /// served there then count for this trial.
    pub(super) fn first_trial(&mut self, refused: f64, now: Timestamp) {
        // The first request of a new step left at the old pace.
        let lent = self.cuts > 1 || self.stage_served > 1;
        (self.low, self.high) = (0.0, refused);
        self.enter(Stage::Trial, refused / stride(refused * 0.9).max(1.35), now);
        if !lent {
            self.stage_served = STEP_SERVED;
            self.stage_began = now - Duration::from_secs_f64(f64::from(STEP_SERVED) / self.rate);
        }
    }

    /// Returns the rate of a probe: close to the ceiling at first, then steeply higher. It grows
    /// with time, but no further than the time that the requests served in this stage take. So a
    /// probe stands still while no request is sent.
    pub(super) fn probe_rate(&self, now: Timestamp) -> f64 {
        let scale = (PROBE_SCALE / self.ceiling)
            .max(PROBE_SCALE)
            .max(self.window.length.as_secs_f64());
        let served = (f64::from(self.stage_served) + PROBE_UNHEARD) / self.ceiling;
        let served = served + 2.0 * self.round_trip.as_secs_f64();
        let x = now.since(self.stage_began).as_secs_f64().min(served) / scale;
        (self.ceiling * (1.0 + x * x * x)).min(RATE_MAX)
    }

    /// Records the current rate as proven once the stage has served [`PROOF`] requests and lasted
    /// two window lengths. The rate must have set the pace, not the demand or the cap in flight. A
    /// refusal that counts as noise does not restart the stage.
    pub(super) fn prove(&mut self, now: Timestamp) {
        let long = now.since(self.stage_began) >= self.window.length * 2;
        if self.stage_served >= PROOF && long && !self.held_back(now) {
            self.noise.prove(self.rate, now);
        }
    }

    /// Returns whether the demand or the cap in flight, instead of the rate, held requests back.
    pub(super) fn held_back(&self, now: Timestamp) -> bool {
        let elapsed = now.since(self.stage_began).as_secs_f64() - self.round_trip.as_secs_f64();
        f64::from(self.stage_served) < 0.6 * self.rate * elapsed
    }

    /// Returns whether the start may go on to `rate`. A used-up window refuses all requests in
    /// flight together with the first refused one, so their square must not exceed the requests
    /// served so far.
    fn affords(&self, rate: f64) -> bool {
        let in_flight = rate * self.round_trip.as_secs_f64();
        in_flight * in_flight <= f64::from(self.ledger.served())
    }

    pub(super) fn step(&mut self, now: Timestamp) {
        let elapsed = now.since(self.stage_began).as_secs_f64();
        let served = self.stage_served;
        match self.stage {
            Stage::Start => {
                let enough = if self.rate < 4.0 { STEP_SERVED } else { 6 };
                if served >= enough
                    && elapsed >= STEP_S
                    && self.affords(self.rate * stride(self.rate))
                    && !self.held_back(now)
                {
                    self.enter(Stage::Start, self.rate * stride(self.rate), now);
                }
            }
            Stage::Recover if served < self.recovery_served() => {}
            Stage::Recover if self.came_back(now) => {
                self.cruise(self.ceiling, now);
                if !self.window.is_guess(&self.ledger) {
                    self.probing.rest(now);
                }
            }
            Stage::Recover => {
                if self.strikes == 0 || !self.replays() {
                    self.enter(Stage::Recover, self.rate * 2.0, now);
                }
            }
            Stage::Trial => {
                let width = (self.high / self.low.max(self.passed).max(1e-9) - 1.0).clamp(0.0, 1.0);
                let widest = if self.ceiling > 0.0 {
                    ROUGH
                } else {
                    ROUGH_FIRST
                };
                let tolerance = (width / 4.0).clamp(0.01, widest);
                if f64::from(served) * tolerance < TRIAL_SERVED || elapsed * tolerance < TRIAL_S {
                    return;
                }
                if self.held_back(now) {
                    self.cruise(self.low.max(self.rate * 0.6), now);
                    return;
                }
                let since = now.since(self.anchor).as_secs_f64();
                let sustained = f64::from(
                    self.ledger
                        .served()
                        .saturating_sub(self.anchor_served)
                        .saturating_sub(1),
                ) / since;
                self.low = self.low.max(sustained.min(self.rate));
                self.passed = self.rate;
                if self.verifying {
                    self.verifying = false;
                    self.probing.changed(now);
                }
                self.next_trial(now);
            }
            Stage::Cruise => {
                if self.probing.due(now, self.has(Mechanism::Budget)) {
                    self.prove(now);
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
}

/// Returns the factor from one step of the start to the next. It is large while the rate is low,
/// because little is at stake then.
fn stride(rate: f64) -> f64 {
    match rate {
        ..4.0 => 2.0,
        ..16.0 => 1.5,
        _ => 1.25,
    }
}
