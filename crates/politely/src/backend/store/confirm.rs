//! Callers that wait for the engine: until their events are written, or until a cell was read.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use politely_core::Timestamp;
use politely_core::host::Host;
use politely_core::key::Key;
use politely_store::{Barrier, EngineError, Event, Node, cell_name};
use tokio::sync::oneshot;

use super::{Inner, Store};
use crate::snapshot::Snapshot;

/// A cell to read for a caller.
#[derive(Debug)]
pub(super) struct Refresh {
    pub(super) cell: Arc<str>,
    key: Key,
    reply: oneshot::Sender<Result<bool, EngineError>>,
}

impl Refresh {
    /// Hands the value of the cell to `node`, and wakes the caller.
    pub(super) fn handle_read(
        self,
        result: Result<Option<Vec<u8>>, EngineError>,
        node: &mut Node,
        local: Timestamp,
    ) {
        let known = result.map(|value| node.handle_refresh(&self.key, value.as_deref(), local));
        let _ = self.reply.send(known);
    }
}

impl Store {
    /// Waits until all events of `key` so far are written. Returns `false` if the engine did not
    /// confirm that within `patience`.
    pub(super) async fn wait_until_written(&self, key: &Key, patience: Duration) -> bool {
        let barrier = Arc::new(Barrier::default());
        {
            let now = self.0.clock.now();
            let mut state = self.0.state.lock();
            if state.node.is_written(key) {
                return true;
            }
            let event = Event::Barrier(Arc::clone(&barrier));
            state.node.apply(key, event, now);
        }
        self.0.wake.notify_one();
        let written = async {
            loop {
                let progress = self.0.progress.notified();
                tokio::pin!(progress);
                progress.as_mut().enable();
                if barrier.is_written() {
                    return true;
                }
                if self.0.has_ended.load(Ordering::Relaxed) {
                    return false;
                }
                progress.await;
            }
        };
        matches!(tokio::time::timeout(patience, written).await, Ok(true))
    }

    /// Reads the cell of `key` from the engine. Returns whether the key is known, here or to the
    /// engine.
    pub(super) async fn read_now(&self, key: &Key, patience: Duration) -> Result<bool, String> {
        let known = self.0.refresh(key);
        match tokio::time::timeout(patience, known).await {
            Ok(Ok(Ok(known))) => Ok(known),
            Ok(Ok(Err(EngineError(why)))) => Err(why),
            Ok(Err(_closed)) => Err("the limiter is closed".to_owned()),
            Err(_elapsed) => Err(format!("no answer in {:.1} s", patience.as_secs_f64())),
        }
    }
}

impl Inner {
    pub(super) fn snapshot(&self, key: &Key) -> Option<Snapshot> {
        let snapshot = |host: &mut Host| host.snapshot();
        let mut state = self.state.lock();
        state.snapshots += 1;
        let version = state.snapshots;
        let state = state.node.with_host(key, snapshot)?;
        Some(Snapshot { version, state })
    }

    pub(super) fn take_learned(&self) -> Vec<(Key, Snapshot)> {
        let mut state = self.state.lock();
        state.snapshots += 1;
        let version = state.snapshots;
        let learned = state.node.take_learned().into_iter();
        learned
            .map(|(key, state)| (key, Snapshot { version, state }))
            .collect()
    }

    pub(super) fn last_error(&self) -> Option<String> {
        if self.has_ended.load(Ordering::Relaxed) {
            let why = "the thread that talks to the engine has ended; restart this process";
            return Some(why.to_owned());
        }
        let now = self.clock.now();
        self.state.lock().node.last_error(now)
    }

    fn refresh(&self, key: &Key) -> oneshot::Receiver<Result<bool, EngineError>> {
        let (reply, known) = oneshot::channel();
        let refresh = Refresh {
            cell: cell_name(key),
            key: key.clone(),
            reply,
        };
        self.state.lock().refreshes.push(refresh);
        self.wake.notify_one();
        known
    }
}
