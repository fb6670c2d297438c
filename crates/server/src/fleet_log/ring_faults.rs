//! The ring over an engine that loses calls and answers.

use parking_lot::Mutex;
use politely::Clock;
use politely::cells::{Heartbeat, Memory, OnNotice, Pending, Write};
use politely::core::Rng;

use super::*;

/// An engine that fails every third call or so. Half of the failed writes are carried out.
struct Faulty {
    inner: Memory,
    rng: Mutex<Rng>,
}

impl Faulty {
    fn draw(&self) -> f64 {
        self.rng.lock().unit()
    }
}

impl Engine for Faulty {
    fn read(&self, cells: Vec<Arc<str>>) -> Pending<'_, Vec<Result<Option<Vec<u8>>, EngineError>>> {
        if self.draw() < 0.3 {
            let lost = cells.iter().map(|_| Err(lost()));
            return Box::pin(std::future::ready(lost.collect()));
        }
        self.inner.read(cells)
    }

    fn compare_and_set(
        &self,
        writes: Vec<Write>,
    ) -> Pending<'_, Vec<Result<Written, EngineError>>> {
        let (count, fate) = (writes.len(), self.draw());
        if fate >= 0.4 {
            return self.inner.compare_and_set(writes);
        }
        Box::pin(async move {
            if fate < 0.2 {
                self.inner.compare_and_set(writes).await;
            }
            (0..count).map(|_| Err(lost())).collect()
        })
    }

    fn heartbeat(&self, epoch: Arc<str>) -> Pending<'_, Result<Heartbeat, EngineError>> {
        self.inner.heartbeat(epoch)
    }

    fn listen(&self, on_notice: OnNotice) {
        self.inner.listen(on_notice);
    }

    fn watch(
        &self,
        more: Vec<Arc<str>>,
        less: Vec<Arc<str>>,
    ) -> Pending<'_, Result<(), EngineError>> {
        self.inner.watch(more, less)
    }
}

fn lost() -> EngineError {
    EngineError("the answer was lost".to_owned())
}

/// A coordinator that appends its batches one after the other.
struct Writer {
    ring: Ring,
    name: char,
    sent: u32,
    /// The number of own batches in the log before the present one.
    own: u64,
    heard: Vec<String>,
}

impl Writer {
    async fn step(&mut self, rng: &mut Rng) {
        let heard = &mut self.heard;
        let mut on_batch = |batch: Batch| heard.push(String::from_utf8(batch.content).unwrap());
        if rng.unit() < 0.3 {
            let _ = self.ring.catch_up(&mut on_batch).await;
            return;
        }
        let content = format!("{}{}", self.name, self.sent);
        let appended = self
            .ring
            .append(self.own, 1, content.as_bytes(), &mut on_batch);
        if appended.await.is_ok() {
            self.sent += 1;
            self.own = self.ring.own();
        }
    }
}

#[tokio::test]
async fn a_batch_whose_answer_was_lost_is_in_the_log_once() {
    for seed in 0..40 {
        let memory = Memory::new(Clock::system());
        let mut rng = Rng::new(seed);
        let mut writers: Vec<_> = ['a', 'b', 'c']
            .map(|name| {
                let engine = Faulty {
                    inner: memory.clone(),
                    rng: Mutex::new(Rng::new(seed * 100 + u64::from(u32::from(name)))),
                };
                Writer {
                    ring: Ring::new(Arc::new(engine)),
                    name,
                    sent: 0,
                    own: 0,
                    heard: Vec::new(),
                }
            })
            .into();
        for _ in 0..300 {
            let at = rng.next_u64() as usize % writers.len();
            writers[at].step(&mut rng).await;
        }
        let log = Ring::new(Arc::new(memory))
            .open()
            .await
            .unwrap()
            .into_iter();
        let log: Vec<_> = log
            .map(|batch| String::from_utf8(batch.content).unwrap())
            .collect();
        for Writer {
            name, sent, heard, ..
        } in writers
        {
            assert_eq!(heard, log[..heard.len()], "seed {seed}: all read the same");
            let mut own = log.iter().filter(|batch| batch.starts_with(name));
            for number in 0..sent {
                assert_eq!(own.next(), Some(&format!("{name}{number}")), "seed {seed}");
            }
            assert!(
                own.count() <= 1,
                "seed {seed}: only the last append has no answer yet"
            );
        }
    }
}
