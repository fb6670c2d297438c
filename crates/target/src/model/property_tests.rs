//! The models against their definitions, over arbitrary arrivals.

use proptest::prelude::*;

use super::*;

fn us(at: u64) -> Timestamp {
    Timestamp::from_micros(at)
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
    let varying = prop_oneof![
        (rate(), 1.0..9.0_f64, 1_u32..20, 1.0..20.0_f64, any::<u64>()).prop_map(
            |(low, factor, burst, every_s, seed)| LimitSpec::Walk {
                low,
                high: low * factor,
                burst,
                every_s,
                factor: 1.5,
                seed
            }
        ),
        (rate(), 1.0..9.0_f64, 1_u32..20, 96.0..1_000.0_f64).prop_map(
            |(low, factor, burst, period_s)| LimitSpec::Day {
                low,
                high: low * factor,
                burst,
                period_s
            }
        ),
    ];
    let shared =
        (simple.clone(), 0.01..50.0_f64, any::<u64>()).prop_map(|(of, others_per_s, seed)| {
            LimitSpec::Shared {
                others_per_s,
                of: Box::new(of),
                seed,
            }
        });
    prop_oneof![4 => simple, 1 => several, 1 => steps, 1 => varying, 1 => shared]
}

fn has_leaky(spec: &LimitSpec) -> bool {
    match spec {
        LimitSpec::Leaky { .. } => true,
        LimitSpec::All { of } => of.iter().any(has_leaky),
        LimitSpec::Steps { at } => at.iter().any(|(_, limit)| has_leaky(limit)),
        LimitSpec::Shared { of, .. } => has_leaky(of),
        _ => false,
    }
}

/// Returns whether a request that waits for its second limit may be served before one that the
/// first limit accepted and delays.
fn may_overtake(spec: &LimitSpec) -> bool {
    let LimitSpec::Steps { at } = spec else {
        return false;
    };
    matches!(at[0].1, LimitSpec::Leaky { nodelay: false, .. })
}

/// Generates arrival times with gaps from zero to seconds.
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

    /// The lines of nginx's source again, in its own types and order.
    #[test]
    fn leaky_is_nginx(milli in 1_i64..100_000, queue in 0_i64..20, nodelay: bool, arrivals in arrivals()) {
        let spec = LimitSpec::Leaky { rate: milli as f64 / 1000.0, queue: queue as u32, nodelay };
        let mut limit = spec.build().unwrap();
        let (mut lr, burst) = (None, queue * 1000);
        for at in arrivals {
            let now = (at.as_micros() / 1000).cast_signed();
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
        prop_assume!(!may_overtake(&spec));
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
        // Other clients may have taken everything.
        let took = served.unwrap_or(arrivals[0]).since(arrivals[0]);
        // `best_time` documents this slack for nginx's rounding.
        let slack = if has_leaky(&spec) { Duration::from_millis(1) + took / 1000 } else { Duration::ZERO };
        prop_assert!(best_time(&fresh, arrivals[0], pages, Duration::ZERO) <= took + slack, "{spec:?}");
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
