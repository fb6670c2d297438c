//! The five stages, and the effect of a served request in each.
//!
//! - *Start* raises the rate in strides until the first refusal.
//! - *Trial* narrows the bracket (`trial.rs`).
//! - *Cruise* stays just below the ceiling, a rate that was served.
//! - *Probe* raises the rate above the ceiling, gently at first and then steeply. So it finds a
//!   small rise of the limit as surely as a large one.
//! - *Recover* returns from a block or a brown-out. It doubles the rate, or follows a known window
//!   (`replay.rs`).

use super::learning::{Learning, Stage};
use super::noise::PROOF;
use super::{Mechanism, RATE_MAX, RATE_MIN};
use crate::Timestamp;

/// Shortest step of the start, in seconds. A bucket of one second's rate is then used up before the
/// rate has doubled twice.
const STEP_S: f64 = 0.5;
/// Minimum number of served requests per step of the start.
pub(super) const STEP_SERVED: u32 = 4;
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
        self.enter(Stage::Cruise, self.top(), now);
    }

    pub(super) fn recover(&mut self, now: Timestamp) {
        self.recover_at(self.ceiling * COMEBACK, now);
    }

    pub(super) fn recover_at(&mut self, rate: f64, now: Timestamp) {
        self.strikes = 0;
        self.enter(Stage::Recover, rate, now);
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
            Stage::Trial(bracket) => self.test(bracket, now),
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
pub(super) fn stride(rate: f64) -> f64 {
    match rate {
        ..4.0 => 2.0,
        ..16.0 => 1.5,
        _ => 1.25,
    }
}
