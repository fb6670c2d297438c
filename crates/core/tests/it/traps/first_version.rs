//! Defects of the first version of this project.

use super::*;

#[test]
fn a_raised_rate_does_not_overtake_what_is_reserved() {
    let mut config = Config::api();
    config.limits.in_flight = 16;
    config.law = LawConfig::Fixed;
    config.limits.rate_start = 100.0;
    let mut bench = Bench::new(config);
    bench.set_rate(1.0);
    let reserved: Vec<_> = (0..5).map(|_| bench.reserve(10.0).start).collect();
    bench.set_rate(100.0);
    assert_eq!(
        bench.reserve(10.0).start,
        reserved[4] + Duration::from_millis(10)
    );
}

#[test]
fn a_lowered_rate_does_not_make_paid_reservations_dearer() {
    let mut bench = Bench::new(Config::fixed(10.0, 1.0));
    let last = (0..6).map(|_| bench.reserve(10.0).start).last().unwrap();
    bench.set_rate(1.0);
    assert_eq!(bench.reserve(10.0).start, last + Duration::from_secs(1));
}

#[test]
fn a_rate_without_end_leaves_no_endless_credit() {
    let mut bench = Bench::new(Config::fixed(f64::INFINITY, 1.0));
    bench.ahead(1.0);
    let lease = bench.grant().lease;
    bench.say(lease, Signal::Ok);
    bench.set_rate(1.0);
    bench.grant();
    assert_eq!(
        bench.wait().reason,
        Reason::Pace,
        "at the same reading of the clock"
    );
}

#[test]
fn refill_by_interval_keeps_the_rate() {
    // Regression: the whole burst came with every interval, at any rate, and after each cut.
    let mut config = Config::fixed(1.0, 5.0);
    config.limits.refill = Refill::Interval(Duration::from_secs(1));
    let mut bench = Bench::new(config);
    let mut granted = 0;
    for _ in 0..100 {
        while let Decision::Granted(grant) = bench.ask(AcquireRequest::default()) {
            bench.say(grant.lease, Signal::Ok);
            granted += 1;
        }
        bench.ahead(1.0);
    }
    assert!((100..=105).contains(&granted), "{granted} in 100 s at 1/s");
}

#[test]
fn no_number_of_a_valid_configuration_makes_a_report_panic() {
    let mut config = quick();
    config.backoff_max = Duration::from_millis(10);
    assert!(
        config.validate().is_err(),
        "shorter than the shortest backoff"
    );
    config.backoff_max = Duration::from_millis(100);
    config.validate().unwrap();
    let mut bench = Bench::new(config);
    let lease = bench.grant().lease;
    bench.say(lease, Signal::RateLimited);

    let mut config = quick();
    config.law = LawConfig::Advice(Arc::new(AdviceConfig {
        rate_min: 5.0,
        rate_max: 1.0,
        step: 1.0,
    }));
    assert!(config.validate().is_err(), "no range at all");
}

#[test]
fn a_restored_state_obeys_the_configuration_of_today() {
    let (yesterday, today) = (Config::fixed(9.0, 9.0), Config::fixed(2.0, 1.0));
    let bench = Bench::new(yesterday);
    let mut host = Host::restore(&bench.host.snapshot(), bench.now, &today).unwrap();
    let request = AcquireRequest::default;
    assert!((host.explain(bench.now, &today).rate - 2.0).abs() < 1e-9);
    assert!(matches!(
        host.request(bench.now, request(), &today),
        Decision::Granted(_)
    ));
    assert!(matches!(
        host.request(bench.now, request(), &today),
        Decision::Wait(_)
    ));

    let learned = Bench::new(quick());
    let mut slower = quick();
    slower.limits.burst = 1.0;
    slower.limits.bytes_per_s = 10.0;
    let now = learned.now;
    let mut host = Host::restore(&learned.host.snapshot(), now, &slower).unwrap();
    let Decision::Granted(grant) = host.request(now, request(), &slower) else {
        panic!("a full bucket");
    };
    assert!(
        matches!(host.request(now, request(), &slower), Decision::Wait(_)),
        "no old burst"
    );
    host.release(now, grant.lease, 1_000, &slower);
    let Decision::Wait(wait) = host.request(now + Duration::from_secs(5), request(), &slower)
    else {
        panic!("the byte budget came later than the state");
    };
    assert_eq!(wait.reason, Reason::Bytes);
}

#[test]
fn a_clock_set_back_over_a_restart_keeps_no_slot_and_no_law_longer() {
    let mut config = quick();
    config.lease = Duration::from_secs(10);
    config.limits.in_flight = 1;
    let mut bench = Bench::new(config);
    bench.now = Timestamp::from_micros(1_000_000_000_000);
    bench.host = Host::new(&bench.config, bench.now);
    bench.grant();
    let bytes = bench.host.snapshot();
    bench.now = Timestamp::from_micros(1_000_000);
    bench.host = Host::restore(&bytes, bench.now, &bench.config).unwrap();
    let wait = bench.wait();
    assert_eq!(wait.reason, Reason::InFlight);
    assert!(wait.at <= bench.now + Duration::from_secs(10));
    let before = bench.rate();
    for _ in 0..40 {
        bench.ahead(1.0);
        if let Decision::Granted(grant) = bench.ask(AcquireRequest::default()) {
            bench.say(grant.lease, Signal::Ok);
        }
    }
    bench.now = bench.wait_or_now();
    for _ in 0..200 {
        bench.now = bench.wait_or_now();
        let lease = bench.grant().lease;
        bench.say(lease, Signal::Ok);
    }
    assert!(bench.rate() > before, "the law learns on");
}

#[test]
fn only_the_probe_tells_how_the_rest_went() {
    let mut config = quick();
    config.law = LawConfig::Fixed;
    config.breaker.trip_after = 2;
    let mut bench = Bench::new(config);
    let leases: Vec<_> = (0..6).map(|_| bench.grant().lease).collect();
    bench.say(leases[0], Signal::Unreachable);
    bench.say(leases[1], Signal::Unreachable);
    bench.now = bench.wait().at;
    let probe = bench.grant();
    // Regression: each of these outcomes allowed a second probe or lengthened the rest.
    for (lease, signal) in leases[2..].iter().zip([
        Signal::Unreachable,
        Signal::RateLimited,
        Signal::Blocked,
        Signal::Overloaded,
    ]) {
        bench.say(*lease, signal);
        bench.ahead(70.0);
        bench.host.renew(bench.now, probe.lease, &bench.config);
        assert_eq!(bench.wait().reason, Reason::Breaker);
    }
    bench.say(probe.lease, Signal::Ok);
    bench.ahead(70.0);
    bench.grant();
}

#[test]
fn a_probe_under_way_is_still_the_only_one_after_a_restore() {
    let mut config = quick();
    config.breaker.trip_after = 1;
    let mut bench = Bench::new(config);
    let lease = bench.grant().lease;
    bench.say(lease, Signal::Unreachable);
    bench.now = bench.wait().at;
    bench.grant();
    bench.host = Host::restore(&bench.host.snapshot(), bench.now, &bench.config).unwrap();
    assert_eq!(bench.wait().reason, Reason::Breaker);
    bench.host.forget_leases();
    bench.grant();
}

#[test]
fn shared_constants_stay_shared() {
    let config = quick();
    let LawConfig::Discover(constants) = &config.law else {
        unreachable!("the default law");
    };
    let before = Arc::strong_count(constants);
    let host = Host::new(&config, Timestamp::ZERO);
    assert_eq!(Arc::strong_count(constants), before + 1);
    let restored = Host::restore(&host.snapshot(), Timestamp::ZERO, &config).unwrap();
    assert_eq!(Arc::strong_count(constants), before + 2);
    drop((host, restored));
}
