//! Amounts that are reported after the lease of their permit has ended.

use std::time::Duration;

use politely_core::budget::UnitCosts;
use politely_core::host::Host;
use politely_core::signal::{Report, Signal};
use politely_core::{Rng, Timestamp};
use proptest::prelude::*;

use crate::budgets::{asks, at, config, granted};

const BEGIN: u64 = 1_795_000_000;
const LIMIT: u64 = 1_000_000;

fn left(host: &Host, now: Timestamp) -> u64 {
    let config = config(1_000.0, &format!("{LIMIT} tokens/30d"));
    host.explain(now, &config).budgets[0].remaining
}

/// One permit: the seconds until its first report, an estimate and the amounts of its reports.
fn any_permit() -> impl Strategy<Value = (u64, u64, Vec<u64>)> {
    let amounts = prop::collection::vec(0_u64..300, 0..3);
    (prop_oneof![0..50_u64, 70..3_000_u64], 0_u64..200, amounts)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// A report in time replaces the estimate. A late one owes what exceeds it, once.
    #[test]
    fn a_late_report_owes_what_exceeds_the_estimate(
        permits in prop::collection::vec(any_permit(), 1..40),
        restores in any::<bool>(),
    ) {
        let mut config = config(1_000.0, &format!("{LIMIT} tokens/30d"));
        config.lease = Duration::from_mins(1);
        config.limits.in_flight = 1_000;
        let (mut host, mut now) = (Host::new(&config, at(BEGIN)), at(BEGIN));
        let mut rng = Rng::new(1);
        let mut reports = Vec::new();
        let mut spent = 0;
        for (after, estimate, amounts) in permits {
            now = now + Duration::from_millis(10);
            let grant = granted(&mut host, now, estimate, &config);
            reports.push((now + Duration::from_secs(after), grant.lease, amounts.clone()));
            let first = amounts.first().copied();
            spent += match first {
                Some(amount) if after < 60 => amount,
                Some(amount) => amount.max(estimate),
                None => estimate,
            };
        }
        reports.sort_by_key(|(when, ..)| *when);
        for (when, lease, amounts) in reports {
            now = when;
            if restores {
                host = Host::restore(&host.snapshot(), now, &config).expect("its own bytes");
            }
            for amount in amounts {
                let used = UnitCosts::new([("tokens", amount)]).expect("a unit");
                let report = Report { used, ..Report::of(Signal::Ok) };
                host.report(now, lease, &report, &config, &mut rng);
            }
        }
        prop_assert_eq!(left(&host, now), LIMIT - spent);
    }
}

#[test]
fn estimates_of_permits_that_nobody_reports_are_bounded() {
    let mut config = config(1_000.0, &format!("{LIMIT} tokens/30d"));
    config.lease = Duration::from_secs(1);
    config.limits.in_flight = 1_000;
    let (mut host, mut now) = (Host::new(&config, at(BEGIN)), at(BEGIN));
    let mut size = 0;
    for round in 0..40 {
        for _ in 0..200 {
            now = now + Duration::from_millis(10);
            granted(&mut host, now, 10, &config);
        }
        if round == 29 {
            size = host.snapshot().len();
        }
    }
    assert!(host.snapshot().len() < size + 500, "it grew from {size}");
    now = now + Duration::from_hours(2);
    host.request(now, asks(1), &config);
    assert!(host.snapshot().len() < size, "estimates outlive the hour");
}
