//! Tests of `pace.rs`.

use proptest::prelude::*;

use super::*;
use crate::gate::{Lease, Leases};

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
    pace.change(at(0.0), &rate(8.0), &rate(4.0), at(5.0));
    assert_eq!(pace.next_start(at(0.0), &rate(4.0), 1.0), next);
    pace.change(at(0.0), &rate(4.0), &rate(1.0), at(5.0));
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
    (0..4).for_each(|_| early.take(1.0));
    late.take(1.0);
    let mut joined = early;
    joined.join(&late);
    late.join(&early);
    assert_eq!(joined, late, "in either order");
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

/// A bucket with the leases of its permits.
struct Key {
    rate: Rate,
    pace: Pace,
    leases: Leases,
}

impl Key {
    fn new(per_s: f64, burst: f64, now: Timestamp) -> Self {
        let rate = Rate {
            per_s,
            burst,
            refill: Refill::Continuous,
        };
        Self {
            rate,
            pace: Pace::full(now, &rate),
            leases: Leases::default(),
        }
    }

    fn reserve(&mut self, now: Timestamp, cost: f64, horizon: Duration) -> Option<Lease> {
        let start = self.pace.reserve(now, &self.rate, cost, horizon).ok()?;
        let lease = self.leases.take(start, FAR, false, false);
        self.pace.note_departure(&self.rate, cost, &mut self.leases);
        Some(lease)
    }

    fn cancel(&mut self, now: Timestamp, lease: &Lease, cost: f64) {
        let lease = self.leases.cancel(lease.id).expect("it is live");
        self.pace
            .give_back(now, &self.rate, cost, &lease, &mut self.leases);
    }
}

#[test]
fn a_slot_given_back_is_there_again() {
    let mut key = Key::new(1.0, 1.0, at(0.0));
    let lease = key.reserve(at(0.0), 1.0, NOW).unwrap();
    key.cancel(at(0.1), &lease, 1.0);
    assert_eq!(key.reserve(at(0.1), 1.0, NOW).unwrap().start, at(0.1));
}

#[test]
fn a_slot_before_another_is_not_given_twice() {
    let mut key = Key::new(1.0, 1.0, at(0.0));
    let starts: Vec<_> = (0..4)
        .map(|_| key.reserve(at(0.0), 1.0, FAR).unwrap())
        .collect();
    key.cancel(at(0.0), &starts[2], 1.0);
    let next = key.reserve(at(0.0), 1.0, FAR).unwrap();
    assert_eq!(next.start, at(4.0));
    key.cancel(at(0.0), &next, 1.0);
    assert_eq!(key.reserve(at(0.0), 1.0, FAR).unwrap().start, at(4.0));
}

/// Regression: the returned token came on top of the tokens that had been added meanwhile.
#[test]
fn a_token_that_would_have_overflowed_does_not_return() {
    let mut key = Key::new(1.0, 6.0, at(0.0));
    let first = key.reserve(at(0.0), 1.0, NOW).unwrap();
    for _ in 0..5 {
        key.reserve(at(0.9), 1.0, NOW).unwrap();
    }
    // Without the first permit the bucket would have been full: six for the time 0.9.
    key.cancel(at(0.9), &first, 1.0);
    assert!(key.reserve(at(0.9), 1.0, NOW).is_some());
    assert!(key.reserve(at(1.8), 1.0, NOW).is_none());
}

/// Regression: one of ten returned.
#[test]
fn a_cancelled_burst_returns_in_any_order() {
    for step in [1, 3, 7, 9] {
        let mut key = Key::new(0.02, 10.0, at(0.0));
        let all: Vec<_> = (0..10)
            .map(|i| key.reserve(at(f64::from(i) / 900.0), 1.0, NOW).unwrap())
            .collect();
        for i in 0..10 {
            key.cancel(at(0.02), &all[i * step % 10], 1.0);
        }
        let again = (0..12).filter(|_| key.reserve(at(0.02), 1.0, NOW).is_some());
        assert_eq!(again.count(), 10, "{step}");
    }
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
        let mut now = Timestamp::from_micros(1);
        let mut key = Key::new(per_s, f64::from(burst), now);
        let rate = key.rate;
        let mut live: Vec<(Lease, u8)> = Vec::new();
        for step in steps {
            match step {
                Step::Wait(micros) => now = now + Duration::from_micros(micros),
                Step::AcquireRequest { cost, horizon_ms } => {
                    let cost = cost.min(burst);
                    let horizon = Duration::from_millis(horizon_ms);
                    if let Some(lease) = key.reserve(now, f64::from(cost), horizon) {
                        prop_assert!(lease.start >= now && lease.start <= now + horizon);
                        live.push((lease, cost));
                    }
                }
                Step::GiveBack(which) => {
                    if which < live.len() {
                        let (lease, cost) = live.remove(live.len() - 1 - which);
                        // The test may return a departure that has already happened. A real
                        // caller does not.
                        key.cancel(now, &lease, f64::from(cost));
                    }
                }
            }
        }
        let taken = live.iter().map(|(lease, cost)| (lease.start, *cost));
        let mut taken: Vec<(Timestamp, u8)> = taken.collect();
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

    /// The level is that of a bucket from which the cancelled permits were never taken.
    #[test]
    fn cancelled_permits_return_what_their_bucket_would_have_had(
        per_s in 0.05_f64..50.0, burst in 1_u8..20, steps in steps(),
    ) {
        let mut now = Timestamp::from_micros(1);
        let mut key = Key::new(per_s, f64::from(burst), now);
        let (mut rate, began) = (key.rate, now);
        // Timer slack: a full bucket keeps filling for a while.
        rate.burst = key.rate.most();
        let mut live: Vec<(Lease, u8)> = Vec::new();
        for step in steps {
            match step {
                Step::Wait(micros) => now = now + Duration::from_micros(micros),
                Step::AcquireRequest { cost, .. } => {
                    let cost = cost.min(burst);
                    let lease = key.reserve(now, f64::from(cost), NOW);
                    live.extend(lease.map(|lease| (lease, cost)));
                }
                Step::GiveBack(which) if which < live.len() => {
                    let (lease, cost) = live.remove(live.len() - 1 - which);
                    key.cancel(now, &lease, f64::from(cost));
                }
                Step::GiveBack(_) => {}
            }
            key.pace.settle(now, &key.rate);
            let (mut level, mut counted) = (f64::from(burst), began);
            for (at, cost) in live.iter().map(|(lease, cost)| (lease.start, *cost)).chain([(now, 0)]) {
                let came = per_s * at.seconds_since(counted);
                level = (level + came).min(rate.burst) - f64::from(cost);
                counted = at;
            }
            let tokens = key.pace.tokens();
            prop_assert!(tokens < level + 1e-3 && tokens > level - 0.15, "{tokens} {level}");
        }
    }
}
