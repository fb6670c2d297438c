//! Tests of eviction: which keys may be forgotten. `World::evict` in [`crate::world`] checks that
//! no other key is evicted.

use politely_core::config::Config;
use politely_core::signal::{Report, Signal};

use crate::traps::Bench;

#[test]
fn eviction_gives_nobody_a_second_burst() {
    // Regression: a key with one token left of five could be evicted, and came back with five.
    let mut bench = Bench::new(Config::fixed(1.0, 5.0));
    for _ in 0..4 {
        let lease = bench.grant().lease;
        bench.say(lease, Signal::Ok);
    }
    assert!(!bench.host.evictable(bench.now, true, &bench.config));
    bench.ahead(3.9);
    assert!(!bench.host.evictable(bench.now, true, &bench.config));
    bench.ahead(0.2);
    assert!(bench.host.evictable(bench.now, true, &bench.config));
}

#[test]
fn a_byte_budget_makes_no_key_immortal() {
    // Regression: no key could be evicted once bytes were counted, and the registry stayed full.
    let mut config = Config::fixed(1.0, 1.0);
    config.limits.bytes_per_s = 100.0;
    let mut bench = Bench::new(config);
    let lease = bench.grant().lease;
    let report = Report {
        bytes: 1_000,
        ..Report::of(Signal::Ok)
    };
    bench.tell(lease, &report);
    bench.ahead(9.0);
    assert!(
        !bench.host.evictable(bench.now, true, &bench.config),
        "in debt"
    );
    bench.ahead(1.1);
    assert!(bench.host.evictable(bench.now, true, &bench.config));
}

#[test]
fn a_learned_ceiling_goes_only_when_it_may() {
    let mut bench = Bench::new(Config::api());
    let lease = bench.grant().lease;
    bench.say(lease, Signal::RateLimited);
    bench.ahead(100.0);
    assert!(
        !bench.host.evictable(bench.now, true, &bench.config),
        "a strike"
    );
    let lease = bench.grant().lease;
    bench.say(lease, Signal::Ok);
    bench.ahead(100.0);
    assert!(!bench.host.evictable(bench.now, false, &bench.config));
    assert!(bench.host.evictable(bench.now, true, &bench.config));
}

#[test]
fn a_saved_key_may_leave_with_strikes_and_a_spent_budget() {
    let mut config = Config::api();
    config.declared = "10/day".parse().unwrap();
    let mut bench = Bench::new(config);
    let lease = bench.grant().lease;
    assert!(!bench.host.may_leave(bench.now), "a lease");
    bench.say(lease, Signal::RateLimited);
    assert!(!bench.host.may_leave(bench.now), "a hold");
    bench.ahead(100.0);
    assert!(bench.host.may_leave(bench.now));
    assert!(!bench.host.evictable(bench.now, true, &bench.config));
}

#[test]
fn a_key_stays_while_a_late_report_may_exceed_an_estimate() {
    let mut config = Config::api();
    config.declared = "1000 tokens/day".parse().unwrap();
    let mut bench = Bench::new(config);
    bench.grant();
    bench.ahead(1_000.0);
    assert!(!bench.host.may_leave(bench.now));
    bench.ahead(3_000.0);
    assert!(bench.host.may_leave(bench.now));
}
