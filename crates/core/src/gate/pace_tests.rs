//! Tests of `pace.rs`.

use proptest::prelude::*;

use super::*;

fn at(secs: f64) -> Timestamp {
    Timestamp::from_secs_f64(secs)
}

const NOW: Duration = Duration::ZERO;
const FAR: Duration = Duration::from_secs(1_000_000);

#[test]
fn without_its_slack_a_rested_bucket_holds_its_burst() {
    let rate = Rate::per_second(200.0);
    let mut pace = Pace::full(Timestamp::ZERO, &rate);
    pace.settle(Timestamp::from_micros(9_000_000), &rate);
    pace.forget_slack(&rate);
    assert!(pace.tokens <= 1.0);
}

#[test]
fn a_burst_then_the_rate() {
    let rate = Rate {
        per_s: 2.0,
        burst: 3.0,
        refill: Refill::Continuous,
    };
    let mut pace = Pace::full(at(0.0), &rate);
    let starts: Vec<f64> = (0..6)
        .map(|_| {
            pace.reserve(at(0.0), &rate, 1.0, FAR)
                .unwrap()
                .as_secs_f64()
        })
        .collect();
    assert_eq!(starts, [0.0, 0.0, 0.0, 0.5, 1.0, 1.5]);
}

#[test]
fn without_a_horizon_the_answer_says_when_and_takes_nothing() {
    let rate = Rate::per_second(0.4);
    let mut pace = Pace::full(at(0.0), &rate);
    assert_eq!(pace.reserve(at(0.0), &rate, 1.0, NOW), Ok(at(0.0)));
    for _ in 0..3 {
        assert_eq!(pace.reserve(at(0.0), &rate, 1.0, NOW), Err(at(2.5)));
    }
    assert_eq!(pace.reserve(at(2.5), &rate, 1.0, NOW), Ok(at(2.5)));
}

#[test]
fn intervals_refill_at_once() {
    let rate = Rate {
        per_s: 2.0,
        burst: 4.0,
        refill: Refill::Interval(Duration::from_secs(2)),
    };
    let mut pace = Pace::full(at(0.0), &rate);
    let starts: Vec<f64> = (0..9)
        .map(|_| {
            pace.reserve(at(0.5), &rate, 1.0, FAR)
                .unwrap()
                .as_secs_f64()
        })
        .collect();
    assert_eq!(starts, [0.5, 0.5, 0.5, 0.5, 2.0, 2.0, 2.0, 2.0, 4.0]);
}

/// Regression: at intervals that refill the whole burst, halving the rate halved the debt.
#[test]
fn a_debt_by_intervals_is_as_long_as_it_was() {
    let rate = |per_s| Rate {
        per_s,
        burst: 2.0,
        refill: Refill::Interval(Duration::from_secs(1)),
    };
    let mut pace = Pace::full(at(0.0), &rate(8.0));
    (0..12).for_each(|_| _ = pace.reserve(at(0.0), &rate(8.0), 1.0, FAR));
    let next = pace.next_start(at(0.0), &rate(8.0), 1.0);
    pace.change(at(0.0), &rate(8.0), &rate(4.0));
    assert_eq!(pace.next_start(at(0.0), &rate(4.0), 1.0), next);
    pace.change(at(0.0), &rate(4.0), &rate(1.0));
    assert!(pace.next_start(at(0.0), &rate(1.0), 1.0) >= next);
}

#[test]
fn joined_buckets_fill_no_sooner_than_either() {
    let rate = Rate {
        per_s: 1.0,
        burst: 4.0,
        refill: Refill::Interval(Duration::from_secs(4)),
    };
    let [mut early, mut late] = [0.0, 3.0].map(|secs| Pace::full(at(secs), &rate));
    (0..4).for_each(|_| early.follow(at(3.0)));
    late.follow(at(3.5));
    let mut joined = early;
    joined.join(&late);
    late.join(&early);
    assert_eq!(joined, late, "in either order");
    assert_eq!(joined.next_start(at(3.5), &rate, 1.0), at(7.0));
    joined.give_back(at(3.5), &rate, 1.0, at(3.0));
    assert_eq!(joined.next_start(at(3.5), &rate, 1.0), at(7.0));
}

#[test]
fn idle_time_accrues_no_more_than_the_burst() {
    let rate = Rate {
        per_s: 10.0,
        burst: 2.0,
        refill: Refill::Continuous,
    };
    let mut pace = Pace::full(at(0.0), &rate);
    pace.settle(at(1e6), &rate);
    assert!((pace.tokens() - 2.0 - 10.0 * TIMER_SLACK_S).abs() < 1e-12);
}

#[test]
fn zero_never_and_infinity_always() {
    let never = Rate::per_second(0.0);
    let mut pace = Pace::full(at(0.0), &never);
    assert!(pace.reserve(at(0.0), &never, 1.0, FAR).is_ok());
    assert_eq!(
        pace.reserve(at(9.0), &never, 1.0, FAR),
        Err(Timestamp::NEVER)
    );
    let always = Rate::per_second(f64::INFINITY);
    let mut pace = Pace::full(at(0.0), &always);
    for _ in 0..1000 {
        assert_eq!(pace.reserve(at(1.0), &always, 1.0, NOW), Ok(at(1.0)));
    }
}

#[test]
fn a_clock_that_steps_back_neither_panics_nor_admits() {
    let rate = Rate::per_second(1.0);
    let mut pace = Pace::full(at(100.0), &rate);
    assert!(pace.reserve(at(100.0), &rate, 1.0, NOW).is_ok());
    assert_eq!(pace.reserve(at(50.0), &rate, 1.0, NOW), Err(at(101.0)));
}

#[test]
fn a_slot_given_back_is_there_again() {
    let rate = Rate::per_second(1.0);
    let mut pace = Pace::full(at(0.0), &rate);
    let start = pace.reserve(at(0.0), &rate, 1.0, NOW).unwrap();
    pace.give_back(at(0.1), &rate, 1.0, start);
    assert_eq!(pace.reserve(at(0.1), &rate, 1.0, NOW), Ok(at(0.1)));
}

#[test]
fn an_older_slot_is_lost_rather_than_given_twice() {
    let rate = Rate::per_second(1.0);
    let mut pace = Pace::full(at(0.0), &rate);
    let starts: Vec<_> = (0..4)
        .map(|_| pace.reserve(at(0.0), &rate, 1.0, FAR).unwrap())
        .collect();
    pace.give_back(at(0.0), &rate, 1.0, starts[2]);
    assert_eq!(pace.reserve(at(0.0), &rate, 1.0, FAR), Ok(at(4.0)));
    pace.give_back(at(0.0), &rate, 1.0, at(4.0));
    assert_eq!(pace.reserve(at(0.0), &rate, 1.0, FAR), Ok(at(4.0)));
}

/// Regression: the returned token came on top of the tokens that had been added meanwhile.
#[test]
fn a_token_that_would_have_overflowed_is_nobodys() {
    let rate = Rate {
        per_s: 1.0,
        burst: 6.0,
        refill: Refill::Continuous,
    };
    let mut pace = Pace::full(at(0.0), &rate);
    let first = pace.reserve(at(0.0), &rate, 1.0, NOW).unwrap();
    for _ in 0..5 {
        pace.reserve(at(0.9), &rate, 1.0, NOW).unwrap();
    }
    pace.give_back(at(0.9), &rate, 1.0, first);
    assert!(pace.reserve(at(0.9), &rate, 1.0, NOW).is_err());
}

#[derive(Clone, Debug)]
enum Step {
    Wait(u64),
    AcquireRequest { cost: u8, horizon_ms: u64 },
    GiveBack(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0_u64..3_000_000).prop_map(Step::Wait),
        (1_u8..3, 0_u64..4_000)
            .prop_map(|(cost, horizon_ms)| Step::AcquireRequest { cost, horizon_ms }),
        (0_usize..8).prop_map(Step::GiveBack),
    ];
    prop::collection::vec(step, 1..120)
}

proptest! {
    /// P1 for one bucket: in any window W, at most burst + rate x W departures happen. This
    /// holds for all reservations, returned slots and request times.
    #[test]
    fn no_window_sees_more_than_burst_plus_rate(
        per_s in 0.05_f64..500.0, burst in 1_u8..20, steps in steps(),
    ) {
        let rate = Rate { per_s, burst: f64::from(burst), refill: Refill::Continuous };
        let mut now = Timestamp::from_micros(1);
        let mut pace = Pace::full(now, &rate);
        let mut taken: Vec<(Timestamp, u8)> = Vec::new();
        for step in steps {
            match step {
                Step::Wait(micros) => now = now + Duration::from_micros(micros),
                Step::AcquireRequest { cost, horizon_ms } => {
                    let cost = cost.min(burst);
                    let horizon = Duration::from_millis(horizon_ms);
                    if let Ok(start) = pace.reserve(now, &rate, f64::from(cost), horizon) {
                        prop_assert!(start >= now && start <= now + horizon);
                        taken.push((start, cost));
                    }
                }
                Step::GiveBack(which) => {
                    if which < taken.len() {
                        let (start, cost) = taken.remove(taken.len() - 1 - which);
                        // The test may return a departure that has already happened. A real
                        // caller does not.
                        pace.give_back(now, &rate, f64::from(cost), start);
                    }
                }
            }
        }
        taken.sort_unstable();
        for (i, (from, _)) in taken.iter().enumerate() {
            let mut sum = 0.0;
            for (to, cost) in &taken[i..] {
                sum += f64::from(*cost);
                let window = to.since(*from).as_secs_f64() + slack_s(rate.per_s);
                let allowed = rate.burst + rate.per_s * window;
                prop_assert!(sum <= allowed + 1e-3, "{sum} left in a window that allows {allowed}");
            }
        }
    }
}
