//! Answers that wait for the engine: until an event is written, or until a cell was read. Also
//! snapshots, and why the engine does not answer.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use politely_core::Timestamp;
use politely_core::host::Host;
use politely_core::key::Key;
use tokio::sync::oneshot;

use super::event::Event;
use super::hub::{Hub, name};
use super::{Inner, Shared};
use crate::cells::EngineError;
use crate::snapshot::Snapshot;

/// An event that changes nothing. Events are written in order: once it is, all before it are.
#[derive(Debug)]
pub(super) struct Barrier(Mutex<Option<oneshot::Sender<()>>>);

impl Barrier {
    pub(super) fn event() -> (Event, oneshot::Receiver<()>) {
        let (sender, written) = oneshot::channel();
        let barrier = Arc::new(Self(Mutex::new(Some(sender))));
        (Event::Barrier(barrier), written)
    }

    /// It is in the engine.
    pub(super) fn is_written(&self) {
        if let Some(sender) = self.0.lock().take() {
            let _ = sender.send(());
        }
    }
}

/// A cell that is to be read for a caller.
#[derive(Debug)]
pub(super) struct Look {
    pub(super) cell: Arc<str>,
    key: Key,
    answer: oneshot::Sender<Result<bool, EngineError>>,
}

impl Look {
    /// Puts what the cell holds into `hub`, and wakes the caller.
    pub(super) fn was_read(
        self,
        result: Result<Option<Vec<u8>>, EngineError>,
        hub: &mut Hub,
        mono: Timestamp,
    ) {
        let known = result.map(|value| hub.was_looked_at(&self.key, value.as_deref(), mono));
        let _ = self.answer.send(known);
    }
}

impl Shared {
    /// `false`: the engine did not confirm within `patience`.
    pub(super) async fn wait_until_written(&self, key: &Key, patience: Duration) -> bool {
        let written = {
            let now = self.0.clock.now();
            let mut state = self.0.state.lock();
            if state.hub.is_written(key) {
                return true;
            }
            let (barrier, written) = Barrier::event();
            state.hub.tell(key, barrier, now);
            written
        };
        self.0.wake.notify_one();
        matches!(tokio::time::timeout(patience, written).await, Ok(Ok(())))
    }

    /// Says whether the key is known, here or to the engine.
    pub(super) async fn read_now(&self, key: &Key, patience: Duration) -> Result<bool, String> {
        let known = self.0.look(key);
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
        let state = state.hub.with_host(key, snapshot)?;
        Some(Snapshot { version, state })
    }

    pub(super) fn take_learned(&self) -> Vec<(Key, Snapshot)> {
        let mut state = self.state.lock();
        state.snapshots += 1;
        let version = state.snapshots;
        let learned = state.hub.take_learned().into_iter();
        learned
            .map(|(key, state)| (key, Snapshot { version, state }))
            .collect()
    }

    pub(super) fn trouble(&self) -> Option<String> {
        if self.ended.load(Ordering::Relaxed) {
            let why = "the thread that talks to the engine has ended; restart this process";
            return Some(why.to_owned());
        }
        let now = self.clock.now();
        self.state.lock().hub.trouble(now)
    }

    fn look(&self, key: &Key) -> oneshot::Receiver<Result<bool, EngineError>> {
        let (answer, known) = oneshot::channel();
        let look = Look {
            cell: name(key),
            key: key.clone(),
            answer,
        };
        self.state.lock().looks.push(look);
        self.wake.notify_one();
        known
    }
}
