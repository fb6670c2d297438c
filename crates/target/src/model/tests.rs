//! The models against sequences computed by hand.

use super::*;

fn us(at: u64) -> Timestamp {
    Timestamp::from_micros(at)
}

fn ms(at: u64) -> Timestamp {
    us(at * 1000)
}

fn build(json: &str) -> Limit {
    serde_json::from_str::<LimitSpec>(json)
        .unwrap()
        .build()
        .unwrap()
}

/// Returns the verdicts at times in ms: `Ok(delay in ms)` or `Err(retry-after in microseconds)`.
fn run(limit: &mut Limit, at: &[u64]) -> Vec<Result<u128, Option<u128>>> {
    let verdict = |&at| match limit.arrive(ms(at)) {
        Verdict::Serve { after } => Ok(after.as_millis()),
        Verdict::Queue { .. } => panic!("queued"),
        Verdict::Refuse { retry_after } => Err(retry_after.map(|wait| wait.as_micros())),
    };
    at.iter().map(verdict).collect()
}

const fn wait(us: u128) -> Result<u128, Option<u128>> {
    Err(Some(us))
}

#[test]
fn token_bucket_by_hand() {
    let mut limit = build(r#"{"kind":"token_bucket","rate":2,"burst":3}"#);
    let got = run(
        &mut limit,
        &[0, 0, 0, 0, 499, 500, 500, 2000, 2000, 2000, 2000, 60_000],
    );
    let want = [
        Ok(0),
        Ok(0),
        Ok(0),
        wait(500_000),
        wait(1000),
        Ok(0),
        wait(500_000),
        Ok(0),
        Ok(0),
        Ok(0),
        wait(500_000),
        Ok(0),
    ];
    assert_eq!(got, want);
}

#[test]
fn a_rate_of_six_decimals_gathers_no_error_over_a_week() {
    let mut limit = build(r#"{"kind":"token_bucket","rate":0.333333,"burst":1}"#);
    let mut now = Timestamp::ZERO;
    let mut accepted = 0_u64;
    while now < ms(7 * 86_400_000) {
        match limit.arrive(now) {
            Verdict::Refuse { retry_after } => now = now + retry_after.unwrap(),
            _ => accepted += 1,
        }
    }
    // floor(0.333333 x 604800 s) + 1, minus the loss from rounding each wait up to a microsecond (<
    // 0.1 s).
    assert_eq!(accepted, 201_600);
}

#[test]
fn aligned_window_by_hand() {
    let mut limit = build(r#"{"kind":"fixed_window","count":2,"window_s":10,"aligned":true}"#);
    let got = run(
        &mut limit,
        &[9_000, 9_500, 9_999, 10_000, 10_001, 10_002, 35_000],
    );
    assert_eq!(
        got,
        [
            Ok(0),
            Ok(0),
            wait(1000),
            Ok(0),
            Ok(0),
            wait(9_998_000),
            Ok(0)
        ]
    );
}

#[test]
fn first_hit_window_by_hand() {
    let mut limit = build(r#"{"kind":"fixed_window","count":2,"window_s":10,"aligned":false}"#);
    let got = run(
        &mut limit,
        &[9_000, 9_500, 9_999, 18_999, 19_000, 25_000, 28_000, 29_000],
    );
    assert_eq!(
        got,
        [
            Ok(0),
            Ok(0),
            wait(9_001_000),
            wait(1000),
            Ok(0),
            Ok(0),
            wait(1_000_000),
            Ok(0)
        ]
    );
}

#[test]
fn first_hit_windows_begin_at_zero_too() {
    let mut limit = build(r#"{"kind":"fixed_window","count":1,"window_s":1,"aligned":false}"#);
    assert_eq!(run(&mut limit, &[0, 999, 1000]), [Ok(0), wait(1000), Ok(0)]);
}

#[test]
fn sliding_log_by_hand() {
    let mut limit = build(r#"{"kind":"sliding_log","count":2,"window_s":10}"#);
    let got = run(&mut limit, &[0, 4_000, 9_999, 10_000, 13_999, 14_000]);
    assert_eq!(got, [Ok(0), Ok(0), wait(1000), Ok(0), wait(1000), Ok(0)]);
}

/// Cloudflare's own example. The former minute has 42 requests, the current one 18, and 15 s have
/// passed. 42 x 0.75 + 18 = 49.5 is below a limit of 50.
#[test]
fn sliding_counter_does_cloudflares_example() {
    let mut limit = build(r#"{"kind":"sliding_counter","count":50,"window_s":60}"#);
    assert!(run(&mut limit, &[30_000; 42]).iter().all(Result::is_ok));
    assert!(run(&mut limit, &[75_000; 18]).iter().all(Result::is_ok));
    let got = run(&mut limit, &[75_000, 75_000]);
    // The next request needs 42 x left + 19 < 50. That is less than 44.285714... s left, 285715
    // microseconds past 75 + 0.4286 s.
    assert_eq!(got, [Ok(0), wait(714_286)]);
}

#[test]
fn sliding_counter_forgets_a_window_that_is_not_the_last() {
    let mut limit = build(r#"{"kind":"sliding_counter","count":1,"window_s":1}"#);
    // One microsecond into the next window, less than the whole of the full one is in view.
    let got = run(&mut limit, &[0, 0, 1_000, 3_000, 3_000]);
    assert_eq!(
        got,
        [Ok(0), wait(1_000_001), wait(1), Ok(0), wait(1_000_001)]
    );
}

#[test]
fn sliding_counters_are_cut_by_a_clock_of_their_own() {
    let mut limit = build(r#"{"kind":"sliding_counter","count":2,"window_s":10}"#);
    limit.shift(Duration::from_secs(34));
    // Full at 0 s, where the clock reads 4. There is no room until its window ends at 6 s; half of
    // it is free at 11 s.
    let got = run(&mut limit, &[0, 0, 5_999, 6_001, 11_001]);
    assert_eq!(got, [Ok(0), Ok(0), wait(1_001), Ok(0), Ok(0)]);
}

/// nginx's documentation of `burst` and `delay`, computed with its source's arithmetic.
#[test]
fn leaky_by_hand() {
    let mut limit = build(r#"{"kind":"leaky","rate":10,"queue":2}"#);
    let got = run(&mut limit, &[0, 0, 0, 0, 99, 100, 150, 500, 500]);
    let want = [
        Ok(0),   // excess 0
        Ok(100), // excess 1
        Ok(200), // excess 2
        wait(100_000),
        wait(1000),   // 2 + 1 - 0.99 = 2.01
        Ok(200),      // 2 + 1 - 1
        wait(50_000), // 2 + 1 - 0.5
        Ok(0),        // 2 + 1 - 4
        Ok(100),
    ];
    assert_eq!(got, want);
}

#[test]
fn leaky_nodelay_serves_its_burst_at_once() {
    let mut limit = build(r#"{"kind":"leaky","rate":0.5,"queue":1,"nodelay":true}"#);
    let got = run(&mut limit, &[5, 5, 5, 2004, 2005]);
    assert_eq!(got, [Ok(0), Ok(0), wait(2_000_000), wait(1000), Ok(0)]);
}

/// Recorded once from the real server, with its access log's `$msec` and `$status`.
#[test]
fn leaky_decides_as_a_recorded_nginx_did() {
    let recorded = include_str!("../../tests/vectors/nginx-limit-req.txt");
    let mut limit = build(r#"{"kind":"leaky","rate":10,"queue":5,"nodelay":true}"#);
    let (mut accepted, mut refused) = (0, 0);
    for line in recorded.lines().filter(|line| !line.starts_with('#')) {
        let (at, status) = line.split_once(' ').unwrap();
        let verdict = limit.arrive(ms(at.parse().unwrap()));
        assert_eq!(verdict.accepted(), status == "200", "{line}");
        *(if verdict.accepted() {
            &mut accepted
        } else {
            &mut refused
        }) += 1;
    }
    assert_eq!((accepted, refused), (348, 73));
}

#[test]
fn a_full_house_refuses_without_a_time_and_a_departure_makes_room() {
    let mut limit = build(r#"{"kind":"concurrency_reject","slots":2}"#);
    assert_eq!(run(&mut limit, &[0, 0, 0]), [Ok(0), Ok(0), Err(None)]);
    assert_eq!(limit.depart(ms(1)), 0);
    assert_eq!(run(&mut limit, &[1, 1]), [Ok(0), Err(None)]);
}

#[test]
fn a_queue_is_served_in_order_and_forgets_who_left() {
    let mut limit = build(r#"{"kind":"concurrency_queue","slots":1,"queue":2}"#);
    let queued = Verdict::Queue {
        after: Duration::ZERO,
    };
    assert_eq!(limit.arrive(ms(0)), Verdict::NOW);
    assert_eq!([limit.arrive(ms(0)), limit.arrive(ms(0))], [queued; 2]);
    assert_eq!(limit.arrive(ms(0)), Verdict::Refuse { retry_after: None });
    limit.abandon();
    assert_eq!(limit.depart(ms(1)), 1, "the other one starts");
    assert_eq!(limit.depart(ms(2)), 0, "nobody is left");
    assert_eq!(limit.arrive(ms(2)), Verdict::NOW);
}

#[test]
fn of_several_limits_a_refusal_by_one_charges_none() {
    let mut limit = build(
        r#"{"kind":"all","of":[{"kind":"sliding_log","count":2,"window_s":1},{"kind":"fixed_window","count":3,"window_s":10,"aligned":true}]}"#,
    );
    let got = run(&mut limit, &[0, 0, 0, 0, 1000, 1000, 10_000]);
    assert_eq!(
        got,
        [
            Ok(0),
            Ok(0),
            wait(1_000_000),
            wait(1_000_000),
            Ok(0),
            wait(9_000_000),
            Ok(0)
        ]
    );
}

#[test]
fn a_slot_of_several_is_held_while_its_request_queues() {
    let mut limit = build(
        r#"{"kind":"all","of":[{"kind":"concurrency_queue","slots":1,"queue":5},{"kind":"concurrency_reject","slots":3}]}"#,
    );
    assert!(
        limit.arrive(ms(0)).accepted()
            && limit.arrive(ms(0)).accepted()
            && limit.arrive(ms(0)).accepted()
    );
    assert!(!limit.arrive(ms(0)).accepted(), "three are inside");
    limit.abandon();
    assert!(limit.arrive(ms(0)).accepted());
    assert_eq!(
        [
            limit.depart(ms(1)),
            limit.depart(ms(1)),
            limit.depart(ms(1))
        ],
        [1, 1, 0]
    );
}

#[test]
fn steps_start_fresh_on_time_and_shorten_a_wait() {
    let mut limit = build(
        r#"{"kind":"steps","at":[[0,{"kind":"token_bucket","rate":0.1,"burst":1}],[5,{"kind":"token_bucket","rate":1,"burst":2}]]}"#,
    );
    let got = run(&mut limit, &[0, 1000, 5000, 5000, 5000]);
    assert_eq!(got, [Ok(0), wait(4_000_000), Ok(0), Ok(0), wait(1_000_000)]);
}

#[test]
fn steps_keep_who_is_inside() {
    let mut limit = build(
        r#"{"kind":"steps","at":[[0,{"kind":"concurrency_queue","slots":3,"queue":3}],[5,{"kind":"concurrency_reject","slots":2}],[9,{"kind":"none"}]]}"#,
    );
    for _ in 0..5 {
        assert!(limit.arrive(ms(0)).accepted());
    }
    // Three run and two wait. The step leaves two slots, so the first departure starts no request.
    assert!(!limit.arrive(ms(5000)).accepted());
    assert_eq!([limit.depart(ms(5000)), limit.depart(ms(5001))], [0, 1]);
    assert!(!limit.arrive(ms(6000)).accepted());
    // Without slots, all waiting requests start with the next departure.
    assert_eq!(limit.depart(ms(9000)), 1);
    assert_eq!(limit.depart(ms(9001)), 0);
}

#[test]
fn nobody_overtakes_the_queue_into_slots_that_a_step_adds() {
    let mut limit = build(
        r#"{"kind":"steps","at":[[0,{"kind":"concurrency_queue","slots":1,"queue":3}],[5,{"kind":"concurrency_queue","slots":3,"queue":3}]]}"#,
    );
    assert!(limit.arrive(ms(0)).accepted() && limit.arrive(ms(0)).accepted());
    let behind = Verdict::Queue {
        after: Duration::ZERO,
    };
    assert_eq!(limit.arrive(ms(5000)), behind);
    assert_eq!(limit.depart(ms(5001)), 2, "both start");
    assert_eq!(limit.arrive(ms(5002)), Verdict::NOW);
}

#[test]
fn best_times_by_hand() {
    let best = |json: &str, pages, latency_ms| {
        best_time(
            &build(json),
            Timestamp::ZERO,
            pages,
            Duration::from_millis(latency_ms),
        )
        .as_micros()
    };
    assert_eq!(best(r#"{"kind":"none"}"#, 150, 20), 20_000);
    assert_eq!(
        best(r#"{"kind":"token_bucket","rate":2,"burst":1}"#, 150, 20),
        74_520_000
    );
    assert_eq!(
        best(
            r#"{"kind":"fixed_window","count":20,"window_s":10,"aligned":true}"#,
            150,
            0
        ),
        70_000_000
    );
    assert_eq!(
        best(
            r#"{"kind":"fixed_window","count":20,"window_s":10,"aligned":false}"#,
            160,
            0
        ),
        70_000_000
    );
    assert_eq!(
        best(r#"{"kind":"sliding_log","count":20,"window_s":10}"#, 161, 0),
        80_000_000
    );
    assert_eq!(
        best(
            r#"{"kind":"sliding_counter","count":10,"window_s":10}"#,
            11,
            0
        ),
        10_000_001
    );
    assert_eq!(
        best(r#"{"kind":"leaky","rate":10,"queue":5}"#, 151, 0),
        15_000_000
    );
    assert_eq!(
        best(
            r#"{"kind":"leaky","rate":10,"queue":5,"nodelay":true}"#,
            151,
            0
        ),
        14_500_000
    );
    assert_eq!(
        best(r#"{"kind":"concurrency_reject","slots":4}"#, 150, 100),
        3_800_000
    );
    assert_eq!(
        best(
            r#"{"kind":"concurrency_queue","slots":4,"queue":9}"#,
            150,
            100
        ),
        3_800_000
    );
    assert_eq!(
        best(r#"{"kind":"concurrency_reject","slots":4}"#, 0, 100),
        0
    );
}

#[test]
fn the_best_time_knows_where_in_its_window_a_run_begins() {
    let limit = build(r#"{"kind":"fixed_window","count":20,"window_s":10,"aligned":true}"#);
    assert_eq!(
        best_time(&limit, ms(9_999), 40, Duration::ZERO),
        Duration::from_millis(1)
    );
}
