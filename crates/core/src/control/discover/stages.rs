//! From the first request to the cruise, and what a served request moves.
//!
//! *Start* doubles until something refuses. *Trial* narrows the bracket from below: a rate that passes for long
//! enough becomes its lower end, one that is refused its upper. *Cruise* rides just below what passed. *Probe*
//! asks for more, gently at first and then steeply, so that a small rise is found as surely as a large one.
//! *Recover* comes back from a block or an outage by doublings, or as a window allows (`replay.rs`).

use std::time::Duration;

use super::learning::{Learning, Stage};
use super::noise::PROOF;
use super::{Mechanism, RATE_MAX, RATE_MIN};
use crate::Timestamp;

/// The bracket is narrow enough.
const PRECISE: f64 = 0.012;
/// Where in the bracket the next trial goes: nearer the lower end, since a refusal costs more than time, …
const TRIAL_AT: f64 = 0.22;
/// … less so in a later bracket, where the limit has moved and is to be followed, …
const TRIAL_AT_LATER: f64 = 0.35;
/// … nearer still among so many first requests, of which each refused one is a large share, …
const TRIAL_AT_FIRST: f64 = 0.2;
const FIRST: u32 = 60;
/// … but near the upper end as long as one refusal is all there was: the limit may be hardly below the rate it came at; and where
/// little is left to tell, since at the lower end that would take long.
const TRIAL_AT_ONCE: f64 = 0.75;
const NARROW: f64 = 1.2;
/// A step of the start lasts at least and at most so long, seconds, and in between the longer the faster it is, by the
/// square of the rate over this: what is on its way when a window turns out to be used up is refused with the one that told.
const STEP_S: (f64, f64) = (1.0, 10.0);
const STEP_RATE: f64 = 250.0;
/// So many refusals are owed that any bracket is good enough.
const TOO_DEEP: f32 = -3.0;
/// … for the start; one so wide is left by a gentle probe at once.
const VAGUE: f64 = 1.5;
/// What a ceiling lies below a rate that passed.
const PASSED: f64 = 0.995;
/// A trial lasts this long over the precision that is asked of it, seconds: a bucket of a second's rate shows, …
const TRIAL_S: f64 = 0.7;
/// … and so many are served over it.
const TRIAL_SERVED: f64 = 1.4;
/// The least precision asked of a trial: at first there is much to narrow down.
const ROUGH: f64 = 0.2;
const ROUGH_FIRST: f64 = 0.25;
/// Each step of the start serves so many, at least.
const STEP_SERVED: u32 = 4;
/// What a comeback starts with, of the ceiling, and how many are to be served between its steps.
const COMEBACK: f64 = 0.25;
pub(super) const COMEBACK_SERVED: u32 = 4;
/// A probe has grown to twice the ceiling after so many seconds, or requests, or a window.
const PROBE_SCALE: f64 = 20.0;
/// So many more may have been served than were heard of, beside those of two round trips.
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
            // Of no more use; zero takes no room in the state.
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

    /// Tries the rate of the step before the one that was refused, at `refused` requests per second. It was served, if not for long;
    /// if nothing was lent at the new rate, what was served then was not lent either, and counts.
    pub(super) fn first_trial(&mut self, refused: f64, now: Timestamp) {
        // One of the new step left at the old pace.
        let lent = self.cuts > 1 || self.stage_served > 1;
        (self.low, self.high) = (0.0, refused);
        self.enter(Stage::Trial, refused / stride(refused * 0.9).max(1.35), now);
        if !lent {
            self.stage_served = STEP_SERVED;
            self.stage_began = now - Duration::from_secs_f64(f64::from(STEP_SERVED) / self.rate);
        }
    }

    /// The rate of a probe: as good as the ceiling at first, then steeply up. It climbs with time, but no further than those took it
    /// that were served meanwhile: while nobody asks, nothing is found.
    pub(super) fn probe_rate(&self, now: Timestamp) -> f64 {
        let scale = (PROBE_SCALE / self.ceiling)
            .max(PROBE_SCALE)
            .max(self.window.length.as_secs_f64());
        let served = (f64::from(self.stage_served) + PROBE_UNHEARD) / self.ceiling;
        let served = served + 2.0 * self.round_trip.as_secs_f64();
        let x = now.since(self.stage_began).as_secs_f64().min(served) / scale;
        (self.ceiling * (1.0 + x * x * x)).min(RATE_MAX)
    }

    /// What it has kept to for so many requests, and for two of the window's lengths, is allowed.
    pub(super) fn prove(&mut self, now: Timestamp) {
        let long = now.since(self.stage_began) >= self.window.length * 2;
        if self.stage_served >= PROOF && long && !self.held_back(now) {
            self.noise.prove(self.rate, now);
        }
    }

    /// Something else than the rate held requests back: the demand, or the cap in flight.
    pub(super) fn held_back(&self, now: Timestamp) -> bool {
        let elapsed = now.since(self.stage_began).as_secs_f64() - self.round_trip.as_secs_f64();
        f64::from(self.stage_served) < 0.6 * self.rate * elapsed
    }

    pub(super) fn step(&mut self, now: Timestamp) {
        let elapsed = now.since(self.stage_began).as_secs_f64();
        let served = self.stage_served;
        match self.stage {
            Stage::Start => {
                let enough = if self.rate < 4.0 { STEP_SERVED } else { 6 };
                if served >= enough
                    && elapsed >= (self.rate * self.rate / STEP_RATE).clamp(STEP_S.0, STEP_S.1)
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
                let sustained =
                    f64::from(self.ledger.served().saturating_sub(self.anchor_served + 1)) / since;
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

/// From one stage of the start to the next: boldly while little is at stake.
fn stride(rate: f64) -> f64 {
    match rate {
        ..4.0 => 2.0,
        ..16.0 => 1.5,
        _ => 1.25,
    }
}
