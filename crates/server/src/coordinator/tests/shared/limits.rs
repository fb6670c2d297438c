//! Tests of the limits that coordinators share: they hold from the first grant on, and what is spent
//! of them is in the engine.

use super::*;

/// Regression: a coordinator without a file granted without limits until its background task had
/// read the policy.
#[tokio::test]
async fn a_new_coordinator_grants_nothing_before_it_has_read_the_policy_of_the_engine() {
    let town = Town::new();
    let one = town.coordinator().await;
    let rules = "[[rule]]\nmatch = [\"*.example\"]\naccount = \"x\"\nlimits = [\"1/h\"]\n";
    one.replace_policy(rules.to_owned(), false).await.unwrap();
    let ask = |coordinator: Coordinator| async move {
        let worker = coordinator.worker("w");
        let of_rule = Item {
            key: None,
            url: Some("https://h.example/".to_owned()),
            ..item("h.example", "")
        };
        let asked = coordinator.one(&worker, of_rule, Duration::from_secs(5));
        asked.await
    };
    ask(one).await.granted();
    let other = town.unread_coordinator();
    other.limiter().ping().await.unwrap();
    let (_, reason, _) = ask(other).await.wait();
    assert_eq!(reason, "budget");
}
