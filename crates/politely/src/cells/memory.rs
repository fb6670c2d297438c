//! Cells of one process.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use std::collections::{HashMap, HashSet};

use super::{Engine, EngineError, Notice, OnNotice, Pending, Pulse, Version, Write, Written};
use crate::clock::Clock;

/// Cells in the memory of this process, lost with it. Clones share them, as clients of a server would, and each listens for
/// itself.
pub struct Memory {
    cells: Arc<Mutex<Cells>>,
    clock: Clock,
    listener: usize,
}

#[derive(Default)]
struct Cells {
    of: HashMap<Arc<str>, Vec<u8>>,
    listeners: Vec<Listener>,
}

#[derive(Default)]
struct Listener {
    hear: Option<OnNotice>,
    watched: HashSet<Arc<str>>,
}

impl Memory {
    /// No cells yet; `clock` is the engine's.
    pub fn new(clock: Clock) -> Self {
        Self::beside(Arc::default(), clock)
    }

    fn beside(cells: Arc<Mutex<Cells>>, clock: Clock) -> Self {
        let mut locked = lock(&cells);
        locked.listeners.push(Listener::default());
        let listener = locked.listeners.len() - 1;
        drop(locked);
        Self {
            cells,
            clock,
            listener,
        }
    }

    /// All of it is lost, as where a server without persistence is killed, and no notice comes from then on.
    #[cfg(test)]
    pub(crate) fn forget_all(&self) {
        let mut locked = self.lock();
        locked.of.clear();
        for listener in &mut locked.listeners {
            listener.hear = None;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Cells> {
        lock(&self.cells)
    }
}

impl Clone for Memory {
    fn clone(&self) -> Self {
        Self::beside(Arc::clone(&self.cells), self.clock.clone())
    }
}

fn lock(cells: &Mutex<Cells>) -> MutexGuard<'_, Cells> {
    cells.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Cells {
    fn write(&mut self, write: Write) -> (Written, Vec<OnNotice>) {
        let now = self.of.get(&write.cell);
        // What is too short to have a version is there all the same.
        if now.map(|value| Version::of(value)) != write.expected.map(Some) {
            return (Written::Conflict(now.cloned()), Vec::new());
        }
        let watching = self
            .listeners
            .iter()
            .filter(|listener| write.notify && listener.watched.contains(&write.cell));
        let told = watching
            .filter_map(|listener| listener.hear.clone())
            .collect();
        self.of.insert(write.cell, write.value);
        (Written::Done, told)
    }
}

impl Engine for Memory {
    fn read(&self, cells: Vec<Arc<str>>) -> Pending<'_, Vec<Result<Option<Vec<u8>>, EngineError>>> {
        let locked = self.lock();
        let values = cells.iter().map(|cell| Ok(locked.of.get(cell).cloned()));
        let values = values.collect();
        Box::pin(std::future::ready(values))
    }

    fn compare_and_set(
        &self,
        writes: Vec<Write>,
    ) -> Pending<'_, Vec<Result<Written, EngineError>>> {
        let mut results = Vec::with_capacity(writes.len());
        for write in writes {
            let notice = write.notify.then(|| Notice::Written {
                cell: write.cell.to_string(),
                value: write.value.clone(),
            });
            let (written, told) = self.lock().write(write);
            if let Some(notice) = notice {
                for hear in told {
                    hear(notice.clone());
                }
            }
            results.push(Ok(written));
        }
        Box::pin(std::future::ready(results))
    }

    fn pulse(&self, epoch: Arc<str>) -> Pending<'_, Result<Pulse, EngineError>> {
        let pulse = Pulse {
            time: self.clock.now(),
            run: 1,
            epoch: self.lock().of.get(&epoch).cloned(),
        };
        Box::pin(std::future::ready(Ok(pulse)))
    }

    fn listen(&self, hear: OnNotice) {
        self.lock().listeners[self.listener].hear = Some(hear);
    }

    fn watch(
        &self,
        more: Vec<Arc<str>>,
        less: Vec<Arc<str>>,
    ) -> Pending<'_, Result<(), EngineError>> {
        let mut locked = self.lock();
        let watched = &mut locked.listeners[self.listener].watched;
        for cell in less {
            watched.remove(&cell);
        }
        watched.extend(more);
        Box::pin(std::future::ready(Ok(())))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.lock().listeners[self.listener] = Listener::default();
    }
}
