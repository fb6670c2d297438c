use std::mem::size_of;
use std::time::Duration;

use super::*;
use crate::Rng;
use crate::budget::UnitCosts;
use crate::gate::Refill;
use crate::signal::{Failure, Quota, Report, Signal, Unit};

#[test]
fn a_key_is_small() {
    assert!(size_of::<Host>() <= 208, "{}", size_of::<Host>());
}

/// Until the default law has something to learn, it adds nothing to this size; see
/// `control/discover/quiet.rs`.
#[test]
fn no_law_of_a_quiet_key_needs_more_than_its_place_in_the_key() {
    use crate::control::{Aimd, Discover};

    let sizes = (
        size_of::<KeyLaw>(),
        size_of::<Discover>(),
        size_of::<Aimd>(),
    );
    assert!(sizes.0 <= 48 && sizes.1 <= 48, "{sizes:?}");
}

/// Regression: the response that said "one left" was itself counted as under way, and the key was
/// held.
#[test]
fn an_answer_heard_is_not_under_way() {
    let config = Config::api();
    let (now, mut rng) = (Timestamp::from_micros(1_000_000), Rng::new(1));
    let mut host = Host::new(&config, now);
    let Decision::Granted(grant) = host.request(now, AcquireRequest::default(), &config) else {
        panic!("a new key grants")
    };
    let mut report = Report::of(Signal::Ok);
    report.quotas = Quota {
        remaining: Some(1),
        reset: Some(Duration::from_mins(1)),
        ..Default::default()
    }
    .into();
    let directions = host.on_head(now, grant.lease, &report, &config, &mut rng);
    assert!(directions.hold_until <= now);
    assert_eq!((host.in_flight(), host.tally().live), (1, 1));
    let again = host.on_head(now, grant.lease, &report, &config, &mut rng);
    assert!(again.late, "heard once");
    host.release(now, grant.lease, 0, &config);
    assert_eq!((host.in_flight(), host.tally().reported), (0, 1));
}

/// Users of the command line and of the dashboard read these lines.
#[test]
fn a_closed_key_says_what_happened_and_when_it_is_tried_again() {
    let config = Config::api();
    let line_after = |report: &Report, times: usize| {
        let mut now = Timestamp::from_micros(1_000_000);
        let (mut host, mut rng) = (Host::new(&config, now), Rng::new(1));
        for _ in 0..times {
            let grant = loop {
                match host.request(now, AcquireRequest::default(), &config) {
                    Decision::Granted(grant) => break grant,
                    Decision::Wait(wait) => now = wait.at,
                }
            };
            host.report(now, grant.lease, report, &config, &mut rng);
        }
        host.explain(now, &config).line(now)
    };
    let refused = Report {
        failure: Some(Failure::Connect),
        ..Report::of(Signal::Unreachable)
    };
    let blocked = Report {
        status: Some(403),
        ..Report::of(Signal::Blocked)
    };
    let told = Report {
        status: Some(429),
        retry_after: Some(Duration::from_mins(2)),
        ..Report::of(Signal::RateLimited)
    };
    for (report, times, begins, holds) in [
        (&refused, 5, "no connection; next try in ", " s"),
        (&blocked, 2, "blocked (403); next try in ", " s"),
        (
            &told,
            1,
            "waits 12",
            " s: hold, Retry-After (429, Retry-After: 120)",
        ),
    ] {
        let line = line_after(report, times);
        assert!(line.starts_with(begins) && line.ends_with(holds), "{line}");
    }
}

#[test]
fn to_explain_takes_no_lease() {
    let config = Config::api();
    let now = Timestamp::from_micros(1_000_000);
    let tally = Host::new(&config, now).explain(now, &config).tally;
    assert_eq!((tally.granted, tally.live), (0, 0));
}

/// Regression: a number above the configured one changed nothing.
#[test]
fn where_nothing_is_learned_an_operators_number_is_the_rate() {
    use std::sync::Arc;

    use crate::control::LawConfig;

    let now = Timestamp::from_micros(1_000_000);
    let tenths = |config: &Config, set: f64| {
        let mut host = Host::new(config, now);
        host.set(now, OperatorNumbers::rate(set, 3.0), config);
        let _ = host.request(now, AcquireRequest::default(), config);
        (host.explain(now, config).rate * 10.0) as u32
    };
    let mut config = Config::fixed(2.0, 1.0);
    for law in [LawConfig::Fixed, LawConfig::Advice(Arc::default())] {
        config.law = law;
        assert_eq!([tenths(&config, 5.0), tenths(&config, 0.5)], [50, 5]);
    }
    // The rate of this law starts at 1 and is at most 10.
    let config = Config::crawler();
    assert_eq!([tenths(&config, 50.0), tenths(&config, 0.5)], [10, 5]);
}

#[test]
fn nothing_left_holds_a_key_until_the_reset() {
    let now = Timestamp::from_micros(1_000_000);
    let spent = |unit, signal| Report {
        quotas: Quota {
            unit,
            limit: Some(20),
            remaining: Some(0),
            reset: Some(Duration::from_secs(10)),
            window: Some(Duration::from_secs(20)),
            ..Quota::default()
        }
        .into(),
        ..Report::of(signal)
    };
    for (law, unit, signal, held) in [
        ("discover", Unit::Requests, Signal::Ok, true),
        ("aimd", Unit::Requests, Signal::Ok, true),
        ("fixed", Unit::Requests, Signal::Ok, true),
        ("fixed", Unit::Tokens, Signal::Ok, false),
        ("fixed", Unit::Tokens, Signal::RateLimited, true),
        ("discover", Unit::Tokens, Signal::RateLimited, true),
    ] {
        let spent = spent(unit, signal);
        let config = Config::api().with_law(law.parse().expect("a law"));
        let mut host = Host::new(&config, now);
        let Decision::Granted(grant) = host.request(now, AcquireRequest::default(), &config) else {
            panic!("a new key grants")
        };
        let told = host.report(now, grant.lease, &spent, &config, &mut Rng::new(1));
        let held_until_reset = told.hold_until >= now + Duration::from_secs(10);
        assert_eq!(held_until_reset, held, "{law} {unit:?} {signal:?}");
    }
}

#[test]
fn a_run_ends_within_two_seconds() {
    let config = Config::fixed(1.0, 2.0);
    let now = Timestamp::from_micros(100_000_000);
    let mut host = Host::new(&config, now);
    let run = AcquireRequest {
        slots: 16,
        ..AcquireRequest::default()
    };
    let Decision::Granted(grant) = host.request(now, run, &config) else {
        panic!("a full bucket");
    };
    // The starts are 100, 101 and 102 s.
    assert_eq!(grant.slots, 3);
    assert_eq!(host.in_flight(), 3);
}

#[test]
fn what_is_known_of_urls_is_kept_with_the_state() {
    let config = Config::crawler();
    let (mut now, mut rng) = (Timestamp::from_micros(1_000_000_000), Rng::new(1));
    let mut host = Host::new(&config, now);
    for (url, signal) in [
        ("a", Signal::Ok),
        ("bad", Signal::RateLimited),
        ("b", Signal::Ok),
    ] {
        now = now + Duration::from_secs(10);
        let Decision::Granted(grant) = host.request(now, AcquireRequest::default(), &config) else {
            panic!("{url} leaves");
        };
        let report = Report {
            resource: Some(crate::signal::Resource::of(url)),
            ..Report::of(signal)
        };
        host.report(now, grant.lease, &report, &config, &mut rng);
    }
    let state = host.snapshot();
    assert_eq!(state[..2], [28, 2]);
    let back = Host::restore(&state, now, &config).expect("a state");
    assert_eq!(back, host);
    let mut joined = host.clone();
    joined.join(&back, now, &config);
    assert_eq!(joined.snapshot(), state);
    for short in 1..12 {
        assert!(Host::restore(&state[..short], now, &config).is_err());
    }
}

/// The expiry hint is never later than the first lease that expires.
#[test]
fn no_lease_ends_unnoticed() {
    let config = Config::fixed(1e9, 1e9);
    let (mut rng, mut now) = (Rng::new(3), Timestamp::from_micros(1_000_000));
    let mut host = Host::new(&config, now);
    let mut other = host.clone();
    for _ in 0..20_000 {
        let any = LeaseId(host.next_lease().0.saturating_sub(rng.next_u64() % 4));
        match rng.next_u64() % 10 {
            0 => {
                host.report(now, any, &Report::of(Signal::Ok), &config, &mut rng);
            }
            1 => host.cancel(now, any, Some(AcquireRequest::default().unused()), &config),
            2 => _ = host.renew(now, any, &config),
            3 => _ = host.readmit(now, config.lease / 3, &UnitCosts::NONE, &config),
            4 => host.join(&other, now, &config),
            5 => other = host.clone(),
            6 => host = Host::restore(&host.snapshot(), now, &config).expect("its own bytes"),
            7 => now = now + config.lease.mul_f64(rng.between(0.0, 0.4)),
            _ => _ = host.request(now, AcquireRequest::default(), &config),
        }
        let ends = host.leases.next_expiry();
        assert!(ends.is_none_or(|end| !host.first_end.is_after(end)));
        host.expire(now);
        assert!(host.leases.next_expiry().is_none_or(|end| end > now));
    }
    assert!(host.tally().expired > 100, "{:?}", host.tally());
}

/// Regression: of a cost of five, one token and no bytes were returned.
#[test]
fn what_did_not_leave_returns_all_it_took() {
    let mut config = Config::fixed(1.0, 10.0);
    config.limits.bytes_per_s = 1_000.0;
    let now = Timestamp::from_micros(1_000_000);
    let mut host = Host::new(&config, now);
    let ask = AcquireRequest {
        cost: 5,
        bytes: 3_000,
        ..AcquireRequest::default()
    };
    for _ in 0..10 {
        let Decision::Granted(grant) = host.request(now, ask.clone(), &config) else {
            panic!("all was given back")
        };
        assert_eq!(host.look(now, &config).wait.unwrap().reason, Reason::Bytes);
        host.cancel(now, grant.lease, Some(grant.unused), &config);
    }
    let Decision::Granted(grant) = host.request(now, ask.clone(), &config) else {
        panic!("all was given back")
    };
    host.cancel(now, grant.lease, None, &config);
    let wait = host.look(now, &config).wait.expect("it may have left");
    assert_eq!(wait.reason, Reason::Bytes);
}

/// Regression: only new keys knew the changed limits.
#[test]
fn another_configuration_holds_for_a_key_that_is_known() {
    let now = Timestamp::from_micros(1_000_000);
    let mut rng = Rng::new(1);
    let mut config = Config::fixed(100.0, 10.0);
    let mut host = Host::new(&config, now);
    config.limits.bytes_per_s = 1_000.0;
    config.limits.busy_share = 0.5;
    let Decision::Granted(grant) = host.request(now, AcquireRequest::default(), &config) else {
        panic!("a new key grants")
    };
    let report = Report {
        latency: Duration::from_secs(5),
        bytes: 5_000,
        ..Report::of(Signal::Ok)
    };
    host.report(now, grant.lease, &report, &config, &mut rng);
    let known = host.look(now, &config);
    assert_eq!(known.wait.unwrap().reason, Reason::Bytes);
    assert!(known.rate < 1.0, "{}", known.rate);
    config.limits.busy_share = f64::INFINITY;
    assert!((host.look(now, &config).rate - 100.0).abs() < 1e-9);
}

/// Regression: jitter pushed a wait of one hour, which is waited for, past one hour, where the key
/// is parked.
#[test]
fn what_the_server_asks_for_is_set_aside_by_its_own_length() {
    let config = Config::crawler();
    let now = Timestamp::from_micros(1_000_000);
    for seed in 0..50 {
        for (asked, parked) in [(Duration::ZERO, false), (Duration::from_secs(1), true)] {
            let mut host = Host::new(&config, now);
            let Decision::Granted(grant) = host.request(now, AcquireRequest::default(), &config)
            else {
                panic!("a new key grants")
            };
            let mut report = Report::of(Signal::RateLimited);
            report.retry_after = Some(config.hold_max + asked);
            host.report(now, grant.lease, &report, &config, &mut Rng::new(seed));
            let reason = host.look(now, &config).wait.unwrap().reason;
            assert_eq!(matches!(reason, Reason::Parked(_)), parked, "{reason:?}");
        }
    }
}

/// Regression: past time was credited at the new rate, and the old law went on.
#[test]
fn another_configuration_begins_now() {
    let (slow, fast) = (Config::fixed(0.1, 100.0), Config::fixed(10.0, 100.0));
    let began = Timestamp::from_micros(1_000_000);
    let mut host = Host::new(&slow, began);
    let granted = |host: &mut Host, now: Timestamp, config: &Config| {
        let all = std::iter::repeat_with(|| host.request(now, AcquireRequest::default(), config));
        all.take_while(|said| matches!(said, Decision::Granted(_)))
            .count()
    };
    assert_eq!(granted(&mut host, began, &slow), 100);
    let later = began + Duration::from_secs(100);
    host.reconfigure(later, &slow, &fast);
    assert_eq!(granted(&mut host, later, &fast), 10);
    let crawler = Config::crawler();
    let mut host = Host::new(&crawler, began);
    host.reconfigure(later, &crawler, &fast);
    assert!((host.look(later, &fast).rate - 10.0).abs() < 1e-9);
}

#[test]
fn a_number_that_is_none_takes_nothing_back() {
    let config = Config::fixed(100.0, 10.0);
    let now = Timestamp::from_micros(1_000_000);
    let mut host = Host::new(&config, now);
    host.set(now, OperatorNumbers::rate(1.0, 1.0), &config);
    host.set(now, OperatorNumbers::rate(f64::NAN, f64::NAN), &config);
    assert_eq!(host.operator_numbers(), OperatorNumbers::rate(1.0, 1.0));
    host.set(
        now,
        OperatorNumbers::rate(f64::NEG_INFINITY, f64::INFINITY),
        &config,
    );
    let set = host.operator_numbers();
    assert!(
        set.rate.is_some_and(|rate| rate < 1e-3) && set.burst.is_none(),
        "{set:?}"
    );
}

/// `Host::pass` grants the same and leaves the same state as the gates.
#[test]
fn who_is_let_pass_would_have_passed_every_gate() {
    let (mut rng, mut now) = (Rng::new(5), Timestamp::from_micros(1_000_000));
    let mut passed = 0;
    for round in 0..1_000 {
        let law = ["fixed", "aimd", "discover", "advice"][round % 4];
        let mut config = Config::crawler().with_law(law.parse().expect("a law's name"));
        let limits = &mut config.limits;
        limits.rate_start = rng.between(0.5, 50.0);
        limits.rate_max = limits.rate_start * 4.0;
        limits.burst = rng.between(1.0, 5.0);
        limits.in_flight = 1 + (rng.next_u64() % 4) as u32;
        if round % 3 == 0 {
            limits.busy_share = f64::INFINITY;
        }
        if round % 7 == 0 {
            limits.bytes_per_s = 5_000.0;
        }
        if round % 5 == 0 {
            limits.refill = Refill::Interval(Duration::from_millis(300));
        }
        let mut host = Host::new(&config, now);
        for _ in 0..60 {
            let any = LeaseId(host.next_lease().0.saturating_sub(1 + rng.next_u64() % 3));
            match rng.next_u64() % 24 {
                0 => {
                    let bad = [Signal::RateLimited, Signal::UrlError, Signal::Overloaded];
                    let report = Report::of(bad[rng.next_u64() as usize % 3]);
                    host.report(now, any, &report, &config, &mut rng);
                }
                1 => host.cancel(now, any, Some(AcquireRequest::default().unused()), &config),
                2 if round % 2 == 0 => {
                    host.set(now, OperatorNumbers::rate(2.0, 1.0), &config);
                }
                3 => {
                    host.hold(now, now + Duration::from_secs(1), HoldReason::Operator);
                }
                4..9 => {
                    let report = Report {
                        latency: Duration::from_millis(rng.next_u64() % 800),
                        bytes: rng.next_u64() % 10_000,
                        ..Report::of(Signal::Ok)
                    };
                    host.report(now, any, &report, &config, &mut rng);
                }
                9..15 => now = now + Duration::from_micros(rng.next_u64() % 2_000_000),
                15 => now = now + config.lease.mul_f64(rng.between(0.0, 1.1)),
                more => {
                    let ask = AcquireRequest {
                        slots: 1 + u16::from(more == 16),
                        cost: 1 + u16::from(more == 17),
                        ..AcquireRequest::within(Duration::from_millis(200 * u64::from(more == 18)))
                    };
                    let mut let_pass = host.clone();
                    let decision = host.at_gates(now, &ask, &config);
                    passed += u32::from(let_pass.clone().pass(now, &config).is_some());
                    assert_eq!(let_pass.request(now, ask.clone(), &config), decision);
                    assert_eq!(let_pass, host, "{law}: {ask:?}");
                }
            }
        }
    }
    assert!(passed > 1_000, "{passed}");
}

/// Regression: only 64 estimates outlived their leases, so the usage of the others was lost.
#[test]
fn the_usage_of_many_ended_leases_is_owed() {
    let mut config = Config::fixed(1e6, 1_000.0);
    config.limits.in_flight = 1_000;
    config.declared = "1000000 tokens/h".parse().unwrap();
    let now = Timestamp::from_micros(1_000_000);
    let mut host = Host::new(&config, now);
    let tokens = |count| UnitCosts::new([("tokens", count)]).unwrap();
    let ask = AcquireRequest {
        units: tokens(10),
        ..AcquireRequest::default()
    };
    let leases: Vec<_> = (0..500)
        .map(|_| match host.request(now, ask.clone(), &config) {
            Decision::Granted(grant) => grant.lease,
            other @ Decision::Wait(_) => panic!("{other:?}"),
        })
        .collect();
    let later = now + config.lease + Duration::from_secs(1);
    for lease in leases {
        host.settle(later, lease, &tokens(15), &config);
    }
    let left = host.remainders(later, &config)[0].remaining;
    assert_eq!(left, 1_000_000 - 500 * 15);
}
