//! Tells a host in trouble from a host with a lower limit. The ceiling of a host in trouble stays
//! as it was.
//!
//! In an *outage* the host serves no request. In a *brown-out* some requests fail at any rate. A
//! brown-out differs from a limit in two ways. The rate is far below one that was served well a
//! short time ago. After each failure, the very next request is served.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::canary::Block;
use super::learning::{Learning, Stage};
use super::ledger::Ledger;
use super::stages::COMEBACK_SERVED;
use super::window::Window;
use super::{Mechanism, Sample, Signal};
use crate::Timestamp;

/// Number of refused canaries from which a host in trouble counts as down.
const OUTAGE_CANARIES: u16 = 1;
/// The same number if a limit may cause the status as well, and a ceiling is known.
const OUTAGE_CANARIES_KNOWN: u16 = 3;
/// The same number if a limit may cause the status as well, and no ceiling is known.
const OUTAGE_CANARIES_UNKNOWN: u16 = 4;
/// The same number for refusals by count, if the key was served at most [`EARLY_SERVED`] requests.
/// So few requests say nothing about a limit: one request per block would be far below any usual
/// limit.
const OUTAGE_CANARIES_EARLY: u16 = 2;
/// Number of served requests, including the canary, up to which a block is early.
const EARLY_SERVED: u32 = 4;
/// The same number if the host was overloaded. An outage is then more likely than a limit.
const EARLY_SERVED_OVERLOADED: u32 = 16;
/// A time-out took at least this long, and longer than [`LATE_ROUND_TRIPS`].
const LATE: Duration = Duration::from_secs(1);
/// Number of round trips that an answer which is no time-out hardly takes.
const LATE_ROUND_TRIPS: u32 = 4;
/// Least share of the rate at which the return from an outage begins.
const RAMP: f64 = 0.25;
/// Number of requests in flight with which the return begins, if [`RAMP`] allows.
const RAMP_IN_FLIGHT: f64 = 2.0;
/// Factor by which each served request raises the rate on the way back. Four requests double it.
const RAMP_STEP: f32 = 1.189_207_1;
/// Shortest time between two served requests that counts as a pause.
const PAUSE: Duration = Duration::from_secs(1);
/// A pause is also longer than this many intervals between requests, so the pace does not cause it.
const PAUSE_INTERVALS: f64 = 8.0;
/// Share of a rate that was served well. Below this share, no limit refuses one request and serves
/// the next.
const FAR_BELOW: f64 = 0.25;
/// Lowest rate in a brown-out, as a share of the ceiling.
const LEAST: f64 = 0.02;
/// Share of the rate that remains after each failure in a brown-out.
const LESS: f64 = 0.7;
/// Number of served requests between two steps of the recovery below [`FAR_BELOW`] of the ceiling.
const CLEAR: u32 = 12;

/// The way back from the last outage, and what is known of the host's failures.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Trouble {
    /// When the last outage, with the ramp after it, was over. Zero: there was no outage.
    outage_over: Timestamp,
    /// Share of the rate that is used on the way back from an outage, in (0, 1]. Otherwise 1.
    ramp: f32,
    /// Whether a refusal was a 429 or similar. The limit then does not cause the host's 503s.
    says_429: bool,
    /// Number of requests served at the last lone failure of a kind that no limit causes.
    failed_at: u32,
}

impl Default for Trouble {
    fn default() -> Self {
        Self {
            outage_over: Timestamp::ZERO,
            ramp: 1.0,
            says_429: false,
            failed_at: 0,
        }
    }
}

impl Trouble {
    pub(super) fn rebase(&mut self, back: Duration) {
        self.outage_over = self.outage_over - back;
    }

    pub(super) fn plausible(&self) -> bool {
        self.ramp > 0.0 && self.ramp <= 1.0
    }

    /// Returns the share of the rate that is used, in (0, 1].
    #[inline]
    pub(super) fn ramp(&self) -> f64 {
        f64::from(self.ramp)
    }

    /// Returns whether the rate is on its way back from an outage.
    pub(super) fn is_ramping(&self) -> bool {
        self.ramp < 1.0
    }

    /// Notes the signal of a refusal.
    pub(super) fn hear(&mut self, refusal: Signal) {
        self.says_429 |= refusal == Signal::RateLimited;
    }

    /// Returns whether the host has refused with a 429 or similar. Its limit then does not cause
    /// its 503s.
    pub(super) const fn is_limited_by_429(&self) -> bool {
        self.says_429
    }
}

impl Learning {
    /// Returns whether the block was an outage: the host served no request, although hardly any
    /// were sent. An outage shows nothing about the limit.
    ///
    /// If a limit may cause the status as well, a second block soon after the first counts as a
    /// limit. So an early block that a limit did cause costs one more block.
    pub(super) fn was_outage(&mut self, block: &Block, canary: &Sample<'_>) -> bool {
        let is_early = |most: u32| self.ceiling == 0.0 && self.ledger.served() <= most;
        let least = if block.is_trouble || block.overloaded && is_early(EARLY_SERVED_OVERLOADED) {
            OUTAGE_CANARIES
        } else if block.overloaded && self.ceiling == 0.0 {
            OUTAGE_CANARIES_UNKNOWN
        } else if block.overloaded {
            OUTAGE_CANARIES_KNOWN
        } else if is_early(EARLY_SERVED) {
            OUTAGE_CANARIES_EARLY
        } else {
            return false;
        };
        if block.canaries < least || !self.has(Mechanism::Outage) {
            return false;
        }
        let lasted = canary.sent.since(block.began);
        let soon = (lasted * 5).max(Duration::from_mins(1));
        let again = self.trouble.outage_over > Timestamp::ZERO
            && canary.sent.since(self.trouble.outage_over) < soon;
        self.trouble.outage_over = canary.sent;
        block.is_trouble || !again
    }

    /// Returns whether the block is a single failure of a kind that no limit causes, and such
    /// failures are rare. It then changes nothing.
    pub(super) fn is_lone_trouble(&mut self, block: &Block, canary: &Sample<'_>) -> bool {
        if !block.is_trouble || block.canaries > 0 || !self.has(Mechanism::Outage) {
            return false;
        }
        let is_rare = self.is_rare_failure();
        if is_rare {
            self.noise.share.failed(self.ledger.served());
            self.stop_clock(canary.now.since(block.began));
        }
        is_rare
    }

    /// Records a failure of a kind that no limit causes. Returns whether such failures are rare.
    fn is_rare_failure(&mut self) -> bool {
        let served = self.ledger.served();
        let since = served.saturating_sub(self.trouble.failed_at);
        self.trouble.failed_at = served;
        self.noise.is_rare_trouble(since)
    }

    /// Returns whether the failure is a time-out of a request that was sent before others that have
    /// been served since. The host was silent for a moment and answers again. If such failures are
    /// frequent, the host is overloaded, and they count.
    pub(super) fn is_late_news(&mut self, sample: &Sample<'_>) -> bool {
        let is_late = sample.is_trouble
            && self.block.is_none()
            && sample.latency > LATE.max(self.round_trip * LATE_ROUND_TRIPS)
            && self.ledger.last().is_some_and(|last| last > sample.sent);
        is_late && self.has(Mechanism::Outage) && self.is_rare_failure()
    }

    /// Continues the stage that the outage interrupted, with a short ramp of the rate. The learned
    /// limits stay as they were.
    pub(super) fn resume(&mut self, block: &Block, now: Timestamp) {
        self.trouble.ramp = 1.0;
        let in_flight = self.wish(now) * self.round_trip.as_secs_f64();
        self.trouble.ramp = (RAMP_IN_FLIGHT / in_flight.max(1e-9)).clamp(RAMP, 1.0) as f32;
        self.stop_clock(now.since(block.began));
        // If a limit may have caused the block, the history stays: it shows the limit's window.
        if self.is_cold() && block.is_trouble {
            self.forget_history();
        }
    }

    /// Leaves `time`, in which no request could be served, out of the stage's duration.
    fn stop_clock(&mut self, time: Duration) {
        self.stage_began = self.stage_began + time;
    }

    /// Raises the rate for one served request on the way back from an outage.
    pub(super) fn ramps_up(&mut self, sample: &Sample<'_>) {
        self.trouble.ramp = (self.trouble.ramp * RAMP_STEP).min(1.0);
        self.stop_clock(sample.now.since(self.trouble.outage_over));
        self.trouble.outage_over = self.trouble.outage_over.max(sample.now);
    }

    /// Leaves a long pause between two served requests out of the stage's duration. Failures that
    /// are not refusals can cause such a pause.
    pub(super) fn pause_over(&mut self, sample: &Sample<'_>) {
        let Some(last) = self.ledger.last() else {
            return;
        };
        let pause = sample.sent.since(last.max(self.stage_began));
        if pause > PAUSE
            && self.block.is_none()
            && pause.as_secs_f64() * self.rate > PAUSE_INTERVALS
        {
            self.stop_clock(pause);
            if self.is_cold() {
                self.forget_history();
            }
        }
    }

    /// Returns whether the key has not met a limit yet.
    fn is_cold(&self) -> bool {
        self.stage == Stage::Start && self.cuts == 0
    }

    /// Clears the history, because the first window may begin with the first request after an
    /// outage.
    fn forget_history(&mut self) {
        self.ledger = Ledger::default();
        (self.anchor_served, self.trouble.failed_at) = (0, 0);
        self.blocked_after = self.blocked_after.map(|_| 0);
        self.noise.share.forget_count();
    }

    /// Returns whether the block is part of a brown-out. If so, the ceiling stays at the rate that
    /// was served well, and the key recovers from a lower rate.
    pub(super) fn lies_low(&mut self, block: &Block, now: Timestamp) -> bool {
        let well = self.noise.once_proven(now);
        let lone = block.overloaded && block.canaries == 0;
        if !(lone && block.rate < well * FAR_BELOW && self.has(Mechanism::Outage)) {
            return false;
        }
        (self.ceiling, self.window) = (well, Window::default());
        let rate = (block.rate * LESS).max(well * LEAST);
        self.recover_at(rate, now);
        true
    }

    /// Returns the number of requests that must be served before the next step of the recovery. It
    /// is larger below [`FAR_BELOW`] of the ceiling, where a brown-out leads. Other recoveries
    /// start no lower than that.
    pub(super) fn recovery_served(&self) -> u32 {
        if self.rate < self.ceiling * FAR_BELOW {
            CLEAR
        } else {
            COMEBACK_SERVED
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::super::tests::sample;
    use super::super::Law as _;
    use super::super::learning::tests::{cruising, fresh, hear};
    use super::super::trial::Bracket;
    use super::super::verdict::tests::{at, block, serve};
    use super::*;
    use crate::signal::Signal;

    #[test]
    fn an_outage_leaves_the_ceiling_where_it_was() {
        let mut law = cruising();
        serve(&mut law, 0.0, 60.0);
        block(&mut law, 60.0, Signal::Overloaded, &[1.0, 3.0, 9.0, 30.0]);
        assert_eq!((law.stage, law.ceiling), (Stage::Cruise, 10.0));
    }

    proptest! {
        /// After an outage the rate ramps up within a few requests. Then the key continues as
        /// before.
        #[test]
        fn an_outage_changes_nothing_that_was_learned(
            stage in 0..4_u8,
            canaries in 4..12_u16,
            length_s in 1.0..3_600.0,
            is_trouble: bool,
        ) {
            let mut law = cruising();
            match stage {
                0 => (law.stage, law.ceiling, law.cuts) = (Stage::Start, 0.0, 0),
                1 => law.enter(Stage::Trial(Bracket::new(8.0, 10.0)), 9.0, at(0.0)),
                2 => law.enter(Stage::Probe, 10.0, at(0.0)),
                _ => {}
            }
            serve(&mut law, 0.0, 1.0);
            law.round_trip = Duration::from_secs(1);
            let before = law.clone();
            let down = |secs: f64| Sample {
                is_trouble,
                ..sample(1.8e9 + secs, Signal::Overloaded)
            };
            for i in 0..=canaries {
                law.on_sample(&down(1.0 + length_s * f64::from(i) / f64::from(canaries)));
            }
            let end = 1.0 + length_s * 1.1;
            hear(&mut law, end, Signal::Ok);
            let ramp = law.wish(at(end));
            prop_assert!(ramp <= before.wish(at(1.0)) * 0.6, "{ramp}, {law:?}");
            let mut served = 0;
            while law.trouble.is_ramping() {
                served += 1;
                hear(&mut law, end + f64::from(served) * 0.01, Signal::Ok);
            }
            prop_assert!(served <= 9, "{served}");
            prop_assert_eq!(law.ceiling.to_bits(), before.ceiling.to_bits());
            prop_assert_eq!(law.rate.to_bits(), before.rate.to_bits());
            prop_assert_eq!(law.stage, before.stage);
            prop_assert_eq!(law.window, before.window);
            prop_assert_eq!(law.metrics(), before.metrics());
        }
    }

    #[test]
    fn single_failures_that_no_limit_causes_change_nothing_while_they_are_rare() {
        for (every, changes) in [(20, false), (5, true)] {
            let mut law = cruising();
            for i in 1..400 {
                let secs = f64::from(i) * 0.1;
                if i % every == 0 {
                    let failure = sample(1.8e9 + secs, Signal::Overloaded);
                    law.on_sample(&Sample {
                        is_trouble: true,
                        ..failure
                    });
                } else {
                    hear(&mut law, secs, Signal::Ok);
                }
            }
            let ceiling = law.ceiling;
            assert_eq!(
                ceiling < 10.0 || law.cuts > 3,
                changes,
                "one in {every}: {law:?}"
            );
        }
    }

    /// The limit of this host answers 429, so its 503s are trouble.
    #[test]
    fn outages_soon_after_another_are_no_limit_on_a_host_that_answers_429() {
        let mut law = cruising();
        serve(&mut law, 0.0, 60.0);
        block(&mut law, 60.0, Signal::RateLimited, &[0.2]);
        serve(&mut law, 61.0, 200.0);
        let ceiling = law.ceiling;
        for secs in [200.0, 230.0, 260.0] {
            block(&mut law, secs, Signal::Overloaded, &[1.0, 3.0, 9.0]);
            serve(&mut law, secs + 9.1, secs + 30.0);
        }
        assert_eq!(law.ceiling.to_bits(), ceiling.to_bits());
    }

    #[test]
    fn an_outage_soon_after_another_counts_as_a_limit() {
        let mut law = cruising();
        serve(&mut law, 0.0, 60.0);
        block(&mut law, 60.0, Signal::Overloaded, &[1.0, 3.0, 9.0, 30.0]);
        serve(&mut law, 90.1, 130.0);
        block(&mut law, 130.0, Signal::Overloaded, &[1.0, 3.0, 9.0, 30.0]);
        assert!(
            law.ceiling < 10.0 || matches!(law.stage, Stage::Trial(_)),
            "{law:?}"
        );
    }

    /// A limit may answer 503, but an outage is more likely among the first requests.
    #[test]
    fn a_first_block_of_503s_is_an_outage_and_a_second_soon_after_a_limit() {
        let mut law = fresh();
        for i in 0..8 {
            hear(&mut law, f64::from(i), Signal::Ok);
        }
        block(&mut law, 8.0, Signal::Overloaded, &[1.0, 3.0]);
        assert_eq!((law.stage, law.cuts), (Stage::Start, 0), "{law:?}");
        for i in 0..8 {
            hear(&mut law, 11.1 + f64::from(i), Signal::Ok);
        }
        block(&mut law, 19.2, Signal::Overloaded, &[1.0, 3.0]);
        assert!(law.cuts > 0, "{law:?}");
    }

    /// Without the rule for early blocks, one request served in ten seconds would become the limit.
    #[test]
    fn a_block_after_one_served_request_says_nothing_about_a_limit() {
        for signal in [Signal::Overloaded, Signal::RateLimited] {
            let mut law = fresh();
            let before = law.wish(at(0.0));
            hear(&mut law, 0.0, Signal::Ok);
            block(&mut law, 0.5, signal, &[1.0, 3.0, 9.0]);
            assert_eq!((law.stage, law.cuts), (Stage::Start, 0), "{law:?}");
            assert!(law.wish(at(10.0)) >= before * RAMP, "{law:?}");
            hear(&mut law, 10.1, Signal::Ok);
            block(&mut law, 10.2, signal, &[1.0, 3.0, 9.0]);
            assert!(law.cuts > 0, "the second block counts as a limit: {law:?}");
        }
    }

    /// Feeds a time-out that arrives at `secs`, of a request that was sent 30 s before.
    fn time_out(law: &mut Learning, secs: f64) {
        law.on_sample(&Sample {
            now: at(secs),
            latency: Duration::from_secs(30),
            is_trouble: true,
            ..sample(1.8e9 + secs - 30.0, Signal::Overloaded)
        });
    }

    #[test]
    fn a_time_out_from_before_the_last_served_request_changes_nothing_while_it_is_rare() {
        let mut law = cruising();
        serve(&mut law, 0.0, 60.0);
        let before = law.clone();
        time_out(&mut law, 60.0);
        assert_ne!((law.trouble, law.noise), (before.trouble, before.noise));
        let counted = Learning {
            trouble: law.trouble,
            noise: law.noise,
            ..before
        };
        assert_eq!(law, counted);
        // A host that does not answer every second request is overloaded.
        for i in 0..10 {
            hear(&mut law, 60.1 + f64::from(i), Signal::Ok);
            time_out(&mut law, 60.2 + f64::from(i));
        }
        assert!(law.block.is_some(), "{law:?}");
    }

    #[test]
    fn a_block_that_ends_at_the_first_canary_is_no_outage() {
        let mut law = cruising();
        serve(&mut law, 0.0, 60.0);
        block(&mut law, 60.0, Signal::Overloaded, &[0.2]);
        assert!(law.ceiling < 10.0, "{law:?}");
    }

    /// Returns a law after 30 s at 10 requests per second, all served, and a brown-out of 5
    /// minutes.
    fn browned_out() -> Learning {
        let mut law = cruising();
        serve(&mut law, 0.0, 30.0);
        one_in_five_fails(&mut law, 30.0, Signal::Overloaded);
        law
    }

    /// Sends requests at the law's pace for 5 minutes. Every fifth request fails with `fails`.
    fn one_in_five_fails(law: &mut Learning, from: f64, fails: Signal) {
        let mut secs = from;
        for i in 1.. {
            if secs > from + 300.0 {
                break;
            }
            hear(law, secs, if i % 5 == 0 { fails } else { Signal::Ok });
            let canary = law.block.map(|_| law.next_canary);
            let after = 1.0 / law.wish(at(secs));
            secs = canary.map_or(secs + after, |at| {
                (at.as_secs_f64() - 1.8e9).max(secs + 0.2)
            });
        }
    }

    #[test]
    fn a_brown_out_keeps_the_ceiling_and_the_rate_returns_within_minutes() {
        let mut law = browned_out();
        assert_eq!((law.stage, law.ceiling), (Stage::Recover, 9.9));
        assert!(law.rate < 1.5, "{law:?}");
        let mut secs = 331.0;
        while law.stage == Stage::Recover && secs < 631.0 {
            hear(&mut law, secs, Signal::Ok);
            secs += 1.0 / law.wish(at(secs));
        }
        assert!(law.wish(at(secs)) > 9.0 && secs < 481.0, "{secs}, {law:?}");
    }

    #[test]
    fn a_429_after_a_brown_out_counts_as_a_limit() {
        let mut law = browned_out();
        one_in_five_fails(&mut law, 331.0, Signal::RateLimited);
        assert!(law.rate < 9.9 * LEAST, "{law:?}");
    }
}
