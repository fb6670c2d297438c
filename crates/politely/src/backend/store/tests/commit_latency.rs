//! The cost and the reported latency of commits.

use std::sync::Arc;
use std::time::Duration;

use politely_core::config::Config;
use politely_store::testing::CROWD;

use super::{held, key, memory, ok, overwrite, process, started};
use crate::backend::store::Unavailable;
use crate::sync::sleep;
use politely_store::{Engine, EngineError, Heartbeat, Memory, OnNotice, Pending, Write, Written};

const WRITE: Duration = Duration::from_millis(30);

/// An engine that delays every write.
struct Slow(Memory);

impl Engine for Slow {
    fn read(&self, cells: Vec<Arc<str>>) -> Pending<'_, Vec<Result<Option<Vec<u8>>, EngineError>>> {
        self.0.read(cells)
    }

    fn compare_and_set(
        &self,
        writes: Vec<Write>,
    ) -> Pending<'_, Vec<Result<Written, EngineError>>> {
        Box::pin(async move {
            sleep(WRITE).await;
            self.0.compare_and_set(writes).await
        })
    }

    fn heartbeat(&self, epoch: Arc<str>) -> Pending<'_, Result<Heartbeat, EngineError>> {
        self.0.heartbeat(epoch)
    }

    fn listen(&self, hear: OnNotice) {
        self.0.listen(hear);
    }

    fn watch(
        &self,
        more: Vec<Arc<str>>,
        less: Vec<Arc<str>>,
    ) -> Pending<'_, Result<(), EngineError>> {
        self.0.watch(more, less)
    }
}

async fn somebody_else_writes(memory: &Memory) {
    let mut value = held(memory).await;
    value[0] ^= 0xff;
    overwrite(memory, value).await;
}

#[tokio::test(start_paused = true)]
async fn a_commit_takes_as_long_as_all_its_attempts() {
    let memory = memory();
    let engine = Arc::new(Slow(memory.clone()));
    let limiter = started(engine, Config::fixed(1.0, 1.0), Unavailable::Closed);
    sleep(Duration::from_secs(5)).await;
    for took in [WRITE, 2 * WRITE] {
        limiter.acquire(&key()).await.unwrap().report(&ok());
        assert!(limiter.flush(Duration::from_secs(1)).await);
        let commits = limiter.commits().unwrap();
        assert_eq!((commits.took_p50, commits.took_p99), (WRITE, took));
        // The next attempt conflicts with it.
        somebody_else_writes(&memory).await;
        sleep(Duration::from_secs(2)).await;
    }
}

/// Regression: a batch that had gathered was written upon an old state and conflicted.
#[tokio::test(start_paused = true)]
async fn where_others_write_all_the_time_who_gathered_looks_first() {
    let memory = memory();
    let mut config = Config::fixed(1e9, 1e6);
    config.limits.in_flight = 1_000;
    let limiter = process(&memory, config);
    sleep(Duration::from_secs(5)).await;
    let mut counted = Vec::new();
    for _ in 0..3 {
        let many = (0..CROWD).map(|_| {
            let limiter = limiter.clone();
            async move { limiter.acquire(&key()).await.unwrap().report(&ok()) }
        });
        many.collect::<tokio::task::JoinSet<_>>().join_all().await;
        let commits = limiter.commits().unwrap();
        counted.push((commits.reads, commits.conflicts));
        somebody_else_writes(&memory).await;
    }
    let (reads, conflicts) = counted[0];
    assert_eq!(
        counted[1..],
        [(reads, conflicts + 1), (reads + 1, conflicts + 1)]
    );
}
