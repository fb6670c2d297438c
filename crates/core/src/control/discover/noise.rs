//! Tells random refusals (noise) from a limit. Some hosts refuse a small share of requests at any
//! rate, so a lower rate does not help there.
//!
//! Noise differs from a limit in three ways. It comes at a rate below one that was served well a
//! short time ago. It comes alone. Its canary is served at once.
//!
//! After two such refusals the host counts as noisy, and the ceiling becomes the rate that was
//! served well. From then on a lone refusal changes nothing, unless such refusals come too often to
//! be noise.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// A refusal is alone if at least this many requests were served since the previous one.
const ALONE: f64 = 4.0;
/// Number of served requests within one stage that prove the stage's rate.
pub(super) const PROOF: u32 = 40;
/// Time after which a proven rate no longer counts, because limits change.
const PROOF_LASTS: Duration = Duration::from_mins(15);
/// Share of a proven rate below which a refusal does not come from a limit.
const BELOW: f64 = 0.97;
/// Mean number of served requests per refusal below which refusals are too frequent for noise.
const TOO_OFTEN: f64 = 30.0;
/// Number of served requests that may be missing from that mean before the refusals count as a
/// limit. At one refusal per hundred requests it is hardly ever reached. After the limit has
/// dropped it is reached at the fourth refusal.
const PATIENCE: f32 = 90.0;
/// The same number in a probe or a trial, whose rate may be above the limit.
const PATIENCE_TRYING: f32 = 30.0;
/// Mean number of served requests per failure below which the host is overloaded. It applies to
/// failures of kinds that no limit causes.
const TROUBLE_TOO_OFTEN: f32 = 12.0;
/// Number of served requests that may be missing from that mean before the failures count as
/// overload.
const TROUBLE_PATIENCE: f32 = 40.0;

/// The weight of the last gap in the mean gap between two failures: about the last ten count.
const GAP_WEIGHT: f32 = 0.1;

/// The record of proven rates and of random refusals. Rates are in requests per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Noise {
    /// The highest rate that was served well recently.
    proven: f64,
    /// When that rate was last proven.
    proven_at: Timestamp,
    /// Number of refusals that looked like noise.
    suspects: u8,
    /// Whether the host counts as noisy.
    noisy: bool,
    /// Whether the host has ever counted as noisy.
    seen: bool,
    /// Whether the limit has changed since the proof. The proven rate then serves only to recognise
    /// a brown-out.
    past: bool,
    /// Number of served requests that may still be missing, while the host is noisy.
    patience: f32,
    /// Number of missing requests for failures of kinds that no limit causes, at most
    /// [`TROUBLE_PATIENCE`].
    troubles: f32,
    /// The share of requests that fail whatever the rate.
    pub(super) share: Share,
}

/// The share of requests that fail whatever the rate, estimated from the number of requests served
/// between two such failures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Share {
    /// The mean number of served requests between two failures. Zero before the second failure.
    gap: f32,
    /// How many requests had been served at the last failure.
    served: u32,
}

impl Share {
    /// Records a failure, when `served` requests have been served in all.
    pub(super) fn failed(&mut self, served: u32) {
        let gap = served.saturating_sub(self.served) as f32;
        let weight = if self.gap > 0.0 { GAP_WEIGHT } else { 1.0 };
        if self.served > 0 {
            self.gap += weight * (gap.max(1.0) - self.gap);
        }
        self.served = served;
    }

    /// Begins to count served requests anew.
    pub(super) fn forget_count(&mut self) {
        self.served = 0;
    }

    /// Returns the share, 0 to 1, when `served` requests have been served in all.
    pub(super) fn now(self, served: u32) -> Option<f64> {
        let since = served.saturating_sub(self.served) as f32;
        (self.gap > 0.0).then(|| f64::from(1.0 / (1.0 + self.gap.max(since))))
    }

    fn is_plausible(self) -> bool {
        self.gap.is_finite() && self.gap >= 0.0
    }
}

/// The meaning of a refusal whose canary was served at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Lone {
    /// A limit, as far as is known.
    Limit,
    /// Noise of a host that is known to be noisy.
    Noise,
    /// The refusal that shows that the host is noisy. The rate, in requests per second, was served
    /// well.
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
            && self.share.is_plausible()
    }

    /// Records that [`PROOF`] requests were served at `rate` requests per second.
    pub(super) fn prove(&mut self, rate: f64, now: Timestamp) {
        if rate >= self.proven(now) {
            (self.proven, self.proven_at, self.past) = (rate, now, false);
        }
    }

    /// Returns the highest rate that was served well recently under the present limit, or zero.
    pub(super) fn proven(&self, now: Timestamp) -> f64 {
        if self.past {
            0.0
        } else {
            self.once_proven(now)
        }
    }

    /// Returns the highest rate that was served well recently, even if the limit has changed since,
    /// or zero.
    pub(super) fn once_proven(&self, now: Timestamp) -> f64 {
        if now.since(self.proven_at) > PROOF_LASTS {
            0.0
        } else {
            self.proven
        }
    }

    /// Records a lone failure of a kind that no limit causes, `served` requests after the previous
    /// one. Returns whether such failures are rare enough to change nothing.
    pub(super) fn is_rare_trouble(&mut self, served: u32) -> bool {
        self.troubles = (self.troubles + TROUBLE_TOO_OFTEN - served as f32).max(0.0);
        if self.troubles <= TROUBLE_PATIENCE {
            return true;
        }
        self.troubles = TROUBLE_PATIENCE;
        false
    }

    /// Records a refusal at `rate`, `served` requests after the previous one, and returns its
    /// meaning. `is_trying` is true in a probe and in a trial.
    pub(super) fn refused(
        &mut self,
        served: f64,
        rate: f64,
        is_trying: bool,
        now: Timestamp,
    ) -> Lone {
        if self.noisy {
            self.patience = (self.patience + (served - TOO_OFTEN) as f32).min(PATIENCE);
            if is_trying && self.patience < PATIENCE - PATIENCE_TRYING {
                // The limit is where the higher rate met it. The host is as noisy as before.
                self.patience = PATIENCE;
                return Lone::Limit;
            }
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

    /// Notes that the refusals come from a limit, so the limit has changed.
    fn forget(&mut self) {
        *self = Self {
            proven: self.proven,
            proven_at: self.proven_at,
            past: true,
            seen: self.seen,
            share: self.share,
            ..Self::default()
        };
    }

    /// Forgets a rate that was proven before the limit changed.
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

    /// Returns the record of a host that served 10 requests per second well, and the last verdict
    /// after `times` lone refusals at half that rate.
    fn refused(times: u64) -> (Noise, Option<Lone>) {
        let mut noise = Noise::default();
        noise.prove(10.0, at(0));
        let last = (1..=times)
            .map(|i| noise.refused(100.0, 5.0, false, at(i)))
            .last();
        (noise, last)
    }

    #[test]
    fn the_share_follows_the_failures_and_falls_without_them() {
        let mut share = Share::default();
        assert_eq!(share.now(1_000), None);
        for i in 1..=50 {
            share.failed(i * 24);
        }
        let told = share.now(1_200).expect("fifty failures");
        assert!((told - 0.04).abs() < 0.002, "{told}");
        let later = share.now(11_200).expect("fifty failures");
        assert!(later < 0.000_2, "{later}");
    }

    #[test]
    fn two_lone_refusals_far_below_a_proven_rate_are_noise() {
        assert_eq!(refused(1).1, Some(Lone::Limit));
        assert_eq!(refused(2).1, Some(Lone::Noticed(10.0)));
        assert_eq!(refused(9).1, Some(Lone::Noise));
    }

    #[test]
    fn refusals_at_the_proven_rate_are_a_limit() {
        let (mut noise, _) = refused(1);
        for i in 0..9 {
            assert_eq!(noise.refused(100.0, 9.8, false, at(10 + i)), Lone::Limit);
        }
    }

    #[test]
    fn a_proof_older_than_a_quarter_of_an_hour_shows_no_noise() {
        let (mut noise, _) = refused(1);
        assert_eq!(noise.refused(100.0, 5.0, false, at(901)), Lone::Limit);
        // A lower rate is proof again once the higher is too old.
        noise.prove(7.0, at(902));
        assert_eq!(
            noise.refused(100.0, 5.0, false, at(903)),
            Lone::Noticed(7.0)
        );
    }

    #[test]
    fn a_rate_stays_proven_for_a_quarter_of_an_hour() {
        let mut noise = Noise::default();
        noise.prove(10.0, at(0));
        assert!(noise.proven(at(900)) > 9.9);
        assert!(noise.proven(at(901)) < 0.1);
    }

    #[test]
    fn a_lower_limit_is_recognised_on_a_noisy_host() {
        let (mut noise, _) = refused(5);
        for i in 0..3 {
            assert_eq!(noise.refused(2.0, 9.0, false, at(10 + i)), Lone::Noise);
        }
        assert_eq!(noise.refused(2.0, 9.0, false, at(13)), Lone::Limit);
        // The rate proven before no longer counts.
        assert_eq!(noise.refused(100.0, 5.0, false, at(14)), Lone::Limit);
    }

    /// With one refusal per hundred requests, two come within fourteen requests about every hour.
    /// That is no limit.
    #[test]
    fn two_short_gaps_in_a_row_are_noise() {
        let (mut noise, _) = refused(5);
        for served in [3.0, 12.0, 200.0, 9.0, 8.0, 25.0, 110.0] {
            assert_eq!(noise.refused(served, 9.0, false, at(10)), Lone::Noise);
        }
    }

    #[test]
    fn every_second_gap_may_be_short() {
        let (mut noise, _) = refused(5);
        for i in 0..20 {
            let served = if i % 2 == 0 { 10.0 } else { 110.0 };
            assert_eq!(noise.refused(served, 9.0, false, at(10 + i)), Lone::Noise);
        }
    }

    #[test]
    fn one_refusal_per_twenty_requests_is_a_limit() {
        let (mut noise, _) = refused(5);
        let limit =
            (0..30).position(|i| noise.refused(20.0, 9.0, false, at(10 + i)) == Lone::Limit);
        assert!(limit.is_some());
    }

    #[test]
    fn two_refusals_close_together_are_a_limit() {
        let (mut noise, _) = refused(1);
        assert_eq!(noise.refused(3.0, 5.0, false, at(10)), Lone::Limit);
        assert_eq!(noise.refused(100.0, 5.0, false, at(11)), Lone::Limit);
    }

    #[test]
    fn a_host_that_was_noisy_before_is_recognised_at_its_first_lone_refusal() {
        let (mut noise, _) = refused(5);
        (0..4).for_each(|i| {
            noise.refused(5.0, 9.0, false, at(10 + i));
        });
        noise.prove(8.0, at(20));
        assert_eq!(noise.refused(100.0, 5.0, false, at(21)), Lone::Noticed(8.0));
    }

    /// The rate of a probe may be above the limit, so two refusals close together end it. What is
    /// known of the noise stays.
    #[test]
    fn a_noisy_host_stays_noisy_when_a_probe_meets_its_limit() {
        let (mut noise, _) = refused(5);
        assert_eq!(noise.refused(10.0, 20.0, true, at(10)), Lone::Noise);
        assert_eq!(noise.refused(2.0, 20.0, true, at(11)), Lone::Limit);
        assert_eq!(noise.refused(100.0, 9.0, false, at(12)), Lone::Noise);
        assert!(noise.proven(at(13)) > 9.9);
    }
}
