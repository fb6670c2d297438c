//! What an engine forgets, those who share it remember.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use politely_core::config::Config;

use super::{key, memory, ok, started};
use crate::cells::{Engine, EngineError, Memory, OnNotice, Pending, Pulse, Write, Written};
use crate::limiter::Limiter;
use crate::shared::Away;
use crate::sync::sleep;

/// An engine that can lose all it has.
#[derive(Clone)]
struct Forgetful(Arc<Mutex<Memory>>);

impl Forgetful {
    fn new() -> Self {
        Self(Arc::new(Mutex::new(memory())))
    }

    fn held(&self) -> Memory {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn forgets(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = memory();
    }

    /// A process with one slot for each key, for two minutes if its holder is not heard of.
    fn process(&self) -> Limiter {
        let mut config = Config::fixed(10.0, 1.0);
        config.limits.in_flight = 1;
        started(Arc::new(self.clone()), config, Away::Closed)
    }
}

impl Engine for Forgetful {
    fn read(&self, cells: Vec<Arc<str>>) -> Pending<'_, Vec<Result<Option<Vec<u8>>, EngineError>>> {
        let held = self.held();
        Box::pin(async move { held.read(cells).await })
    }

    fn compare_and_set(
        &self,
        writes: Vec<Write>,
    ) -> Pending<'_, Vec<Result<Written, EngineError>>> {
        let held = self.held();
        Box::pin(async move { held.compare_and_set(writes).await })
    }

    fn pulse(&self, epoch: Arc<str>) -> Pending<'_, Result<Pulse, EngineError>> {
        let held = self.held();
        Box::pin(async move { held.pulse(epoch).await })
    }

    fn listen(&self, _: OnNotice) {}

    fn watch(&self, _: Vec<Arc<str>>, _: Vec<Arc<str>>) -> Pending<'_, Result<(), EngineError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

async fn is_refused(limiter: &Limiter) {
    let (ask, turn) = (crate::Ask::default(), limiter.turn());
    limiter.request(&key(), ask, turn).await.unwrap_err();
}

async fn is_served_soon(limiter: &Limiter) {
    let served = tokio::time::timeout(Duration::from_secs(10), limiter.acquire(&key())).await;
    served.expect("the slot is free").unwrap().report(&ok());
}

/// One of two had the slot; the other saw it taken and not that it was given back, when the engine lost all: what it remembers takes
/// it again. Each looks at the engine four times a second, and either may be the first to find out.
async fn lost_soon_after_a_report(after: Duration) -> [Limiter; 2] {
    let engine = Forgetful::new();
    let one = engine.process();
    sleep(Duration::from_millis(100)).await;
    let other = engine.process();
    sleep(Duration::from_secs(5)).await;
    is_served_soon(&other).await;
    let permit = one.acquire(&key()).await.unwrap();
    is_refused(&other).await;
    permit.report(&ok());
    assert!(one.settled(Duration::from_secs(1)).await);
    sleep(after).await;
    engine.forgets();
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
    let engine = Forgetful::new();
    let [one, other] = [(); 2].map(|()| engine.process());
    sleep(Duration::from_secs(5)).await;
    let permit = one.acquire(&key()).await.unwrap();
    assert!(one.settled(Duration::from_secs(1)).await);
    engine.forgets();
    sleep(Duration::from_secs(5)).await;
    is_refused(&other).await;
    permit.report(&ok());
    is_served_soon(&other).await;
}
