use super::super::super::tests::sample;
use super::*;
use crate::signal::Signal;

/// The even pace for 600 requests per minute, in requests per second.
const POLICY: f64 = 600.0 / 60.02 * (1.0 - MARGIN);

fn quota(window_s: Option<u64>, remaining: u64, reset_s: f64) -> Quota {
    Quota {
        limit: Some(600),
        window: window_s.map(Duration::from_secs),
        remaining: Some(remaining),
        reset: Some(Duration::from_secs_f64(reset_s)),
        ..Quota::default()
    }
}

/// Feeds an answer at `now_s` to a request that was sent with `beside` others in flight.
fn hear(announced: &mut Announced, now_s: f64, quotas: &[Quota], beside: u16) {
    announced.hear(&Sample {
        beside,
        quotas,
        ..sample(now_s, Signal::Ok)
    });
}

/// Returns the state of a key that spends long windows evenly too.
fn even() -> Announced {
    Announced {
        spending: Spending::EvenlyForGood,
        ..Announced::default()
    }
}

fn heard(quotas: &[Quota]) -> Announced {
    let mut announced = even();
    for quota in quotas {
        hear(&mut announced, 1.0, &[*quota], 0);
    }
    announced
}

#[track_caller]
fn near(announced: &Announced, rate: f64) {
    let found = announced.rate().expect("a rate");
    assert!((found - rate).abs() < 1e-9, "{found}, not {rate}");
    assert!(announced.plausible());
}

#[test]
fn a_short_window_is_spent_evenly() {
    near(&heard(&[quota(Some(60), 400, 40.0)]), 10.0);
    near(&heard(&[quota(Some(60), 390, 40.0)]), POLICY);
}

#[test]
fn without_a_quota_or_a_window_no_rate_is_announced() {
    let mut announced = Announced::default();
    hear(&mut announced, 1.0, &[], 0);
    assert_eq!(announced.rate(), None);
    let no_window = Quota {
        window: None,
        reset: None,
        ..quota(None, 5, 0.0)
    };
    assert_eq!(heard(&[no_window]).rate(), None);
}

#[test]
fn unused_requests_raise_the_pace_up_to_twice_the_policy() {
    near(&heard(&[quota(Some(60), 300, 20.0)]), 15.0);
    near(&heard(&[quota(Some(60), 600, 5.0)]), 2.0 * POLICY);
}

#[test]
fn a_nearly_spent_quota_lowers_the_pace() {
    near(&heard(&[quota(Some(60), 15, 50.0)]), POLICY / 2.0);
}

#[test]
fn the_pace_of_a_spent_window_falls_to_a_share_of_the_policy() {
    near(&heard(&[quota(Some(60), 0, 50.0)]), POLICY * SLOWEST);
}

/// A reset in 3 s may come after 2 s, and the policy's rate spends the 25 requests in 2.5 s.
#[test]
fn a_reset_that_is_rounded_up_does_not_lower_the_pace() {
    near(&heard(&[quota(Some(60), 25, 3.0)]), POLICY);
}

#[test]
fn requests_in_flight_reduce_the_number_left() {
    let mut announced = even();
    hear(&mut announced, 1.0, &[quota(Some(60), 30, 50.0)], 15);
    near(&announced, POLICY / 2.0);
}

#[test]
fn a_reset_within_two_seconds_does_not_change_the_pace() {
    near(&heard(&[quota(Some(60), 1, 1.0)]), POLICY);
}

#[test]
fn an_unknown_window_is_the_longest_time_until_a_reset() {
    let announced = heard(&[quota(None, 500, 45.0), quota(None, 90, 9.0)]);
    assert_eq!(
        announced.rests[0]
            .longest
            .max(announced.rests[1].longest)
            .as_secs(),
        45
    );
    near(&announced, 600.0 / 45.02 * (1.0 - MARGIN));
}

#[test]
fn a_measured_window_is_rounded_down_to_a_round_length() {
    near(
        &heard(&[quota(None, 600, 60.7), quota(None, 390, 40.0)]),
        POLICY,
    );
}

/// Before the rule, five requests per second left a margin of 3 ms. A request that arrived 4 ms
/// early was refused, and the announcement was ignored from then on.
#[test]
fn the_pace_leaves_room_for_requests_that_arrive_early() {
    let five = Quota {
        limit: Some(5),
        window: Some(SECOND),
        remaining: Some(4),
        reset: Some(SECOND),
        ..Quota::default()
    };
    let announced = heard(&[five]);
    let five = 5.0 / announced.rate().expect("a rate");
    assert!((1.015..1.03).contains(&five), "{five}");
}

#[test]
fn after_two_contradicting_refusals_the_announcement_is_ignored() {
    let mut announced = heard(&[quota(Some(60), 390, 40.0)]);
    announced.refused(&[quota(Some(60), 390, 40.0)], 3);
    near(&announced, POLICY);
    announced.refused(&[], 3);
    assert_eq!(announced.rate(), None);
    hear(&mut announced, 2.0, &[quota(Some(60), 390, 40.0)], 0);
    assert_eq!(announced.rate(), None);
}

#[test]
fn a_refusal_with_nothing_left_does_not_contradict_the_announcement() {
    let mut announced = heard(&[quota(Some(60), 390, 40.0)]);
    (0..9).for_each(|_| announced.refused(&[quota(Some(60), 3, 40.0)], 3));
    near(&announced, POLICY);
}

#[test]
fn a_window_counts_as_at_most_a_day() {
    let mut for_ever = quota(None, 0, 0.0);
    for_ever.reset = Some(Duration::MAX);
    let rate = heard(&[for_ever]).rate().expect("a rate");
    assert!(rate >= 600.0 / 86_400.0 * SLOWEST * 0.99, "{rate}");
}

fn hourly(remaining: u64, reset_s: u64) -> Quota {
    Quota {
        limit: Some(60),
        remaining: Some(remaining),
        reset: Some(Duration::from_secs(reset_s)),
        ..Quota::default()
    }
}

/// In lychee#2027, eight pages waited for a minute each.
#[test]
fn a_long_window_is_spent_fast_and_its_reserve_is_spread() {
    let mut announced = Announced::default();
    let mut now_s = 1.0;
    for left in (4..60).rev() {
        hear(
            &mut announced,
            now_s,
            &[hourly(left, 3_600 - now_s as u64)],
            0,
        );
        let rate = announced.rate().expect("a rate");
        assert!((0.9..=4.0).contains(&rate), "{rate} with {left} left");
        now_s += 1.0 / rate;
    }
    hear(&mut announced, now_s, &[hourly(1, 3_540)], 0);
    let rate = announced.rate().expect("a rate");
    assert!((rate * 3_540.0 - 1.0).abs() < 0.01, "{rate}");
    hear(&mut announced, now_s, &[hourly(0, 3_500)], 0);
    assert!(announced.rate().expect("a rate") < 1.001 / 3_500.0);
    assert!(announced.stops_at(&hourly(0, 3_500), 0));
    assert!(
        announced.stops_at(&hourly(2, 3_500), 2),
        "the server has not counted the requests in flight yet"
    );
    assert!(!announced.stops_at(&hourly(1, 3_500), 0));
    assert!(announced.plausible());
}

#[test]
fn requests_in_flight_and_a_long_round_trip_lower_the_pace_near_the_end() {
    let mut announced = Announced::default();
    hear(&mut announced, 1.0, &[hourly(20, 3_600)], 16);
    assert!(announced.rate().expect("a rate") <= 1.0);
    let slow = Sample {
        quotas: &[hourly(20, 3_600)],
        latency: Duration::from_secs(30),
        ..sample(2.0, Signal::Ok)
    };
    announced.hear(&slow);
    assert!(announced.rate().expect("a rate") < 0.4);
}

#[test]
fn a_contradicting_refusal_ends_the_fast_pace_and_two_more_the_announcement() {
    let mut announced = Announced::default();
    hear(&mut announced, 1.0, &[quota(Some(120), 500, 100.0)], 0);
    assert!(announced.rate().expect("a rate") > 3.9 * POLICY / 2.0);
    announced.refused(&[quota(Some(120), 500, 100.0)], 3);
    hear(&mut announced, 2.0, &[quota(Some(120), 390, 80.0)], 0);
    near(&announced, 600.0 / 120.02 * (1.0 - MARGIN));
    announced.refused(&[], 0);
    announced.refused(&[], 0);
    assert_eq!(announced.rate(), None);
    assert!(!announced.stops_at(&quota(Some(120), 0, 80.0), 0));
}

#[test]
fn the_slowest_quota_of_requests_sets_the_pace_and_other_units_do_not() {
    let secondly = Quota {
        limit: Some(10),
        window: Some(SECOND),
        remaining: Some(9),
        ..Quota::default()
    };
    let tokens = Quota {
        unit: Unit::Tokens,
        remaining: Some(1),
        ..hourly(1, 3_600)
    };
    let mut announced = Announced::default();
    hear(
        &mut announced,
        1.0,
        &[tokens, quota(Some(60), 590, 59.0), secondly],
        0,
    );
    let rate = announced.rate().expect("a rate");
    assert!((9.7..10.0).contains(&rate), "{rate}");
}

#[test]
fn a_sliding_window_is_spent_evenly_and_does_not_stop_the_key() {
    let mut announced = Announced::default();
    hear(&mut announced, 1.0, &[quota(Some(60), 20, 60.0)], 0);
    hear(&mut announced, 2.0, &[quota(Some(60), 19, 60.0)], 0);
    assert!(!announced.slides, "one request fewer is left");
    // The request was sent before the last answer came, so it may have been counted before.
    announced.hear(&Sample {
        sent: Timestamp::from_secs_f64(1.5),
        quotas: &[quota(Some(60), 20, 60.0)],
        ..sample(3.0, Signal::Ok)
    });
    assert!(!announced.slides);
    assert!(announced.stops_at(&quota(Some(60), 0, 60.0), 0));
    hear(&mut announced, 4.0, &[quota(Some(60), 20, 60.0)], 0);
    assert!(announced.slides, "one was spent and one became free");
    assert!(!announced.stops_at(&quota(Some(60), 0, 60.0), 0));
    hear(&mut announced, 5.0, &[quota(Some(60), 590, 60.0)], 0);
    near(&announced, POLICY);
}

#[test]
fn a_reset_within_one_interval_does_not_stop_the_key() {
    let announced = Announced::default();
    let fixed = |limit, reset_s| Quota {
        limit: Some(limit),
        window: Some(Duration::from_secs(6)),
        remaining: Some(0),
        reset: Some(Duration::from_secs(reset_s)),
        ..Quota::default()
    };
    assert!(announced.stops_at(&fixed(3, 3), 0));
    assert!(!announced.stops_at(&fixed(3, 2), 0));
    assert!(announced.stops_at(&fixed(60, 2), 0));
    assert!(!announced.stops_at(&fixed(60, 1), 0));
}

/// Before the rule, the key used four fifths of such a bucket: each answer announced that nothing
/// was left for one second.
#[test]
fn a_bucket_of_one_request_does_not_stop_the_key() {
    let bucket = Quota {
        limit: Some(20),
        window: Some(Duration::from_secs(20)),
        remaining: Some(0),
        reset: Some(SECOND),
        ..Quota::default()
    };
    let mut announced = Announced::default();
    hear(&mut announced, 1.0, &[bucket], 0);
    hear(&mut announced, 2.1, &[bucket], 0);
    assert!(!announced.stops_at(&bucket, 0));
    near(&announced, 20.0 / 20.02 * (1.0 - MARGIN));
}
