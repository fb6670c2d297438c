//! Tests of one coordinator and its state folder: acknowledged changes are there after a restart.

use std::sync::atomic::Ordering::SeqCst;

use politely::core::Rng;
use politely_api::wire::{Apply, Change, ConfigPatch, CrawlingPatch};

use super::super::operate::NotSet;
use super::*;
use crate::store::Store;
use crate::store::tests::failing;

fn settings() -> Settings {
    Settings {
        config: Config::fixed(1_000.0, 10.0),
        ..Settings::default()
    }
}

fn resumed(dir: &std::path::Path) -> Coordinator {
    let (store, kept) = Store::open(dir).unwrap();
    Coordinator::resume(settings(), store, kept).unwrap()
}

/// Returns a copy of the folder, as a kill -9 would leave it: nothing is written later.
pub(super) fn copied(dir: &std::path::Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    for file in std::fs::read_dir(dir).unwrap() {
        let file = file.unwrap();
        if file.path().is_dir() {
            continue;
        }
        std::fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
    }
    copy
}

fn rate(rate: f64) -> KeyPatch {
    KeyPatch {
        rate: Change::To(rate),
        ..KeyPatch::default()
    }
}

fn start_rate(rate: f64) -> ConfigPatch {
    ConfigPatch {
        crawling: CrawlingPatch {
            rate_start: Change::To(rate),
            ..CrawlingPatch::default()
        },
        ..ConfigPatch::default()
    }
}

/// Regression: before versions, an older snapshot could be queued after a newer one and replace it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn changes_at_the_same_time_are_kept_in_the_order_they_were_made() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..5 {
        let coordinator = resumed(dir.path());
        let key = Key::parse("h.example").unwrap();
        let changes = (0..16).map(|task| {
            let (coordinator, key) = (coordinator.clone(), key.clone());
            tokio::spawn(async move {
                for i in 0..20 {
                    let number = f64::from(round * 1_000 + task * 30 + i + 1);
                    coordinator.patch_key(&key, &rate(number)).await.unwrap();
                    coordinator.patch_config(&start_rate(number)).await.unwrap();
                }
            })
        });
        for change in changes.collect::<Vec<_>>() {
            change.await.unwrap();
        }
        let (set, config) = (coordinator.numbers(&key), coordinator.config());
        let copy = copied(dir.path());
        let after = resumed(copy.path());
        assert_eq!(after.numbers(&key), set, "round {round}");
        assert_eq!(after.config().crawling, config.crawling, "round {round}");
    }
}

#[tokio::test]
async fn while_the_disk_refuses_changes_are_refused_and_holds_are_marked() {
    let dir = tempfile::tempdir().unwrap();
    let (store, moods) = failing::store(dir.path());
    let kept = store.kept_for_test();
    let coordinator = Coordinator::resume(settings(), store, kept).unwrap();
    tokio::spawn(coordinator.clone().tend());
    let key = Key::parse("h.example").unwrap();
    let worker = coordinator.worker("w");
    let grant = coordinator
        .one(&worker, item("h.example", "1"), AT_ONCE)
        .await;
    let grant = grant.granted();
    coordinator.patch_key(&key, &rate(5.0)).await.unwrap();
    assert_eq!(coordinator.last_error(), None);

    moods.full.store(true, SeqCst);
    let first = coordinator.patch_key(&key, &rate(6.0)).await;
    assert!(matches!(first, Err(NotSet::Unkept(_))), "{first:?}");
    let why = coordinator.last_error().unwrap();
    assert!(why.contains("politely.redb"), "{why}");
    let second = coordinator.patch_key(&key, &rate(7.0)).await;
    assert!(matches!(second, Err(NotSet::Refused(_))), "{second:?}");
    let third = coordinator.patch_config(&start_rate(3.0)).await;
    assert!(matches!(third, Err(NotSet::Refused(_))), "{third:?}");
    // The second change was not made at all.
    assert_eq!(coordinator.numbers(&key).rate, Change::To(6.0));
    // A report is applied in any case: the hold is in force, and its answer says that the hold may
    // be lost.
    let mut aftermath = Aftermath::default();
    let answer = coordinator.report(&worker, &refusal(&grant, "60"), &mut aftermath);
    assert!(answer.hold_ms > 0);
    aftermath.reported(0);
    assert_eq!(coordinator.see_to(aftermath).await, [0]);

    moods.full.store(false, SeqCst);
    while coordinator.last_error().is_some() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    coordinator.patch_key(&key, &rate(8.0)).await.unwrap();
    drop(coordinator);
}

#[tokio::test]
async fn a_dead_part_is_told_and_nothing_is_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = failing::store(dir.path());
    store.kill_thread();
    let kept = store.kept_for_test();
    let coordinator = Coordinator::resume(settings(), store, kept).unwrap();
    let key = Key::parse("h.example").unwrap();
    let refused = coordinator.patch_key(&key, &rate(5.0)).await;
    assert!(matches!(refused, Err(NotSet::Refused(_))), "{refused:?}");
    assert!(coordinator.no_permits().is_some());
    assert!(!coordinator.save().await, "the exit code is not 0");

    // A background task that ends is reported as well.
    let coordinator = Coordinator::new(settings()).unwrap();
    assert_eq!(coordinator.last_error(), None);
    let mut tasks = tokio::task::JoinSet::new();
    coordinator.supervise(&mut tasks, "is under test", |_| async {
        std::future::ready(()).await;
    });
    tasks.join_next().await.unwrap().unwrap();
    let why = coordinator.last_error().unwrap();
    assert!(
        why.contains("the task that is under test has ended"),
        "{why}"
    );
    assert!(!coordinator.save().await);
}

#[tokio::test]
async fn a_permit_that_cannot_be_written_down_is_not_granted() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = resumed(dir.path());
    let worker = coordinator.worker("w");
    let long = format!("custom/{}", "x".repeat(200));
    let mut grants = Vec::new();
    for id in ["1", "2"] {
        grants.push(
            coordinator
                .one(&worker, item(&long, id), AT_ONCE)
                .await
                .granted(),
        );
    }
    coordinator.0.store.as_ref().unwrap().fail_journal();
    let (_, reason, _) = coordinator
        .one(&worker, item(&long, "3"), AT_ONCE)
        .await
        .wait();
    assert!(reason.contains("disk"), "{reason}");
    let in_flight = coordinator.explain(&long).unwrap().in_flight.0;
    assert_eq!(in_flight, 2, "the slot of the third came back");
}

/// Regression: a call that was repeated while the first one wrote its permit got that permit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_call_gets_no_permit_before_the_journal_has_it() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = resumed(dir.path());
    let worker = coordinator.worker("w");
    let journal = coordinator.0.store.as_ref().unwrap().block_journal();
    let first = tokio::spawn({
        let (coordinator, worker) = (coordinator.clone(), Arc::clone(&worker));
        async move {
            coordinator
                .one(&worker, item("h.example", "1"), AT_ONCE)
                .await
        }
    });
    while coordinator.live() == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let again = || coordinator.one(&worker, item("h.example", "1"), AT_ONCE);
    let (_, reason, _) = again().await.wait();
    assert_eq!(reason, "asked already");
    drop(journal);
    let granted = first.await.unwrap().granted();
    assert_eq!(again().await.granted().permit, granted.permit);
}

/// A permit that is cancelled while the journal records it does not come back after a restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permit_that_is_cancelled_while_it_is_written_stays_cancelled() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = resumed(dir.path());
    let worker = coordinator.worker("w");
    let journal = coordinator.0.store.as_ref().unwrap().block_journal();
    let first = tokio::spawn({
        let (coordinator, worker) = (coordinator.clone(), Arc::clone(&worker));
        async move {
            coordinator
                .one(&worker, item("h.example", "1"), AT_ONCE)
                .await
        }
    });
    while coordinator.live() == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let cancelling = tokio::task::spawn_blocking({
        let (coordinator, worker) = (coordinator.clone(), Arc::clone(&worker));
        move || coordinator.cancel(&worker, &["1".to_owned()], false)
    });
    while coordinator.live() > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    drop(journal);
    assert_eq!(cancelling.await.unwrap().cancelled, ["1"]);
    first.await.unwrap();
    assert!(coordinator.save().await);
    drop(coordinator);
    let after = resumed(dir.path());
    assert_eq!(
        (
            after.live(),
            after.explain("h.example").unwrap().in_flight.0
        ),
        (0, 0)
    );
}

fn for_new_keys(rate: f64) -> ConfigPatch {
    ConfigPatch {
        crawling: CrawlingPatch {
            rate_per_host: Change::To(rate),
            ..CrawlingPatch::default()
        },
        apply: Apply::New,
    }
}

/// Regression: after a restart a change for new keys applied to all keys.
#[tokio::test]
async fn a_change_for_new_keys_outlives_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = resumed(dir.path());
    let worker = coordinator.worker("w");
    // The keys have a permit that is out, a reported permit, and a setting.
    let out = coordinator.one(&worker, item("out.example", ""), AT_ONCE);
    out.await.granted();
    let reported = coordinator.one(&worker, item("told.example", ""), AT_ONCE);
    coordinator.tell(&worker, &told(&reported.await.granted()));
    let held = KeyPatch {
        hold_ms: Some(1),
        ..KeyPatch::default()
    };
    let set = Key::parse("set.example").unwrap();
    coordinator.patch_key(&set, &held).await.unwrap();
    coordinator.patch_config(&for_new_keys(50.0)).await.unwrap();
    let second = coordinator.one(&worker, item("second.example", ""), AT_ONCE);
    second.await.granted();
    coordinator.patch_config(&for_new_keys(20.0)).await.unwrap();
    let third = Key::parse("third.example").unwrap();
    coordinator.patch_key(&third, &held).await.unwrap();
    let rates = |coordinator: &Coordinator| {
        ["out", "told", "set", "second", "third"].map(|name| {
            let explained = coordinator.explain(&format!("{name}.example"));
            explained.unwrap().rate.to_string()
        })
    };
    let expected = ["1000", "1000", "1000", "50", "20"];
    assert_eq!(rates(&coordinator), expected);
    let copy = copied(dir.path());
    let after = resumed(copy.path());
    assert_eq!(rates(&after), expected);
    let fourth = Key::parse("fourth.example").unwrap();
    after.patch_key(&fourth, &held).await.unwrap();
    assert_eq!(
        after.explain("fourth.example").unwrap().rate.to_string(),
        "20"
    );
    // A change for all keys ends this.
    after.patch_config(&start_rate(7.0)).await.unwrap();
    assert_eq!(rates(&after), ["7"; 5]);
}

#[tokio::test]
async fn a_reset_outlives_a_kill_with_what_was_spent_after_it() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = resumed(dir.path());
    let key = Key::parse("h.example").unwrap();
    let limits = KeyPatch {
        limits: Change::To(vec!["1000 tokens/30d".to_owned()]),
        ..KeyPatch::default()
    };
    coordinator.patch_key(&key, &limits).await.unwrap();
    let worker = coordinator.worker("w");
    let costs = |id| Item {
        cost: serde_json::from_value(serde_json::json!({"tokens": 100})).unwrap(),
        ..item("h.example", id)
    };
    let grant = |id| coordinator.one(&worker, costs(id), AT_ONCE);
    let (typo, out) = (grant("1").await.granted(), grant("2").await.granted());
    let settled = async |on: &Coordinator, grant: &Grant, used| {
        let mut report = told(grant);
        report.used.insert("tokens".to_owned(), used);
        let mut aftermath = Aftermath::default();
        on.report(&on.worker("w"), &report, &mut aftermath);
        on.see_to(aftermath).await;
    };
    let left = |on: &Coordinator| on.explain("h.example").unwrap().budgets[0].remaining;
    settled(&coordinator, &typo, 1_000_000_000).await;
    let reset = KeyPatch {
        reset_budget: Some("all".to_owned()),
        ..KeyPatch::default()
    };
    coordinator.patch_key(&key, &reset).await.unwrap();
    let copy = copied(dir.path());
    let after = resumed(copy.path());
    assert_eq!(left(&after), 1_000);
    // The permit of before the reset is settled at the restarted coordinator.
    settled(&after, &out, 500).await;
    assert_eq!(left(&after), 1_000);
    grant("3").await.granted();
    let copy = copied(dir.path());
    assert_eq!(left(&resumed(copy.path())), 900);
}

/// Permits of random costs are out when the coordinator is killed. Some are reported before, some
/// after, some twice, and some never. What is left is the limit without what was used, or without
/// the estimate of a permit that nobody reported.
#[tokio::test]
async fn estimates_of_permits_that_outlive_a_kill_are_settled_to_the_unit() {
    const LIMIT: u64 = 1_000_000;
    let limits = || KeyPatch {
        limits: Change::To(vec![format!("{LIMIT} tokens/h")]),
        ..KeyPatch::default()
    };
    for seed in 0..10 {
        let mut rng = Rng::new(seed);
        let mut random = |below: u64| (rng.unit() * below as f64) as u64;
        let dir = tempfile::tempdir().unwrap();
        let coordinator = resumed(dir.path());
        let (first, team) = ("h.example", "custom/team");
        for key in [first, team] {
            let key = Key::parse(key).unwrap();
            coordinator.patch_key(&key, &limits()).await.unwrap();
        }
        let worker = coordinator.worker("w");
        let mut open = Vec::new();
        let mut spent = 0;
        for id in 0..8 {
            let estimate = 1 + random(1_000);
            let asked = Item {
                cost: serde_json::from_value(serde_json::json!({"tokens": estimate})).unwrap(),
                also: vec![team.to_owned()],
                ..item(first, &id.to_string())
            };
            let grant = coordinator.one(&worker, asked, AT_ONCE).await.granted();
            open.push((grant, estimate));
        }
        let mut places = vec![(dir, coordinator)];
        for _ in 0..3 {
            let (dir, coordinator) = places.last().unwrap();
            let worker = coordinator.worker("w");
            for _ in 0..random(4) {
                let (grant, estimate) = open.swap_remove(random(open.len() as u64) as usize);
                let used = random(2 * estimate);
                spent += used;
                let mut report = told(&grant);
                report.used.insert("tokens".to_owned(), used);
                for _ in 0..2 {
                    let mut aftermath = Aftermath::default();
                    coordinator.report(&worker, &report, &mut aftermath);
                    coordinator.see_to(aftermath).await;
                }
                if open.is_empty() {
                    break;
                }
            }
            let held: u64 = open.iter().map(|(_, estimate)| estimate).sum();
            for key in [first, team] {
                let budgets = coordinator.explain(key).unwrap().budgets;
                assert_eq!(
                    budgets[0].remaining,
                    LIMIT - spent - held,
                    "{key}, seed {seed}"
                );
            }
            if open.is_empty() {
                break;
            }
            let copy = copied(dir.path());
            let after = resumed(copy.path());
            places.push((copy, after));
        }
    }
}
