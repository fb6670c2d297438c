//! Budgets that an operator resets while permits are out.

use std::time::Duration;

use politely_core::Timestamp;
use politely_core::budget::{DeclaredLimit, UnitCosts};
use politely_core::config::Config;
use politely_core::gate::LeaseId;
use politely_core::host::{Decision, Grant, Host, Unused};
use proptest::prelude::*;

use crate::budgets::{asks, at, config, granted};

const BEGIN_S: u64 = 1_795_000_000;

fn left(host: &Host, now: Timestamp, config: &Config) -> Vec<u64> {
    let budgets = host.explain(now, config).budgets;
    budgets.iter().map(|left| left.remaining).collect()
}

fn tokens(amount: u64) -> UnitCosts {
    UnitCosts::new([("tokens", amount)]).expect("a unit")
}

#[test]
fn a_reset_takes_a_wrong_use_back_and_leaves_other_budgets() {
    let config = config(1_000.0, "90 tokens/min; 20000 tokens/30d");
    let (mut host, now) = (Host::new(&config, at(BEGIN_S)), at(BEGIN_S));
    let typo = granted(&mut host, now, 10, &config);
    let later = now + Duration::from_secs(1);
    let out = granted(&mut host, later, 10, &config);
    host.settle(later, typo.lease, &tokens(1_000_000_000), &config);
    host.release(later, typo.lease, 0, &config);
    assert_eq!(left(&host, later, &config), [0, 0]);
    let month: DeclaredLimit = "1 tokens/30d".parse().expect("a limit");
    host.reset_budgets(later, Some(&month), &config);
    assert_eq!(left(&host, later, &config), [0, 20_000]);
    host.reset_budgets(later, None, &config);
    assert_eq!(left(&host, later, &config), [90, 20_000]);
    // A permit from before the reset is settled as it was, and moves no budget.
    host.settle(later, out.lease, &tokens(50), &config);
    host.settle(later, out.lease, &tokens(1), &config);
    host.cancel(later, out.lease, Some(out.unused), &config);
    assert_eq!(left(&host, later, &config), [90, 20_000]);
    // A later one counts, also if it is settled late.
    let next = later + Duration::from_millis(10);
    let grant = granted(&mut host, next, 10, &config);
    host.settle(next, grant.lease, &tokens(30), &config);
    assert_eq!(left(&host, next, &config), [60, 19_970]);
}

#[test]
fn a_merge_keeps_the_side_with_the_later_reset() {
    let config = config(1_000.0, "90 tokens/min; 90 tokens/day@UTC");
    let (mut before, now) = (Host::new(&config, at(BEGIN_S)), at(BEGIN_S));
    granted(&mut before, now, 90, &config);
    let mut after = before.clone();
    let later = now + Duration::from_secs(1);
    after.reset_budgets(later, None, &config);
    let later = later + Duration::from_secs(1);
    granted(&mut after, later, 20, &config);
    let (mut one, mut other) = (before.clone(), after.clone());
    one.join(&after, later, &config);
    other.join(&before, later, &config);
    assert_eq!(one.snapshot(), other.snapshot());
    assert_eq!(left(&one, later, &config), [70, 70]);
}

/// A step of the random history.
#[derive(Clone, Debug)]
enum Step {
    Wait(u64),
    Ask(u64),
    /// The permit at this place is settled with this amount.
    Settle(usize, u64),
    Cancel(usize),
    /// The limit at this place is reset, or all.
    Reset(usize),
    Save,
    Kill,
}

const LIMITS: [(&str, u64, u64); 2] = [("50 tokens/min", 50, 60), ("90 tokens/h", 90, 3_600)];

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (1_u64..40).prop_map(Step::Wait),
        6 => (1_u64..15).prop_map(Step::Ask),
        3 => (0_usize..9, 0_u64..30).prop_map(|(which, used)| Step::Settle(which, used)),
        2 => (0_usize..9).prop_map(Step::Cancel),
        2 => (0_usize..3).prop_map(Step::Reset),
        1 => Just(Step::Save),
        1 => Just(Step::Kill),
    ]
}

/// A quantity that the judge counts: a permit, or what it cost beyond its estimate.
#[derive(Clone, Debug)]
struct Charged {
    at: Timestamp,
    departed: Timestamp,
    amount: u64,
}

/// A permit that is out, and the place of its estimate in the history.
struct Out {
    lease: LeaseId,
    unused: Unused,
    place: usize,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// The judge counts what departed since the last reset of a limit: no window of it has more
    /// than its quantity at a grant. Permits of earlier departures move nothing.
    #[test]
    fn no_window_has_more_than_its_quantity_since_its_reset(
        steps in prop::collection::vec(any_step(), 1..80),
    ) {
        let mut config = config(1_000.0, "50 tokens/min; 90 tokens/h");
        config.limits.in_flight = 1_000;
        let (mut host, mut now) = (Host::new(&config, at(BEGIN_S)), at(BEGIN_S));
        let mut resets = [Timestamp::ZERO; LIMITS.len()];
        let (mut history, mut out): (Vec<Charged>, Vec<Out>) = (Vec::new(), Vec::new());
        let (mut saved, mut spent) = (host.snapshot(), None::<Vec<u8>>);
        for step in steps {
            let before = left(&host, now, &config);
            let mut moved = None;
            match step {
                Step::Wait(secs) => now = now + Duration::from_secs(secs),
                Step::Save => saved = host.snapshot(),
                Step::Kill => {
                    host = Host::restore(&saved, now, &config).expect("its own bytes");
                    host.forget_leases();
                    out.clear();
                    if let Some(spent) = &spent {
                        host.join_spent(now, spent, &config).expect("its own bytes");
                    }
                }
                Step::Ask(amount) => {
                    now = now + Duration::from_millis(10);
                    let Decision::Granted(Grant { lease, start, unused, .. }) =
                        host.request(now, asks(amount), &config)
                    else {
                        continue;
                    };
                    out.push(Out { lease, unused, place: history.len() });
                    history.push(Charged { at: start, departed: start, amount });
                    spent = host.spent();
                    for ((text, quantity, secs), reset) in LIMITS.iter().zip(&resets) {
                        let since = start - Duration::from_secs(*secs);
                        let counts = |one: &&Charged| one.at > since && one.departed > *reset;
                        let sum: u64 = history.iter().filter(counts).map(|one| one.amount).sum();
                        prop_assert!(sum <= *quantity, "{sum} of {text}: {history:?}");
                    }
                }
                Step::Settle(which, used) if which < out.len() => {
                    let Out { lease, place, .. } = out[which];
                    let is_late = !host.renew(now, lease, &config);
                    host.settle(now, lease, &tokens(used), &config);
                    host.release(now, lease, 0, &config);
                    spent = host.spent();
                    out.remove(which);
                    let Charged { departed, amount, .. } = history[place];
                    if used > amount && !is_late {
                        let amount = used - amount;
                        history.push(Charged { at: now, departed, amount });
                    } else if !is_late {
                        history[place].amount = used;
                    }
                    moved = Some(departed);
                }
                Step::Cancel(which) if which < out.len() => {
                    let Out { lease, unused, place } = out.remove(which);
                    if host.renew(now, lease, &config) {
                        history[place].amount = 0;
                    }
                    host.cancel(now, lease, Some(unused), &config);
                    moved = Some(history[place].departed);
                }
                Step::Settle(..) | Step::Cancel(_) => {}
                Step::Reset(which) => {
                    let limit: Option<DeclaredLimit> =
                        LIMITS.get(which).map(|(text, ..)| text.parse().expect("a limit"));
                    host.reset_budgets(now, limit.as_ref(), &config);
                    // The coordinator keeps an operator's change before it answers.
                    saved = host.snapshot();
                    for (place, (text, quantity, _)) in LIMITS.iter().enumerate() {
                        if limit.is_none() || place == which {
                            resets[place] = now;
                            prop_assert_eq!(left(&host, now, &config)[place], *quantity, "{}", text);
                        }
                    }
                }
            }
            let after = left(&host, now, &config);
            for (place, reset) in resets.iter().enumerate() {
                if moved.is_some_and(|departed| departed <= *reset) {
                    prop_assert_eq!(before[place], after[place]);
                }
            }
        }
    }
}
