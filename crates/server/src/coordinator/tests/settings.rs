//! Tests of operators' settings: a setting is in force, or it is an error.

use politely_api::wire::ConfigPatch;

use super::*;

fn patch(json: &str) -> KeyPatch {
    serde_json::from_str(json).unwrap()
}

impl Coordinator {
    async fn set(&self, key: &str, json: &str) -> Result<(), String> {
        let key = Key::parse(key).unwrap();
        let set = self.patch_key(&key, &patch(json)).await;
        set.map_err(|why| why.field().to_owned())
    }

    async fn set_all(&self, json: &str) {
        let patch: ConfigPatch = serde_json::from_str(json).unwrap();
        self.patch_config(&patch).await.unwrap();
    }

    fn rate(&self, key: &str) -> f64 {
        self.explain(key).unwrap().rate
    }
}

/// Regression: a key with an operator's rate of 50/s stayed at 2/s, the start rate of an unknown
/// host.
#[tokio::test(start_paused = true)]
async fn a_key_that_is_only_named_in_also_has_the_operators_numbers() {
    let coordinator = coordinator(Config::api());
    let worker = coordinator.worker("w");
    let numbers = r#"{"rate": 50, "burst": 50, "in_flight": 50}"#;
    coordinator.set("custom/acct", numbers).await.unwrap();
    for host in 0..50 {
        let wanted = Item {
            also: vec!["custom/acct".to_owned()],
            ..item(&format!("h{host}.example"), "")
        };
        let grant = coordinator.one(&worker, wanted, AT_ONCE).await.granted();
        coordinator.tell(&worker, &told(&grant));
    }
    assert_eq!(coordinator.rate("custom/acct"), 50.0);
    assert_eq!(
        coordinator.explain("custom/acct").unwrap().in_flight,
        (0, 50)
    );
}

#[tokio::test(start_paused = true)]
async fn a_law_per_key_is_set_and_taken_back() {
    let coordinator = coordinator(Config::api());
    let worker = coordinator.worker("w");
    let grant = coordinator
        .one(&worker, item("h.example", ""), AT_ONCE)
        .await
        .granted();
    coordinator.tell(&worker, &told(&grant));
    coordinator
        .set("h.example", r#"{"rate": 50}"#)
        .await
        .unwrap();
    assert_eq!(coordinator.rate("h.example"), 2.0);
    coordinator
        .set("h.example", r#"{"law": "fixed"}"#)
        .await
        .unwrap();
    assert_eq!(coordinator.rate("h.example"), 50.0);
    let key = Key::parse("h.example").unwrap();
    assert_eq!(
        coordinator.numbers(&key),
        patch(r#"{"rate": 50, "law": "fixed"}"#)
    );
    coordinator
        .set("h.example", r#"{"law": null}"#)
        .await
        .unwrap();
    assert_eq!(coordinator.rate("h.example"), 2.0);
    coordinator
        .set("h.example", r#"{"learn": false}"#)
        .await
        .unwrap();
    assert_eq!(coordinator.rate("h.example"), 50.0);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_in_force_is_named() {
    let coordinator = coordinator(Config::api());
    let wrong = [
        (r#"{"law": "vegas"}"#, "law"),
        (r#"{"hold_ms": 31536000001}"#, "hold_ms"),
        (r#"{"crawl_delay_ms": 86400001}"#, "crawl_delay_ms"),
        (r#"{"rate": 2000000}"#, "rate"),
    ];
    for (json, field) in wrong {
        assert_eq!(
            coordinator.set("h.example", json).await,
            Err(field.to_owned())
        );
    }
}

/// Regression: the call was answered 200, but every key stayed at 5/s.
#[tokio::test(start_paused = true)]
async fn the_rate_of_all_rises_and_falls_where_nothing_is_learned() {
    let coordinator = coordinator(Config::fixed(5.0, 1.0));
    coordinator
        .set("old.example", r#"{"hold_ms": 0}"#)
        .await
        .unwrap();
    for rate in [50.0, 2.0] {
        coordinator
            .set_all(&format!(r#"{{"crawling": {{"rate_per_host": {rate}}}}}"#))
            .await;
        let new = format!("new{rate}.example");
        coordinator.set(&new, r#"{"hold_ms": 0}"#).await.unwrap();
        assert_eq!(
            [coordinator.rate("old.example"), coordinator.rate(&new)],
            [rate; 2]
        );
    }
    coordinator
        .set_all(r#"{"crawling": {"rate_per_host": null}}"#)
        .await;
    assert_eq!(coordinator.rate("old.example"), 5.0);
}

#[tokio::test(start_paused = true)]
async fn an_operators_numbers_hold_at_once() {
    let coordinator = coordinator(Config::crawler());
    let key = Key::host("h.example").unwrap();
    let worker = coordinator.worker("a");
    let patch = |patch: &str| serde_json::from_str::<KeyPatch>(patch).unwrap();
    coordinator
        .patch_key(&key, &patch(r#"{"hold_ms": 20000}"#))
        .await
        .unwrap();
    let (retry, reason, _) = coordinator
        .one(&worker, item("h.example", ""), AT_ONCE)
        .await
        .wait();
    assert_eq!((retry, reason.as_str()), (20_000, "hold, operator"));
    coordinator
        .patch_key(&key, &patch(r#"{"unpark": true, "rate": 0.25}"#))
        .await
        .unwrap();
    coordinator
        .one(&worker, item("h.example", ""), AT_ONCE)
        .await
        .granted();
    let (retry, ..) = coordinator
        .one(&worker, item("h.example", ""), AT_ONCE)
        .await
        .wait();
    assert!((3_900..=4_000).contains(&retry), "{retry}");
    let numbers = r#"{"burst": 3, "in_flight": 2}"#;
    coordinator.patch_key(&key, &patch(numbers)).await.unwrap();
    let all = r#"{"rate": 0.25, "burst": 3, "in_flight": 2}"#;
    assert_eq!(coordinator.numbers(&key), patch(all));
    let taken = r#"{"rate": null, "in_flight": null}"#;
    coordinator.patch_key(&key, &patch(taken)).await.unwrap();
    assert_eq!(coordinator.numbers(&key), patch(r#"{"burst": 3}"#));
    let explained = coordinator.limiter().explain(&key).unwrap();
    assert!(explained.rate > 0.25, "{}", explained.rate);
    coordinator
        .patch_key(&key, &patch(r#"{"forget": true}"#))
        .await
        .unwrap();
    assert_eq!(coordinator.numbers(&key), KeyPatch::default());
    for (field, bad) in [
        ("rate", r#"{"rate": 0}"#),
        ("burst", r#"{"burst": 0.5}"#),
        ("in_flight", r#"{"in_flight": 0}"#),
    ] {
        assert_eq!(
            coordinator
                .patch_key(&key, &patch(bad))
                .await
                .unwrap_err()
                .field(),
            field
        );
    }
}

#[tokio::test(start_paused = true)]
async fn the_control_call_is_applied_while_running() {
    let coordinator = coordinator(Config::fixed(100.0, 1.0));
    let worker = coordinator.worker("a");
    let patch =
        serde_json::from_str(r#"{"crawling":{"rate_per_host":2.0,"rate_burst":5}}"#).unwrap();
    coordinator.patch_config(&patch).await.unwrap();
    let config = coordinator.config();
    assert_eq!(
        (
            config.crawling.rate_per_host,
            config.crawling.rate_burst,
            config.version
        ),
        (Some(2.0), 5.0, 2)
    );
    tokio::time::sleep(Duration::from_secs(3)).await;
    for _ in 0..5 {
        coordinator
            .one(&worker, item("h.example", ""), AT_ONCE)
            .await
            .granted();
    }
    assert_eq!(
        coordinator
            .one(&worker, item("h.example", ""), AT_ONCE)
            .await
            .wait()
            .0,
        500
    );
    let wrong = serde_json::from_str(r#"{"crawling":{"rate_per_host":-1}}"#).unwrap();
    let wrong = coordinator.patch_config(&wrong).await.unwrap_err();
    assert_eq!(wrong.field(), "crawling.rate_per_host");
    assert_eq!(coordinator.config().version, 2);
}
