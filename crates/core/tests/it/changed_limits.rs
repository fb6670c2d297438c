//! Limits that are declared, changed and removed while permits are out.

use std::time::Duration;

use politely_core::Timestamp;
use politely_core::budget::UnitCosts;
use politely_core::host::{AcquireRequest, Decision, Grant, Host};
use proptest::prelude::*;

use crate::budgets::{asks, at, config, granted, limits};

const BEGIN_S: u64 = 1_795_000_000;

/// Returns how much is left of the key's `place`th limit.
fn left(host: &Host, now: Timestamp, place: usize) -> u64 {
    host.explain(now, &config(1_000.0, "1e6/s")).budgets[place].remaining
}

#[test]
fn what_earlier_permits_give_back_is_not_returned_to_a_new_limit() {
    let config = config(1_000.0, "1e6/s");
    let (mut host, mut now) = (Host::new(&config, at(BEGIN_S)), at(BEGIN_S));
    host.declare(now, Some(limits("100000 tokens/min")), &config);
    let mut out = Vec::new();
    for _ in 0..5 {
        now = now + Duration::from_millis(10);
        out.push(granted(&mut host, now, 2_000, &config));
    }
    let both = "100000 tokens/min; 20000 tokens/day@UTC";
    host.declare(now, Some(limits(both)), &config);
    now = now + Duration::from_millis(10);
    granted(&mut host, now, 2_000, &config);
    let used = UnitCosts::new([("tokens", 100)]).expect("a unit");
    for grant in &out {
        host.settle(now, grant.lease, &used, &config);
    }
    assert_eq!((left(&host, now, 0), left(&host, now, 1)), (97_500, 18_000));
    for grant in out {
        host.cancel(now, grant.lease, Some(grant.unused), &config);
    }
    assert_eq!(left(&host, now, 1), 18_000);
}

#[test]
fn a_limit_that_comes_back_remembers_what_was_spent() {
    let config = config(1_000.0, "1e6/s");
    let (mut host, mut now) = (Host::new(&config, at(BEGIN_S)), at(BEGIN_S));
    for text in ["10/h", "5/min", "10/h", "5/min", "10/h"] {
        host.declare(now, Some(limits(text)), &config);
        now = now + Duration::from_millis(10);
        let plain = AcquireRequest::default();
        assert!(matches!(
            host.request(now, plain, &config),
            Decision::Granted(_)
        ));
    }
    assert_eq!(left(&host, now, 0), 7);
}

/// A step of the random history.
#[derive(Clone, Debug)]
enum Step {
    Wait(u64),
    Ask(u64),
    /// The oldest permit is settled with this amount, or cancelled.
    Settle(u64),
    Cancel,
    Declare(usize),
}

const TEXTS: [&str; 4] = [
    "50 tokens/min",
    "50 tokens/min; 90 tokens/h",
    "90 tokens/h",
    "20 tokens/min",
];

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (1_u64..40).prop_map(Step::Wait),
        (1_u64..15).prop_map(Step::Ask),
        (0_u64..20).prop_map(Step::Settle),
        Just(Step::Cancel),
        (0..TEXTS.len()).prop_map(Step::Declare),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// The judge knows of each permit what it cost in the end, and which limits were in force when
    /// it left. At the time of a grant, no window has more than its quantity of estimates and
    /// costs that were charged to it. An excess over an estimate is owed, so it may exceed.
    #[test]
    fn no_change_of_limits_gives_a_window_more_than_its_quantity(
        steps in prop::collection::vec(any_step(), 1..80),
    ) {
        let config = config(1_000.0, "1e6/s");
        let (mut host, mut now) = (Host::new(&config, at(BEGIN_S)), at(BEGIN_S));
        let mut text = TEXTS[0];
        host.declare(now, Some(limits(text)), &config);
        let mut out: Vec<(Grant, usize)> = Vec::new();
        // When each permit left, its cost, and the limits then.
        let mut history: Vec<(Timestamp, u64, &str)> = Vec::new();
        for step in steps {
            match step {
                Step::Wait(secs) => now = now + Duration::from_secs(secs),
                Step::Declare(which) => {
                    text = TEXTS[which];
                    host.declare(now, Some(limits(text)), &config);
                    now = now + Duration::from_millis(10);
                }
                Step::Ask(amount) => {
                    now = now + Duration::from_millis(10);
                    if let Decision::Granted(grant) = host.request(now, asks(amount), &config) {
                        out.push((grant, history.len()));
                        history.push((now, amount, text));
                        for limit in text.split("; ") {
                            let (quantity, window) = limit.split_once(" tokens/").expect("a limit");
                            let length = if window == "h" { 3_600 } else { 60 };
                            let since = now - Duration::from_secs(length);
                            let counted = history.iter().filter(|(left, _, then)| {
                                let same = |limit: &str| limit.ends_with(&format!("tokens/{window}"));
                                *left > since && then.split("; ").any(same)
                            });
                            let sum: u64 = counted.map(|(_, cost, _)| cost).sum();
                            let quantity: u64 = quantity.parse().expect("a number");
                            prop_assert!(sum <= quantity, "{sum} of {limit}: {history:?}");
                        }
                    }
                }
                Step::Settle(amount) => {
                    if let Some((grant, place)) = out.first().copied() {
                        out.remove(0);
                        let estimate = history[place].1;
                        let used = UnitCosts::new([("tokens", amount.min(estimate))]);
                        host.settle(now, grant.lease, &used.expect("a unit"), &config);
                        if host.renew(now, grant.lease, &config) {
                            history[place].1 = amount.min(estimate);
                        }
                    }
                }
                Step::Cancel => {
                    if let Some((grant, place)) = out.pop() {
                        if host.renew(now, grant.lease, &config) {
                            history[place].1 = 0;
                        }
                        host.cancel(now, grant.lease, Some(grant.unused), &config);
                    }
                }
            }
        }
    }
}

#[test]
fn limits_of_a_rule_are_restored_with_what_was_spent_and_replace_no_operators_limits() {
    let config = config(1_000.0, "1e6/s");
    let new = |now| Host::new(&config, now);
    let (mut host, now) = (new(at(BEGIN_S)), at(BEGIN_S));
    let rule = limits("100 tokens/min").into();
    host.follow_rule(now, Some(&rule), &config);
    granted(&mut host, now, 30, &config);
    let spent = host.spent(&config).expect("a limit");
    let mut restored = new(now);
    restored
        .join_spent(now, &spent, &config)
        .expect("its own bytes");
    assert_eq!(left(&restored, now, 0), 70);
    assert!(!restored.is_new_rule(Some(&rule)));
    // An operator's limits stay. What was spent counts for them.
    let mut operated = new(now);
    operated.declare(now, Some(limits("50 tokens/min")), &config);
    operated
        .join_spent(now, &spent, &config)
        .expect("its own bytes");
    assert_eq!(left(&operated, now, 0), 20);
    // A record of an earlier version ends before the limits.
    let mut declared = new(now);
    declared.declare(now, Some(limits("100 tokens/min")), &config);
    granted(&mut declared, now, 40, &config);
    let earlier = declared.spent(&config).expect("a limit");
    let (none, earlier) = earlier.split_last().expect("bytes");
    assert_eq!(*none, 0);
    let mut restored = new(now);
    restored.follow_rule(now, Some(&rule), &config);
    restored
        .join_spent(now, earlier, &config)
        .expect("bytes of an earlier version");
    assert_eq!(left(&restored, now, 0), 60);
    assert!(
        restored
            .join_spent(now, &spent[..spent.len() - 1], &config)
            .is_err()
    );
}
