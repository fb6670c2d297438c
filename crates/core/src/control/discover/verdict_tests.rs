//! Tests of `verdict.rs`.

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
