//! An engine that answers and takes no writes: out of memory, too few replicas, or a read-only
//! user.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use politely_core::config::Config;

use super::{key, memory, ok, started};
use crate::backend::store::Unavailable;
use crate::limiter::Limiter;
use crate::sync::sleep;
use politely_store::{Engine, EngineError, Heartbeat, Memory, OnNotice, Pending, Write, Written};

const WHY: &str = "OOM: it holds as much as it may";

struct Full {
    memory: Memory,
    at_limit: Arc<AtomicBool>,
    calls: Arc<AtomicUsize>,
}

impl Engine for Full {
    fn read(&self, cells: Vec<Arc<str>>) -> Pending<'_, Vec<Result<Option<Vec<u8>>, EngineError>>> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.memory.read(cells)
    }

    fn compare_and_set(
        &self,
        writes: Vec<Write>,
    ) -> Pending<'_, Vec<Result<Written, EngineError>>> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        if self.at_limit.load(Ordering::Relaxed) {
            let no = vec![Err(EngineError(WHY.to_owned())); writes.len()];
            // The delay of a server on the same machine.
            return Box::pin(async move {
                sleep(Duration::from_micros(50)).await;
                no
            });
        }
        self.memory.compare_and_set(writes)
    }

    fn heartbeat(&self, epoch: Arc<str>) -> Pending<'_, Result<Heartbeat, EngineError>> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.memory.heartbeat(epoch)
    }

    fn listen(&self, hear: OnNotice) {
        self.memory.listen(hear);
    }

    fn watch(
        &self,
        more: Vec<Arc<str>>,
        less: Vec<Arc<str>>,
    ) -> Pending<'_, Result<(), EngineError>> {
        self.memory.watch(more, less)
    }
}

fn full_from(begin: bool, memory: Memory) -> (Limiter, Arc<AtomicBool>, Arc<AtomicUsize>) {
    let (full, calls) = (Arc::new(AtomicBool::new(begin)), Arc::default());
    let engine = Full {
        memory,
        at_limit: Arc::clone(&full),
        calls: Arc::clone(&calls),
    };
    let limiter = started(
        Arc::new(engine),
        Config::fixed(10.0, 1.0),
        Unavailable::Closed,
    );
    (limiter, full, calls)
}

/// There are at most some dozens of calls a second, and the reason is reported.
async fn is_told_and_left_in_peace(limiter: &Limiter, calls: &AtomicUsize) {
    sleep(Duration::from_secs(5)).await;
    let before = calls.load(Ordering::Relaxed);
    sleep(Duration::from_secs(10)).await;
    let made = calls.load(Ordering::Relaxed) - before;
    assert!(made < 1_000, "{made} calls in ten seconds");
    let why = limiter.last_error().unwrap();
    assert!(why.contains(WHY), "{why}");
}

async fn goes_on(limiter: &Limiter, full: &AtomicBool) {
    full.store(false, Ordering::Relaxed);
    let key = key();
    let permit = tokio::time::timeout(Duration::from_secs(3), limiter.acquire(&key));
    permit.await.unwrap().unwrap().report(&ok());
    assert!(limiter.flush(Duration::from_secs(5)).await);
    assert_eq!(limiter.last_error(), None);
}

#[tokio::test(start_paused = true)]
async fn who_is_refused_every_write_says_so_and_does_not_press() {
    let (limiter, full, calls) = full_from(false, memory());
    limiter.acquire(&key()).await.unwrap().report(&ok());
    full.store(true, Ordering::Relaxed);
    let waiting = limiter.clone();
    let waits = tokio::spawn(async move { waiting.acquire(&key()).await });
    is_told_and_left_in_peace(&limiter, &calls).await;
    assert!(!waits.is_finished());
    let why = limiter.explain(&key()).unwrap().wait.unwrap();
    assert_eq!(why.reason, politely_core::host::Reason::Unavailable);
    goes_on(&limiter, &full).await;
    waits.await.unwrap().unwrap().report(&ok());
}

#[tokio::test(start_paused = true)]
async fn so_does_who_finds_it_like_that() {
    let (limiter, full, calls) = full_from(true, memory());
    let pinged = tokio::time::timeout(Duration::from_secs(10), limiter.ping());
    let why = pinged.await.unwrap().unwrap_err();
    assert!(why.contains(WHY), "{why}");
    is_told_and_left_in_peace(&limiter, &calls).await;
    goes_on(&limiter, &full).await;
}

#[tokio::test(start_paused = true)]
async fn an_epoch_that_is_none_is_told() {
    let memory = memory();
    let write = Write {
        cell: Arc::from("politely:epoch"),
        expected: None,
        before: None,
        value: b"garbage of another program's, long enough".to_vec(),
        keep: Duration::from_hours(1),
        notify: false,
    };
    memory.compare_and_set(vec![write]).await.remove(0).unwrap();
    let (limiter, _, calls) = full_from(false, memory);
    let pinged = tokio::time::timeout(Duration::from_secs(10), limiter.ping());
    let why = pinged.await.unwrap().unwrap_err();
    assert!(why.contains("politely:epoch holds something"), "{why}");
    sleep(Duration::from_secs(10)).await;
    assert!(calls.load(Ordering::Relaxed) < 1_000);
}
