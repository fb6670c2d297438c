//! Prefetches: after a refusal by `try_acquire`, the permit is acquired in the background.
//!
//! It is kept until the same keys are asked for again, or until it expires.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use politely_core::Timestamp;
use politely_core::host::Ask;
use politely_core::key::Key;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::Inner;
use super::permit_guard::StoreGuard;
use crate::backend::local::waiters::Turn;
use crate::error::{AcquireError, RefusalReason};

/// A prefetch that no call asks for again is dropped after this time.
const KEEP: Duration = Duration::from_secs(5);
/// The number of prefetches at a time.
const PREFETCHES_MAX: usize = 1 << 14;
/// The time after which a refused caller should ask again.
const AGAIN: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct Prefetches {
    entries: Mutex<Entries>,
    ready: Notify,
}

#[derive(Default)]
struct Entries {
    prefetches: HashMap<Arc<[Key]>, Prefetch, foldhash::fast::RandomState>,
    ready: Vec<Key>,
    /// The runtime on which permits are acquired.
    runtime: Option<Handle>,
    closed: bool,
}

struct Prefetch {
    called_at: Timestamp,
    state: State,
}

enum State {
    Acquiring(Option<AbortHandle>),
    Ready(StoreGuard),
    Refused(RefusalReason, Timestamp),
}

impl Prefetches {
    pub(super) fn run_on(&self, runtime: Handle) {
        self.entries.lock().runtime = Some(runtime);
    }

    /// Returns the prefetched permit of `keys`, or starts to prefetch one and returns when to call
    /// again.
    pub(super) fn take_or_start(
        inner: &Arc<Inner>,
        keys: &[Key],
        ask: Ask,
    ) -> Result<StoreGuard, (RefusalReason, Timestamp)> {
        let now = inner.clock.now();
        let mut lapsed = None;
        let mut entries = inner.prefetches.entries.lock();
        if entries.closed {
            return Err((RefusalReason::Closed, Timestamp::NEVER));
        }
        if let Some(prefetch) = entries.prefetches.get_mut(keys) {
            prefetch.called_at = now;
            match &prefetch.state {
                State::Acquiring(_) => return Err((RefusalReason::Asked, now + AGAIN)),
                State::Refused(reason, at) if *at > now => return Err((*reason, *at)),
                State::Ready(guard) if guard.start() > now => {
                    return Err((RefusalReason::Asked, guard.start()));
                }
                State::Refused(..) | State::Ready(_) => {}
            }
            if let Some(Prefetch {
                state: State::Ready(guard),
                ..
            }) = entries.prefetches.remove(keys)
            {
                if now <= guard.valid_until {
                    return Ok(guard);
                }
                lapsed = Some(guard);
            }
        }
        if entries.prefetches.len() >= PREFETCHES_MAX {
            return Err((RefusalReason::Asked, now + AGAIN));
        }
        let Some(runtime) = entries.runtime.clone() else {
            return Err((RefusalReason::Asked, now + Duration::from_millis(1)));
        };
        let keys: Arc<[Key]> = keys.into();
        let state = State::Acquiring(None);
        entries.prefetches.insert(
            Arc::clone(&keys),
            Prefetch {
                called_at: now,
                state,
            },
        );
        let asking = runtime.spawn(acquire(Arc::downgrade(inner), Arc::clone(&keys), ask));
        if let Some(Prefetch {
            state: State::Acquiring(abort),
            ..
        }) = entries.prefetches.get_mut(&keys)
        {
            *abort = Some(asking.abort_handle());
        }
        drop(entries);
        drop(lapsed);
        Err((RefusalReason::Asked, now + AGAIN))
    }

    /// Cancels the permits that expired and drops the prefetches that no call asks for.
    pub(super) fn sweep(&self, now: Timestamp) {
        let mut gone = Vec::new();
        self.entries.lock().prefetches.retain(|_, prefetch| {
            let keep = match &prefetch.state {
                State::Ready(guard) => now <= guard.valid_until,
                State::Refused(_, at) => now < *at || now.since(prefetch.called_at) < KEEP,
                State::Acquiring(_) => now.since(prefetch.called_at) < KEEP,
            };
            if !keep {
                let state = std::mem::replace(&mut prefetch.state, State::Acquiring(None));
                gone.push(state);
            }
            keep
        });
        // Dropping a guard locks the node, so it must not happen under this lock.
        for state in gone {
            state.end();
        }
    }

    pub(super) async fn ready(&self) -> Vec<Key> {
        loop {
            let came = self.ready.notified();
            let ready = std::mem::take(&mut self.entries.lock().ready);
            if !ready.is_empty() {
                return ready;
            }
            came.await;
        }
    }

    pub(super) fn close(&self) {
        let mut entries = self.entries.lock();
        entries.closed = true;
        let all = std::mem::take(&mut entries.prefetches);
        drop(entries);
        for prefetch in all.into_values() {
            prefetch.state.end();
        }
    }

    fn finish(&self, keys: &Arc<[Key]>, now: Timestamp, result: Result<StoreGuard, AcquireError>) {
        let state = match result {
            Ok(guard) => State::Ready(guard),
            Err(AcquireError::Parked(_, rest)) => {
                let reason = politely_core::host::Reason::Parked(
                    politely_core::gate::HoldReason::RetryAfter,
                );
                State::Refused(RefusalReason::Wait(reason), now + rest)
            }
            Err(_) => State::Refused(RefusalReason::Closed, Timestamp::NEVER),
        };
        let mut entries = self.entries.lock();
        let left = match entries.prefetches.get_mut(keys) {
            Some(prefetch) => {
                prefetch.state = state;
                entries.ready.push(keys[0].clone());
                None
            }
            None => Some(state),
        };
        drop(entries);
        drop(left);
        self.ready.notify_one();
    }
}

impl State {
    fn end(self) {
        if let Self::Acquiring(Some(asking)) = self {
            asking.abort();
        }
    }
}

async fn acquire(inner: Weak<Inner>, keys: Arc<[Key]>, ask: Ask) {
    let Some(inner) = inner.upgrade() else { return };
    let turn = Turn::from_micros(inner.clock.now().as_micros());
    let result = inner.acquire(&keys, ask, turn).await;
    inner.prefetches.finish(&keys, inner.clock.now(), result);
}
