//! A loss of the engine is repaired from what the nodes remember.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use politely_core::config::Config;

use super::{Leaving, held, key, memory, ok, overwrite, process, started};
use crate::backend::store::Unavailable;
use crate::limiter::Limiter;
use crate::sync::sleep;

/// Each key has one slot. A lease lasts two minutes.
fn one_slot() -> Config {
    let mut config = Config::fixed(10.0, 1.0);
    config.limits.in_flight = 1;
    config
}

async fn is_refused(limiter: &Limiter) {
    let (ask, arrival) = (crate::AcquireRequest::default(), limiter.arrival());
    limiter.request(&key(), ask, arrival).await.unwrap_err();
}

async fn is_served_soon(limiter: &Limiter) {
    let served = tokio::time::timeout(Duration::from_secs(10), limiter.acquire(&key())).await;
    served.expect("the slot is free").unwrap().report(&ok());
}

/// Returns two processes after a loss. One had the slot and gave it back. The other saw it taken
/// and not given back, so its memory takes it again.
///
/// Each sends a heartbeat four times a second, and either may be the first to notice.
async fn lost_soon_after_a_report(after: Duration) -> [Limiter; 2] {
    let memory = memory();
    let one = process(&memory, one_slot());
    sleep(Duration::from_millis(100)).await;
    let other = process(&memory, one_slot());
    sleep(Duration::from_secs(5)).await;
    is_served_soon(&other).await;
    let permit = one.acquire(&key()).await.unwrap();
    is_refused(&other).await;
    permit.report(&ok());
    assert!(one.flush(Duration::from_secs(1)).await);
    sleep(after).await;
    memory.forget_all();
    [one, other]
}

#[tokio::test(start_paused = true)]
async fn a_slot_given_back_is_free_after_a_loss() {
    for after in [0, 100, 200].map(Duration::from_millis) {
        for first in [0, 1] {
            let limiters = lost_soon_after_a_report(after).await;
            is_served_soon(&limiters[first]).await;
            is_served_soon(&limiters[1 - first]).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_slot_given_back_by_one_who_is_done_is_free_after_a_loss() {
    for after in [0, 100, 200].map(Duration::from_millis) {
        for later in [0, 5].map(Duration::from_secs) {
            let [_one, other] = lost_soon_after_a_report(after).await;
            sleep(later).await;
            is_served_soon(&other).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_is_taken_is_taken_after_a_loss() {
    let memory = memory();
    let [one, other] = [(); 2].map(|()| process(&memory, one_slot()));
    sleep(Duration::from_secs(5)).await;
    let permit = one.acquire(&key()).await.unwrap();
    assert!(one.flush(Duration::from_secs(1)).await);
    memory.forget_all();
    sleep(Duration::from_secs(5)).await;
    is_refused(&other).await;
    permit.report(&ok());
    is_served_soon(&other).await;
}

/// Regression: a permit that started before the new epoch was known had an id that was used
/// already. The engine was restarted from its disk.
#[tokio::test(start_paused = true)]
async fn who_meets_an_older_state_looks_at_the_engine_before_anything_leaves() {
    let (memory, looks) = (memory(), Arc::<AtomicUsize>::default());
    let engine = Leaving {
        memory: memory.clone(),
        away: Arc::default(),
        hangs: false,
        looks: Arc::clone(&looks),
    };
    let limiter = started(Arc::new(engine), one_slot(), Unavailable::Closed);
    sleep(Duration::from_secs(5)).await;
    let mut counted = Vec::new();
    for loses in [false, true] {
        is_served_soon(&limiter).await;
        assert!(limiter.flush(Duration::from_secs(1)).await);
        let older = held(&memory).await;
        is_served_soon(&limiter).await;
        assert!(limiter.flush(Duration::from_secs(1)).await);
        if loses {
            overwrite(&memory, older).await;
        }
        let before = looks.load(Ordering::Relaxed);
        while looks.load(Ordering::Relaxed) == before {
            sleep(Duration::from_millis(1)).await;
        }
        is_served_soon(&limiter).await;
        counted.push(looks.load(Ordering::Relaxed) > before + 1);
    }
    assert_eq!(counted, [false, true]);
}
