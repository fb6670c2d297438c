//! Tests of declared limits and of costs that are settled.

use super::super::PolicyRefused;
use super::super::operate::NotSet;
use super::*;

#[tokio::test(start_paused = true)]
async fn declared_limits_hold_and_are_shown() {
    let coordinator = coordinator(Config::fixed(100.0, 10.0));
    let key = Key::host("h.example").unwrap();
    let worker = coordinator.worker("a");
    let patch = |patch: &str| serde_json::from_str::<KeyPatch>(patch).unwrap();
    let limits = patch(r#"{"limits": ["3/min", "2 concurrent"]}"#);
    coordinator.patch_key(&key, &limits).await.unwrap();
    assert_eq!(coordinator.numbers(&key), limits);
    let asked = |id| item("h.example", id);
    for id in ["1", "2"] {
        coordinator.one(&worker, asked(id), AT_ONCE).await.granted();
    }
    let (_, reason, _) = coordinator.one(&worker, asked("3"), AT_ONCE).await.wait();
    assert_eq!(reason, "in flight");
    let more = patch(r#"{"limits": ["3/min"]}"#);
    coordinator.patch_key(&key, &more).await.unwrap();
    coordinator
        .one(&worker, asked("4"), AT_ONCE)
        .await
        .granted();
    let (retry, reason, _) = coordinator.one(&worker, asked("5"), AT_ONCE).await.wait();
    assert_eq!(reason, "budget");
    assert!((60_000..=60_600).contains(&retry), "{retry}");
    let explained = coordinator.limiter().explain(&key).unwrap();
    assert_eq!(explained.budgets[0].remaining, 0);
    let none = patch(r#"{"limits": []}"#);
    coordinator.patch_key(&key, &none).await.unwrap();
    coordinator
        .one(&worker, asked("6"), AT_ONCE)
        .await
        .granted();
    for bad in [
        "0/s",
        "5/0s",
        "5/day@Atlantis",
        "5 Parsecs/s",
        "9 requets/s",
    ] {
        let bad = patch(&format!(r#"{{"limits": ["{bad}"]}}"#));
        let wrong = coordinator.patch_key(&key, &bad).await.unwrap_err();
        assert_eq!(wrong.field(), "limits");
    }
    let bad = serde_json::from_str(r#"{"crawling":{"limits":["9 requets/s"]}}"#).unwrap();
    let wrong = coordinator.patch_config(&bad).await.unwrap_err();
    assert_eq!(wrong.field(), "crawling.limits");
    let all = serde_json::from_str(r#"{"crawling":{"limits":["1/h"]}}"#).unwrap();
    coordinator.patch_config(&all).await.unwrap();
    assert_eq!(coordinator.config().crawling.limits, ["1/h"]);
    let other = |id| item("other.example", id);
    coordinator
        .one(&worker, other("7"), AT_ONCE)
        .await
        .granted();
    let (_, reason, _) = coordinator.one(&worker, other("8"), AT_ONCE).await.wait();
    assert_eq!(reason, "budget");
}

#[tokio::test(start_paused = true)]
async fn tokens_are_settled() {
    let mut config = Config::fixed(100.0, 10.0);
    config.declared = "1000 tokens/min".parse().unwrap();
    let coordinator = coordinator(config);
    let (worker, key) = (coordinator.worker("a"), Key::host("h.example").unwrap());
    let costs = |id, tokens: u64| Item {
        cost: serde_json::from_value(serde_json::json!({"tokens": tokens})).unwrap(),
        also: vec!["custom/team".to_owned()],
        ..item("h.example", id)
    };
    let left = |key: &Key| coordinator.limiter().explain(key).unwrap().budgets[0].remaining;
    let grant = coordinator
        .one(&worker, costs("1", 600), AT_ONCE)
        .await
        .granted();
    assert_eq!(left(&key), 400);
    let (retry, reason, _) = coordinator
        .one(&worker, costs("2", 600), AT_ONCE)
        .await
        .wait();
    assert_eq!(reason, "budget");
    // A request without tokens could leave at once, but this one needs the next window.
    assert!((59_000..=60_600).contains(&retry), "{retry}");
    let mut report = told(&grant);
    report.used.insert("tokens".to_owned(), 340);
    coordinator.report(&worker, &report, &mut Aftermath::default());
    assert_eq!(left(&key), 660);
    assert_eq!(left(&Key::parse("custom/team").unwrap()), 660);
    // A report that comes twice settles once.
    report.used.insert("tokens".to_owned(), 1);
    coordinator.report(&worker, &report, &mut Aftermath::default());
    assert_eq!(left(&key), 660);
    coordinator
        .one(&worker, costs("2", 600), AT_ONCE)
        .await
        .granted();
    let wrong = coordinator.one(&worker, costs("3", 1_001), AT_ONCE).await;
    let Answer::Error { error, .. } = wrong else {
        panic!("{wrong:?}")
    };
    assert_eq!(error.field, "cost");
    assert!(error.detail.contains("1000 tokens/min"), "{}", error.detail);
}

fn reset(name: &str) -> KeyPatch {
    KeyPatch {
        reset_budget: Some(name.to_owned()),
        ..KeyPatch::default()
    }
}

#[tokio::test(start_paused = true)]
async fn a_reset_takes_a_wrong_use_back_and_wakes_a_waiting_call() {
    let mut config = Config::fixed(100.0, 10.0);
    config.declared = "1000 tokens/min; 5000 tokens/30d".parse().unwrap();
    let coordinator = coordinator(config);
    let (worker, key) = (coordinator.worker("a"), Key::host("h.example").unwrap());
    let refused = async |name: &str| match coordinator.patch_key(&key, &reset(name)).await {
        Err(NotSet::Wrong(error)) => error.detail,
        other => panic!("{name}: {other:?}"),
    };
    assert_eq!(refused("all").await, "the key h.example is not known");
    assert!(coordinator.limiter().explain(&key).is_none());
    let costs = |id| Item {
        cost: serde_json::from_value(serde_json::json!({"tokens": 600})).unwrap(),
        ..item("h.example", id)
    };
    let left = || {
        let budgets = coordinator.limiter().explain(&key).unwrap().budgets;
        (budgets[0].remaining, budgets[1].remaining)
    };
    let typo = coordinator.one(&worker, costs("1"), AT_ONCE).await;
    let mut report = told(&typo.granted());
    report.used.insert("tokens".to_owned(), 1_000_000_000);
    coordinator.report(&worker, &report, &mut Aftermath::default());
    assert_eq!(left(), (0, 0));
    let detail = refused("5/h").await;
    let has = "the key h.example has no budget `5/h`; it has 1000 tokens/min; 5000 tokens/30day";
    assert_eq!(detail, has);
    assert!(refused("").await.starts_with("limit ``"));
    let (waited, ()) = tokio::join!(
        coordinator.one(&worker, costs("2"), Duration::from_secs(20)),
        async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let one = reset("5000 tokens/30day");
            coordinator.patch_key(&key, &one).await.unwrap();
            assert_eq!(left(), (0, 5_000));
            coordinator.patch_key(&key, &reset("all")).await.unwrap();
        }
    );
    waited.granted();
    assert_eq!(left(), (400, 4_400));
}

/// Two workers fetch pages of 1 MB from four hosts of one account for a minute. Each answer takes
/// 100 ms, and its bytes are reported at its end.
#[tokio::test(start_paused = true)]
async fn bytes_of_an_account_are_throttled_over_workers_and_hosts() {
    const PAGE: u64 = 1_000_000;
    let mut config = Config::fixed(1_000.0, 10.0);
    config.limits.in_flight = 1_000;
    let coordinator = coordinator(config);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("rules.toml");
    let rules = "[[rule]]\nmatch = [\"*.example\"]\naccount = \"a\"\n\
                 limits = [\"50MB/10s\", \"4 concurrent\"]\n";
    std::fs::write(&file, rules).unwrap();
    coordinator.load_policy(&file, false).unwrap();
    let ends = coordinator.now() + Duration::from_mins(1);
    let mut tasks = tokio::task::JoinSet::new();
    for i in 0..8 {
        let coordinator = coordinator.clone();
        tasks.spawn(async move {
            let worker = coordinator.worker(["one", "two"][i % 2]);
            let mut came = Vec::new();
            while coordinator.now() < ends {
                let asked = Item {
                    url: Some(format!("https://h{}.example/", i % 4)),
                    key: None,
                    ..item("", "")
                };
                let wait = Duration::from_secs(20);
                let Answer::Granted(grant) = coordinator.one(&worker, asked, wait).await else {
                    continue;
                };
                let start_in = Duration::from_millis(grant.start_in_ms);
                tokio::time::sleep(start_in + Duration::from_millis(100)).await;
                came.push(coordinator.now());
                let report = Told {
                    bytes: PAGE,
                    ..told(&grant)
                };
                coordinator.tell(&worker, &report);
            }
            came
        });
    }
    let mut came = Vec::new();
    while let Some(pages) = tasks.join_next().await {
        came.extend(pages.unwrap());
    }
    came.sort_unstable();
    // The four requests in flight may exceed the quantity.
    let window = Duration::from_secs(10);
    for first in &came {
        let inside = came
            .iter()
            .filter(|at| *at >= first && at.since(*first) < window);
        assert!(inside.count() as u64 * PAGE <= 54_000_000);
    }
    assert!(came.len() as u64 * PAGE >= 290_000_000, "{}", came.len());
}

#[tokio::test(start_paused = true)]
async fn a_rule_gives_an_account_its_limits() {
    let coordinator = coordinator(Config::crawler());
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("rules.toml");
    let text = "[[rule]]\nmatch = [\"*.example\"]\naccount = \"team\"\nlimits = [\"2/min\"]\n";
    std::fs::write(&file, text).unwrap();
    assert_eq!(coordinator.load_policy(&file, false).unwrap(), 1);
    assert_eq!(coordinator.policy_text(), text);
    let worker = coordinator.worker("a");
    let asked = |host: &str| Item {
        url: Some(format!("https://{host}/")),
        key: None,
        ..item("", "")
    };
    // The two hosts share the account's limit.
    for host in ["a.example", "b.example"] {
        coordinator
            .one(&worker, asked(host), AT_ONCE)
            .await
            .granted();
    }
    let (_, reason, _) = coordinator
        .one(&worker, asked("c.example"), AT_ONCE)
        .await
        .wait();
    assert_eq!(reason, "budget");
    // A wrong policy leaves the old one in force, and a new one is written to the file.
    assert!(
        coordinator
            .replace_policy("[[rule]]".to_owned(), false)
            .await
            .is_err()
    );
    assert_eq!(coordinator.policy_text(), text);
    let new = text.replace("2/min", "3/min");
    assert_eq!(
        coordinator
            .replace_policy(new.clone(), false)
            .await
            .unwrap(),
        1
    );
    assert_eq!(std::fs::read_to_string(&file).unwrap(), new);
    coordinator
        .one(&worker, asked("c.example"), AT_ONCE)
        .await
        .granted();
    // Without the rule, the account is not asked.
    let empty = coordinator.replace_policy(String::new(), false).await;
    assert!(matches!(empty, Err(PolicyRefused::Empty)), "{empty:?}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), new);
    coordinator
        .replace_policy(String::new(), true)
        .await
        .unwrap();
    coordinator
        .one(&worker, asked("d.example"), AT_ONCE)
        .await
        .granted();
}
