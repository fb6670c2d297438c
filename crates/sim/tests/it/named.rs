//! One bar for each thing a host may do: the median of three seeds.

use politely_sim::summary::quantile;
use politely_sim::{Scenario, Score, suite};
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
fn of_fifty_pages_at_one_a_second_three_are_refused() {
    let runs = played("token bucket 1/s burst 5, 50 pages");
    let refused = median(&runs, |run| run.refused as f64);
    assert!(refused <= 3.0, "{refused}");
}

/// Before refusals in a probe were told from noise, a tenth of the seeds used less than 66 %.
#[test]
fn a_refusal_in_a_hundred_is_lived_with() {
    let scenario = named("1 % noise");
    let runs: Vec<_> = (1..=40)
        .map(|seed| play("discover", &scenario, seed))
        .collect();
    let used = median(&runs, |run| run.utilisation);
    assert!(used >= 0.94, "{used}");
    let mut runs: Vec<_> = runs.iter().map(|run| run.utilisation).collect();
    runs.sort_unstable_by(f64::total_cmp);
    assert!(runs[4] >= 0.8, "{runs:?}");
}

/// The slowest host of the real crawl: its first refusal comes at a rate that is hardly too high.
#[test]
fn a_limit_just_below_the_rate_of_the_start_is_come_back_to_soon() {
    let json = r#"[{"name": "leaky 1.99/s", "duration_s": 600, "demand": {"kind": "pages", "count": 151},
        "rtt_ms": 1, "service": {"mean_ms": 1.5, "cv": 0.3},
        "limit": {"kind": "leaky", "rate": 1.99, "queue": 0, "nodelay": true}}]"#;
    let scenario = Scenario::read(json).expect("a scenario").remove(0);
    let run = play("discover", &scenario, 1);
    assert!(run.utilisation >= 0.88 && run.refused <= 2, "{run:?}");
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

#[test]
fn a_limit_of_a_thousand_a_second_is_found_within_half_a_minute() {
    let json = r#"[{"name": "fast", "duration_s": 120, "demand": {"kind": "greedy"}, "rtt_ms": 20,
        "service": {"mean_ms": 20, "cv": 0.3},
        "limit": {"kind": "token_bucket", "rate": 1000, "burst": 1000}}]"#;
    let scenario = Scenario::read(json).expect("a scenario").remove(0);
    let run = play("discover", &scenario, 1);
    assert!(run.t90_s.is_some_and(|secs| secs <= 30.0), "{run:?}");
    assert!(run.refused_share <= 0.0005, "{run:?}");
}

/// Five minutes without an answer, in each way, while the start still goes on.
#[test]
fn an_early_outage_of_any_kind_is_hardly_asked_and_then_forgotten() {
    let faults = [
        r#""kind": "outage", "status": 500"#,
        r#""kind": "outage", "status": 502"#,
        r#""kind": "outage", "status": 503"#,
        r#""kind": "outage", "status": 504"#,
        r#""kind": "reset""#,
        r#""kind": "silence""#,
    ];
    for fault in faults {
        let json = format!(
            r#"[{{"name": "down", "duration_s": 900, "demand": {{"kind": "greedy"}},
            "rtt_ms": 50, "service": {{"mean_ms": 100, "cv": 0.3}},
            "limit": {{"kind": "token_bucket", "rate": 10, "burst": 10}},
            "faults": [{{"from_s": 5, "to_s": 305, {fault}}}]}}]"#
        );
        let scenario = Scenario::read(&json).expect("a scenario").remove(0);
        let run = play("discover", &scenario, 1);
        assert!(run.into_outage <= 15, "{fault}: {run:?}");
        assert!(run.utilisation >= 0.9, "{fault}: {run:?}");
    }
}

/// The scenarios of plain 500s: hosts that answer so above their rate, and hosts with broken pages.
fn overload() -> Vec<Scenario> {
    let json = include_str!("../../../../docs/scenarios/overload.json");
    Scenario::read(json).expect("scenarios")
}

#[test]
fn a_host_that_answers_500_above_its_rate_is_not_overrun() {
    for host in overload() {
        if host.name.starts_with("500 above") {
            let score = play("discover", &host, 1);
            let refused = score.refused_share;
            assert!(refused <= 0.2, "{}: {refused}", host.name);
        }
    }
}

#[test]
fn broken_pages_hardly_slow_their_host() {
    for host in overload() {
        if host.name.starts_with("429 above") {
            let runs: Vec<_> = (1..=5).map(|seed| play("discover", &host, seed)).collect();
            let used = median(&runs, |score| score.utilisation);
            assert!(used >= 0.95, "{}: {used}", host.name);
        }
    }
}
