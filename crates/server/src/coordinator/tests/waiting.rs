//! Tests of waiting items: their order, their time, and the choice among many.

use std::time::Duration;

use politely::core::config::Config;
use politely_api::wire::{Answer, Item, Told, Want};

use super::{AT_ONCE, Unwrapped, coordinator, item, told};

#[tokio::test(start_paused = true)]
async fn those_who_wait_are_served_in_the_order_they_came() {
    let coordinator = coordinator(Config::fixed(10.0, 1.0));
    let mut calls = Vec::new();
    for i in 0..200 {
        let coordinator = coordinator.clone();
        calls.push(tokio::spawn(async move {
            let worker = coordinator.worker(&format!("w{}", i % 7));
            let wait = Duration::from_mins(1);
            let grant = coordinator
                .one(&worker, item("h.example", ""), wait)
                .await
                .granted();
            let at = coordinator.now();
            coordinator.tell(&worker, &told(&grant));
            (at, i)
        }));
        tokio::task::yield_now().await;
    }
    let mut served = Vec::new();
    for call in calls {
        served.push(call.await.unwrap());
    }
    assert!(served.is_sorted(), "{served:?}");
    let took = served[199].0.since(served[0].0);
    assert!((took.as_secs_f64() - 19.9).abs() < 0.2, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_place_in_line_is_kept_for_who_asks_again() {
    let coordinator = coordinator(Config::fixed(1.0, 1.0));
    let worker = coordinator.worker("a");
    coordinator
        .one(&worker, item("h.example", ""), AT_ONCE)
        .await
        .granted();
    let first = coordinator.one(
        &worker,
        item("h.example", "first"),
        Duration::from_millis(100),
    );
    assert_eq!(first.await.wait().2, 0);
    let later = coordinator.clone();
    let second = tokio::spawn(async move {
        let worker = later.worker("b");
        let grant = later
            .one(&worker, item("h.example", "second"), Duration::from_secs(5))
            .await
            .granted();
        later.tell(&worker, &told(&grant));
        later.now()
    });
    tokio::time::sleep(Duration::from_millis(500)).await;
    let wait = Duration::from_secs(5);
    let grant = coordinator
        .one(&worker, item("h.example", "first"), wait)
        .await
        .granted();
    let at = coordinator.now();
    coordinator.tell(&worker, &told(&grant));
    assert!(
        at < second.await.unwrap(),
        "who came first was served second"
    );
}

#[tokio::test(start_paused = true)]
async fn priority_goes_first_and_nobody_starves() {
    let coordinator = coordinator(Config::fixed(1.0, 1.0));
    let worker = coordinator.worker("a");
    coordinator
        .one(&worker, item("h.example", ""), AT_ONCE)
        .await
        .granted();
    let mut calls = Vec::new();
    for (name, priority, after) in [
        ("old", 0, 0),
        ("low", 0, 11),
        ("high", 1, 2),
        ("new", 1, 12),
    ] {
        let coordinator = coordinator.clone();
        calls.push(tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(after)).await;
            let worker = coordinator.worker("b");
            let item = Item {
                priority,
                ..item("h.example", name)
            };
            let grant = coordinator
                .one(&worker, item, Duration::from_secs(9))
                .await
                .granted();
            coordinator.tell(&worker, &told(&grant));
            (coordinator.now(), name)
        }));
    }
    let mut served = Vec::new();
    for call in calls {
        served.push(call.await.unwrap());
    }
    served.sort_unstable();
    let order: Vec<_> = served.into_iter().map(|(_, name)| name).collect();
    assert_eq!(order, ["high", "new", "old", "low"]);
    // A step of priority is worth ten seconds, so an item that waited eleven seconds longer goes
    // first.
    let (early, late) = (coordinator.limiter().arrival(), {
        tokio::time::sleep(Duration::from_secs(11)).await;
        coordinator
            .limiter()
            .arrival()
            .earlier(Duration::from_secs(10))
    });
    assert!(early < late);
}

#[tokio::test(start_paused = true)]
async fn any_takes_the_first_that_may_leave_and_nothing_of_the_others() {
    let coordinator = coordinator(Config::fixed(1.0, 1.0));
    let worker = coordinator.worker("a");
    let hosts: Vec<Item> = (0..300)
        .map(|i| item(&format!("h{i}.example"), ""))
        .collect();
    let all = coordinator
        .acquire(&worker, &hosts, Want::All, AT_ONCE, Vec::new())
        .await;
    assert_eq!(all.answers.len(), 300);
    tokio::time::sleep(Duration::from_millis(400)).await;
    let free = item("free.example", "");
    let mut asked = hosts.clone();
    asked.push(free);
    let wait = Duration::from_secs(5);
    let one = coordinator
        .acquire(&worker, &asked, Want::Any(1), wait, Vec::new())
        .await;
    assert_eq!(one.answers.len(), 1);
    assert_eq!(one.answers[0].clone().granted().key, "free.example");
    let two = coordinator
        .acquire(&worker, &hosts, Want::Any(2), wait, Vec::new())
        .await;
    assert_eq!(two.answers.len(), 2, "both may leave at the same time");
    assert!(
        two.answers
            .iter()
            .all(|answer| matches!(answer, Answer::Granted(_)))
    );
    // No item waits in a queue and no token was taken: the other 298 can be granted at once.
    assert_eq!(coordinator.limiter().stats().waiting, 0);
    let rest = coordinator
        .acquire(&worker, &hosts, Want::All, AT_ONCE, Vec::new())
        .await;
    let granted = rest
        .answers
        .iter()
        .filter(|answer| matches!(answer, Answer::Granted(_)));
    assert_eq!(granted.count(), 298);
}

#[tokio::test(start_paused = true)]
async fn a_reservation_ahead_is_one_call() {
    let coordinator = coordinator(Config::fixed(2.0, 1.0));
    let worker = coordinator.worker("a");
    let ahead = |ms| Item {
        max_wait_ms: Some(ms),
        ..item("h.example", "")
    };
    let mut starts = Vec::new();
    for _ in 0..2 {
        starts.push(
            coordinator
                .one(&worker, ahead(500), AT_ONCE)
                .await
                .granted()
                .start_in_ms,
        );
    }
    assert_eq!(starts, [0, 500]);
    assert_eq!(
        coordinator.one(&worker, ahead(500), AT_ONCE).await.wait().0,
        500
    );
    // The last of three slots starts in two seconds. A fourth would start later than allowed.
    let run = Item {
        slots: 4,
        max_wait_ms: Some(2_000),
        ..item("h.example", "")
    };
    let run = coordinator.one(&worker, run, AT_ONCE).await.granted();
    assert_eq!(
        (run.start_in_ms, run.slots, run.interval_ms as u32),
        (1_000, 3, 500)
    );
    for slot in 0..3 {
        let told = Told { slot, ..told(&run) };
        assert!(!coordinator.tell(&worker, &told).late);
    }
    let fourth = Told {
        slot: 3,
        ..told(&run)
    };
    let error = coordinator.tell(&worker, &fourth).error.unwrap();
    assert_eq!(error.field, "slot");
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_wait_for_one_host_and_one_for_each_of_a_hundred_thousand() {
    let coordinator = coordinator(Config::fixed(1_000.0, 1.0));
    let mut calls = tokio::task::JoinSet::new();
    for i in 0..10_000 {
        let coordinator = coordinator.clone();
        calls.spawn(async move {
            let worker = coordinator.worker(&format!("w{}", i % 100));
            let grant = coordinator
                .one(&worker, item("h.example", ""), Duration::from_mins(1))
                .await
                .granted();
            coordinator.tell(&worker, &told(&grant));
        });
    }
    while let Some(served) = calls.join_next().await {
        served.unwrap();
    }
    let stats = coordinator.limiter().stats();
    // Each permit needed one call, so no caller had to retry.
    assert_eq!(
        (stats.granted, stats.reported, stats.waiting),
        (10_000, 10_000, 0)
    );

    let worker = coordinator.worker("many");
    let hosts: Vec<Vec<Item>> = (0..25)
        .map(|call| {
            (0..4_000)
                .map(|i| item(&format!("h{}.example", call * 4_000 + i), ""))
                .collect()
        })
        .collect();
    for call in &hosts {
        let outcome = coordinator
            .acquire(&worker, call, Want::All, AT_ONCE, Vec::new())
            .await;
        assert!(
            outcome
                .answers
                .iter()
                .all(|answer| matches!(answer, Answer::Granted(_)))
        );
    }
    let waits = hosts.iter().map(|call| async {
        let mut left = call.clone();
        while !left.is_empty() {
            let wait = Duration::from_secs(5);
            let outcome = coordinator
                .acquire(&worker, &left, Want::All, wait, Vec::new())
                .await;
            let mut answers = outcome.answers.iter();
            let waits = |_: &Item| matches!(answers.next(), Some(Answer::Wait { .. }));
            let before = left.len();
            left.retain(waits);
            assert!(
                left.len() < before,
                "a call that is held open brings something"
            );
        }
    });
    futures_util::future::join_all(waits).await;
    assert_eq!(coordinator.limiter().stats().granted, 210_000);
}

/// Regression: a run of five departures counted as five hits of one item.
#[tokio::test(start_paused = true)]
async fn the_hit_rate_counts_items() {
    let coordinator = coordinator(Config::fixed(10.0, 5.0));
    let worker = coordinator.worker("w");
    let run = Item {
        slots: 5,
        ..item("h.example", "")
    };
    coordinator.one(&worker, run, AT_ONCE).await.granted();
    assert!(coordinator.hit_rate().abs() < 1e-9);
    let wait = Duration::from_secs(10);
    let waited = coordinator.one(&worker, item("h.example", ""), wait).await;
    waited.granted();
    assert!((coordinator.hit_rate() - 0.5).abs() < 1e-9);
}
