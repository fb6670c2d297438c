//! What a rule sets for a key beside limits, and quotas that a server states.

use std::time::Duration;

use politely_core::config::Config;
use politely_core::control::{AimdConfig, LawChoice, LawConfig};
use politely_core::gate::BreakerConfig;
use politely_core::host::{
    AcquireRequest, Decision, Host, KeyRule, OperatorNumbers, Reason, Spacing, TroubleNumbers,
};
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
        match host.request(now, AcquireRequest::default(), &config) {
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
        ..KeyRule::default()
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
        ..KeyRule::default()
    };
    host.follow_rule(now, Some(&rule), &config);
    let mut rng = Rng::new(1);
    while now < at(11) {
        match host.request(now, AcquireRequest::default(), &config) {
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
    let plain = host.request(at(5), AcquireRequest::default(), &config);
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

#[test]
fn a_stated_quota_is_kept_until_its_reset() {
    let config = Config::fixed(100.0, 1.0);
    let (mut host, mut rng) = (Host::new(&config, at(1)), Rng::new(1));
    let grant = granted(&mut host, at(1), 5, &config);
    host.report(at(2), grant.lease, &states(0, 100), &config, &mut rng);
    assert!(!host.evictable(at(90), true, &config));
    assert!(host.evictable(at(103), true, &config));
}

#[test]
fn a_clock_that_is_set_back_sets_back_the_reset_of_a_stated_quota() {
    let config = Config::fixed(100.0, 1.0);
    let (mut host, mut rng) = (Host::new(&config, at(1_000)), Rng::new(1));
    let grant = granted(&mut host, at(1_000), 5, &config);
    host.report(at(1_000), grant.lease, &states(0, 10), &config, &mut rng);
    let mut host = Host::restore(&host.snapshot(), at(2), &config).expect("its own bytes");
    let Decision::Wait(_) = host.request(at(3), asks(1), &config) else {
        panic!("nothing is left until the reset");
    };
    granted(&mut host, at(13), 1, &config);
}

/// Reports `count` outcomes of requests, one a second from `from` on.
fn outcomes(host: &mut Host, from: u64, count: u64, report: &Report, config: &Config) {
    let mut rng = Rng::new(1);
    for second in from..from + count {
        let grant = granted(host, at(second), 0, config);
        host.report(at(second), grant.lease, report, config, &mut rng);
    }
}

fn troubled(trouble: TroubleNumbers) -> KeyRule {
    KeyRule {
        trouble,
        ..KeyRule::default()
    }
}

#[test]
fn a_rule_sets_when_the_breaker_trips_and_how_long_it_rests() {
    let config = Config::fixed(100.0, 100.0);
    let breaker = BreakerConfig {
        trip_after: 2,
        rest_min: Duration::from_secs(30),
        rest_max: Duration::from_secs(30),
    };
    let rule = troubled(TroubleNumbers {
        breaker: Some(breaker),
        ..TroubleNumbers::default()
    });
    let failure = Report::of(Signal::Unreachable);
    for (rule, trips_after) in [(None, 5), (Some(&rule), 2)] {
        let mut host = Host::new(&config, at(1));
        host.follow_rule(at(1), rule, &config);
        outcomes(&mut host, 1, trips_after, &failure, &config);
        // The rest of a rule stays the same after a restart.
        let mut host = Host::restore(&host.snapshot(), at(7), &config).expect("its own bytes");
        let Decision::Wait(wait) = host.request(at(7), AcquireRequest::default(), &config) else {
            assert!(rule.is_none(), "the breaker rests for 30 s");
            continue;
        };
        assert_eq!((wait.reason, rule.is_some()), (Reason::Breaker, true));
        assert!(wait.at >= at(32) && wait.at <= at(36), "{:?}", wait.at);
    }
}

#[test]
fn a_rule_with_a_cut_makes_the_law_aimd_until_the_rule_is_gone() {
    let config = Config::api();
    let rule = troubled(TroubleNumbers {
        cut: Some(0.5),
        ..TroubleNumbers::default()
    });
    let law = |host: &mut Host| host.explain(at(90), &config).in_force.law.0;
    let mut host = Host::new(&config, at(1));
    host.follow_rule(at(1), Some(&rule), &config);
    assert_eq!(law(&mut host), "aimd");
    let mut host = Host::restore(&host.snapshot(), at(2), &config).expect("its own bytes");
    assert_eq!(
        (law(&mut host), host.is_new_rule(Some(&rule))),
        ("aimd", false)
    );
    host.forget(at(3), &config);
    assert_eq!(law(&mut host), "aimd");
    // An operator's choice comes first.
    let choose = |law| OperatorNumbers {
        law: Some(law),
        ..OperatorNumbers::default()
    };
    host.set(at(4), choose(LawChoice::Fixed), &config);
    assert_eq!(law(&mut host), "fixed");
    host.set(at(5), choose(LawChoice::Configured), &config);
    assert_eq!(law(&mut host), "aimd");
    host.follow_rule(at(6), None, &config);
    assert_eq!(law(&mut host), "discover");
}

#[test]
fn a_rules_cut_is_the_share_of_the_rate_that_remains() {
    // The law begins without its fast start, whose own cut returns to a rate that was served.
    let mut config = Config::api();
    config.law = LawConfig::Aimd(std::sync::Arc::new(AimdConfig {
        slow_start: false,
        ..AimdConfig::default()
    }));
    for (cut, share) in [(None, 0.8), (Some(0.25), 0.25)] {
        let rule = troubled(TroubleNumbers {
            cut,
            ..TroubleNumbers::default()
        });
        let mut host = Host::new(&config, at(1));
        host.follow_rule(at(1), Some(&rule), &config);
        outcomes(&mut host, 2, 1, &Report::of(Signal::RateLimited), &config);
        let rate = host.explain(at(3), &config).in_force.law_rate;
        assert!(
            (rate / config.limits.rate_start - share).abs() < 1e-9,
            "{cut:?}: {rate}"
        );
    }
}

#[test]
fn a_rule_bounds_the_backoff_of_a_refusal_without_a_wait() {
    // An interval of 20 s: the first backoff is 40 s.
    let config = Config::fixed(0.05, 1.0);
    for (backoff_max, least, most) in [(None, 40, 44), (Some(7), 7, 8)] {
        let rule = troubled(TroubleNumbers {
            backoff_max: backoff_max.map(Duration::from_secs),
            ..TroubleNumbers::default()
        });
        let mut host = Host::new(&config, at(1));
        host.follow_rule(at(1), Some(&rule), &config);
        outcomes(&mut host, 1, 1, &Report::of(Signal::RateLimited), &config);
        let ends = host
            .hold_ends(at(1))
            .expect("a hold")
            .since(at(1))
            .as_secs();
        assert!((least..=most).contains(&ends), "{ends}");
    }
}
