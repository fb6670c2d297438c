//! Tests of an operator's numbers, and of their removal.

use std::time::Duration;

use super::*;
use crate::config::Cohorts;
use crate::control::LawChoice;

fn at(ms: u64) -> Timestamp {
    Timestamp::from_micros(1_000_000 + 1_000 * ms)
}

/// An operator's way to remove a Crawl-delay.
type Lift = fn(&mut Host, &Config);

fn rate(host: &mut Host, ms: u64, config: &Config) -> f64 {
    host.explain(at(ms), config).rate
}

/// An account's limit is named in `also`, so no outcome reaches it.
#[test]
fn on_a_key_without_outcomes_the_operators_numbers_are_its_numbers() {
    let config = Config::api();
    let mut host = Host::new(&config, at(0));
    let numbers = OperatorNumbers {
        in_flight: Some(500),
        ..OperatorNumbers::rate(50.0, 80.0)
    };
    host.set(at(0), numbers, &config);
    let ask = AcquireRequest {
        is_limit_only: true,
        ..AcquireRequest::default()
    };
    let granted = (0..200)
        .filter(|_| {
            matches!(
                host.request(at(0), ask.clone(), &config),
                Decision::Granted(_)
            )
        })
        .count();
    assert_eq!(granted, 80, "the burst fills an unused bucket");
    assert_eq!(host.slots(at(0), &config), (80, 500));
    assert_eq!(rate(&mut host, 0, &config), 50.0);
    let snapshot = host.snapshot();
    let mut again = Host::restore(&snapshot, at(0), &config).unwrap();
    assert_eq!(rate(&mut again, 0, &config), 50.0);
    // As the first key of a request, it will learn, and its law begins below the number.
    let _ = host.request(at(1_000), AcquireRequest::default(), &config);
    assert_eq!(rate(&mut host, 1_000, &config), 2.0);
}

#[test]
fn a_law_of_its_own_makes_the_number_the_limit_and_is_taken_back() {
    let config = Config::api();
    let mut host = Host::new(&config, at(0));
    let _ = host.request(at(0), AcquireRequest::default(), &config);
    host.set(at(0), OperatorNumbers::rate(50.0, 1.0), &config);
    let _ = host.request(at(0), AcquireRequest::default(), &config);
    assert_eq!(rate(&mut host, 0, &config), 2.0);
    let law = |law| OperatorNumbers {
        law: Some(law),
        ..OperatorNumbers::default()
    };
    host.set(at(0), law(LawChoice::Fixed), &config);
    assert_eq!(rate(&mut host, 0, &config), 50.0);
    let mut again = Host::restore(&host.snapshot(), at(0), &config).unwrap();
    assert_eq!(rate(&mut again, 0, &config), 50.0);
    assert_eq!(again.operator_numbers(), host.operator_numbers());
    host.set(at(0), law(LawChoice::Configured), &config);
    assert_eq!(rate(&mut host, 0, &config), 2.0);
    host.set(
        at(0),
        OperatorNumbers {
            learn: Some(false),
            ..OperatorNumbers::default()
        },
        &config,
    );
    assert_eq!(rate(&mut host, 0, &config), 50.0);
}

#[test]
fn a_debt_of_a_mistaken_rate_is_paid_at_the_corrected_one() {
    let config = Config::fixed(1_000.0, 1.0);
    let mut host = Host::new(&config, at(0));
    host.set(at(0), OperatorNumbers::rate(0.01, 1.0), &config);
    let ask = AcquireRequest {
        cost: 100,
        ..AcquireRequest::default()
    };
    assert!(matches!(
        host.request(at(0), ask, &config),
        Decision::Granted(_)
    ));
    host.set(at(0), OperatorNumbers::rate(1_000.0, 1.0), &config);
    let explained = host.explain(at(0), &config);
    assert_eq!(explained.wait.unwrap().at, at(100));
}

#[test]
fn an_operator_removes_what_workers_read_in_robots_txt() {
    let config = Config::fixed(10.0, 3.0);
    let told = CrawlDelay {
        pause: Duration::from_hours(30 * 24),
        fresh: Duration::from_hours(24),
    };
    let lifts: [Lift; 3] = [
        |host, config| host.unpark(at(0), config),
        |host, config| host.forget(at(0), config),
        |host, config| {
            let none = OperatorNumbers {
                crawl_delay_ms: Some(0),
                ..OperatorNumbers::default()
            };
            host.set(at(0), none, config);
        },
    ];
    for (number, lift) in lifts.into_iter().enumerate() {
        let mut host = Host::new(&config, at(0));
        host.crawl_delay(at(0), told, &config);
        let wait = host.explain(at(0), &config).wait.unwrap();
        assert_eq!(
            wait.at.since(at(0)),
            Duration::from_hours(24),
            "a day at most"
        );
        lift(&mut host, &config);
        assert_eq!(host.explain(at(0), &config).wait, None, "{number}");
        assert_eq!(rate(&mut host, 0, &config), 10.0);
        assert_eq!(host.crawl_delay(at(0), told, &config), number != 2);
    }
}

#[test]
fn forget_lifts_the_holds_that_the_server_did_not_ask_for() {
    let config = Config::fixed(10.0, 3.0);
    let reasons = [
        (HoldReason::Operator, false),
        (HoldReason::Backoff, false),
        (HoldReason::RetryAfter, true),
        (HoldReason::QuotaSpent, true),
    ];
    for (reason, stays) in reasons {
        let mut host = Host::new(&config, at(0));
        host.hold(at(0), at(60_000), reason);
        host.forget(at(0), &config);
        assert_eq!(host.explain(at(0), &config).wait.is_some(), stays);
    }
}

#[test]
fn a_change_for_new_keys_leaves_known_keys_alone_across_a_restore() {
    let now = at(0);
    let before = Config::fixed(5.0, 1.0);
    let mut old = Host::new(&before, now);
    let between = before.clone().for_new_keys(Config::fixed(50.0, 2.0).limits);
    old.reconfigure(now, &before, &between);
    let mut second = Host::new(&between, now);
    let after = between.clone().for_new_keys(Config::fixed(9.0, 3.0).limits);
    after.validate().unwrap();
    let mut third = Host::new(&after, now);
    for host in [&mut old, &mut second, &mut third] {
        let restored = Host::restore(&host.snapshot(), now, &after).unwrap();
        assert_eq!(&restored, host);
        *host = restored;
    }
    let rates = [&mut old, &mut second, &mut third].map(|host| rate(host, 0, &after));
    assert_eq!(rates, [5.0, 50.0, 9.0]);
    assert_eq!(old.snapshot()[0], 27, "old states do not grow");
    // A change for all keys ends the cohorts. The next change for new keys tells all known keys
    // from new ones again.
    let mut all = Config::fixed(7.0, 1.0);
    all.cohorts = Cohorts::new(2, Vec::new());
    second.reconfigure(now, &after, &all);
    assert_eq!(rate(&mut second, 0, &all), 7.0);
    let fourth = Host::new(&all, now);
    let again = all.clone().for_new_keys(Config::fixed(1.0, 1.0).limits);
    let hosts = [old, second, third, fourth, Host::new(&again, now)];
    let rates = hosts.map(|mut host| rate(&mut host, 0, &again));
    assert_eq!(rates, [7.0, 7.0, 7.0, 7.0, 1.0]);
}
