//! Adoption of permits whose process is gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use politely_core::config::Config;
use politely_core::gate::LeaseId;
use politely_core::key::Key;
use politely_core::signal::{Report, Signal};

use super::{Leaving, key, memory, ok, process, started};
use crate::backend::store::Unavailable;
use crate::limiter::Limiter;
use crate::sync::sleep;
use politely_store::Memory;

const SOON: Duration = Duration::from_secs(1);

/// Starts two processes. Each key allows one request in flight.
async fn two(memory: &Memory) -> [Limiter; 2] {
    let mut config = Config::fixed(1_000.0, 4.0);
    config.limits.in_flight = 1;
    let two = [(); 2].map(|()| process(memory, config.clone()));
    sleep(Duration::from_secs(5)).await;
    two
}

/// Returns the leases of a permit whose process was then killed.
async fn orphaned(by: &Limiter, keys: &[Key]) -> Vec<(Key, LeaseId)> {
    let permit = by.acquire(keys).await.unwrap();
    let leases = permit.leases();
    permit.abandon();
    assert_eq!(leases.len(), keys.len());
    leases
}

#[tokio::test(start_paused = true)]
async fn it_is_reported_by_another_and_counts_once() {
    let [one, other] = two(&memory()).await;
    let leases = orphaned(&one, &[key()]).await;
    // This process has never seen the key.
    let adopted = other.adopt(&leases, SOON).await.unwrap().unwrap();
    assert!(adopted.renew().is_some());
    assert!(!adopted.report(&ok()).late);
    other.acquire(&key()).await.unwrap().report(&ok());
    assert!(other.flush(SOON).await);
    let books = other.explain(&key()).unwrap().tally;
    assert_eq!((books.granted, books.reported, books.expired), (2, 2, 0));
    assert_eq!((other.stats().granted, other.stats().reported), (2, 2));

    // The same report reaches the process that granted the permit.
    let again = one.adopt(&leases, SOON).await.unwrap().unwrap();
    assert_eq!(again.renew(), None);
    let mut refused = Report::of(Signal::RateLimited);
    refused.retry_after = Some(Duration::from_mins(1));
    assert!(again.report(&refused).late);
    assert!(one.flush(SOON).await);
    let explained = one.explain(&key()).unwrap();
    assert_eq!(explained.tally.reported, 2);
    assert!(
        explained.wait.is_some(),
        "a hold is kept, however late it is heard of"
    );
}

#[tokio::test(start_paused = true)]
async fn all_its_keys_are_freed_and_only_when_it_ends() {
    let [one, other] = two(&memory()).await;
    let keys = [key(), Key::custom("account-7").unwrap()];
    let leases = orphaned(&one, &keys).await;
    for _ in 0..2 {
        // The caller dropped the future, and nothing is cancelled.
        let adopting = other.adopt(&leases, SOON);
        let ended = tokio::time::timeout(Duration::ZERO, adopting).await;
        assert!(ended.is_err());
    }
    assert!(other.flush(SOON).await);
    let in_flight = |key| other.explain(key).unwrap().in_flight.0;
    assert_eq!(keys.each_ref().map(in_flight), [1, 1]);
    drop(other.adopt(&leases, SOON).await);
    assert!(other.flush(SOON).await);
    for key in &keys {
        let explained = other.explain(key).unwrap();
        assert_eq!((explained.in_flight.0, explained.tally.cancelled), (0, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn it_lasts_as_long_as_somebody_renews_it() {
    let [one, other] = two(&memory()).await;
    let leases = orphaned(&one, &[key()]).await;
    let adopted = other.adopt(&leases, SOON).await.unwrap().unwrap();
    let lease = adopted.lease();
    for _ in 0..10 {
        sleep(lease / 4).await;
        assert!(adopted.renew().is_some());
    }
    assert!(!adopted.report(&ok()).late);
    assert!(other.flush(SOON).await);
    let books = other.explain(&key()).unwrap().tally;
    assert_eq!((books.reported, books.expired), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn what_is_said_of_it_while_the_engine_is_away_is_written_when_it_is_back() {
    let memory = memory();
    let [one, _] = two(&memory).await;
    let leases = orphaned(&one, &[key()]).await;
    let away = Arc::new(AtomicBool::new(true));
    let engine = Leaving {
        memory: memory.clone(),
        away: Arc::clone(&away),
        hangs: false,
        looks: Arc::default(),
    };
    let other = started(
        Arc::new(engine),
        Config::fixed(1_000.0, 4.0),
        Unavailable::Closed,
    );
    let adopted = other.adopt(&leases, SOON).await.unwrap().unwrap();
    assert!(adopted.renew().is_some());
    adopted.report(&ok());
    away.store(false, Ordering::Relaxed);
    assert!(other.flush(Duration::from_secs(10)).await);
    let books = other.explain(&key()).unwrap().tally;
    assert_eq!((books.granted, books.reported), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn without_an_engine_there_is_nothing_to_adopt() {
    let limiter = Limiter::builder().build().unwrap();
    let permit = limiter.try_acquire(&key()).unwrap();
    assert!(permit.leases().is_empty());
    let adopted = limiter.adopt(&[(key(), LeaseId(1))], SOON).await;
    assert_eq!(adopted.unwrap_err().operation, "adopt");
}
