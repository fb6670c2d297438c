use std::mem::size_of;

use super::*;

#[test]
fn a_key_is_small() {
    assert!(size_of::<Host>() <= 208, "{}", size_of::<Host>());
}

/// Before this, the answer that said "one left" was itself counted as under way, and the key was held.
#[test]
fn an_answer_heard_is_not_under_way() {
    let config = Config::api();
    let (now, mut rng) = (Timestamp::from_micros(1_000_000), Rng::new(1));
    let mut host = Host::new(&config, now);
    let Decision::Granted(grant) = host.request(now, Ask::default(), &config) else {
        panic!("a new key grants")
    };
    let mut report = Report::of(Signal::Ok);
    report.quota = Some(Quota {
        remaining: Some(1),
        reset: Some(Duration::from_mins(1)),
        ..Default::default()
    });
    let directions = host.hear(now, grant.lease, &report, &config, &mut rng);
    assert!(directions.hold_until <= now);
    assert_eq!((host.in_flight(), host.tally().live), (1, 1));
    let again = host.hear(now, grant.lease, &report, &config, &mut rng);
    assert!(again.late, "heard once");
    host.release(now, grant.lease, 0, &config);
    assert_eq!((host.in_flight(), host.tally().reported), (0, 1));
}

#[test]
fn to_explain_takes_no_lease() {
    let config = Config::api();
    let now = Timestamp::from_micros(1_000_000);
    let tally = Host::new(&config, now).explain(now, &config).tally;
    assert_eq!((tally.granted, tally.live), (0, 0));
}

/// Before this, no number above the configured one changed anything.
#[test]
fn where_nothing_is_learned_an_operators_number_is_the_rate() {
    use std::sync::Arc;

    use crate::control::LawConfig;

    let now = Timestamp::from_micros(1_000_000);
    let tenths = |config: &Config, set: f64| {
        let mut host = Host::new(config, now);
        host.set(now, OperatorNumbers::rate(set, 3.0), config);
        (host.explain(now, config).rate * 10.0) as u32
    };
    let mut config = Config::fixed(2.0, 1.0);
    for law in [LawConfig::Fixed, LawConfig::Advice(Arc::default())] {
        config.law = law;
        assert_eq!([tenths(&config, 5.0), tenths(&config, 0.5)], [50, 5]);
    }
    // A law that learns starts at 1 and may not pass 10.
    let config = Config::crawler();
    assert_eq!([tenths(&config, 50.0), tenths(&config, 0.5)], [10, 5]);
}
