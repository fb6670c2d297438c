//! Some hosts refuse a small share of requests whatever the rate. Slowing down does not help there.
//!
//! What tells such noise from a limit is that it comes below rates that were served well a short while ago,
//! alone, and that its canary is served at once. Two such refusals are noise: the ceiling is what was served
//! well, and from then on a lone refusal changes nothing, unless they come too often to be noise.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// A refusal is alone if so many were served since the one before.
const ALONE: f64 = 4.0;
/// Requests served without a refusal that prove their rate.
pub(super) const PROOF: u32 = 40;
/// A proof is worth nothing after this long: limits change.
const PROOF_LASTS: Duration = Duration::from_mins(15);
/// Below this share of a proven rate no limit refuses.
const BELOW: f64 = 0.97;
/// One refusal in fewer requests than this is no noise to live with.
const TOO_OFTEN: f64 = 30.0;
/// Two gaps in a row below this are a limit.
const CLOSE: f64 = 14.0;
/// How much one gap between refusals moves their average.
const WEIGHT: f64 = 0.12;

/// What is known of noise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Noise {
    /// A rate that was served well, and when.
    proven: f64,
    proven_at: Timestamp,
    /// Refusals that looked like noise.
    suspects: u8,
    noisy: bool,
    /// It was noisy once.
    seen: bool,
    /// Gaps in a row that were short.
    close: u8,
    /// Requests from one refusal to the next, on average, while noisy.
    gap: f64,
}

/// What a refusal whose canary was served at once may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Lone {
    /// A limit, for all that is known.
    Limit,
    /// Noise, as usual.
    Noise,
    /// Noise, as is clear now; this rate was served well.
    Noticed(f64),
}

impl Noise {
    pub(super) fn rebase(&mut self, back: Duration) {
        self.proven_at = self.proven_at - back;
    }

    pub(super) fn plausible(&self) -> bool {
        [self.proven, self.gap]
            .iter()
            .all(|x| *x >= 0.0 && x.is_finite())
    }

    /// [`PROOF`] requests were served at `rate`.
    pub(super) fn prove(&mut self, rate: f64, now: Timestamp) {
        if rate >= self.proven || now.since(self.proven_at) > PROOF_LASTS {
            (self.proven, self.proven_at) = (rate, now);
        }
    }

    /// A refusal at `rate`, `served` requests after the one before.
    pub(super) fn refused(&mut self, served: f64, rate: f64, now: Timestamp) -> Lone {
        if self.noisy {
            self.gap += WEIGHT * (served - self.gap);
            self.close = if served < CLOSE {
                self.close.saturating_add(1)
            } else {
                0
            };
            if self.gap < TOO_OFTEN || self.close >= 2 {
                self.forget();
                return Lone::Limit;
            }
            return Lone::Noise;
        }
        if served < ALONE {
            // The limit is another: what was proven is no more.
            self.forget();
            return Lone::Limit;
        }
        if rate >= BELOW * self.proven || now.since(self.proven_at) > PROOF_LASTS {
            return Lone::Limit;
        }
        self.suspects = self.suspects.saturating_add(1);
        if self.suspects < 2 && !self.seen {
            return Lone::Limit;
        }
        (self.noisy, self.seen, self.gap) = (true, true, 3.0 * TOO_OFTEN);
        Lone::Noticed(self.proven)
    }

    /// It is no noise, or no longer.
    fn forget(&mut self) {
        *self = Self {
            seen: self.seen,
            ..Self::default()
        };
    }
}
