//! An engine in the memory of one process.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use politely_core::Timestamp;

use crate::engine::{
    Engine, EngineError, Heartbeat, Notice, OnNotice, Pending, Version, Write, Written,
};

/// A source of the current time, for an engine that has a clock.
pub trait TimeSource: Send + Sync + 'static {
    /// Returns the time.
    fn now(&self) -> Timestamp;
}

impl<F: Fn() -> Timestamp + Send + Sync + 'static> TimeSource for F {
    fn now(&self) -> Timestamp {
        self()
    }
}

/// Cells in the memory of this process, lost with it.
///
/// Clones share the cells, as clients of one server would. Each clone has subscriptions of its own.
pub struct Memory {
    cells: Arc<Mutex<Cells>>,
    clock: Arc<dyn TimeSource>,
    listener: usize,
}

#[derive(Default)]
struct Cells {
    values: HashMap<Arc<str>, Vec<u8>>,
    listeners: Vec<Listener>,
}

#[derive(Default)]
struct Listener {
    on_notice: Option<OnNotice>,
    watched: HashSet<Arc<str>>,
}

impl Memory {
    /// Creates an engine without cells, whose clock is `clock`.
    pub fn new(clock: impl TimeSource) -> Self {
        Self::beside(Arc::default(), Arc::new(clock))
    }

    fn beside(cells: Arc<Mutex<Cells>>, clock: Arc<dyn TimeSource>) -> Self {
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

    /// Loses all cells and all subscriptions, like a server without persistence that is killed. For
    /// tests.
    #[doc(hidden)]
    pub fn forget_all(&self) {
        let mut locked = self.lock();
        locked.values.clear();
        for listener in &mut locked.listeners {
            listener.on_notice = None;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Cells> {
        lock(&self.cells)
    }
}

impl Clone for Memory {
    fn clone(&self) -> Self {
        Self::beside(Arc::clone(&self.cells), Arc::clone(&self.clock))
    }
}

fn lock(cells: &Mutex<Cells>) -> MutexGuard<'_, Cells> {
    cells.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Cells {
    /// Carries out `write` and returns the callbacks to notify.
    fn write(&mut self, write: Write) -> (Written, Vec<OnNotice>) {
        let now = self.values.get(&write.cell);
        // A value that is too short for a version still counts as a value.
        if now.map(|value| Version::of(value)) != write.expected.map(Some) {
            return (Written::Conflict(now.cloned()), Vec::new());
        }
        let subscribed = self
            .listeners
            .iter()
            .filter(|listener| write.notify && listener.watched.contains(&write.cell));
        let callbacks = subscribed
            .filter_map(|listener| listener.on_notice.clone())
            .collect();
        self.values.insert(write.cell, write.value);
        (Written::Done, callbacks)
    }
}

impl Engine for Memory {
    fn read(&self, cells: Vec<Arc<str>>) -> Pending<'_, Vec<Result<Option<Vec<u8>>, EngineError>>> {
        let locked = self.lock();
        let values = cells
            .iter()
            .map(|cell| Ok(locked.values.get(cell).cloned()));
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
            let (written, callbacks) = self.lock().write(write);
            if let Some(notice) = notice {
                for on_notice in callbacks {
                    on_notice(notice.clone());
                }
            }
            results.push(Ok(written));
        }
        Box::pin(std::future::ready(results))
    }

    fn heartbeat(&self, epoch: Arc<str>) -> Pending<'_, Result<Heartbeat, EngineError>> {
        let heartbeat = Heartbeat {
            time: self.clock.now(),
            run: 1,
            epoch: self.lock().values.get(&epoch).cloned(),
        };
        Box::pin(std::future::ready(Ok(heartbeat)))
    }

    fn listen(&self, on_notice: OnNotice) {
        self.lock().listeners[self.listener].on_notice = Some(on_notice);
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
