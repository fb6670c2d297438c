use std::mem::size_of;

use super::*;

#[test]
fn a_key_is_small() {
    assert!(size_of::<Host>() <= 216, "{}", size_of::<Host>());
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
    report.quota = Some(crate::signal::Quota {
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
