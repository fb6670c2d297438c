//! The optimum against an exhaustive search, for small cases.

use politely_core::Rng;
use politely_target::model::{FaultSpec, Limit, LimitSpec, Verdict};
use proptest::prelude::*;

use super::*;

/// The number of instants at which a client of the search may send or not: 4,096 plans.
const INSTANTS: usize = 12;

const TICK_S: f64 = 0.1;

fn tick(index: usize) -> Timestamp {
    Timestamp::from_micros(1) + Duration::from_millis(100) * index as u32
}

/// Enough connections, no network time, 200 ms of service without spread, until just before the
/// thirteenth tick.
fn scenario(limit: LimitSpec, faults: Vec<FaultSpec>) -> Scenario {
    let json = r#"{"name":"small","duration_s":1.15,"demand":{"kind":"greedy","connections":1000},
        "rtt_ms":0,"service":{"mean_ms":200,"cv":0},"limit":{"kind":"none"}}"#;
    let mut scenario: Scenario = serde_json::from_str(json).unwrap();
    (scenario.limit, scenario.faults) = (limit, faults);
    scenario.validate().unwrap();
    scenario
}

/// Returns the most requests that any plan over `instants` has accepted. A plan with a refusal
/// equals another plan without that request.
fn most(instants: &[Timestamp], accepts: impl Fn(&[Timestamp]) -> bool) -> usize {
    let mut best = 0;
    for plan in 0_u32..1 << instants.len() {
        let sends = plan.count_ones() as usize;
        if sends <= best {
            continue;
        }
        let of = (0..instants.len()).filter(|index| plan >> index & 1 == 1);
        let times: Vec<Timestamp> = of.map(|index| instants[index]).collect();
        if accepts(&times) {
            best = sends;
        }
    }
    best
}

/// Returns whether `limit` accepts all of `times`, each of which takes `service`.
fn accepts_all(
    mut limit: Limit,
    times: &[Timestamp],
    service: impl Fn(Timestamp) -> Duration,
) -> bool {
    let mut inside: Vec<Timestamp> = Vec::new();
    times.iter().all(|&now| {
        inside.retain(|&done| {
            if done <= now {
                let _ = limit.depart(done);
            }
            done > now
        });
        inside.push(now + service(now));
        matches!(limit.arrive(now), Verdict::Serve { .. })
    })
}

fn ticks() -> Vec<Timestamp> {
    (0..INSTANTS).map(tick).collect()
}

/// Each tick twice, for limits that accept several requests at once: half as many ticks.
fn double_ticks() -> Vec<Timestamp> {
    (0..INSTANTS).map(|index| tick(index / 2)).collect()
}

/// Limits whose waits are whole ticks.
fn of_ticks() -> impl Strategy<Value = LimitSpec> {
    let window = || (1_u32..8).prop_map(|ticks| f64::from(ticks) * TICK_S);
    let simple = prop_oneof![
        (prop::sample::select(vec![10.0, 5.0, 2.5, 2.0]), 1_u32..4)
            .prop_map(|(rate, burst)| LimitSpec::TokenBucket { rate, burst }),
        (1_u32..4, window(), any::<bool>()).prop_map(|(count, window_s, aligned)| {
            LimitSpec::FixedWindow {
                count,
                window_s,
                aligned,
            }
        }),
        (1_u32..4, window())
            .prop_map(|(count, window_s)| LimitSpec::SlidingLog { count, window_s }),
        (prop::sample::select(vec![10.0, 5.0, 2.5]), 0_u32..3).prop_map(|(rate, queue)| {
            LimitSpec::Leaky {
                rate,
                queue,
                nodelay: true,
            }
        }),
    ];
    let several = prop::collection::vec(simple.clone(), 2..4).prop_map(|of| LimitSpec::All { of });
    let steps =
        (simple.clone(), window(), simple.clone()).prop_map(|(first, at, then)| LimitSpec::Steps {
            at: vec![(0.0, first), (at, then)],
        });
    prop_oneof![4 => simple, 1 => several, 1 => steps]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// The optimum may use instants other than ticks, so it may have more; but each of its requests
    /// is accepted.
    #[test]
    fn no_plan_gets_more_and_the_optimum_is_a_plan(limit in of_ticks(), double: bool) {
        let instants = if double { double_ticks() } else { ticks() };
        let mut scenario = scenario(limit, Vec::new());
        if double {
            scenario.duration_s /= 2.0;
        }
        let best = accepted(&scenario, Duration::ZERO);
        let service = |_| Duration::from_millis(200);
        let fresh = scenario.limit.build().unwrap();
        prop_assert!(accepts_all(fresh.clone(), &best, service));
        let brute = most(&instants, |times| accepts_all(fresh.clone(), times, service));
        prop_assert!(best.len() >= brute, "{:?}: {} of {brute}", scenario.limit, best.len());
    }

    #[test]
    fn slots_in_a_brownout(
        slots in 1_u32..3, from in 0_u32..6, lasts in 1_u32..8, slower in 1_u32..5, queue: bool,
    ) {
        let (from_s, to_s) = (f64::from(from) * TICK_S, f64::from(from + lasts) * TICK_S);
        let brownout = FaultSpec::Brownout {
            from_s, to_s, slower: f64::from(slower), share: 0.5, status: 503,
        };
        let limit = if queue {
            LimitSpec::ConcurrencyQueue { slots, queue: 3 }
        } else {
            LimitSpec::ConcurrencyReject { slots }
        };
        let mut scenario = scenario(limit, vec![brownout]);
        let instants = if slots == 1 { ticks() } else { double_ticks() };
        if slots > 1 {
            scenario.duration_s /= 2.0;
            scenario.service.mean_ms = 100.0;
        }
        let mean = scenario.service.mean();
        let service = |at: Timestamp| {
            let during = u64::from(from)..u64::from(from + lasts);
            if during.contains(&(at.as_micros() / 100_000)) { mean * slower } else { mean }
        };
        let best = accepted(&scenario, Duration::ZERO);
        let fresh = scenario.limit.build().unwrap();
        prop_assert!(accepts_all(fresh.clone(), &best, service));
        let brute = most(&instants, |times| accepts_all(fresh.clone(), times, service));
        prop_assert!(best.len() >= brute, "{best:?}, {brute} are possible");
    }

    #[test]
    fn of_a_shared_limit_others_keep_theirs(limit in of_ticks(), seed: u64, rate in 1.0..12.0_f64) {
        let first_hit = serde_json::to_string(&limit).unwrap().contains(r#""aligned":false"#);
        let shared = LimitSpec::Shared { others_per_s: rate, of: Box::new(limit.clone()), seed };
        let scenario = scenario(shared.clone(), Vec::new());
        let Limit::Shared(built) = shared.build().unwrap() else { unreachable!() };
        let fresh = limit.build().unwrap();
        let mut alone = fresh.clone();
        let end = Timestamp::from_secs_f64(scenario.duration_s);
        let theirs: Vec<Timestamp> =
            built.others().take_while(|at| *at <= end).filter(|at| alone.arrive(*at).accepted()).collect();
        let together = |ours: &[Timestamp]| {
            // Of two at one instant, ours is first: the sort is stable.
            let mut all = [ours, &theirs].concat();
            all.sort();
            accepts_all(fresh.clone(), &all, |_| Duration::ZERO)
        };
        let best = accepted(&scenario, Duration::ZERO);
        prop_assert!(together(&best), "{best:?} displaces one of {theirs:?}");
        // Windows that begin with the first request are not claimed to be exact.
        if !first_hit {
            let brute = most(&ticks(), together);
            prop_assert!(best.len() >= brute, "{best:?}, {brute} are possible beside {theirs:?}");
        }
    }
}

#[test]
fn an_outage_and_a_block_cost_what_they_must() {
    let outage = FaultSpec::Outage {
        from_s: 0.3,
        to_s: 0.7,
        status: 503,
    };
    let bucket = LimitSpec::TokenBucket {
        rate: 10.0,
        burst: 2,
    };
    let best = accepted(&scenario(bucket, vec![outage]), Duration::ZERO);
    // Two and two more until 0.3 s, a full bucket and four more until 1.15 s.
    assert_eq!(best.len(), 4 + 2 + 4);
    let block = FaultSpec::Block {
        above_rps: 3.0,
        for_s: 60.0,
    };
    let best = accepted(&scenario(LimitSpec::None {}, vec![block]), Duration::ZERO);
    assert_eq!(best.len(), 6);
}

#[test]
fn a_varying_rate_is_used_to_the_last_token() {
    let day = LimitSpec::Day {
        low: 5.0,
        high: 20.0,
        burst: 10,
        period_s: 3_600.0,
    };
    let mut scenario = scenario(day, Vec::new());
    scenario.duration_s = 7_200.0;
    let mut rng = Rng::new(1);
    for _ in 0..3 {
        // Two whole days that begin anywhere: 12.5 per second on average.
        let phase = Duration::from_secs_f64(rng.between(0.0, 86_400.0));
        let got = accepted(&scenario, phase).len();
        assert!((90_008..=90_010).contains(&got), "{got}");
    }
}

#[test]
fn of_slots_in_a_brownout_the_last_waits_for_its_end() {
    let brownout = FaultSpec::Brownout {
        from_s: 100.0,
        to_s: 200.0,
        slower: 10.0,
        share: 0.5,
        status: 503,
    };
    let limit = LimitSpec::ConcurrencyReject { slots: 4 };
    let mut scenario = scenario(limit, vec![brownout]);
    scenario.duration_s = 300.0;
    // 20 a second outside the outage, two inside.
    let got = accepted(&scenario, Duration::ZERO).len();
    assert!((4_200..=4_204).contains(&got), "{got}");
}

#[test]
fn others_leave_what_they_do_not_take() {
    let bucket = Box::new(LimitSpec::TokenBucket {
        rate: 10.0,
        burst: 10,
    });
    let shared = LimitSpec::Shared {
        others_per_s: 4.0,
        of: bucket,
        seed: 1,
    };
    let mut scenario = scenario(shared, Vec::new());
    scenario.duration_s = 1_800.0;
    let got = accepted(&scenario, Duration::ZERO).len();
    // Six a second, minus the few tokens that are lost while they are kept for other clients.
    assert!((10_000..11_000).contains(&got), "{got}");
}
