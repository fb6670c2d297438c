//! Tests of `verdict.rs`.

use std::sync::Arc;

use proptest::prelude::*;

use super::super::super::tests::sample;
use super::super::Law;
use super::super::learning::tests::{cruising, fresh, hear, live};
use super::super::trial::HARDLY_LESS;
use super::*;
use crate::signal::Signal;

/// Runs a cold start at a token bucket for `length` and calls `learned` after each answer.
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

fn is_trial(law: &Learning) -> bool {
    matches!(law.stage, Stage::Trial(_))
}

/// Returns the bracket of a law in a trial.
fn bracket(law: &Learning) -> Bracket {
    match law.stage {
        Stage::Trial(bracket) => bracket,
        _ => panic!("no trial: {law:?}"),
    }
}

/// Before the rule, nginx with 2 requests per second refused a request that was half a millisecond
/// early. Ten seconds at half the limit followed.
#[test]
fn the_first_trial_counts_requests_of_the_start_if_the_bucket_lent_nothing() {
    let mut answers = 0;
    at_bucket(1.996, 1.0, Duration::from_secs(30), |law| {
        answers += u32::from(is_trial(law) && law.rate <= 1.0);
    });
    // The start has served four of the six requests that the trial needs. These answers are the
    // canary's and that of the fifth request; the sixth ends the trial.
    assert_eq!(answers, 2);
}

pub(in super::super) fn at(secs: f64) -> Timestamp {
    Timestamp::from_secs_f64(1.8e9 + secs)
}

/// If the canary is refused too, the first refusal was not due to an early request. If the bucket
/// had lent tokens, the start says nothing about the trial's rate.
#[test]
fn after_an_early_request_in_the_first_trial_the_next_trial_is_hardly_lower() {
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
        assert!(is_trial(&law) && law.cuts == 2, "{law:?}");
        let hardly_less = (law.rate - 2.0 * HARDLY_LESS).abs() < 1e-9;
        assert_eq!(hardly_less, early, "{}", law.rate);
    }
}

/// Feeds a block: a refusal at `secs`, then canaries at the given delays in seconds. The last
/// canary is served.
pub(in super::super) fn block(law: &mut Learning, secs: f64, signal: Signal, canaries: &[f64]) {
    hear(law, secs, signal);
    let (served, refused) = canaries.split_last().expect("one is served");
    for after in refused {
        hear(law, secs + after, signal);
    }
    hear(law, secs + served, Signal::Ok);
}

/// Feeds served requests at about 10 per second, from `from` to `to` in seconds.
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
    assert!(is_trial(&law) && law.cuts == 1, "{law:?}");
    assert!(law.rate < 6.0 && bracket(&law).high <= 8.0, "{law:?}");
}

/// Before the rule, a killed coordinator counted its downtime after a key's first refusal as a
/// block. It derived a window as long as the key's age, and sent one request per half minute to a
/// host that allows five per second.
#[test]
fn a_late_canary_shows_no_window() {
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
fn in_the_cruise_a_second_refusal_soon_after_the_first_starts_a_trial() {
    let mut law = cruising();
    serve(&mut law, 0.0, 60.0);
    block(&mut law, 60.0, Signal::RateLimited, &[0.2]);
    assert_eq!(law.stage, Stage::Cruise);
    assert!((law.ceiling - 9.8).abs() < 1e-9, "{law:?}");
    serve(&mut law, 60.3, 63.0);
    block(&mut law, 63.0, Signal::RateLimited, &[0.2]);
    assert!(is_trial(&law), "{law:?}");
}

#[test]
fn two_refusals_a_minute_apart_start_no_trial() {
    let mut law = cruising();
    for from in [0.0, 60.0] {
        serve(&mut law, from + 0.3, from + 60.0);
        block(&mut law, from + 60.0, Signal::RateLimited, &[0.2]);
        assert_eq!(law.stage, Stage::Cruise);
    }
    assert!((law.ceiling - 10.0 * 0.98 * 0.98).abs() < 1e-9, "{law:?}");
}

#[test]
fn a_long_block_after_many_served_requests_is_a_window() {
    let mut law = fresh();
    (0..20).for_each(|i| hear(&mut law, 0.2 * f64::from(i), Signal::Ok));
    block(&mut law, 4.0, Signal::RateLimited, &[0.5, 2.0, 5.9, 6.1]);
    assert_eq!(law.window.length, Duration::from_secs(10), "{law:?}");
    assert!((law.ceiling - 2.0).abs() < 0.11, "{law:?}");
}

/// The host allows 20 requests per 10 s, and the start doubles from one per second. Before the
/// rule, a canary at the window's end, 1.33 s after the first refusal, counted as a bucket's. Half
/// a minute at half the limit followed.
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

/// A window without a round length is a guess, so the next probe is due at once.
#[test]
fn the_first_probe_after_a_well_measured_first_window_waits_a_minute() {
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

/// A sliding window may admit a single request and then none for long. The block began with the
/// first refusal.
#[test]
fn a_single_served_request_does_not_hide_a_window() {
    let mut law = fresh();
    (0..20).for_each(|i| hear(&mut law, 0.2 * f64::from(i), Signal::Ok));
    block(&mut law, 4.0, Signal::RateLimited, &[0.3]);
    assert!(is_trial(&law), "{law:?}");
    block(&mut law, 4.5, Signal::RateLimited, &[0.5, 2.0, 5.4, 5.6]);
    assert_eq!(law.window.length, Duration::from_secs(10), "{law:?}");
}

/// A sliding window refuses because of requests that were sent long before.
#[test]
fn a_refusal_soon_after_the_first_does_not_put_the_limit_below_the_average() {
    let mut law = fresh();
    (0..20).for_each(|i| hear(&mut law, 0.5 * f64::from(i), Signal::Ok));
    block(&mut law, 10.0, Signal::RateLimited, &[0.2]);
    law.enter(law.stage, 1.0, at(10.2));
    block(&mut law, 11.2, Signal::RateLimited, &[1.0]);
    assert!((1.8..2.3).contains(&bracket(&law).high), "{law:?}");
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

    /// The lower end of the bracket is a rate that the limiter cannot have refused.
    #[test]
    fn the_brackets_lower_end_is_sustained(rate in 0.5_f64..20.0, burst in 1.0_f64..60.0) {
        let mut highest = 0.0_f64;
        let mut cruised = false;
        let length = Duration::from_secs_f64((1_500.0 / rate).max(1_200.0));
        at_bucket(rate, burst, length, |law| {
            highest = highest.max(if is_trial(law) { bracket(law).low } else { 0.0 });
            cruised |= law.stage == Stage::Cruise;
        });
        prop_assert!(cruised);
        // The tokens of a full bucket still count for a while: 1.2 % with 53 tokens at 13/s, 2.4 %
        // with 19 tokens at 1.46/s.
        prop_assert!(highest <= rate * 1.03, "{highest}");
    }
}
