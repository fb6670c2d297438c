//! Limits that are declared, changed and removed while permits are out.

use std::collections::BTreeSet;
use std::time::Duration;

use politely_core::Timestamp;
use politely_core::budget::{DeclaredLimits, UnitCosts};
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
    assert_eq!(left(&host, now, 0), 5, "all five count");
}

#[test]
fn what_leaves_under_a_limit_that_replaced_another_counts_for_both() {
    let config = config(1_000.0, "1e6/s");
    let (mut host, mut now) = (Host::new(&config, at(BEGIN_S)), at(BEGIN_S));
    let mut permits = 0;
    for _ in 0..20 {
        for text in ["10/min", "10/h", "10/day@UTC"] {
            host.declare(now, Some(limits(text)), &config);
            for _ in 0..3 {
                now = now + Duration::from_millis(10);
                let asked = host.request(now, asks(1), &config);
                permits += u32::from(matches!(asked, Decision::Granted(_)));
            }
        }
    }
    // The last limit was full when it was first declared, after six permits.
    assert_eq!(permits, 16);
}

#[test]
fn requests_that_follow_two_rules_in_turn_count_for_their_own_rule() {
    let config = config(1_000.0, "1e6/s");
    let (mut host, mut now) = (Host::new(&config, at(BEGIN_S)), at(BEGIN_S));
    let rule = |text, pattern| limits(text).of_rule(pattern).into();
    let rules = [
        rule("10/h", "a.example/search"),
        rule("30/min", "a.example"),
    ];
    for turn in 0..20 {
        for (rule, most) in rules.iter().zip([10, 20]) {
            now = now + Duration::from_millis(10);
            host.follow_rule(now, Some(rule), &config);
            let asked = host.request(now, AcquireRequest::default(), &config);
            let is_granted = matches!(asked, Decision::Granted(_));
            assert_eq!(is_granted, turn < most, "{turn}");
        }
    }
}

/// A step of the random history.
#[derive(Clone, Debug)]
enum Step {
    Wait(u64),
    Ask(u64),
    /// The permit at this place is settled with this amount and keeps its slot.
    Settle(usize, u64),
    /// The same, and its outcome is known.
    Report(usize, u64),
    Cancel(usize),
    Declare(usize),
    Save,
    Kill,
}

/// An empty text stands for no limit.
const TEXTS: [&str; 6] = [
    "50 tokens/min",
    "50 tokens/min; 90 tokens/h",
    "90 tokens/h",
    "",
    "20 tokens/min",
    "90 tokens/day@UTC; 5/min",
];

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (1_u64..40).prop_map(Step::Wait),
        8 => (1_u64..15).prop_map(Step::Ask),
        2 => (0_usize..9, 0_u64..20).prop_map(|(which, used)| Step::Settle(which, used)),
        2 => (0_usize..9, 0_u64..20).prop_map(|(which, used)| Step::Report(which, used)),
        4 => (0_usize..9).prop_map(Step::Cancel),
        3 => (0..TEXTS.len()).prop_map(Step::Declare),
        1 => Just(Step::Save),
        1 => Just(Step::Kill),
    ]
}

/// A permit as the judge knows it: its departure, its cost in the end, and the windows of the
/// limits that permits were granted under up to it, since one was granted without any limit.
#[derive(Clone, Debug)]
struct Left {
    at: Timestamp,
    tokens: u64,
    requests: u64,
    windows: BTreeSet<&'static str>,
}

/// Splits `90 tokens/h` into 90 and ` tokens/h`.
fn parts(limit: &str) -> (u64, &str) {
    let end = limit.find(|char: char| !char.is_ascii_digit());
    let (quantity, window) = limit.split_at(end.expect("a window"));
    (quantity.parse().expect("a number"), window)
}

fn each(text: &str) -> impl Iterator<Item = (u64, &str)> {
    let limits = text.split("; ").filter(|limit| !limit.is_empty());
    limits.map(parts)
}

/// Returns what each limit of `text` was charged in its window before `now`, and its quantity.
fn charged(history: &[Left], now: Timestamp, text: &str) -> Vec<(u64, u64)> {
    let charge = |(quantity, window)| {
        let length = match window {
            " tokens/day@UTC" => 86_400,
            " tokens/h" => 3_600,
            _ => 60,
        };
        let since = now - Duration::from_secs(length);
        let counted = history.iter();
        let counted = counted.filter(|left| left.at > since && left.windows.contains(window));
        let is_tokens = window.contains("tokens");
        let cost = |left: &Left| {
            if is_tokens {
                left.tokens
            } else {
                left.requests
            }
        };
        (counted.map(cost).sum(), quantity)
    };
    each(text).map(charge).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// The judge knows of each permit what it cost in the end, and which limits were declared
    /// before it. At the time of a grant, no window has more than its quantity of costs that were
    /// charged to it. And what is left of each limit is exact, so every charge has returned to the
    /// windows that it was taken from.
    #[test]
    fn a_charge_returns_to_the_windows_that_it_was_taken_from(
        steps in prop::collection::vec(any_step(), 1..80),
    ) {
        let mut config = config(1_000.0, "1e6/s");
        (config.lease, config.limits.in_flight) = (Duration::from_hours(2), 1_000);
        let (mut host, mut now) = (Host::new(&config, at(BEGIN_S)), at(BEGIN_S));
        let mut text = TEXTS[0];
        let windows_of = |text: &'static str| each(text).map(|(_, window)| window);
        let mut windows = BTreeSet::new();
        host.declare(now, Some(limits(text)), &config);
        let mut out: Vec<(Grant, usize)> = Vec::new();
        let mut history: Vec<Left> = Vec::new();
        let (mut saved, mut spent) = (host.snapshot(), None::<Vec<u8>>);
        for step in steps {
            now = now + Duration::from_millis(10);
            match step {
                Step::Wait(secs) => now = now + Duration::from_secs(secs),
                Step::Save => saved = host.snapshot(),
                Step::Declare(which) => {
                    text = TEXTS[which];
                    let declared = if text.is_empty() { DeclaredLimits::default() } else { limits(text) };
                    host.declare(now, Some(declared), &config);
                    // The coordinator keeps an operator's change before it answers.
                    saved = host.snapshot();
                }
                Step::Ask(amount) => {
                    if let Decision::Granted(grant) = host.request(now, asks(amount), &config) {
                        out.push((grant, history.len()));
                        if text.is_empty() {
                            windows.clear();
                        }
                        windows.extend(windows_of(text));
                        history.push(Left { at: now, tokens: amount, requests: 1, windows: windows.clone() });
                        spent = host.spent();
                        for (sum, quantity) in charged(&history, now, text) {
                            prop_assert!(sum <= quantity, "{sum} of {text}: {history:?}");
                        }
                    }
                }
                Step::Settle(which, used) | Step::Report(which, used) if which < out.len() => {
                    let (grant, place) = out[which];
                    let left = &mut history[place];
                    // An excess over the estimate is owed to the limits of its own time.
                    let used = used.min(left.tokens);
                    let amounts = UnitCosts::new([("tokens", used)]).expect("a unit");
                    host.settle(now, grant.lease, &amounts, &config);
                    left.tokens = used;
                    if let Step::Report(..) = step {
                        host.release(now, grant.lease, 0, &config);
                        out.remove(which);
                    }
                    spent = host.spent();
                }
                Step::Cancel(which) if which < out.len() => {
                    let (grant, place) = out.remove(which);
                    host.cancel(now, grant.lease, Some(grant.unused), &config);
                    (history[place].tokens, history[place].requests) = (0, 0);
                    spent = host.spent();
                }
                Step::Settle(..) | Step::Report(..) | Step::Cancel(_) => {}
                Step::Kill => {
                    host = Host::restore(&saved, now, &config).expect("its own bytes");
                    host.forget_leases();
                    if let Some(spent) = &spent {
                        host.join_spent(now, spent, &config).expect("its own bytes");
                    }
                    host.generation((now.as_micros() / 1_000_000) as u32);
                    for (grant, place) in &mut out {
                        let Left { at, tokens, .. } = history[*place];
                        let units = UnitCosts::new([("tokens", tokens)]).expect("a unit");
                        grant.lease = host.readmit(at, config.lease, &units, &config);
                    }
                }
            }
            let sums = charged(&history, now, text);
            for (place, (sum, quantity)) in sums.into_iter().enumerate() {
                // A quantity counts a little longer than the window.
                let earlier = now - Duration::from_secs(1);
                let least = charged(&history, earlier, text)[place].0.max(sum);
                let left = left(&host, now, place);
                prop_assert!(
                    left <= quantity.saturating_sub(sum) && left >= quantity.saturating_sub(least),
                    "{left} left of {quantity}, {sum} charged: {history:?}"
                );
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
    let spent = host.spent().expect("a limit");
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
    assert!(
        restored
            .join_spent(now, &spent[..spent.len() - 1], &config)
            .is_err()
    );
}
