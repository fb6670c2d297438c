//! The prefetches of a store: tasks on the driver's runtime acquire the permits.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use politely_core::Timestamp;
use politely_core::gate::HoldReason;
use politely_core::host::{Ask, Reason};
use politely_core::key::Key;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::Inner;
use super::permit_guard::StoreGuard;
use crate::backend::local::waiters::Turn;
use crate::backend::prefetch::{self, AGAIN, Found, KeySet, Prefetched, Prefetches};
use crate::error::{AcquireError, RefusalReason};

#[derive(Default)]
pub(super) struct StorePrefetches {
    state: Mutex<State>,
    ready: Notify,
}

#[derive(Default)]
struct State {
    prefetches: Prefetches<StoreGuard, AbortHandle>,
    /// The runtime on which permits are acquired.
    runtime: Option<Handle>,
    closed: bool,
}

impl Prefetched for StoreGuard {
    fn start(&self) -> Timestamp {
        self.start()
    }

    fn valid_until(&self) -> Timestamp {
        self.valid_until
    }
}

impl StorePrefetches {
    pub(super) fn run_on(&self, runtime: Handle) {
        self.state.lock().runtime = Some(runtime);
    }

    /// Returns the prefetched permit of `keys`, or starts to prefetch one and returns when to call
    /// again.
    pub(super) fn take_or_start(
        inner: &Arc<Inner>,
        keys: &[Key],
        ask: Ask,
    ) -> Result<StoreGuard, (RefusalReason, Timestamp)> {
        let now = inner.clock.now();
        let mut state = inner.prefetches.state.lock();
        if state.closed {
            return Err((RefusalReason::Closed, Timestamp::NEVER));
        }
        match state.prefetches.take(keys, now) {
            Found::Permit(guard) => return Ok(guard),
            Found::No(reason, at) => return Err((reason, at)),
            Found::Missing => {}
        }
        let Some(runtime) = &state.runtime else {
            return Err((RefusalReason::Asked, now + Duration::from_millis(1)));
        };
        let keys: KeySet = keys.into();
        let acquiring = runtime.spawn(acquire(Arc::downgrade(inner), Arc::clone(&keys), ask));
        state.prefetches.start(keys, acquiring.abort_handle(), now);
        Err((RefusalReason::Asked, now + AGAIN))
    }

    /// Cancels the permits that expired and drops the prefetches that no call asks for.
    pub(super) fn sweep(&self, now: Timestamp) {
        let expired = self.state.lock().prefetches.sweep(now, |acquiring| {
            acquiring.abort();
            true
        });
        // Dropping a guard locks the node, so it must not happen under this lock.
        drop(expired);
    }

    pub(super) async fn ready(&self) -> Vec<Key> {
        prefetch::ready(&self.ready, || self.state.lock().prefetches.take_ready()).await
    }

    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        let kept = state.prefetches.drain(AbortHandle::abort);
        drop(state);
        drop(kept);
    }

    fn finish(&self, keys: &[Key], now: Timestamp, result: Result<StoreGuard, AcquireError>) {
        let mut state = self.state.lock();
        let unwanted = match result {
            Ok(guard) => state.prefetches.granted(keys, guard),
            Err(why) => {
                let (reason, until) = match why {
                    AcquireError::Parked(_, rest) => {
                        let reason = Reason::Parked(HoldReason::RetryAfter);
                        (RefusalReason::Wait(reason), now + rest)
                    }
                    _ => (RefusalReason::Closed, Timestamp::NEVER),
                };
                state.prefetches.refused(keys, reason, until);
                None
            }
        };
        drop(state);
        drop(unwanted);
        self.ready.notify_one();
    }
}

async fn acquire(inner: Weak<Inner>, keys: KeySet, ask: Ask) {
    let Some(inner) = inner.upgrade() else { return };
    let turn = Turn::from_micros(inner.clock.now().as_micros());
    let result = inner.acquire(&keys, ask, turn).await;
    inner.prefetches.finish(&keys, inner.clock.now(), result);
}
