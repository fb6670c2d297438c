use std::mem::size_of;

use super::*;

#[test]
fn a_key_is_small() {
    assert!(size_of::<Host>() <= 208, "{}", size_of::<Host>());
}

/// The default law adds nothing to that before it has something to learn: see `control/discover/quiet.rs`.
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

/// Before this, a bucket of one was used at four fifths: every answer said that nothing was left for now.
#[test]
fn nothing_left_holds_a_key_only_if_its_law_does_not_pace_by_the_quota() {
    let now = Timestamp::from_micros(1_000_000);
    let spent = Report {
        quota: Some(Quota {
            limit: Some(20),
            remaining: Some(0),
            reset: Some(Duration::from_secs(10)),
            window: Some(Duration::from_secs(20)),
        }),
        ..Report::of(Signal::Ok)
    };
    for (law, held) in [("discover", false), ("aimd", true)] {
        let config = Config::api().with_law(law.parse().expect("a law"));
        let mut host = Host::new(&config, now);
        let Decision::Granted(grant) = host.request(now, Ask::default(), &config) else {
            panic!("a new key grants")
        };
        let told = host.report(now, grant.lease, &spent, &config, &mut Rng::new(1));
        assert_eq!(told.hold_until > now, held, "{law}");
    }
}

#[test]
fn a_run_ends_within_two_seconds() {
    let config = Config::fixed(1.0, 2.0);
    let now = Timestamp::from_micros(100_000_000);
    let mut host = Host::new(&config, now);
    let run = Ask {
        slots: 16,
        ..Ask::default()
    };
    let Decision::Granted(grant) = host.request(now, run, &config) else {
        panic!("a full bucket");
    };
    // At 100, 101 and 102 s.
    assert_eq!(grant.slots, 3);
    assert_eq!(host.in_flight(), 3);
}
