//! What a rule sets for a key beside limits, and quotas that a server states.

use std::time::Duration;

use politely_core::config::Config;
use politely_core::host::{Ask, Decision, Host, KeyRule, Reason, Spacing};
use politely_core::signal::{Quota, Report, Signal, Unit};
use politely_core::{Rng, Timestamp};

use crate::budgets::{asks, at, config, granted, limits};

/// Returns the gaps of `count` departures of a key that follows `rule` and is always asked.
fn gaps(rule: &KeyRule, count: usize) -> Vec<f64> {
    let config = Config::fixed(10.0, 5.0);
    let (mut host, mut now) = (Host::new(&config, at(1)), at(1));
    host.follow_rule(now, Some(rule), &config);
    let mut left: Vec<Timestamp> = Vec::with_capacity(count + 1);
    while left.len() <= count {
        match host.request(now, Ask::default(), &config) {
            Decision::Granted(grant) => {
                left.push(grant.start);
                host.release(now, grant.lease, 0, &config);
            }
            Decision::Wait(wait) => now = wait.at,
        }
    }
    left.windows(2)
        .map(|pair| pair[1].seconds_since(pair[0]))
        .collect()
}

fn spaced(spacing: Spacing) -> KeyRule {
    KeyRule {
        spacing: Some(spacing),
        ..KeyRule::default()
    }
}

/// At 10 requests per second the interval is 100 ms.
#[test]
fn the_gaps_of_a_spacing_have_its_minimum_and_its_mean() {
    const COUNT: usize = 1_000_000;
    let mean = |gaps: &[f64]| gaps.iter().sum::<f64>() / gaps.len() as f64;
    let least = |gaps: &[f64]| gaps.iter().copied().fold(f64::INFINITY, f64::min);
    let most = |gaps: &[f64]| gaps.iter().copied().fold(0.0, f64::max);
    let fixed = gaps(&spaced(Spacing::Fixed), COUNT);
    assert!((mean(&fixed) - 0.1).abs() < 0.001, "{}", mean(&fixed));
    assert!(least(&fixed) > 0.099 && most(&fixed) < 0.101);
    let uniform = gaps(&spaced(Spacing::Uniform), COUNT);
    assert!((least(&uniform) - 0.1).abs() < 0.001, "{}", least(&uniform));
    assert!((mean(&uniform) - 0.15).abs() < 0.0015, "{}", mean(&uniform));
    assert!(most(&uniform) < 0.201);
    let exponential = gaps(&spaced(Spacing::Exponential), COUNT);
    assert!(
        (mean(&exponential) - 0.1).abs() < 0.001,
        "{}",
        mean(&exponential)
    );
    let short = exponential.iter().filter(|gap| **gap < 0.05).count();
    let expected = 1.0 - (-0.5_f64).exp();
    assert!((short as f64 / COUNT as f64 - expected).abs() < 0.01);
}

#[test]
fn a_declared_limit_is_the_interval_if_it_is_slower() {
    let rule = KeyRule {
        limits: Some(limits("120/min")),
        learn: false,
        spacing: Some(Spacing::Fixed),
    };
    let gaps = gaps(&rule, 50);
    assert!(gaps.iter().all(|gap| (gap - 0.5).abs() < 0.005), "{gaps:?}");
}

#[test]
fn a_rule_that_does_not_learn_leaves_only_its_limits() {
    let config = Config::crawler();
    let (mut host, mut now, mut left) = (Host::new(&config, at(1)), at(1), Vec::new());
    let rule = KeyRule {
        limits: Some(limits("50/s")),
        learn: false,
        spacing: None,
    };
    host.follow_rule(now, Some(&rule), &config);
    let mut rng = Rng::new(1);
    while now < at(11) {
        match host.request(now, Ask::default(), &config) {
            Decision::Granted(grant) => {
                left.push(grant.start);
                host.report(now, grant.lease, &Report::of(Signal::Ok), &config, &mut rng);
            }
            Decision::Wait(wait) => now = wait.at,
        }
    }
    assert!(left.len() >= 490, "{}", left.len());
    let host = Host::restore(&host.snapshot(), now, &config).expect("its own bytes");
    assert!(!host.is_new_rule(Some(&rule)));
    assert!(!host.explain(now, &config).in_force.learns);
}

/// Returns a successful report whose headers state what is left of the tokens.
fn states(remaining: u64, reset_s: u64) -> Report {
    let quota = Quota {
        unit: Unit::Tokens,
        limit: Some(1_000),
        remaining: Some(remaining),
        reset: Some(Duration::from_secs(reset_s)),
        ..Quota::default()
    };
    Report {
        quotas: quota.into(),
        ..Report::of(Signal::Ok)
    }
}

#[test]
fn of_a_declared_and_a_stated_quota_the_smaller_remainder_counts() {
    let config = config(100.0, "1000 tokens/min");
    let (mut host, mut rng) = (Host::new(&config, at(1)), Rng::new(1));
    let grant = granted(&mut host, at(1), 100, &config);
    let under_way = granted(&mut host, at(2), 50, &config);
    // The server says that 250 are left, and it has not counted the 50 under way.
    host.report(at(3), grant.lease, &states(250, 20), &config, &mut rng);
    let host_after = Host::restore(&host.snapshot(), at(3), &config).expect("its own bytes");
    assert_eq!(host_after, host);
    let Decision::Wait(wait) = host.request(at(3), asks(201), &config) else {
        panic!("200 are left");
    };
    assert_eq!((wait.at, wait.reason), (at(23), Reason::Budget));
    granted(&mut host, at(3), 200, &config);
    assert!(matches!(
        host.request(at(4), asks(1), &config),
        Decision::Wait(_)
    ));
    // A request that states no tokens is not limited by them.
    let plain = host.request(at(5), Ask::default(), &config);
    assert!(matches!(plain, Decision::Granted(_)));
    // The next answer contradicts, so the stated quota is replaced; the declared one counts.
    host.report(at(6), under_way.lease, &states(900, 20), &config, &mut rng);
    granted(&mut host, at(6), 600, &config);
    let Decision::Wait(wait) = host.request(at(7), asks(100), &config) else {
        panic!("50 of the declared 1,000 are left");
    };
    assert!(wait.at > at(60));
}

#[test]
fn a_stated_quota_ends_with_its_reset() {
    let config = config(100.0, "1000/h");
    let (mut host, mut rng) = (Host::new(&config, at(1)), Rng::new(1));
    let grant = granted(&mut host, at(1), 5, &config);
    host.report(at(2), grant.lease, &states(0, 10), &config, &mut rng);
    assert!(matches!(
        host.request(at(11), asks(1), &config),
        Decision::Wait(_)
    ));
    granted(&mut host, at(12), 1, &config);
}
