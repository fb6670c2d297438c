//! Tests of the limits that coordinators share: they hold from the first grant on, and what is
//! spent of them is in the engine.

use super::*;

/// Regression: a coordinator without a file granted without limits until its background task had
/// read the policy.
#[tokio::test]
async fn a_new_coordinator_grants_nothing_before_it_has_read_the_policy_of_the_engine() {
    let town = Town::new();
    let one = town.coordinator().await;
    let rules = "[[rule]]\nmatch = [\"*.example\"]\naccount = \"x\"\nlimits = [\"1/h\"]\n";
    one.replace_policy(rules.to_owned(), false).await.unwrap();
    let ask = async |coordinator: Coordinator, secs| {
        let worker = coordinator.worker("w");
        let of_rule = Item {
            key: None,
            url: Some("https://h.example/".to_owned()),
            ..item("h.example", "")
        };
        let wait = Duration::from_secs(secs);
        coordinator.one(&worker, of_rule, wait).await
    };
    ask(one, 10).await.granted();
    let other = town.unread_coordinator();
    other.limiter().ping().await.unwrap();
    ask(other, 2).await.wait();
}

/// Regression: what a report spent above its estimate was in memory alone for half a second or
/// more, though the report was acknowledged.
#[tokio::test]
async fn usage_above_the_estimate_is_in_the_engine_before_the_answer_and_other_usage_is_not() {
    let town = Town::new();
    let one = town.coordinator().await;
    let worker = one.worker("w");
    let limits = KeyPatch {
        limits: Change::To(vec!["1000 tokens/day@UTC".to_owned()]),
        ..KeyPatch::default()
    };
    one.patch_key(&key(), &limits).await.unwrap();
    let spend = async |used: u64, is_shut| {
        let asked = Item {
            cost: serde_json::from_value(serde_json::json!({"tokens": 10})).unwrap(),
            ..item("h.example", "")
        };
        let asked = one.one(&worker, asked, Duration::from_secs(10));
        let mut report = told(&asked.await.granted());
        report.used.insert("tokens".to_owned(), used);
        let mut aftermath = Aftermath::default();
        town.is_shut.store(is_shut, SeqCst);
        one.report(&worker, &report, &mut aftermath);
        aftermath.reported(0);
        let owes = one.limiter().owes(&key());
        let not_durable = one.see_to(aftermath).await;
        town.is_shut.store(false, SeqCst);
        (owes, not_durable)
    };
    assert_eq!(spend(10, true).await, (false, Vec::new()));
    // The engine may have the usage before the test looks.
    assert_eq!(spend(300, false).await.1, Vec::<usize>::new());
    let other = town.coordinator().await;
    assert_eq!(other.refresh(&key()).await, Ok(true));
    let left = |of: &Coordinator| of.explain("h.example").unwrap().budgets[0].remaining;
    assert_eq!(left(&other), 690);
    assert_eq!(spend(400, true).await, (true, vec![0]));
}
