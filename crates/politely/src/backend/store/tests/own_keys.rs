//! Keys that a process limits alone, beside those that it shares.

use politely_core::host::AcquireRequest;

use super::*;
use crate::backend::local::waiters::Arrival;
use crate::error::{Refusal, RefusalReason};
use crate::permit::Permit;

/// Returns a process whose key `mine` allows `rate` requests per second, one at a time. A key of an
/// engine begins with an empty bucket, so the shared one was used before.
async fn process_with_own(memory: &Memory, mine: &Key, rate: f64) -> Limiter {
    let limiter = process(memory, Config::fixed(1_000.0, 100.0));
    let mut config = Config::fixed(rate, 1.0);
    config.limits.in_flight = 1;
    limiter.configure(mine, config).unwrap();
    limiter.acquire(&key()).await.unwrap().report(&ok());
    sleep(Duration::from_secs(1)).await;
    limiter
}

async fn request(limiter: &Limiter, keys: &[Key]) -> Result<Permit, Refusal> {
    let ask = AcquireRequest::default();
    limiter.request(keys, ask, Arrival::LAST).await
}

#[tokio::test(start_paused = true)]
async fn a_request_needs_both_kinds_and_only_the_shared_key_learns() {
    let (memory, mine) = (memory(), Key::custom("mine").unwrap());
    let limiter = process_with_own(&memory, &mine, 1.0).await;
    let keys = [key(), mine.clone()];
    let mut permit = request(&limiter, &keys).await.unwrap();
    let refusal = request(&limiter, &keys).await.unwrap_err();
    assert_eq!((&refusal.key, refusal.index()), (&mine, 1));
    permit.sent();
    permit.report(&Report::of(Signal::RateLimited));
    let explained = limiter.explain(&mine).unwrap();
    assert_eq!((explained.refused, explained.tally.live), (0, 0));
    assert_eq!(limiter.rate(&mine), Some(1.0));
    limiter
        .refresh(&key(), Duration::from_secs(1))
        .await
        .unwrap();
    assert_eq!(limiter.explain(&key()).unwrap().refused, 1);
}

#[tokio::test(start_paused = true)]
async fn another_process_does_not_see_it() {
    let (memory, mine) = (memory(), Key::custom("mine").unwrap());
    let first = process_with_own(&memory, &mine, 0.001).await;
    let second = process_with_own(&memory, &mine, 0.001).await;
    let keys = [key(), mine];
    let taken = request(&first, &keys).await.unwrap();
    assert!(request(&second, &keys).await.is_ok());
    drop(taken);
    assert!(request(&first, &keys).await.is_ok(), "all came back");
}

#[tokio::test(start_paused = true)]
async fn what_the_shared_key_refuses_takes_nothing_of_the_own_key() {
    let (memory, mine) = (memory(), Key::custom("mine").unwrap());
    let limiter = process_with_own(&memory, &mine, 0.001).await;
    limiter
        .hold(&key(), Duration::from_secs(9), HoldReason::Operator)
        .unwrap();
    let keys = [key(), mine.clone()];
    let refusal = request(&limiter, &keys).await.unwrap_err();
    assert_eq!((&refusal.key, refusal.index()), (&key(), 0));
    limiter.unpark(&key());
    assert!(request(&limiter, &keys).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn waiters_get_one_permit_after_the_other() {
    let (memory, mine) = (memory(), Key::custom("mine").unwrap());
    let limiter = process_with_own(&memory, &mine, 2.0).await;
    let keys = [key(), mine];
    let began = limiter.now();
    for _ in 0..5 {
        let permit = limiter.acquire(&keys).await.unwrap();
        permit.report(&ok());
    }
    let took = limiter.now().since(began);
    assert!((1.99..2.2).contains(&took.as_secs_f64()), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_slot_gives_both_kinds_back() {
    let (memory, mine) = (memory(), Key::custom("mine").unwrap());
    let limiter = process_with_own(&memory, &mine, 1_000.0).await;
    let keys = [key(), mine.clone()];
    let permit = request(&limiter, &keys).await.unwrap();
    let (_, slot) = permit.report_head(&ok());
    let refusal = request(&limiter, &keys).await.unwrap_err();
    assert!(matches!(refusal.reason, RefusalReason::Wait(_)) && refusal.key == mine);
    drop(slot);
    sleep(Duration::from_millis(10)).await;
    assert!(request(&limiter, &keys).await.is_ok());
}
