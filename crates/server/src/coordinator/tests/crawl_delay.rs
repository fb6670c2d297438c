//! Tests of Crawl-delay: what one worker reads in robots.txt applies to all workers.

use politely::core::Timestamp;

use super::*;

/// Returns a configuration of ten requests per second and three in flight, so that only a
/// Crawl-delay limits the tests.
fn quick() -> Config {
    let mut config = Config::fixed(10.0, 3.0);
    config.limits.in_flight = 3;
    config
}

fn tenths(rate: f64) -> u32 {
    (rate * 10.0).round() as u32
}

fn told_with(key: &str, ms: u64) -> Item {
    Item {
        crawl_delay_ms: Some(ms),
        ..item(key, "")
    }
}

/// Regression: the delay applied only to the worker that had read it, so two workers sent within
/// the same second.
#[tokio::test(start_paused = true)]
async fn told_by_one_it_holds_for_all() {
    let coordinator = coordinator(quick());
    let (reader, other) = (coordinator.worker("reader"), coordinator.worker("other"));
    let long = Duration::from_secs(30);
    let now = || coordinator.now();
    let read = now();
    let first = coordinator
        .one(&reader, told_with("h.example", 1_000), long)
        .await
        .granted();
    assert!(now().since(read) >= Duration::from_secs(1));
    let (_, why, _) = coordinator
        .one(&other, item("h.example", ""), AT_ONCE)
        .await
        .wait();
    assert_eq!(why, "hold, Crawl-delay");
    tokio::time::sleep(Duration::from_secs(5)).await;
    let mut grant = first;
    for turn in 0..4 {
        let by = [&reader, &other][turn % 2];
        let answer = coordinator.tell(by, &told(&grant));
        assert_eq!(answer.hold_ms, 1_000);
        let ended = now();
        let next = [&other, &reader][turn % 2];
        grant = coordinator
            .one(next, item("h.example", ""), long)
            .await
            .granted();
        assert_eq!(now().since(ended), Duration::from_secs(1));
        assert!(grant.interval_ms >= 1_000.0, "{grant:?}");
    }
    let explained = coordinator.explain("h.example").unwrap();
    assert_eq!(tenths(explained.rate), 10);
}

/// All of them rest after the same last request, and then wait in the key's queue. The grants of
/// two coordinators are tested in `shared`.
#[tokio::test(start_paused = true)]
async fn two_that_read_it_at_the_same_time_do_not_leave_together() {
    let coordinator = coordinator(quick());
    let workers = ["a", "b", "c"].map(|name| coordinator.worker(name));
    let grant = coordinator
        .one(&workers[0], item("h.example", ""), AT_ONCE)
        .await
        .granted();
    coordinator.tell(&workers[0], &told(&grant));
    let starts = workers.each_ref().map(|worker| {
        let coordinator = &coordinator;
        async move {
            let long = Duration::from_secs(30);
            let asked = coordinator.one(worker, told_with("h.example", 1_000), long);
            let grant = asked.await.granted();
            let left = coordinator.now();
            coordinator.tell(worker, &told(&grant));
            left
        }
    });
    let mut starts = futures_util::future::join_all(starts).await;
    starts.sort();
    let gap = |pair: &[Timestamp]| pair[1].since(pair[0]);
    assert!(
        starts
            .windows(2)
            .all(|pair| gap(pair) >= Duration::from_secs(1)),
        "{starts:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn it_holds_as_long_as_it_is_fresh() {
    let coordinator = coordinator(quick());
    let worker = coordinator.worker("w");
    let fresh = Item {
        crawl_delay_fresh_ms: Some(60_000),
        ..told_with("h.example", 5_000)
    };
    let rate = || tenths(coordinator.explain("h.example").unwrap().rate);
    let served = async |item| {
        let patience = Duration::from_secs(30);
        let grant = coordinator.one(&worker, item, patience).await.granted();
        coordinator.tell(&worker, &told(&grant));
    };
    served(fresh).await;
    served(told_with("h.example", 2_000)).await;
    assert_eq!(rate(), 2, "the largest counts");
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert_eq!(rate(), 100);
    served(told_with("h.example", 2_000)).await;
    assert_eq!(rate(), 5);
}

/// Regression: one call without a grant parked the key for 30 days.
#[tokio::test(start_paused = true)]
async fn a_call_without_a_grant_slows_nobody() {
    let coordinator = coordinator(quick());
    let (reader, other) = (coordinator.worker("reader"), coordinator.worker("other"));
    let day = || told_with("h.example", 86_400_000);
    coordinator.one(&reader, day(), AT_ONCE).await.wait();
    let grant = coordinator
        .one(&other, item("h.example", ""), AT_ONCE)
        .await
        .granted();
    coordinator.tell(&other, &told(&grant));
    // Only the reader waits after the key's last request.
    let (retry_in_ms, ..) = coordinator.one(&reader, day(), AT_ONCE).await.wait();
    assert_eq!(retry_in_ms, 86_400_000);
    coordinator
        .one(&other, item("h.example", ""), AT_ONCE)
        .await
        .granted();
}

#[tokio::test(start_paused = true)]
async fn an_operator_removes_what_a_grant_brought() {
    for lift in [
        r#"{"unpark": true}"#,
        r#"{"forget": true}"#,
        r#"{"crawl_delay_ms": 0}"#,
    ] {
        let coordinator = coordinator(quick());
        let worker = coordinator.worker("w");
        let day = told_with("h.example", 86_400_000);
        let grant = coordinator
            .one(&worker, day, Duration::from_secs(5))
            .await
            .granted();
        coordinator.tell(&worker, &told(&grant));
        let parked = coordinator
            .one(&worker, item("h.example", ""), AT_ONCE)
            .await
            .refused();
        assert!(parked.contains("Crawl-delay"), "{parked}");
        let key = Key::parse("h.example").unwrap();
        let patch: KeyPatch = serde_json::from_str(lift).unwrap();
        coordinator.patch_key(&key, &patch).await.unwrap();
        coordinator
            .one(&worker, item("h.example", ""), AT_ONCE)
            .await
            .granted();
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_one_is_named_and_slows_nobody() {
    let coordinator = coordinator(quick());
    let worker = coordinator.worker("w");
    let delays = [(Some(0), None), (Some(86_400_001), None)];
    let fresh = [(Some(1), Some(0)), (Some(1), Some(86_400_001))];
    for (delay, lasts) in delays.into_iter().chain(fresh) {
        let wrong = Item {
            crawl_delay_ms: delay,
            crawl_delay_fresh_ms: lasts,
            ..item("h.example", "")
        };
        let Answer::Error { error, .. } = coordinator.one(&worker, wrong, AT_ONCE).await else {
            panic!("{delay:?}, {lasts:?}")
        };
        let named = if lasts.is_some() {
            "crawl_delay_fresh_ms"
        } else {
            "crawl_delay_ms"
        };
        assert_eq!(error.field, named);
    }
    assert!(coordinator.explain("h.example").is_none());
}
