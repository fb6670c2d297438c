//! Tests of the backoff, the retry budget, the breaker and the cut that a rule sets.

use politely::core::retry::{Backoff, Jitter, Policy};
use politely_api::wire::Next;

use super::rules::{of_url, ruled};
use super::*;

/// Reports a good page, and then `count` failures of another. Returns the advice on each.
async fn advice(coordinator: &Coordinator, count: usize) -> Vec<Next> {
    let worker = coordinator.worker("w");
    let mut advice = Vec::new();
    for failures in 0..=count {
        let url = format!("https://a.example/{}", failures.min(1));
        let asked = coordinator.one(&worker, of_url(&url, ""), Duration::from_hours(1));
        let grant = asked.await.granted();
        let outcome = Told {
            status: Some(if failures == 0 { 200 } else { 503 }),
            attempt: failures.max(1) as u16,
            ..told(&grant)
        };
        let answer = coordinator.tell(&worker, &outcome);
        assert_eq!(answer.error, None);
        advice.push(answer.next);
    }
    advice.split_off(1)
}

fn rule(fields: &str) -> (Coordinator, tempfile::TempDir) {
    let rules = format!("[[rule]]\nmatch = [\"a.example\"]\n{fields}\n");
    ruled(Config::fixed(100.0, 10.0), &rules)
}

fn delays(advice: &[Next]) -> Vec<u64> {
    let delay = |next: &Next| match next {
        Next::Retry { after_ms, .. } => *after_ms,
        other => panic!("{other:?}"),
    };
    advice.iter().map(delay).collect()
}

#[tokio::test(start_paused = true)]
async fn the_advice_on_retries_has_the_backoff_of_the_rule() {
    let (coordinator, _dir) = rule(
        "backoff = { base = \"7s\", factor = 1, max = \"7s\" }\njitter = \"none\"\n\
         breaker = { failures = 0 }",
    );
    assert_eq!(delays(&advice(&coordinator, 2).await), [7_000, 7_000]);
}

#[tokio::test(start_paused = true)]
async fn the_advice_on_retries_has_the_backoff_of_the_coordinator() {
    let nine = Duration::from_secs(9);
    let settings = Settings {
        config: Config::fixed(100.0, 10.0),
        retry: Policy {
            backoff: Backoff::new(nine, 2.0, nine, Jitter::None).unwrap(),
            ..Policy::crawler()
        },
        clock: Clock::tokio(),
        ..Settings::default()
    };
    let coordinator = Coordinator::new(settings).unwrap();
    tokio::spawn(coordinator.clone().tend());
    assert_eq!(delays(&advice(&coordinator, 1).await), [9_000]);
}

#[tokio::test(start_paused = true)]
async fn the_advice_ends_with_the_retry_budget_of_the_rule() {
    let (coordinator, _dir) =
        rule("retry_budget = { ratio = 0, per_second = 0, burst = 2 }\nbreaker = { failures = 0 }");
    let advice = advice(&coordinator, 3).await;
    assert!(
        matches!(
            &advice[..],
            [Next::Retry { .. }, Next::Retry { .. }, Next::GiveUp { reason }]
                if reason.contains("budget")
        ),
        "{advice:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_key_rests_as_the_breaker_of_its_rule_says() {
    let (coordinator, _dir) =
        rule("breaker = { failures = 1, open = \"40s\", open_max = \"40s\" }");
    let worker = coordinator.worker("w");
    let asked = || of_url("https://a.example/", "");
    let grant = coordinator.one(&worker, asked(), AT_ONCE).await.granted();
    let broken = Told {
        status: Some(503),
        ..told(&grant)
    };
    coordinator.tell(&worker, &broken);
    // The key's own backoff comes first, and is shorter.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let (after_ms, reason, _) = coordinator.one(&worker, asked(), AT_ONCE).await.wait();
    assert_eq!(reason, "breaker");
    assert!((35_000..=39_000).contains(&after_ms), "{after_ms}");
}

#[tokio::test(start_paused = true)]
async fn a_cut_makes_the_law_of_the_rules_keys_aimd() {
    let rules = "[[rule]]\nmatch = [\"a.example\"]\ncut = 0.5\n";
    let (coordinator, _dir) = ruled(Config::api(), rules);
    let worker = coordinator.worker("w");
    for host in ["a.example", "b.example"] {
        let asked = of_url(&format!("https://{host}/"), "");
        coordinator.one(&worker, asked, AT_ONCE).await.granted();
    }
    let law = |key: &str| coordinator.explain(key).unwrap().in_force.law.0;
    assert_eq!([law("a.example"), law("b.example")], ["aimd", "discover"]);
}
