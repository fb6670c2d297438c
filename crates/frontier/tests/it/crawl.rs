//! Whole crawls in virtual time: no domain starves, and little time is lost.

use std::time::Duration;

use crate::virtual_crawl::{Plan, Run, run};

const PLAN: Plan = Plan {
    domains: 100_000,
    workers: 4_000,
    interval_max: Duration::from_mins(2),
    pages_max: 5,
};

/// Returns how much longer than the best possible time the crawl took.
fn loss(run: &Run) -> f64 {
    run.total.as_secs_f64() / run.best.as_secs_f64() - 1.0
}

#[test]
fn the_slowest_limit_decides_the_time_of_a_crawl() {
    let run = run(PLAN, 1);
    assert!(loss(&run) < 0.05, "{run:?}");
    assert!(run.pages > PLAN.domains.into(), "{run:?}");
    assert!(run.longest_wait < run.total / 20, "{run:?}");
}

#[test]
fn too_few_workers_serve_all_domains_in_turn() {
    let plan = Plan {
        workers: 50,
        interval_max: Duration::from_secs(1),
        ..PLAN
    };
    let run = run(plan, 2);
    assert!(loss(&run) < 0.05, "{run:?}");
    // The longest turn is the first one: each domain once.
    let turn = run.best;
    assert!(run.longest_wait <= turn, "{run:?}");
}
