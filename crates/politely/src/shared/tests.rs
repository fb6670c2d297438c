//! Limiters that share cells, on tokio's paused clock.

use std::sync::Arc;
use std::time::Duration;

use politely_core::config::Config;
use politely_core::gate::HoldReason;
use politely_core::key::Key;
use politely_core::signal::{Report, Signal};

use super::{Shared, courier};
use crate::cells::{Engine, Memory};
use crate::clock::Clock;
use crate::limiter::Limiter;

/// A process of its own, as far as the engine can tell.
fn process(memory: &Memory, config: Config) -> Limiter {
    let clock = Clock::tokio();
    let shared = Shared::new(Arc::new(config), clock.clone(), 1 << 10, 7);
    let engine: Arc<dyn Engine> = Arc::new(memory.clone());
    let inner = Arc::clone(&shared.0);
    inner.wishes.run_on(tokio::runtime::Handle::current());
    tokio::spawn(async move { courier::run(&inner, engine).await });
    Limiter::from(Box::new(shared), clock)
}

fn memory() -> Memory {
    Memory::new(Clock::tokio())
}

fn key() -> Key {
    Key::host("example.com").unwrap()
}

fn ok() -> Report {
    Report::of(Signal::Ok)
}

#[tokio::test(start_paused = true)]
async fn a_permit_comes_and_is_reported() {
    let memory = memory();
    let limiter = process(&memory, Config::fixed(1.0, 1.0));
    let permit = limiter.acquire(&key()).await.unwrap();
    permit.report(&ok());
    assert!(limiter.settled(Duration::from_secs(5)).await);
    let stats = limiter.stats();
    assert_eq!((stats.granted, stats.reported, stats.waiting), (1, 1, 0));
    assert_eq!(limiter.explain(&key()).unwrap().tally.reported, 1);
}

#[tokio::test(start_paused = true)]
async fn two_share_a_rate_and_take_turns() {
    let memory = memory();
    let limiters = [(); 2].map(|()| process(&memory, Config::fixed(2.0, 1.0)));
    tokio::time::sleep(Duration::from_secs(5)).await;
    let clock = Clock::tokio();
    let began = clock.now();
    let mut tasks = tokio::task::JoinSet::new();
    for (i, limiter) in limiters.iter().enumerate() {
        for _ in 0..20 {
            let (limiter, clock) = (limiter.clone(), clock.clone());
            tasks.spawn(async move {
                let permit = limiter.acquire(&key()).await.unwrap();
                let left = clock.now();
                permit.report(&ok());
                (left, i)
            });
        }
    }
    let mut left = tasks.join_all().await;
    left.sort_unstable();
    for pair in left.windows(2) {
        let gap = pair[1].0.since(pair[0].0);
        assert!(gap >= Duration::from_millis(498), "{gap:?}");
    }
    let took = left.last().unwrap().0.since(began);
    assert!(took <= Duration::from_secs(21), "{took:?}");
    let first_half: usize = left[..20].iter().map(|(_, who)| who).sum();
    assert!((5..=15).contains(&first_half), "{first_half}");
    let commits: u64 = limiters
        .iter()
        .map(|l| l.commits().unwrap())
        .map(|c| c.commits + c.conflicts + c.reads)
        .sum();
    assert!(commits <= 75, "{commits} engine operations for 40 permits");
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_returns_elsewhere_is_heard_of() {
    let memory = memory();
    let mut config = Config::fixed(1_000.0, 1.0);
    config.limits.in_flight = 1;
    let [one, other] = [(); 2].map(|()| process(&memory, config.clone()));
    tokio::time::sleep(Duration::from_secs(5)).await;
    let clock = Clock::tokio();
    let held = one.acquire(&key()).await.unwrap();
    let waits = tokio::spawn({
        let (other, clock) = (other.clone(), clock.clone());
        async move {
            let permit = other.acquire(&key()).await.unwrap();
            let at = clock.now();
            drop(permit);
            at
        }
    });
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(!waits.is_finished());
    let returned = clock.now();
    held.report(&ok());
    let served = waits.await.unwrap();
    assert!(
        served.since(returned) < Duration::from_millis(50),
        "{:?}",
        served.since(returned)
    );
}

#[tokio::test(start_paused = true)]
async fn a_hold_holds_for_all() {
    let memory = memory();
    let [one, other] = [(); 2].map(|()| process(&memory, Config::fixed(10.0, 1.0)));
    tokio::time::sleep(Duration::from_secs(5)).await;
    one.acquire(&key()).await.unwrap().report(&ok());
    one.hold(&key(), Duration::from_secs(30), HoldReason::Operator)
        .unwrap();
    assert!(one.settled(Duration::from_secs(5)).await);
    let clock = Clock::tokio();
    let began = clock.now();
    other.acquire(&key()).await.unwrap().report(&ok());
    assert!(clock.now().since(began) >= Duration::from_secs(29));
}

#[tokio::test(start_paused = true)]
async fn a_wish_comes_true() {
    let memory = memory();
    let limiter = process(&memory, Config::fixed(10.0, 1.0));
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(limiter.try_acquire(&key()).is_err());
    assert_eq!(limiter.ready().await, [key()]);
    limiter.try_acquire(&key()).unwrap().report(&ok());
    assert_eq!(limiter.stats().granted, 1);
}

#[tokio::test(start_paused = true)]
async fn a_request_is_answered_at_once() {
    let memory = memory();
    let limiter = process(&memory, Config::fixed(0.1, 1.0));
    tokio::time::sleep(Duration::from_secs(5)).await;
    let ask = crate::Ask::default();
    let permit = limiter.request(&key(), ask, limiter.turn()).await.unwrap();
    permit.report(&ok());
    let refusal = limiter
        .request(&key(), ask, limiter.turn())
        .await
        .unwrap_err();
    let wait = refusal.at.since(limiter.now());
    assert!((9.0..=10.1).contains(&wait.as_secs_f64()), "{wait:?}");
}
