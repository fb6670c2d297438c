//! A waiting node is notified of changes, and subscribes again after a failure.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use politely_core::Timestamp;
use politely_core::config::Config;

use super::{key, memory, ok, process, started};
use crate::backend::store::Unavailable;
use crate::clock::Clock;
use crate::sync::sleep;
use politely_store::{
    Engine, EngineError, Heartbeat, Memory, Notice, OnNotice, Pending, Write, Written, cell_name,
};

/// The time of each subscription, and its cells.
type Asked = Vec<(Timestamp, Vec<Arc<str>>)>;

/// An engine whose subscriptions may fail. It counts them.
#[derive(Clone)]
struct Deaf {
    memory: Memory,
    clock: Clock,
    fails: Arc<AtomicBool>,
    asked: Arc<Mutex<Asked>>,
    hear: Arc<Mutex<Option<OnNotice>>>,
}

impl Deaf {
    fn says(&self, cell: Option<&str>) {
        let hear = self.hear.lock().clone().expect("somebody listens");
        let cell = cell.map(str::to_owned);
        hear(Notice::Unheard { cell });
    }

    fn asked(&self) -> usize {
        self.asked.lock().len()
    }
}

impl Engine for Deaf {
    fn read(&self, cells: Vec<Arc<str>>) -> Pending<'_, Vec<Result<Option<Vec<u8>>, EngineError>>> {
        self.memory.read(cells)
    }

    fn compare_and_set(
        &self,
        writes: Vec<Write>,
    ) -> Pending<'_, Vec<Result<Written, EngineError>>> {
        self.memory.compare_and_set(writes)
    }

    fn heartbeat(&self, epoch: Arc<str>) -> Pending<'_, Result<Heartbeat, EngineError>> {
        self.memory.heartbeat(epoch)
    }

    fn listen(&self, hear: OnNotice) {
        *self.hear.lock() = Some(Arc::clone(&hear));
        self.memory.listen(hear);
    }

    fn watch(
        &self,
        more: Vec<Arc<str>>,
        less: Vec<Arc<str>>,
    ) -> Pending<'_, Result<(), EngineError>> {
        if !more.is_empty() {
            self.asked.lock().push((self.clock.now(), more.clone()));
        }
        if self.fails.load(Ordering::Relaxed) {
            return Box::pin(async { Err(EngineError("it cannot".to_owned())) });
        }
        self.memory.watch(more, less)
    }
}

#[tokio::test(start_paused = true)]
async fn who_is_not_told_asks_again() {
    let memory = memory();
    let deaf = Deaf {
        memory: memory.clone(),
        clock: Clock::tokio(),
        fails: Arc::new(AtomicBool::new(true)),
        asked: Arc::default(),
        hear: Arc::default(),
    };
    let mut config = Config::fixed(1_000.0, 1.0);
    config.limits.in_flight = 1;
    config.lease = Duration::from_mins(2);
    let one = process(&memory, config.clone());
    let other = started(Arc::new(deaf.clone()), config, Unavailable::Closed);
    sleep(Duration::from_secs(5)).await;
    let held = one.acquire(&key()).await.unwrap();
    let waits = tokio::spawn({
        let (other, clock) = (other.clone(), deaf.clock.clone());
        async move {
            other.acquire(&key()).await.unwrap().report(&ok());
            clock.now()
        }
    });
    sleep(Duration::from_secs(5)).await;
    let name = cell_name(&key());
    let asked = std::mem::take(&mut *deaf.asked.lock());
    assert!(
        (20..=26).contains(&asked.len()),
        "five times a second: {}",
        asked.len()
    );
    for pair in asked[1..].windows(2) {
        assert!(
            pair[1].0.since(pair[0].0) >= Duration::from_millis(200),
            "{asked:?}"
        );
    }
    assert!(asked.iter().all(|(_, cells)| *cells == [Arc::clone(&name)]));

    deaf.fails.store(false, Ordering::Relaxed);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(deaf.asked(), 1, "it worked");
    deaf.says(Some("another"));
    sleep(Duration::from_secs(1)).await;
    assert_eq!(deaf.asked(), 1, "nobody asked for it");
    for (cell, asked) in [(None, 2), (Some(&*name), 3)] {
        for _ in 0..9 {
            deaf.says(cell);
        }
        sleep(Duration::from_millis(10)).await;
        assert_eq!(deaf.asked(), asked, "at once, and once");
        sleep(Duration::from_secs(1)).await;
        assert!(deaf.asked() <= asked + 1, "not again and again");
        deaf.asked.lock().truncate(asked);
    }

    let returned = deaf.clock.now();
    held.report(&ok());
    let served = waits.await.unwrap().since(returned);
    assert!(served < Duration::from_millis(50), "it is told: {served:?}");
}
