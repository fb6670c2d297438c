//! How long commits take is told.

use std::sync::Arc;
use std::time::Duration;

use politely_core::config::Config;

use super::{key, memory, ok, started};
use crate::cells::{
    Engine, EngineError, Memory, OnNotice, Pending, Pulse, Version, Write, Written,
};
use crate::shared::{Away, hub};
use crate::sync::sleep;

const WRITE: Duration = Duration::from_millis(30);

/// Takes its time for every write.
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

    fn pulse(&self, epoch: Arc<str>) -> Pending<'_, Result<Pulse, EngineError>> {
        self.0.pulse(epoch)
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

#[tokio::test(start_paused = true)]
async fn a_commit_takes_as_long_as_all_its_attempts() {
    let memory = memory();
    let engine = Arc::new(Slow(memory.clone()));
    let limiter = started(engine, Config::fixed(1.0, 1.0), Away::Closed);
    sleep(Duration::from_secs(5)).await;
    for took in [WRITE, 2 * WRITE] {
        limiter.acquire(&key()).await.unwrap().report(&ok());
        assert!(limiter.settled(Duration::from_secs(1)).await);
        let commits = limiter.commits().unwrap();
        assert_eq!((commits.took_p50, commits.took_p99), (WRITE, took));
        // Somebody else writes, unseen: the next attempt meets it.
        let name = hub::name(&key());
        let held = memory.read(vec![Arc::clone(&name)]).await.remove(0);
        let mut value = held.unwrap().unwrap();
        let expected = Version::of(&value);
        value[0] ^= 0xff;
        let write = Write {
            cell: name,
            expected,
            before: None,
            value,
            keep: Duration::from_hours(1),
            notify: false,
        };
        memory.compare_and_set(vec![write]).await.remove(0).unwrap();
        sleep(Duration::from_secs(2)).await;
    }
}
