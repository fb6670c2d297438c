//! Some hosts refuse a small share of requests whatever the rate. Slowing down does not help there.
//!
//! What tells such noise from a limit is that it comes below rates that were served well a short
//! while ago, alone, and that its canary is served at once. Two such refusals are noise: the
//! ceiling is what was served well, and from then on a lone refusal changes nothing, unless they
//! come too often to be noise.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// A refusal is alone if so many were served since the one before.
const ALONE: f64 = 4.0;
/// Requests served within one stage that prove their rate.
pub(super) const PROOF: u32 = 40;
/// A proof is worth nothing after this long: limits change.
const PROOF_LASTS: Duration = Duration::from_mins(15);
/// Below this share of a proven rate no limit refuses.
const BELOW: f64 = 0.97;
/// One refusal in fewer requests than this is too often for noise.
const TOO_OFTEN: f64 = 30.0;
/// The number of missing requests from which that counts. At one refusal in a hundred it is hardly
/// ever reached; after a step down it is reached at the fourth refusal.
const PATIENCE: f32 = 90.0;
/// One failure in fewer requests than this is overload, even if no limit fails in this way.
const TROUBLE_TOO_OFTEN: f32 = 12.0;
/// The number of missing requests from which that counts.
const TROUBLE_PATIENCE: f32 = 40.0;

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
    /// The limit is another since: what was proven tells a host in trouble, nothing else.
    past: bool,
    /// How many requests may yet be missing, while noisy.
    patience: f32,
    /// The same for failures that no limit causes, as requests used up.
    troubles: f32,
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
        [
            self.proven,
            f64::from(self.patience),
            f64::from(self.troubles),
        ]
        .iter()
        .all(|x| *x >= 0.0 && x.is_finite())
    }

    /// [`PROOF`] requests were served at `rate`.
    pub(super) fn prove(&mut self, rate: f64, now: Timestamp) {
        if rate >= self.proven(now) {
            (self.proven, self.proven_at, self.past) = (rate, now, false);
        }
    }

    /// The rate that was served well of late; zero: none.
    pub(super) fn proven(&self, now: Timestamp) -> f64 {
        if self.past {
            0.0
        } else {
            self.once_proven(now)
        }
    }

    /// The same, though the limit be another since.
    pub(super) fn once_proven(&self, now: Timestamp) -> f64 {
        if now.since(self.proven_at) > PROOF_LASTS {
            0.0
        } else {
            self.proven
        }
    }

    /// Records a lone failure that no limit causes, `served` requests after the one before. Returns
    /// whether such failures are rare enough to change nothing.
    pub(super) fn is_rare_trouble(&mut self, served: u32) -> bool {
        self.troubles = (self.troubles + TROUBLE_TOO_OFTEN - served as f32).max(0.0);
        if self.troubles <= TROUBLE_PATIENCE {
            return true;
        }
        self.troubles = TROUBLE_PATIENCE;
        false
    }

    /// A refusal at `rate`, `served` requests after the one before.
    pub(super) fn refused(&mut self, served: f64, rate: f64, now: Timestamp) -> Lone {
        if self.noisy {
            self.patience = (self.patience + (served - TOO_OFTEN) as f32).min(PATIENCE);
            if self.patience < 0.0 {
                self.forget();
                return Lone::Limit;
            }
            return Lone::Noise;
        }
        if served < ALONE {
            self.forget();
            return Lone::Limit;
        }
        if rate >= BELOW * self.proven(now) {
            return Lone::Limit;
        }
        self.suspects = self.suspects.saturating_add(1);
        if self.suspects < 2 && !self.seen {
            return Lone::Limit;
        }
        (self.noisy, self.seen, self.patience) = (true, true, PATIENCE);
        Lone::Noticed(self.proven)
    }

    /// It is no noise, or no longer: the limit is another.
    fn forget(&mut self) {
        *self = Self {
            proven: self.proven,
            proven_at: self.proven_at,
            past: true,
            seen: self.seen,
            ..Self::default()
        };
    }

    /// Forgets what was proven before a change that was no trouble.
    pub(super) fn forget_past(&mut self) {
        if self.past {
            (self.proven, self.proven_at, self.past) = (0.0, Timestamp::ZERO, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_secs(secs)
    }

    /// A host that served 10 a second well, with this many lone refusals at half of that since.
    fn refused(times: u64) -> (Noise, Option<Lone>) {
        let mut noise = Noise::default();
        noise.prove(10.0, at(0));
        let last = (1..=times).map(|i| noise.refused(100.0, 5.0, at(i))).last();
        (noise, last)
    }

    #[test]
    fn two_lone_refusals_far_below_what_was_served_well_are_noise() {
        assert_eq!(refused(1).1, Some(Lone::Limit));
        assert_eq!(refused(2).1, Some(Lone::Noticed(10.0)));
        assert_eq!(refused(9).1, Some(Lone::Noise));
    }

    #[test]
    fn at_the_rate_that_was_served_well_it_is_a_limit() {
        let (mut noise, _) = refused(1);
        for i in 0..9 {
            assert_eq!(noise.refused(100.0, 9.8, at(10 + i)), Lone::Limit);
        }
    }

    #[test]
    fn what_was_served_well_a_quarter_of_an_hour_ago_proves_nothing() {
        let (mut noise, _) = refused(1);
        assert_eq!(noise.refused(100.0, 5.0, at(901)), Lone::Limit);
        // A lower rate is proof again once the higher is too old.
        noise.prove(7.0, at(902));
        assert_eq!(noise.refused(100.0, 5.0, at(903)), Lone::Noticed(7.0));
    }

    #[test]
    fn what_was_proven_holds_for_a_quarter_of_an_hour() {
        let mut noise = Noise::default();
        noise.prove(10.0, at(0));
        assert!(noise.proven(at(900)) > 9.9);
        assert!(noise.proven(at(901)) < 0.1);
    }

    #[test]
    fn a_step_down_is_a_limit_though_the_host_was_noisy() {
        let (mut noise, _) = refused(5);
        for i in 0..3 {
            assert_eq!(noise.refused(2.0, 9.0, at(10 + i)), Lone::Noise);
        }
        assert_eq!(noise.refused(2.0, 9.0, at(13)), Lone::Limit);
        // What was proven is no more.
        assert_eq!(noise.refused(100.0, 5.0, at(14)), Lone::Limit);
    }

    /// One in a hundred comes twice within fourteen requests every hour or so: that is no limit.
    #[test]
    fn two_short_gaps_in_a_row_are_an_accident() {
        let (mut noise, _) = refused(5);
        for served in [3.0, 12.0, 200.0, 9.0, 8.0, 25.0, 110.0] {
            assert_eq!(noise.refused(served, 9.0, at(10)), Lone::Noise);
        }
    }

    #[test]
    fn one_short_gap_is_an_accident() {
        let (mut noise, _) = refused(5);
        for i in 0..20 {
            let served = if i % 2 == 0 { 10.0 } else { 110.0 };
            assert_eq!(noise.refused(served, 9.0, at(10 + i)), Lone::Noise);
        }
    }

    #[test]
    fn one_in_twenty_is_too_often_to_live_with() {
        let (mut noise, _) = refused(5);
        let limit = (0..30).position(|i| noise.refused(20.0, 9.0, at(10 + i)) == Lone::Limit);
        assert!(limit.is_some());
    }

    #[test]
    fn close_together_it_is_a_limit() {
        let (mut noise, _) = refused(1);
        assert_eq!(noise.refused(3.0, 5.0, at(10)), Lone::Limit);
        assert_eq!(noise.refused(100.0, 5.0, at(11)), Lone::Limit);
    }

    #[test]
    fn who_was_noisy_once_is_recognised_at_the_first() {
        let (mut noise, _) = refused(5);
        (0..4).for_each(|i| {
            noise.refused(5.0, 9.0, at(10 + i));
        });
        noise.prove(8.0, at(20));
        assert_eq!(noise.refused(100.0, 5.0, at(21)), Lone::Noticed(8.0));
    }
}
