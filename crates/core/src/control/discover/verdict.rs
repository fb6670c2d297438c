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
pub(super) mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::super::super::tests::sample;
    use super::super::Law;
    use super::super::learning::tests::{cruising, fresh, hear, live};
    use super::*;
    use crate::signal::Signal;

    /// A cold start at a token bucket.
    fn at_bucket(per_s: f64, burst: f64, length: Duration, mut learned: impl FnMut(&Learning)) {
        let began = Timestamp::from_secs_f64(1e6);
        let (mut tokens, mut filled) = (burst, began);
        let admits = |now: Timestamp| {
            tokens = (tokens + per_s * now.since(filled).as_secs_f64()).min(burst);
            filled = now;
            let admitted = tokens >= 1.0;
            tokens -= f64::from(u8::from(admitted));
            admitted
        };
        let law = Learning::new(Arc::default(), 1.0, began);
        live(law, length, admits, |law, _, _| learned(law));
    }

    /// nginx at 2 a second: a request half a millisecond early was refused, and ten seconds at half
    /// the limit followed.
    #[test]
    fn where_nothing_was_lent_the_first_trial_counts_what_the_start_served() {
        let mut answers = 0;
        at_bucket(1.996, 1.0, Duration::from_secs(30), |law| {
            answers += u32::from(law.stage == Stage::Trial && law.rate <= 1.0);
        });
        // The canary, and one of the two that are left of six; with the second it goes on.
        assert_eq!(answers, 2);
    }

    pub(in super::super) fn at(secs: f64) -> Timestamp {
        Timestamp::from_secs_f64(1.8e9 + secs)
    }

    /// A canary that is refused too did not just come early; and of a rate that the start had not
    /// served nothing is known.
    #[test]
    fn a_first_trial_that_came_early_is_followed_by_one_hardly_lower() {
        for (canaries, lent, early) in [
            (&[0.6][..], false, true),
            (&[0.6, 1.2], false, false),
            (&[0.6], true, false),
        ] {
            let mut law = fresh();
            (0..5).for_each(|i| law.ledger.serve(at(f64::from(i))));
            (law.cuts, law.stage_served) = (1, if lent { 3 } else { 0 });
            law.last_soft = at(4.5);
            law.first_trial(4.0, at(5.0));
            block(&mut law, 5.5, Signal::RateLimited, canaries);
            assert_eq!((law.stage, law.cuts), (Stage::Trial, 2));
            let hardly_less = (law.rate - 2.0 * HARDLY_LESS).abs() < 1e-9;
            assert_eq!(hardly_less, early, "{}", law.rate);
        }
    }

    /// Refused at `secs`; canaries so much later, of which the last is served.
    pub(in super::super) fn block(law: &mut Learning, secs: f64, signal: Signal, canaries: &[f64]) {
        hear(law, secs, signal);
        let (served, refused) = canaries.split_last().expect("one is served");
        for after in refused {
            hear(law, secs + after, signal);
        }
        hear(law, secs + served, Signal::Ok);
    }

    /// Served at the rate it asks for.
    pub(in super::super) fn serve(law: &mut Learning, from: f64, to: f64) {
        let mut secs = from;
        while secs < to {
            hear(law, secs, Signal::Ok);
            secs += 0.101;
        }
    }

    #[test]
    fn the_first_refusal_ends_the_start_and_a_trial_below_it_begins() {
        let mut law = fresh();
        law.enter(Stage::Start, 8.0, law.stage_began);
        (0..20).for_each(|i| hear(&mut law, 0.01 * f64::from(i), Signal::Ok));
        block(&mut law, 2.0, Signal::RateLimited, &[0.15]);
        assert_eq!((law.stage, law.cuts), (Stage::Trial, 1));
        assert!(law.rate < 6.0 && law.high <= 8.0, "{law:?}");
    }

    /// Before this, a coordinator that was killed after a key's first refusal took the time it was
    /// away for a block of a window as long as the key was old: a host of five a second was asked
    /// once in half a minute.
    #[test]
    fn a_canary_that_comes_late_tells_of_no_window() {
        for (age, after, told) in [
            (60.0, 6.5, true),
            (3_600.0, 40.0, true),
            (60.0, 600.0, false),
        ] {
            let mut law = fresh();
            (0..4).for_each(|i| hear(&mut law, f64::from(i) - age, Signal::Ok));
            law.enter(Stage::Start, 6.0, at(0.0));
            (0..30).for_each(|i| hear(&mut law, 0.2 * f64::from(i), Signal::Ok));
            let refused = sample(1.8e9 + 6.0, Signal::RateLimited);
            law.on_sample(&Sample {
                retry_after: told.then_some(Duration::from_secs(1)),
                ..refused
            });
            if !told {
                hear(&mut law, 6.4, Signal::RateLimited);
            }
            hear(&mut law, 6.0 + after, Signal::Ok);
            assert!(!law.window.is_known(), "{law:?}");
            assert!(law.rate > 2.0, "{}", law.rate);
        }
    }

    #[test]
    fn in_the_cruise_one_refusal_is_an_accident_and_a_second_soon_after_is_not() {
        let mut law = cruising();
        serve(&mut law, 0.0, 60.0);
        block(&mut law, 60.0, Signal::RateLimited, &[0.2]);
        assert_eq!(law.stage, Stage::Cruise);
        assert!((law.ceiling - 9.8).abs() < 1e-9, "{law:?}");
        serve(&mut law, 60.3, 63.0);
        block(&mut law, 63.0, Signal::RateLimited, &[0.2]);
        assert_eq!(law.stage, Stage::Trial);
    }

    #[test]
    fn two_refusals_a_minute_apart_are_two_accidents() {
        let mut law = cruising();
        for from in [0.0, 60.0] {
            serve(&mut law, from + 0.3, from + 60.0);
            block(&mut law, from + 60.0, Signal::RateLimited, &[0.2]);
            assert_eq!(law.stage, Stage::Cruise);
        }
        assert!((law.ceiling - 10.0 * 0.98 * 0.98).abs() < 1e-9, "{law:?}");
    }

    #[test]
    fn nothing_for_long_after_much_was_served_is_a_window() {
        let mut law = fresh();
        (0..20).for_each(|i| hear(&mut law, 0.2 * f64::from(i), Signal::Ok));
        block(&mut law, 4.0, Signal::RateLimited, &[0.5, 2.0, 5.9, 6.1]);
        assert_eq!(law.window.length, Duration::from_secs(10), "{law:?}");
        assert!((law.ceiling - 2.0).abs() < 0.11, "{law:?}");
    }

    /// Twenty in ten seconds, with the start doubling from one a second: a canary as late as the
    /// window ends, 1.33 s after the first refusal, was taken for a bucket's, and half a minute
    /// went by at half the limit.
    #[test]
    fn at_a_fast_pace_a_short_block_is_a_window_and_at_a_slow_one_it_is_not() {
        for (rate, lasted, window) in [(9.0, 1.33, true), (3.0, 1.5, false)] {
            let mut law = fresh();
            (0..23).for_each(|i| hear(&mut law, 0.36 * f64::from(i), Signal::Ok));
            law.enter(Stage::Start, rate, at(8.0));
            block(&mut law, 8.84, Signal::RateLimited, &[0.22, lasted]);
            assert_eq!(law.window.is_known(), window, "{law:?}");
        }
    }

    /// A window without a round length may be none. It is a guess, and a canary goes at once.
    #[test]
    fn a_first_window_that_is_told_is_left_alone_for_a_minute() {
        for (refused, ends, round) in [(2.9, 3.1, true), (4.0, 6.0, false)] {
            let mut law = fresh();
            (0..20).for_each(|i| hear(&mut law, 0.2 * f64::from(i), Signal::Ok));
            block(&mut law, 7.0, Signal::RateLimited, &[0.5, refused, ends]);
            assert_eq!(law.window.is_round(), round);
            assert_eq!(law.window.is_guess(&law.ledger), !round);
            let due = |after| law.probing.due(at(7.0 + ends + after), true);
            assert_eq!([0.1, 59.0, 61.0].map(due), [!round, !round, true]);
        }
    }

    /// One slips through a counter that slides, and then none for long: that window began with the
    /// first refusal.
    #[test]
    fn what_slips_through_hides_no_window() {
        let mut law = fresh();
        (0..20).for_each(|i| hear(&mut law, 0.2 * f64::from(i), Signal::Ok));
        block(&mut law, 4.0, Signal::RateLimited, &[0.3]);
        assert_eq!(law.stage, Stage::Trial);
        block(&mut law, 4.5, Signal::RateLimited, &[0.5, 2.0, 5.4, 5.6]);
        assert_eq!(law.window.length, Duration::from_secs(10), "{law:?}");
    }

    /// A window that slides refuses because of requests that were sent before.
    #[test]
    fn a_refusal_soon_after_the_first_does_not_put_the_limit_below_the_average() {
        let mut law = fresh();
        (0..20).for_each(|i| hear(&mut law, 0.5 * f64::from(i), Signal::Ok));
        block(&mut law, 10.0, Signal::RateLimited, &[0.2]);
        law.enter(Stage::Trial, 1.0, at(10.2));
        block(&mut law, 11.2, Signal::RateLimited, &[1.0]);
        assert!((1.8..2.3).contains(&law.high), "{law:?}");
    }

    #[test]
    fn the_same_block_in_the_cruise_is_no_window() {
        let mut law = cruising();
        serve(&mut law, 0.0, 60.0);
        block(&mut law, 60.0, Signal::RateLimited, &[0.5, 2.0, 5.9, 6.1]);
        assert!(!law.window.is_known(), "{law:?}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// The lower end of the bracket is what a limiter cannot have refused.
        #[test]
        fn what_is_held_to_be_sustained_is(rate in 0.5_f64..20.0, burst in 1.0_f64..60.0) {
            let mut highest = 0.0_f64;
            let mut stages = Vec::new();
            let length = Duration::from_secs_f64((1_500.0 / rate).max(1_200.0));
            at_bucket(rate, burst, length, |law| {
                highest = highest.max(law.low);
                if stages.last() != Some(&law.stage) {
                    stages.push(law.stage);
                }
            });
            prop_assert!(stages.contains(&Stage::Cruise), "{stages:?}");
            // A bucket that was full is still counted in for a while: 1.2 % with 53 tokens at 13/s.
            prop_assert!(highest <= rate * 1.02, "{highest}");
        }
    }
}
