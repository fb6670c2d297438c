//! Rules of a policy count the pages of a unit, as they count single permits.

use politely_server::{Caps, FrontierSettings};
use reqwest::Method;
use serde_json::json;

use super::place::{Place, over_both};
use super::{fast, put_urls, take};
use crate::client::{Served, start_with};

const RULES: &str = r#"
[[rule]]
match   = ["*.shop.example"]
account = "team/{team}"
limits  = ["100 points/day@UTC"]
cost    = { points = { GET = 2, default = 50 } }

[[rule.key]]
name   = "consumer/{client}"
limits = ["2/day@UTC"]
"#;

/// Returns what is left of the only limit of a key.
async fn left(served: &Served, key: &str) -> serde_json::Value {
    let shown = served.get(&format!("/api/v1/keys/{key}")).await;
    shown["budgets"][0]["remaining"].clone()
}

over_both!(a_unit_counts_for_the_keys_of_its_rule);
async fn a_unit_counts_for_the_keys_of_its_rule(place: Place) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.toml");
    std::fs::write(&file, RULES).unwrap();
    let (coordinator, frontier) = place.open(fast(), FrontierSettings::default());
    coordinator.load_policy(&file, false).unwrap();
    let served = start_with(coordinator, None, Caps::default(), Some(frontier)).await;
    put_urls(
        &served,
        &["https://a.shop.example/1", "https://b.shop.example/1"],
    )
    .await;
    let of = |client: &str, wait_ms: u32| {
        let labels = json!({"team": "red"});
        json!({"client": client, "units": 2, "wait_ms": wait_ms, "labels": labels})
    };
    let mut taken = 0;
    while taken < 2 {
        let answer = take(&served, of("w1", 20_000)).await;
        let units = answer["units"].as_array().unwrap().len();
        assert!(units > 0, "{answer}");
        taken += units;
    }
    assert_eq!(left(&served, "custom%2Fconsumer%2Fw1").await, 0);
    assert_eq!(left(&served, "custom%2Fteam%2Fred").await, 96);

    // The worker has used its two requests; another one has not, and takes the domain.
    put_urls(&served, &["https://c.shop.example/1"]).await;
    assert_eq!(take(&served, of("w1", 0)).await["units"], json!([]));
    let answer = take(&served, of("w2", 20_000)).await;
    assert_eq!(answer["units"][0]["domain"], "c.shop.example", "{answer}");
    assert_eq!(left(&served, "custom%2Fconsumer%2Fw2").await, 1);
    assert_eq!(left(&served, "custom%2Fteam%2Fred").await, 94);

    // Without the label that its rule needs, a domain does not leave.
    put_urls(&served, &["https://e.shop.example/1"]).await;
    let answer = take(&served, json!({"client": "w3"})).await;
    assert_eq!(answer["units"], json!([]));
    let wrong = json!({"client": "w1", "labels": {"client": "w2"}}).to_string();
    let (status, problem) = served
        .call(Method::POST, "/api/v1/frontier/c/take", &wrong)
        .await;
    assert_eq!(status, 422, "{problem}");
    assert_eq!(problem["field"], "labels", "{problem}");
    served.end().await;
}
