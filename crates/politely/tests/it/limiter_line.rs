//! P5: waiting requests are served in order, whatever other requests do. A request that leaves the
//! queue takes no slot and no token with it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use politely::core::Rng;
use politely::core::gate::HoldReason;
use politely::{AcquireError, Clock, Config, Key, Limiter, RefusalReason, Report, Signal};
use tokio::task::JoinSet;

pub(crate) fn limiter(config: Config) -> Limiter {
    let builder = Limiter::builder().clock(Clock::tokio()).seed(7);
    builder.config(config).build().unwrap()
}

pub(crate) fn key(name: &str) -> Key {
    Key::host(name).unwrap()
}

/// Returns a configuration with a fixed rate, no burst, and room for many requests in flight.
pub(crate) fn steady(rate: f64) -> Config {
    let mut config = Config::fixed(rate, 1.0);
    config.limits.in_flight = 1_000;
    config
}

pub(crate) fn ok() -> Report {
    Report::of(Signal::Ok)
}

/// Lets every runnable task run.
pub(crate) async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_thousand_are_served_in_the_order_they_came() {
    let (limiter, host) = (limiter(steady(10.0)), key("example.com"));
    let began = limiter.now();
    let served = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = JoinSet::new();
    for i in 0..1_000_u64 {
        let (limiter, host, served) = (limiter.clone(), host.clone(), Arc::clone(&served));
        tasks.spawn(async move {
            let permit = limiter.acquire(&host).await.unwrap();
            served.lock().unwrap().push((i, limiter.now()));
            permit.report(&ok());
        });
        tokio::task::yield_now().await;
    }
    let all = tokio::time::timeout(Duration::from_hours(1), tasks.join_all());
    all.await.expect("nobody waits for good");
    let served = served.lock().unwrap().clone();
    assert!(served.iter().map(|(i, _)| *i).eq(0..1_000));
    for (i, at) in &served {
        // Timers have a resolution of a millisecond. A start may be a millisecond late, and it may
        // be early by the timer slack.
        let due = began + Duration::from_millis(100) * u32::try_from(*i).unwrap();
        assert!(*at + Duration::from_millis(2) >= due && *at <= due + Duration::from_millis(3));
    }
    let stats = limiter.stats();
    assert_eq!(
        (stats.granted, stats.reported, stats.waiting),
        (1_000, 1_000, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn asking_at_once_overtakes_nobody() {
    let (limiter, host) = (limiter(steady(1.0)), key("example.com"));
    limiter.try_acquire(&host).unwrap().report(&ok());
    let waiting = tokio::spawn({
        let (limiter, host) = (limiter.clone(), host.clone());
        async move { limiter.acquire(&host).await.unwrap().report(&ok()) }
    });
    settle().await;
    // It is time for the next departure, and the waiter's timer has not fired yet.
    tokio::time::advance(Duration::from_secs(1)).await;
    if let Err(refusal) = limiter.try_acquire(&host) {
        assert!(matches!(
            refusal.reason,
            RefusalReason::Queue | RefusalReason::Wait(_)
        ));
    } else {
        assert!(waiting.is_finished(), "overtaken");
    }
    waiting.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn whoever_gives_up_takes_nothing_along() {
    let mut config = steady(5.0);
    config.limits.in_flight = 3;
    let (limiter, host) = (limiter(config), key("example.com"));
    let mut rng = Rng::new(3);
    let served = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for i in 0..300_u64 {
        let (limiter, host, served) = (limiter.clone(), host.clone(), Arc::clone(&served));
        let (busy, sent) = (rng.between(0.0, 0.4), rng.next_u64().is_multiple_of(2));
        tasks.push(tokio::spawn(async move {
            let mut permit = limiter.acquire(&host).await.unwrap();
            served.lock().unwrap().push(i);
            if sent {
                permit.sent();
            }
            // The task may be aborted here too, while it holds the permit.
            tokio::time::timeout(Duration::from_secs_f64(busy), std::future::pending::<()>())
                .await
                .unwrap_err();
            permit.report(&ok());
        }));
        settle().await;
    }
    // This aborts tasks at the head of the queue, tasks in the middle, and tasks that were served
    // already.
    for _ in 0..200 {
        let which = rng.next_u64() as usize % tasks.len();
        let front = tasks.iter().position(|task| !task.is_finished());
        match front {
            Some(front) if which.is_multiple_of(3) => tasks[front].abort(),
            _ => tasks[which].abort(),
        }
        tokio::time::advance(Duration::from_micros(rng.next_u64() % 400_000)).await;
        settle().await;
    }
    for task in tasks {
        let _ = task.await;
    }
    let served = served.lock().unwrap().clone();
    assert!(served.is_sorted(), "in order: {served:?}");
    let stats = limiter.stats();
    assert_eq!(stats.granted, stats.reported + stats.cancelled, "{stats:?}");
    let told = limiter.explain(&host).unwrap();
    assert_eq!(
        (told.in_flight.0, told.tally.live, stats.waiting),
        (0, 0, 0)
    );
    tokio::time::advance(Duration::from_secs(1)).await;
    limiter.acquire(&host).await.unwrap().report(&ok());
}

#[tokio::test(start_paused = true)]
async fn a_permit_never_sent_is_as_if_it_had_not_been() {
    let (limiter, host) = (limiter(steady(1.0)), key("example.com"));
    drop(limiter.try_acquire(&host).unwrap());
    let mut permit = limiter.try_acquire(&host).expect("its token is back");
    permit.sent();
    drop(permit);
    let refusal = limiter.try_acquire(&host).unwrap_err();
    assert!(refusal.at > limiter.now(), "what may have left stays paid");
    assert_eq!(
        limiter.explain(&host).unwrap().in_flight.0,
        0,
        "its slot is back"
    );
}

#[tokio::test(start_paused = true)]
async fn closing_ends_all_waiting() {
    let limiter = limiter(steady(0.001));
    let mut tasks = JoinSet::new();
    let out = limiter.try_acquire(&key("0.example")).unwrap();
    for i in 0..200 {
        let (limiter, host) = (limiter.clone(), key(&format!("{}.example", i % 10)));
        tasks.spawn(async move {
            limiter
                .acquire(&host)
                .await
                .map(|permit| permit.report(&ok()))
        });
    }
    settle().await;
    let began = limiter.now();
    limiter.close();
    let ended = tasks.join_all().await;
    assert_eq!(
        ended
            .iter()
            .filter(|end| **end == Err(AcquireError::Closed))
            .count(),
        191
    );
    assert_eq!(limiter.now(), began, "at once");
    assert_eq!(
        limiter.acquire(&key("new.example")).await.unwrap_err(),
        AcquireError::Closed
    );
    assert!(!out.report(&ok()).late, "what is out may still be reported");
    assert_eq!(limiter.stats().waiting, 0);
}

#[tokio::test(start_paused = true)]
async fn a_new_rate_is_felt_by_those_who_wait() {
    let mut config = Config::api();
    config.limits.rate_start = 100.0;
    let (limiter, host) = (limiter(config), key("example.com"));
    limiter.set_rate(&host, 0.001, 1.0).unwrap();
    limiter.acquire(&host).await.unwrap().report(&ok());
    let waiting = tokio::spawn({
        let (limiter, host) = (limiter.clone(), host.clone());
        async move {
            limiter.acquire(&host).await.unwrap().report(&ok());
        }
    });
    settle().await;
    let began = limiter.now();
    limiter.set_rate(&host, 10.0, 1.0).unwrap();
    waiting.await.unwrap();
    assert!(limiter.now().since(began) <= Duration::from_millis(102));
}

#[tokio::test(start_paused = true)]
async fn a_hold_wakes_nobody_early_and_lifting_it_wakes_at_once() {
    let (limiter, host) = (limiter(steady(10.0)), key("example.com"));
    limiter.acquire(&host).await.unwrap().report(&ok());
    let spawn = || {
        let (limiter, host) = (limiter.clone(), host.clone());
        tokio::spawn(async move {
            limiter.acquire(&host).await.unwrap().report(&ok());
            limiter.now()
        })
    };
    let (first, second) = (spawn(), spawn());
    settle().await;
    let until = limiter.now() + Duration::from_mins(1);
    limiter
        .hold(&host, Duration::from_mins(1), HoldReason::RetryAfter)
        .unwrap();
    limiter
        .hold(&host, Duration::from_secs(1), HoldReason::CrawlDelay)
        .unwrap();
    assert!(first.await.unwrap() >= until);
    assert!(second.await.unwrap() >= until + Duration::from_millis(98));

    let third = spawn();
    limiter
        .hold(&host, Duration::from_hours(1), HoldReason::Operator)
        .unwrap();
    settle().await;
    let began = limiter.now();
    limiter.unpark(&host);
    assert!(third.await.unwrap().since(began) <= Duration::from_millis(102));
}

#[tokio::test(start_paused = true)]
async fn a_report_frees_the_slot_for_the_next_in_line() {
    let mut config = steady(1_000.0);
    config.limits.in_flight = 1;
    let (limiter, host) = (limiter(config), key("example.com"));
    let permit = limiter.acquire(&host).await.unwrap();
    let waiting = tokio::spawn({
        let (limiter, host) = (limiter.clone(), host.clone());
        async move {
            limiter.acquire(&host).await.unwrap().report(&ok());
        }
    });
    tokio::time::advance(Duration::from_secs(1)).await;
    settle().await;
    assert!(!waiting.is_finished());
    let began = limiter.now();
    permit.report(&ok());
    waiting.await.unwrap();
    assert_eq!(limiter.now(), began, "at once");
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_was_killed_keeps_nobody_waiting_longer_than_its_lease() {
    let mut config = steady(1_000.0);
    config.limits.in_flight = 1;
    config.lease = Duration::from_secs(30);
    let (limiter, host) = (limiter(config), key("example.com"));
    std::mem::forget(limiter.acquire(&host).await.unwrap());
    let began = limiter.now();
    limiter.acquire(&host).await.unwrap().report(&ok());
    assert!(limiter.now().since(began) <= Duration::from_millis(30_002));
    let tally = limiter.explain(&host).unwrap().tally;
    assert_eq!((tally.expired, tally.reported, tally.live), (1, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_full_line_says_so() {
    let builder = Limiter::builder().clock(Clock::tokio()).queue_max(2);
    let limiter = builder.config(steady(0.1)).build().unwrap();
    let host = key("example.com");
    limiter.acquire(&host).await.unwrap().report(&ok());
    let mut tasks = JoinSet::new();
    for _ in 0..2 {
        let (limiter, host) = (limiter.clone(), host.clone());
        tasks.spawn(async move {
            limiter
                .acquire(&host)
                .await
                .map(|permit| permit.report(&ok()))
        });
    }
    settle().await;
    let full = AcquireError::QueueFull(host.clone());
    assert_eq!(limiter.acquire(&host).await.unwrap_err(), full);
    assert!(tasks.join_all().await.iter().all(Result::is_ok));
}

#[tokio::test(start_paused = true)]
async fn a_closed_limiter_refuses_a_key_that_could_leave() {
    let limiter = limiter(steady(1_000.0));
    let host = key("kept.example");
    limiter.try_acquire(&host).unwrap().report(&ok());
    tokio::time::advance(Duration::from_secs(1)).await;
    limiter.close();
    let refusal = limiter.try_acquire(&host).unwrap_err();
    assert_eq!(refusal.reason, RefusalReason::Closed);
}
