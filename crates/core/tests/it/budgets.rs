//! P10: no window has more requests than a declared limit allows, and the limit is used.

mod estimates;

use std::time::Duration;

use politely_core::budget::{DeclaredLimits, LimitUnit, LimitWindow, UnitCosts};
use politely_core::config::Config;
use politely_core::host::{AcquireRequest, Decision, Grant, Host, KeyRule, Reason, Unused};
use politely_core::signal::{Report, Signal};
use politely_core::{Rng, Timestamp};
use proptest::prelude::*;

const HOUR: Duration = Duration::from_hours(1);
const DAY_S: u64 = 86_400;

pub(crate) fn limits(text: &str) -> DeclaredLimits {
    text.parse().expect("a limit")
}

/// Returns a configuration of a fixed rate with declared limits.
pub(crate) fn config(rate: f64, declared: &str) -> Config {
    let mut config = Config::fixed(rate, 1.0);
    config.declared = limits(declared);
    config
}

/// Returns the time of a whole second since 1970.
pub(crate) fn at(secs: u64) -> Timestamp {
    Timestamp::from_micros(secs * 1_000_000)
}

/// Returns the departures of a client that always has a request, until `end`.
fn departures(config: &Config, begin: Timestamp, end: Timestamp) -> Vec<Timestamp> {
    let (mut host, mut now, mut left) = (Host::new(config, begin), begin, Vec::new());
    let mut rng = Rng::new(1);
    while now < end {
        match host.request(now, AcquireRequest::default(), config) {
            Decision::Granted(grant) => {
                left.push(grant.start);
                let report = Report::of(Signal::Ok);
                host.report(now, grant.lease, &report, config, &mut rng);
            }
            Decision::Wait(wait) => now = wait.at,
        }
    }
    left
}

/// Returns the most departures in any window of `length`.
fn most(left: &[Timestamp], length: Duration) -> usize {
    let count =
        |(i, first): (usize, &Timestamp)| left.partition_point(|at| *at < *first + length) - i;
    left.iter().enumerate().map(count).max().unwrap_or(0)
}

#[test]
fn five_thousand_an_hour_are_used_and_never_exceeded() {
    // A burst, a moderate rate, and one barely above the limit.
    for rate in [50.0, 3.0, 1.5] {
        let config = config(rate, "5000/h");
        let (begin, hours) = (at(1_795_000_000), 12);
        let left = departures(&config, begin, begin + HOUR * hours);
        assert!(most(&left, HOUR) <= 5_000, "{rate}");
        let share = left.len() as f64 / (5_000.0 * f64::from(hours));
        assert!(share >= 0.98, "{rate}: {share}");
    }
}

#[test]
fn two_windows_agree() {
    let config = config(1_000.0, "10/s; 300/min");
    let begin = at(1_795_000_000);
    let left = departures(&config, begin, begin + HOUR);
    assert!(most(&left, Duration::from_secs(1)) <= 10);
    assert!(most(&left, Duration::from_mins(1)) <= 300);
    let share = left.len() as f64 / (300.0 * 60.0);
    assert!(share >= 0.98, "{share}");
}

/// The days of Berlin in late October 2026 begin at 22:00 UTC, and after the 25th at 23:00 UTC. The
/// 25th has 25 hours.
#[test]
fn a_thousand_a_day_across_midnight_and_a_clock_change() {
    let config = config(1.0, "1000/day@Europe/Berlin");
    let midnight_24th = 1_792_792_800;
    let days = [24, 25, 24].iter().scan(midnight_24th, |from, hours| {
        let day = *from..*from + hours * 3_600;
        *from = day.end;
        Some(day)
    });
    let left = departures(&config, at(midnight_24th), at(midnight_24th + 73 * 3_600));
    let days: Vec<_> = days.collect();
    for day in &days {
        let of_day = |left: &&Timestamp| (at(day.start)..at(day.end)).contains(left);
        assert_eq!(left.iter().filter(of_day).count(), 1_000, "{day:?}");
    }
    // None of them is so near a boundary that it counts in the server's other day.
    for left in &left {
        let clear = |day: &std::ops::Range<u64>| {
            at(day.start) == at(midnight_24th)
                || *left + Duration::from_secs(1) <= at(day.start)
                || *left >= at(day.start + 1)
        };
        assert!(days.iter().all(clear), "{left}");
    }
}

#[test]
fn a_wait_names_the_limit_and_its_end() {
    let config = config(1_000.0, "10/s; 20/day@UTC");
    let day = 20_000 * DAY_S;
    let left = departures(&config, at(day + 10), at(day + DAY_S));
    assert_eq!(left.len(), 20);
    let mut host = Host::new(&config, at(day + 10));
    let mut now = at(day + 10);
    let wait = loop {
        match host.request(now, AcquireRequest::default(), &config) {
            Decision::Granted(grant) => host.release(now, grant.lease, 0, &config),
            Decision::Wait(wait) if wait.at > at(day + DAY_S) => break wait,
            Decision::Wait(wait) => now = wait.at,
        }
    };
    assert_eq!(wait.reason, Reason::Budget);
    let explained = host.explain(now, &config);
    let line = explained.line(now);
    assert!(line.contains("budget 20/day@UTC is spent"), "{line}");
    let left: Vec<u64> = explained
        .budgets
        .iter()
        .map(|left| left.remaining)
        .collect();
    assert_eq!(left[1], 0, "{left:?}");
}

#[test]
fn a_key_without_a_rate_names_none() {
    let config = config(1_000.0, "10/s");
    let mut explained = Host::new(&config, at(0)).explain(at(0), &config);
    assert!(explained.line(at(0)).starts_with("ready, 1000.00/s, 0 of "));
    explained.rate = f64::INFINITY;
    assert!(explained.line(at(0)).starts_with("ready, 0 of "));
}

#[test]
fn a_cost_above_the_whole_limit_never_leaves() {
    let config = config(1_000.0, "5/h");
    let ask = AcquireRequest {
        cost: 6,
        ..AcquireRequest::default()
    };
    let decision = Host::new(&config, at(1)).request(at(1), ask, &config);
    let Decision::Wait(wait) = decision else {
        panic!("{decision:?}")
    };
    assert_eq!((wait.at, wait.reason), (Timestamp::NEVER, Reason::Budget));
}

#[test]
fn concurrent_requests_are_capped() {
    let config = config(1_000_000.0, "3 concurrent");
    let mut host = Host::new(&config, at(1));
    for i in 0..3 {
        let now = at(1) + Duration::from_millis(i);
        let decision = host.request(now, AcquireRequest::default(), &config);
        assert!(matches!(decision, Decision::Granted(_)));
    }
    let Decision::Wait(wait) = host.request(at(2), AcquireRequest::default(), &config) else {
        panic!("a fourth left")
    };
    assert_eq!(wait.reason, Reason::InFlight);
}

#[test]
fn bytes_are_charged_when_they_have_come() {
    let config = config(1_000.0, "1MB/min");
    let mut host = Host::new(&config, at(1));
    let mut rng = Rng::new(1);
    let Decision::Granted(grant) = host.request(at(1), AcquireRequest::default(), &config) else {
        panic!("nothing was spent")
    };
    let report = Report {
        bytes: 3_000_000,
        ..Report::of(Signal::Ok)
    };
    host.report(at(2), grant.lease, &report, &config, &mut rng);
    let Decision::Wait(wait) = host.request(at(3), AcquireRequest::default(), &config) else {
        panic!("the megabyte is spent")
    };
    assert_eq!(wait.reason, Reason::Budget);
    assert!(wait.at >= at(62), "{}", wait.at);
    assert!(host.request(wait.at, AcquireRequest::default(), &config) != Decision::Wait(wait));
    let windows = config.declared.windows();
    assert_eq!(windows[0].unit(), LimitUnit::Bytes);
    assert!(matches!(windows[0].window(), LimitWindow::Rolling(_)));
}

/// Regression: the key of an account stayed at the start rate of an unknown host, 1/s.
#[test]
fn an_account_has_no_other_rate_than_its_limits() {
    let config = Config::crawler();
    let (mut host, mut now, mut left) = (Host::new(&config, at(1)), at(1), Vec::new());
    host.follow_rule(now, Some(&limits("50/s").into()), &config);
    let ask = AcquireRequest {
        is_limit_only: true,
        ..AcquireRequest::default()
    };
    while now < at(11) {
        match host.request(now, ask.clone(), &config) {
            Decision::Granted(grant) => {
                left.push(grant.start);
                host.release(now, grant.lease, 0, &config);
            }
            Decision::Wait(wait) => now = wait.at,
        }
    }
    assert!(most(&left, Duration::from_secs(1)) <= 50);
    assert!(left.len() >= 490, "{}", left.len());
}

#[test]
fn limits_of_an_operator_come_before_those_of_a_rule() {
    let config = Config::crawler();
    let mut host = Host::new(&config, at(1));
    let (rule, own) = (KeyRule::from(limits("50/s")), limits("1/h"));
    host.follow_rule(at(1), Some(&rule), &config);
    assert!(!host.is_new_rule(Some(&rule)));
    host.declare(at(1), Some(own.clone()), &config);
    host.follow_rule(at(1), Some(&rule), &config);
    assert_eq!(host.own_limits(), Some(&own));
    host.follow_rule(at(1), None, &config);
    assert_eq!(host.own_limits(), Some(&own));
    host.declare(at(1), None, &config);
    host.follow_rule(at(1), Some(&rule), &config);
    let host = Host::restore(&host.snapshot(), at(2), &config).expect("its own bytes");
    assert_eq!(host.own_limits(), rule.limits.as_ref());
    assert!(host.is_new_rule(None), "a rule that is gone");
}

fn tokens(amount: u64) -> UnitCosts {
    UnitCosts::new([("tokens", amount)]).expect("a unit")
}

pub(crate) fn asks(amount: u64) -> AcquireRequest {
    AcquireRequest {
        units: tokens(amount),
        ..AcquireRequest::default()
    }
}

/// Returns the grant of a request that estimates `amount` tokens.
pub(crate) fn granted(host: &mut Host, now: Timestamp, amount: u64, config: &Config) -> Grant {
    match host.request(now, asks(amount), config) {
        Decision::Granted(grant) => grant,
        Decision::Wait(wait) => panic!("{wait:?}"),
    }
}

#[test]
fn an_operators_limits_replace_the_configured_ones_and_are_kept() {
    let config = config(1_000.0, "100/h");
    let mut host = Host::new(&config, at(1));
    host.declare(at(1), Some(limits("2/h; 1/day@UTC")), &config);
    let request =
        |host: &mut Host, secs| host.request(at(secs), AcquireRequest::default(), &config);
    assert!(matches!(request(&mut host, 2), Decision::Granted(_)));
    let state = host.snapshot();
    let mut host = Host::restore(&state, at(3), &config).expect("its own bytes");
    assert_eq!(host.snapshot(), state);
    assert_eq!(host.own_limits(), Some(&limits("2/h; 1/day@UTC")));
    let Decision::Wait(wait) = request(&mut host, 4) else {
        panic!("the day was spent before the restart")
    };
    assert_eq!(wait.reason, Reason::Budget);
    assert!(!host.evictable(at(9), true, &config));
    host.declare(at(5), Some(limits("1/h")), &config);
    assert!(matches!(request(&mut host, 6), Decision::Wait(_)));
    host.forget(at(7), &config);
    assert_eq!(host.own_limits(), None);
    assert!(matches!(request(&mut host, 8), Decision::Granted(_)));
}

/// An engine holds a million keys, so three limits may cost 250 bytes.
#[test]
fn three_limits_take_few_bytes() {
    let plain = Config::fixed(20.0, 1.0);
    let mut with = plain.clone();
    with.declared = limits("10/s; 1000/h; 10000/day@UTC");
    let begin = at(1_795_000_000);
    let mut size = [0, 0];
    for (size, config) in size.iter_mut().zip([&plain, &with]) {
        let (mut host, mut now) = (Host::new(config, begin), begin);
        let mut rng = Rng::new(7);
        while now < begin + HOUR * 5 {
            match host.request(now, AcquireRequest::default(), config) {
                Decision::Granted(grant) => host.release(now, grant.lease, 0, config),
                Decision::Wait(wait) => now = wait.at,
            }
            now = now + Duration::from_secs_f64(rng.between(0.0, 2.0));
        }
        *size = host.snapshot().len();
    }
    let [without, with] = size;
    assert!(with - without <= 250, "{without} {with}");
}

#[derive(Clone, Debug)]
enum Step {
    Request(u16),
    Cancel(usize),
    Report(usize),
    Save,
    Kill,
    Restart,
    Pause(u64),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (1_u16..4).prop_map(Step::Request),
        2 => (0_usize..8).prop_map(Step::Cancel),
        2 => (0_usize..8).prop_map(Step::Report),
        2 => Just(Step::Save),
        1 => Just(Step::Kill),
        1 => Just(Step::Restart),
        4 => (0_u64..3_000).prop_map(Step::Pause),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// A killed process has saved its state within the last second, and what it spent before each
    /// permit was given out.
    #[test]
    fn no_window_has_more_than_its_quantity_killed_when_you_like(
        quantity in 3_u64..30,
        rate in 1_u32..40,
        steps in proptest::collection::vec(any_step(), 1..200),
    ) {
        let config = config(f64::from(rate), &format!("{quantity}/20s; {}/min", 2 * quantity));
        let mut now = at(1_795_000_000);
        let (mut host, mut rng) = (Host::new(&config, now), Rng::new(1));
        let (mut saved, mut saved_at, mut newest) = (host.snapshot(), now, now);
        let mut spent = None;
        let mut open: Vec<Grant> = Vec::new();
        let mut left: Vec<Timestamp> = Vec::new();
        let leave = |left: &mut Vec<Timestamp>, grant: &Grant| {
            left.extend(std::iter::repeat_n(grant.start, usize::from(grant.unused.cost)));
        };
        for step in steps {
            match step {
                Step::Request(cost) => {
                    let ask = AcquireRequest { cost, ..AcquireRequest::default() };
                    if let Decision::Granted(grant) = host.request(now, ask.clone(), &config) {
                        newest = newest.max(grant.start);
                        spent = host.spent();
                        open.push(grant);
                    }
                }
                Step::Cancel(i) if i < open.len() => {
                    let grant = open.remove(i);
                    let unused = Unused { cost: grant.unused.cost, bytes: 0 };
                    host.cancel(now, grant.lease, Some(unused), &config);
                }
                Step::Report(i) if i < open.len() => {
                    let grant = open.remove(i);
                    leave(&mut left, &grant);
                    let report = Report::of(Signal::Ok);
                    host.report(now, grant.lease, &report, &config, &mut rng);
                }
                Step::Cancel(_) | Step::Report(_) => {}
                Step::Save => (saved, saved_at) = (host.snapshot(), now),
                Step::Kill | Step::Restart => {
                    // Every granted request may have left.
                    for grant in open.drain(..) {
                        leave(&mut left, &grant);
                    }
                    let is_clean = matches!(step, Step::Restart);
                    let state = if is_clean { host.snapshot() } else { saved.clone() };
                    host = Host::restore(&state, now, &config).expect("its own bytes");
                    host.forget_leases();
                    if let Some(spent) = &spent {
                        host.join_spent(now, spent, &config).expect("its own bytes");
                    }
                    host.resume_after(now, newest.max(now), &config);
                    (saved, saved_at) = (host.snapshot(), now);
                }
                Step::Pause(ms) => now = now + Duration::from_millis(ms),
            }
            if now.since(saved_at) > Duration::from_secs(1) {
                (saved, saved_at) = (host.snapshot(), now);
            }
        }
        for grant in &open {
            leave(&mut left, grant);
        }
        left.sort_unstable();
        prop_assert!(most(&left, Duration::from_secs(20)) as u64 <= quantity);
        prop_assert!(most(&left, Duration::from_mins(1)) as u64 <= 2 * quantity);
    }

    /// Two copies of a state that were written after a loss promise no more than either.
    #[test]
    fn a_merge_keeps_the_smaller_remainder(mine in 0_u64..9, theirs in 0_u64..9) {
        let config = config(1_000.0, "10/h; 10/day@UTC");
        let begin = at(1_795_000_000);
        let spend = |count| {
            let mut host = Host::new(&config, begin);
            let (mut now, mut granted) = (begin, 0);
            while granted < count {
                match host.request(now, AcquireRequest::default(), &config) {
                    Decision::Granted(grant) => {
                        host.release(now, grant.lease, 0, &config);
                        granted += 1;
                    }
                    Decision::Wait(wait) => now = wait.at,
                }
            }
            host
        };
        let (mut one, two) = (spend(mine), spend(theirs));
        let mut other = two.clone();
        let now = begin + Duration::from_secs(1);
        other.join(&one, now, &config);
        one.join(&two, now, &config);
        prop_assert_eq!(one.snapshot(), other.snapshot());
        for left in one.explain(now, &config).budgets {
            prop_assert_eq!(left.remaining, 10 - mine.max(theirs));
        }
    }
}
