//! Tests of `learning.rs`.

use super::super::super::tests::sample;
use super::*;
use crate::config::Config;

/// Time of the tests' beginning, in seconds since 1970.
const EPOCH_S: f64 = 1.8e9;

fn at(secs: f64) -> Timestamp {
    Timestamp::from_secs_f64(EPOCH_S + secs)
}

/// Returns a new law that starts at 1 request per second.
pub(in super::super) fn fresh() -> Learning {
    Learning::new(Arc::default(), 1.0, at(0.0))
}

/// Returns a law in the cruise, with a ceiling of 10 requests per second.
pub(in super::super) fn cruising() -> Learning {
    let mut law = fresh();
    law.cuts = 3;
    law.cruise(10.0, at(0.0));
    law.probing.forbid(at(0.0));
    law
}

/// Sends requests at the law's pace for `length`. `admits` returns whether the host serves a
/// request. `learned` receives the law, the time and the signal after each answer.
pub(in super::super) fn live(
    mut law: Learning,
    length: Duration,
    mut admits: impl FnMut(Timestamp) -> bool,
    mut learned: impl FnMut(&Learning, Timestamp, Signal),
) {
    let limits = Config::api().limits;
    let mut now = law.stage_began;
    let end = now + length;
    while now < end {
        let signal = if admits(now) {
            Signal::Ok
        } else {
            Signal::RateLimited
        };
        law.on_sample(&sample(now.as_secs_f64(), signal));
        learned(&law, now, signal);
        let interval = Duration::from_secs_f64(1.0 / law.setpoint(now, &limits).rate);
        let canary = law.rest_until().filter(|_| law.block.is_some());
        now = (now + Duration::from_micros(1)).max(canary.unwrap_or(now + interval));
    }
}

/// Feeds the outcome of a request that was sent at `secs` and answered at once.
pub(in super::super) fn hear(law: &mut Learning, secs: f64, signal: Signal) {
    law.on_sample(&sample(EPOCH_S + secs, signal));
}

fn rate(law: &mut Learning, secs: f64) -> f64 {
    law.setpoint(at(secs), &Config::api().limits).rate
}

#[track_caller]
pub(in super::super) fn near(found: f64, expected: f64) {
    assert!(
        (found / expected - 1.0).abs() < 1e-9,
        "{found}, not {expected}"
    );
}

#[test]
fn an_application_limited_key_learns_nothing() {
    for (pressed, grows) in [(true, true), (false, false)] {
        let mut law = fresh();
        for i in 0..8 {
            let ok = sample(EPOCH_S + f64::from(i), Signal::Ok);
            law.on_sample(&Sample { pressed, ..ok });
        }
        assert_eq!(rate(&mut law, 8.0) > 1.5, grows, "{law:?}");
    }
}

#[test]
fn a_burst_of_refusals_is_one_congestion_event() {
    let mut law = cruising();
    hear(&mut law, 10.0, Signal::RateLimited);
    let once = law.clone();
    let late = sample(EPOCH_S + 10.1, Signal::RateLimited);
    for _ in 0..9 {
        law.on_sample(&Sample {
            fresh: false,
            ..late
        });
    }
    assert_eq!(law, once);
    assert_eq!(law.metrics().cuts, 4);
}

#[test]
fn a_block_lasts_until_a_request_sent_after_the_refusal_is_served() {
    let mut law = cruising();
    hear(&mut law, 10.0, Signal::RateLimited);
    let before = Sample {
        sent: at(9.9),
        ..sample(EPOCH_S + 10.2, Signal::Ok)
    };
    law.on_sample(&before);
    assert!(law.block.is_some());
    hear(&mut law, 10.3, Signal::Ok);
    assert!(law.block.is_none());
}

#[test]
fn during_a_block_an_announced_rate_does_not_apply() {
    let mut law = cruising();
    let quota = Quota {
        limit: Some(6_000),
        window: Some(Duration::from_mins(1)),
        ..Quota::default()
    };
    let ok = Sample {
        quotas: &[quota],
        ..sample(EPOCH_S + 9.0, Signal::Ok)
    };
    law.on_sample(&ok);
    let announced = rate(&mut law, 9.0);
    assert!((99.0..100.0).contains(&announced), "{announced}");
    hear(&mut law, 10.0, Signal::RateLimited);
    assert!(rate(&mut law, 10.0) <= 9.9);
    // The refused request left at the announced pace, so that pace was too high.
    near(law.block.expect("a block").rate, announced);
}

#[test]
fn a_block_page_lowers_the_rate_and_forbids_probes_for_a_day() {
    let mut law = fresh();
    law.cruise(10.0, at(0.0));
    hear(&mut law, 1.0, Signal::Blocked);
    near(rate(&mut law, 1.0), 10.0 * 0.99 * 0.8 * 0.99);
    assert!(!law.probing.due(at(86_000.0), false));
}

/// The request served in between was sent before the block page came.
#[test]
fn two_block_pages_of_one_burst_count_once() {
    let mut law = fresh();
    law.cruise(10.0, at(0.0));
    hear(&mut law, 1.0, Signal::Blocked);
    let late = Sample {
        sent: at(0.9),
        ..sample(EPOCH_S + 1.1, Signal::Ok)
    };
    law.on_sample(&late);
    hear(&mut law, 1.2, Signal::Blocked);
    near(rate(&mut law, 2.0), 10.0 * 0.99 * 0.8 * 0.99);
    hear(&mut law, 90.0, Signal::Ok);
    hear(&mut law, 91.0, Signal::Blocked);
    assert!(rate(&mut law, 92.0) < 4.0);
}

#[test]
fn the_cap_in_flight_stays_within_the_operators_and_is_at_least_one() {
    let mut law = cruising();
    for i in 0..20_000 {
        let ok = Sample {
            latency: Duration::from_millis(200),
            beside: 99,
            ..sample(EPOCH_S + f64::from(i) / 10.0, Signal::Ok)
        };
        law.on_sample(&ok);
    }
    let mut limits = Config::api().limits;
    for in_flight in [1, 7] {
        limits.in_flight = in_flight;
        assert_eq!(law.setpoint(at(2_000.0), &limits).in_flight, in_flight);
    }
}

#[test]
fn a_recovery_doubles_the_rate_up_to_just_below_the_ceiling() {
    let mut law = cruising();
    law.recover(at(0.0));
    let mut rates = vec![rate(&mut law, 0.0)];
    for i in 1..=12 {
        hear(&mut law, f64::from(i), Signal::Ok);
        rates.push(rate(&mut law, f64::from(i)));
    }
    rates.dedup();
    assert_eq!(rates, [2.5, 5.0, 9.9]);
}

#[test]
fn a_probe_is_gentle_at_first_and_then_steep() {
    let mut law = cruising();
    law.enter(Stage::Probe, law.ceiling, at(0.0));
    law.stage_served = 1_000;
    near(rate(&mut law, 0.0), 10.0);
    assert!(rate(&mut law, 5.0) < 10.2);
    near(rate(&mut law, 20.0), 20.0);
    assert!(rate(&mut law, 40.0) > 80.0);
}

#[test]
fn the_first_block_page_lowers_the_rate_and_a_later_one_halves_it() {
    let mut law = Learning::new(Arc::default(), 8.0, Timestamp::ZERO);
    law.on_sample(&sample(1.0, Signal::Ok));
    for now_s in [2.0, 62.0, 182.0] {
        law.on_sample(&sample(now_s, Signal::Blocked));
    }
    assert!((law.ceiling - 6.4).abs() < 1e-9, "{law:?}");
    law.on_sample(&sample(500.0, Signal::Ok));
    law.on_sample(&sample(501.0, Signal::Blocked));
    assert!(law.ceiling < 3.2 + 1e-9, "{law:?}");
}

/// Before the rule, a key that became idle during a probe continued at a million times its ceiling.
#[test]
fn the_rate_of_a_probe_does_not_grow_while_no_request_is_sent() {
    let mut law = cruising();
    law.enter(Stage::Probe, law.ceiling, at(0.0));
    law.stage_served = 150;
    let driven = law.wish(at(15.0));
    assert!((14.0..14.5).contains(&driven), "{driven}");
    for idle in [60.0, 600.0, 1e6] {
        let rate = law.wish(at(15.0 + idle));
        assert!(rate < 1.1 * driven, "{rate} after {idle} s");
    }
}
