//! The models against sequences worked out by hand, and against their definitions.

use proptest::prelude::*;

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

/// Verdicts at times in ms: `Ok(delay in ms)` or `Err(retry-after in microseconds)`.
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
    // floor(0.333333 x 604800 s) + 1, less what rounding each wait up to a microsecond loses (< 0.1 s).
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

/// Cloudflare's own example: 42 in the former minute, 18 in the current one, 15 s into it: 42 x 0.75 + 18 = 49.5
/// is below a limit of 50.
#[test]
fn sliding_counter_does_cloudflares_example() {
    let mut limit = build(r#"{"kind":"sliding_counter","count":50,"window_s":60}"#);
    assert!(run(&mut limit, &[30_000; 42]).iter().all(Result::is_ok));
    assert!(run(&mut limit, &[75_000; 18]).iter().all(Result::is_ok));
    let got = run(&mut limit, &[75_000, 75_000]);
    // The next one needs 42 x left + 19 < 50: less than 44.285714... s left, 285715 microseconds past 75 + 0.4286 s.
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

/// nginx's documentation of `burst` and `delay`, worked through its source's arithmetic.
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
    // Three run and two wait; the step leaves two slots, so the first departure starts nobody.
    assert!(!limit.arrive(ms(5000)).accepted());
    assert_eq!([limit.depart(ms(5000)), limit.depart(ms(5001))], [0, 1]);
    assert!(!limit.arrive(ms(6000)).accepted());
    // Without slots, whoever still waits goes on with the next departure.
    assert_eq!(limit.depart(ms(9000)), 1);
    assert_eq!(limit.depart(ms(9001)), 0);
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

fn any_rate_limit() -> impl Strategy<Value = LimitSpec> {
    let window = || (1_u32..5_000).prop_map(|ms| f64::from(ms) / 1000.0);
    let rate = || (1_u32..1_000_000).prop_map(|milli| f64::from(milli) / 1000.0);
    let simple = prop_oneof![
        (rate(), 1_u32..20).prop_map(|(rate, burst)| LimitSpec::TokenBucket { rate, burst }),
        (1_u32..20, window(), any::<bool>()).prop_map(|(count, window_s, aligned)| {
            LimitSpec::FixedWindow {
                count,
                window_s,
                aligned,
            }
        }),
        (1_u32..20, window())
            .prop_map(|(count, window_s)| LimitSpec::SlidingLog { count, window_s }),
        (1_u32..20, window())
            .prop_map(|(count, window_s)| LimitSpec::SlidingCounter { count, window_s }),
        (rate(), 0_u32..20, any::<bool>()).prop_map(|(rate, queue, nodelay)| LimitSpec::Leaky {
            rate,
            queue,
            nodelay
        }),
    ];
    let several = prop::collection::vec(simple.clone(), 1..4).prop_map(|of| LimitSpec::All { of });
    let steps =
        (simple.clone(), window(), simple.clone()).prop_map(|(first, at, then)| LimitSpec::Steps {
            at: vec![(0.0, first), (at, then)],
        });
    prop_oneof![4 => simple, 1 => several, 1 => steps]
}

/// Arrival times with gaps from none to seconds.
fn arrivals() -> impl Strategy<Value = Vec<Timestamp>> {
    let gap =
        prop_oneof![3 => Just(0), 3 => 0_u64..1_000, 3 => 0_u64..300_000, 1 => 0_u64..9_000_000];
    prop::collection::vec(gap, 1..300).prop_map(|gaps| {
        let mut at = 0;
        gaps.into_iter()
            .map(|gap| {
                at += gap;
                us(at)
            })
            .collect()
    })
}

fn accepted_of(limit: &mut Limit, arrivals: &[Timestamp]) -> Vec<Timestamp> {
    arrivals
        .iter()
        .copied()
        .filter(|&at| limit.arrive(at).accepted())
        .collect()
}

proptest! {
    #[test]
    fn a_refused_request_is_accepted_exactly_at_its_time(spec in any_rate_limit(), arrivals in arrivals()) {
        let mut limit = spec.build().unwrap();
        for at in arrivals {
            if let Verdict::Refuse { retry_after } = limit.arrive(at) {
                let wait = retry_after.expect("these limits always know");
                prop_assert!(wait > Duration::ZERO);
                let before = limit.clone().arrive(at + wait - Duration::from_micros(1));
                prop_assert!(!before.accepted(), "{spec:?} accepts before {wait:?}");
                prop_assert!(limit.clone().arrive(at + wait).accepted(), "{spec:?} refuses after {wait:?}");
            }
        }
    }

    #[test]
    fn token_buckets_never_accept_more_than_burst_and_rate_allow(
        milli in 1_u32..100_000, burst in 1_u32..20, arrivals in arrivals(),
    ) {
        let rate = f64::from(milli) / 1000.0;
        let accepted = accepted_of(&mut LimitSpec::TokenBucket { rate, burst }.build().unwrap(), &arrivals);
        for (first, from) in accepted.iter().enumerate() {
            for (more, to) in accepted[first..].iter().enumerate() {
                let allowed = f64::from(burst) + rate * to.since(*from).as_secs_f64();
                prop_assert!(more as f64 + 1.0 <= allowed + 1e-9);
            }
        }
    }

    #[test]
    fn sliding_logs_are_exact(count in 1_u32..10, window_ms in 1_u64..3_000, arrivals in arrivals()) {
        let spec = LimitSpec::SlidingLog { count, window_s: window_ms as f64 / 1000.0 };
        let mut limit = spec.build().unwrap();
        let mut accepted: Vec<Timestamp> = Vec::new();
        for at in arrivals {
            let inside = accepted.iter().filter(|&&then| at.micros_since(then) < window_ms * 1000).count();
            let verdict = limit.arrive(at);
            prop_assert_eq!(verdict.accepted(), inside < count as usize);
            if verdict.accepted() {
                accepted.push(at);
            }
        }
    }

    /// The source's lines once more, in its own types and order.
    #[test]
    fn leaky_is_nginx(milli in 1_i64..100_000, queue in 0_i64..20, nodelay: bool, arrivals in arrivals()) {
        let spec = LimitSpec::Leaky { rate: milli as f64 / 1000.0, queue: queue as u32, nodelay };
        let mut limit = spec.build().unwrap();
        let (mut lr, burst) = (None, queue * 1000);
        for at in arrivals {
            let now = (at.as_micros() / 1000) as i64;
            let excess = lr.map_or(0, |(excess, last): (i64, i64)| {
                (excess - milli * (now - last) / 1000 + 1000).max(0)
            });
            match limit.arrive(at) {
                Verdict::Serve { after } => {
                    prop_assert!(excess <= burst);
                    let delay = if nodelay { 0 } else { excess * 1000 / milli };
                    prop_assert_eq!(after.as_millis(), delay as u128);
                    lr = Some((excess, now));
                }
                _ => prop_assert!(excess > burst),
            }
        }
    }

    #[test]
    fn nobody_gets_more_pages_in_less_than_the_best_time(spec in any_rate_limit(), arrivals in arrivals()) {
        let fresh = spec.build().unwrap();
        let mut limit = fresh.clone();
        let mut served = None;
        let mut pages = 0;
        for &at in &arrivals {
            if let Verdict::Serve { after } = limit.arrive(at) {
                served = served.max(Some(at + after));
                pages += 1;
            }
        }
        let took = served.unwrap().since(arrivals[0]);
        prop_assert!(best_time(&fresh, arrivals[0], pages, Duration::ZERO) <= took, "{spec:?}");
    }

    #[test]
    fn what_is_announced_as_remaining_is_accepted_and_no_more(spec in any_rate_limit(), arrivals in arrivals()) {
        let mut limit = spec.build().unwrap();
        for at in arrivals {
            let remaining = limit.quota(at).unwrap().remaining;
            prop_assert_eq!(remaining > 0, limit.check(at).accepted());
            let mut probe = limit.clone();
            for _ in 0..remaining.min(50) {
                prop_assert!(probe.arrive(at).accepted(), "{:?} announced {}", &spec, remaining);
            }
            if remaining < 50 {
                prop_assert!(!probe.arrive(at).accepted(), "{:?} announced only {}", &spec, remaining);
            }
            let _ = limit.arrive(at);
        }
    }

    #[test]
    fn slots_are_never_exceeded_and_nobody_is_lost(
        slots in 1_u32..5, queue in 0_u32..5, events in prop::collection::vec(0_u8..4, 1..200),
    ) {
        let spec = if queue == 0 {
            LimitSpec::ConcurrencyReject { slots }
        } else {
            LimitSpec::ConcurrencyQueue { slots, queue }
        };
        let mut limit = spec.build().unwrap();
        let (mut running, mut queued) = (0, 0);
        for event in events {
            match event {
                0 | 1 => match limit.arrive(Timestamp::ZERO) {
                    Verdict::Serve { .. } => running += 1,
                    Verdict::Queue { .. } => queued += 1,
                    Verdict::Refuse { .. } => prop_assert!(running == slots && queued == queue),
                },
                2 if running > 0 => {
                    let starts = limit.depart(Timestamp::ZERO);
                    running = running - 1 + starts;
                    queued -= starts;
                }
                3 if queued > 0 => {
                    limit.abandon();
                    queued -= 1;
                }
                _ => {}
            }
            prop_assert!(running <= slots && queued <= queue);
            prop_assert!(queued == 0 || running == slots, "somebody waits beside a free slot");
        }
    }
}
