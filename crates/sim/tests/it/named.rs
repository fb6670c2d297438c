//! One bar for each thing a host may do: the median of three seeds.

use politely_sim::summary::quantile;
use politely_sim::{Score, suite};
use politely_target::RetryAfter;

use super::{named, play};

const SEEDS: [u64; 3] = [1, 2, 3];

fn played(name: &str) -> Vec<Score> {
    let scenario = named(name);
    let play = |seed| play("discover", &scenario, seed);
    SEEDS.map(play).into()
}

fn median(runs: &[Score], of: fn(&Score) -> f64) -> f64 {
    quantile(&runs.iter().map(of).collect::<Vec<_>>(), 0.5)
}

fn used_and_refused(name: &str) -> (f64, f64) {
    let runs = played(name);
    (
        median(&runs, |run| run.utilisation),
        median(&runs, |run| run.refused_share),
    )
}

#[test]
fn four_slots_that_queue_are_kept_busy_without_a_queue() {
    let runs = played("concurrency 4, queueing");
    let (used, slower) = (
        median(&runs, |run| run.utilisation),
        median(&runs, |run| run.latency_inflation),
    );
    assert!(used >= 0.97 && slower <= 1.5, "{used} used, {slower} x");
}

#[test]
fn four_slots_that_refuse_are_told_from_a_rate() {
    let (used, refused) = used_and_refused("concurrency 4, rejecting");
    assert!(used >= 0.89 && refused <= 0.0005, "{used}, {refused}");
}

#[test]
fn an_outage_is_hardly_asked_and_forgotten_when_over() {
    let runs = played("outage of 5 minutes");
    let (asked, used) = (
        median(&runs, |run| run.into_outage as f64),
        median(&runs, |run| run.utilisation),
    );
    assert!((1.0..=15.0).contains(&asked), "{asked}");
    assert!(used >= 0.97, "{used}");
    assert!(
        runs.iter()
            .all(|run| run.recovery_s.is_some_and(|s| s <= 60.0))
    );
}

#[test]
fn who_says_what_is_left_is_never_refused_and_hardly_anything_stays_unused() {
    let (used, refused) = used_and_refused("fixed window 600/min, x headers");
    assert!(used >= 0.99 && refused <= 0.0, "{used}, {refused}");
}

#[test]
fn a_limit_redrawn_every_five_minutes_is_followed() {
    let (used, refused) = used_and_refused("redrawn every 5 minutes");
    assert!(used >= 0.94 && refused <= 0.01, "{used}, {refused}");
}

#[test]
fn sixteen_workers_that_share_a_state_are_one_to_the_host() {
    let (alone, together) = (
        played("token bucket 10/s burst 10"),
        played("16 coordinated workers"),
    );
    for (one, all) in alone.iter().zip(&together) {
        let told = |run: &Score| (run.accepted, run.refused, run.refused_worst_minute);
        assert_eq!(told(one), told(all));
        assert!(all.jain >= 0.99, "{}", all.jain);
    }
}

#[test]
fn nothing_leaves_while_a_wait_that_was_asked_for_runs() {
    let suite = suite();
    let asking = |form| form != RetryAfter::None && form != RetryAfter::Absurd;
    let asking: Vec<_> = (suite.iter())
        .filter(|one| asking(one.signals.retry_after))
        .collect();
    assert!(asking.len() >= 2, "nobody asks for a wait");
    for scenario in asking {
        let run = play("discover", scenario, 1);
        assert_eq!(run.into_hold, 0, "{}", scenario.name);
    }
}
