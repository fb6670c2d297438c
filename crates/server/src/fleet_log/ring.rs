//! A log in a ring of cells of the engine. All coordinators append to it, and all read it.
//!
//! Batch number N is in the cell N modulo [`CELLS`], in place of the batch [`CELLS`] before it. An
//! append is one compare-and-set. Of two coordinators that append the same number, one wins. The
//! other finds the winner's batch in the answer, and appends the next number. So all coordinators
//! read the same batches in the same order, and none of them leads.
//!
//! | bytes | content of a cell |
//! | --- | --- |
//! | 8, 8 | the run of the log, and the number of the batch |
//! | 8, 4 | the number of events before the batch, and in it |
//! | rest | the content |
//!
//! An engine that lost its data begins with an empty ring. The log then continues at its number,
//! because the coordinators still know it. Only a log that no coordinator knows has a new run.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use politely::cells::{Engine, EngineError, Written};

use crate::cells::{Cells, unseal};

/// The number of cells. At a hundred batches a second, a coordinator may stand still for ten
/// seconds and miss nothing.
pub(super) const CELLS: u64 = 1_024;
/// The length of everything before the content of a batch.
const HEAD: usize = 8 + 8 + 8 + 4;
const NAME: &str = "politely:log";
/// The lifetime of a cell that is not written again.
const KEEP: Duration = Duration::from_hours(24);
/// The most attempts of an append while other coordinators append.
const TRIES: u32 = 64;

/// A batch of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Batch {
    /// The run of the log.
    pub(super) run: u64,
    pub(super) number: u64,
    /// The number of events in all batches before this one.
    pub(super) events_before: u64,
    pub(super) events: u32,
    pub(super) content: Vec<u8>,
    /// The coordinator that appended it.
    writer: u64,
}

/// The ring as one coordinator knows it.
pub(super) struct Ring {
    cells: Cells,
    names: Vec<Arc<str>>,
    /// The value of each cell as last seen.
    seen: Vec<Option<Arc<[u8]>>>,
    run: u64,
    /// The number of the next batch.
    next: u64,
    /// The number of events in all batches before the next one.
    events: u64,
    /// The number of batches that this coordinator appended.
    own: u64,
}

impl Ring {
    pub(super) fn new(engine: Arc<dyn Engine>) -> Self {
        let random = RandomState::new();
        Self {
            cells: Cells::new(engine),
            names: (0..CELLS)
                .map(|cell| format!("{NAME}:{cell}").into())
                .collect(),
            seen: vec![None; CELLS as usize],
            run: random.hash_one("run") | 1,
            next: 0,
            events: 0,
            own: 0,
        }
    }

    /// Returns the names of all cells.
    pub(super) fn cells(&self) -> Vec<Arc<str>> {
        self.names.clone()
    }

    /// Reads the whole ring and returns its batches, oldest first.
    pub(super) async fn open(&mut self) -> Result<Vec<Batch>, EngineError> {
        let values = self.cells.read_all(self.cells()).await?;
        let mut batches = Vec::new();
        for (cell, value) in values.into_iter().enumerate() {
            batches.extend(value.as_deref().and_then(|value| self.decode(cell, value)));
            self.seen[cell] = value.map(Arc::from);
        }
        batches.sort_unstable_by_key(|batch| batch.number);
        if let Some(last) = batches.last() {
            let run = last.run;
            self.pass(last);
            batches.retain(|batch| batch.run == run);
        }
        Ok(batches)
    }

    /// Returns the number of batches that this coordinator appended.
    pub(super) const fn own(&self) -> u64 {
        self.own
    }

    /// Appends a batch, and calls `on_batch` with each batch that others appended before, and with
    /// this one.
    ///
    /// `own` is [`Ring::own`] before the first attempt. So an attempt whose answer was lost is not
    /// repeated when the batch is found in the log.
    ///
    /// # Errors
    /// The engine did not confirm the batch. It may hold it, so append the same one again.
    pub(super) async fn append(
        &mut self,
        own: u64,
        events: u32,
        content: &[u8],
        on_batch: &mut impl FnMut(Batch),
    ) -> Result<(), EngineError> {
        for _ in 0..TRIES {
            if self.own > own {
                return Ok(());
            }
            let cell = Self::cell_of(self.next);
            let batch = Batch {
                run: self.run,
                number: self.next,
                events_before: self.events,
                events,
                content: content.to_vec(),
                writer: self.cells.writer(),
            };
            let value = self.encode(&batch);
            let before = self.seen[cell].as_deref().map(<[u8]>::to_vec);
            let kept = (KEEP, true);
            let written = self
                .cells
                .write(&self.names[cell], before, value.clone(), kept);
            if let Written::Conflict(found) = written.await? {
                self.handle_value(cell, found, on_batch).await?;
                continue;
            }
            self.seen[cell] = Some(value.into());
            self.pass(&batch);
            on_batch(batch);
            return Ok(());
        }
        Err(EngineError(
            "other coordinators append all the time".to_owned(),
        ))
    }

    /// Reads the next batches, in case a notice was lost.
    pub(super) async fn catch_up(
        &mut self,
        on_batch: &mut impl FnMut(Batch),
    ) -> Result<(), EngineError> {
        loop {
            let (next, cell) = (self.next, Self::cell_of(self.next));
            let found = self.cells.read(&self.names[cell]).await?;
            self.handle_value(cell, found, on_batch).await?;
            if self.next == next {
                return Ok(());
            }
        }
    }

    /// Handles a notice. Returns without a call of the engine if the batch is the next one.
    pub(super) async fn handle_notice(
        &mut self,
        cell: &str,
        value: Vec<u8>,
        on_batch: &mut impl FnMut(Batch),
    ) -> Result<(), EngineError> {
        let number = cell
            .strip_prefix(NAME)
            .and_then(|rest| rest.strip_prefix(':'));
        let Some(number) = number.and_then(|number| number.parse::<u64>().ok()) else {
            return Ok(());
        };
        match number {
            0..CELLS => {
                self.handle_value(number as usize, Some(value), on_batch)
                    .await
            }
            _ => Ok(()),
        }
    }

    async fn handle_value(
        &mut self,
        cell: usize,
        value: Option<Vec<u8>>,
        on_batch: &mut impl FnMut(Batch),
    ) -> Result<(), EngineError> {
        let batch = value.as_deref().and_then(|value| self.decode(cell, value));
        let Some(batch) = batch else {
            self.seen[cell] = value.map(Arc::from);
            return Ok(());
        };
        if batch.number < self.next {
            // The notice of a batch may come after the batch that replaced it.
            let seen = self.seen[cell].as_deref();
            let seen = seen.and_then(|value| self.decode(cell, value));
            if seen.is_none_or(|seen| seen.run != batch.run || seen.number <= batch.number) {
                self.seen[cell] = value.map(Arc::from);
            }
            return Ok(());
        }
        self.seen[cell] = value.map(Arc::from);
        if batch.run == self.run && batch.number > self.next {
            let first = self.next.max(batch.number.saturating_sub(CELLS - 1));
            let cells: Vec<_> = (first..batch.number).map(Self::cell_of).collect();
            let names = cells.iter().map(|cell| Arc::clone(&self.names[*cell]));
            let values = self.cells.read_all(names.collect()).await?;
            for (cell, value) in cells.into_iter().zip(values) {
                let missed = value.as_deref();
                let missed = missed.and_then(|value| self.decode(cell, value));
                self.seen[cell] = value.map(Arc::from);
                if let Some(missed) = missed
                    && missed.run == self.run
                    && (self.next..batch.number).contains(&missed.number)
                {
                    self.pass(&missed);
                    on_batch(missed);
                }
            }
        }
        self.pass(&batch);
        on_batch(batch);
        Ok(())
    }

    /// Continues after `batch`.
    fn pass(&mut self, batch: &Batch) {
        self.own += u64::from(batch.writer == self.cells.writer());
        self.run = batch.run;
        self.next = batch.number + 1;
        self.events = batch.events_before + u64::from(batch.events);
    }

    const fn cell_of(number: u64) -> usize {
        (number % CELLS) as usize
    }

    fn encode(&self, batch: &Batch) -> Vec<u8> {
        let mut content = Vec::with_capacity(HEAD + batch.content.len());
        content.extend(batch.run.to_le_bytes());
        content.extend(batch.number.to_le_bytes());
        content.extend(batch.events_before.to_le_bytes());
        content.extend(batch.events.to_le_bytes());
        content.extend(&batch.content);
        self.cells.seal(&content)
    }

    /// Returns the batch in a value of a cell, or `None` if the value is damaged or of another
    /// layout.
    fn decode(&self, cell: usize, value: &[u8]) -> Option<Batch> {
        let rest = unseal(&self.names[cell], value).ok()?;
        let (run, rest) = rest.split_first_chunk()?;
        let (number, rest) = rest.split_first_chunk()?;
        let (events_before, rest) = rest.split_first_chunk()?;
        let (events, content) = rest.split_first_chunk()?;
        let writer = value.first_chunk()?;
        Some(Batch {
            run: u64::from_le_bytes(*run),
            number: u64::from_le_bytes(*number),
            events_before: u64::from_le_bytes(*events_before),
            events: u32::from_le_bytes(*events),
            content: content.to_vec(),
            writer: u64::from_le_bytes(*writer),
        })
    }
}

#[cfg(test)]
mod tests {
    use politely::Clock;
    use politely::cells::Memory;

    use super::*;

    fn ring(memory: &Memory) -> Ring {
        Ring::new(Arc::new(memory.clone()))
    }

    async fn append(ring: &mut Ring, text: &str) -> Vec<String> {
        let mut heard = Vec::new();
        let mut on_batch = |batch: Batch| heard.push(String::from_utf8(batch.content).unwrap());
        ring.append(ring.own(), 1, text.as_bytes(), &mut on_batch)
            .await
            .unwrap();
        heard
    }

    async fn catch_up(ring: &mut Ring) -> Vec<(u64, u64)> {
        let mut heard = Vec::new();
        let mut on_batch = |batch: Batch| heard.push((batch.number, batch.events_before));
        ring.catch_up(&mut on_batch).await.unwrap();
        heard
    }

    #[tokio::test]
    async fn all_read_the_same_batches_in_the_same_order() {
        let memory = Memory::new(Clock::system());
        let (mut ann, mut bob) = (ring(&memory), ring(&memory));
        assert_eq!(ann.open().await.unwrap(), []);
        assert_eq!(bob.open().await.unwrap(), []);
        assert_eq!(append(&mut ann, "a").await, ["a"]);
        assert_eq!(append(&mut ann, "b").await, ["b"]);
        assert_eq!(append(&mut bob, "c").await, ["a", "b", "c"]);
        assert_eq!(append(&mut ann, "d").await, ["c", "d"]);
        assert_eq!(ann.run, bob.run, "the first append decides the run");
        let read = ring(&memory).open().await.unwrap();
        let read: Vec<_> = read
            .iter()
            .map(|batch| (batch.number, batch.events_before))
            .collect();
        assert_eq!(read, [(0, 0), (1, 1), (2, 2), (3, 3)]);
    }

    #[tokio::test]
    async fn a_reader_that_is_far_behind_sees_the_gap() {
        let memory = Memory::new(Clock::system());
        let (mut ann, mut bob) = (ring(&memory), ring(&memory));
        append(&mut ann, "first").await;
        append(&mut bob, "second").await;
        for _ in 0..CELLS + 5 {
            append(&mut ann, "more").await;
        }
        let heard = catch_up(&mut bob).await;
        let last = CELLS + 6;
        let expected: Vec<_> = (last + 1 - CELLS..=last).map(|it| (it, it)).collect();
        // The cell of the next batch holds a later one, from which the others are found.
        assert_eq!(heard, expected);
        assert_eq!(append(&mut bob, "on").await.last().unwrap(), "on");
    }

    #[tokio::test]
    async fn a_lost_ring_goes_on_at_its_number() {
        let memory = Memory::new(Clock::system());
        let mut ann = ring(&memory);
        append(&mut ann, "a").await;
        let run = ann.run;
        let empty = Memory::new(Clock::system());
        ann.cells = Cells::new(Arc::new(empty.clone()));
        for _ in 0..CELLS {
            append(&mut ann, "b").await;
        }
        assert_eq!((ann.run, ann.next), (run, CELLS + 1));
        let read = ring(&empty).open().await.unwrap();
        assert_eq!(read.last().unwrap().number, CELLS);
    }
}

#[cfg(test)]
#[path = "ring_faults.rs"]
mod faults;
