//! What `try_acquire` was refused for: acquired in the background, and kept until it is asked for again.

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
use super::claim::Claim;
use crate::asked::{AcquireError, RefusalReason};
use crate::waiters::Turn;

/// A wish nobody came back for is forgotten.
const KEPT: Duration = Duration::from_secs(5);
/// … and so many are kept.
const WISHES_MAX: usize = 1 << 14;
/// Without a call to be woken, ask again after so long.
const AGAIN: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct Wishes {
    of: Mutex<Of>,
    ready: Notify,
}

#[derive(Default)]
struct Of {
    wishes: HashMap<Arc<[Key]>, Wish, foldhash::fast::RandomState>,
    ready: Vec<Key>,
    /// Where they are acquired.
    runtime: Option<Handle>,
    closed: bool,
}

struct Wish {
    touched: Timestamp,
    state: State,
}

enum State {
    Asked(Option<AbortHandle>),
    Kept(Claim),
    Refused(RefusalReason, Timestamp),
}

impl Wishes {
    pub(super) fn run_on(&self, runtime: Handle) {
        self.of.lock().runtime = Some(runtime);
    }

    /// Somebody calls for a permit of `keys`: the one that came, or when to call again.
    pub(super) fn call(
        inner: &Arc<Inner>,
        keys: &[Key],
        ask: Ask,
    ) -> Result<Claim, (RefusalReason, Timestamp)> {
        let now = inner.clock.now();
        let mut lapsed = None;
        let mut of = inner.wishes.of.lock();
        if of.closed {
            return Err((RefusalReason::Closed, Timestamp::NEVER));
        }
        if let Some(wish) = of.wishes.get_mut(keys) {
            wish.touched = now;
            match &wish.state {
                State::Asked(_) => return Err((RefusalReason::Asked, now + AGAIN)),
                State::Refused(reason, at) if *at > now => return Err((*reason, *at)),
                State::Kept(claim) if claim.start() > now => {
                    return Err((RefusalReason::Asked, claim.start()));
                }
                State::Refused(..) | State::Kept(_) => {}
            }
            if let Some(Wish {
                state: State::Kept(claim),
                ..
            }) = of.wishes.remove(keys)
            {
                if now <= claim.valid_until {
                    return Ok(claim);
                }
                lapsed = Some(claim);
            }
        }
        if of.wishes.len() >= WISHES_MAX {
            return Err((RefusalReason::Asked, now + AGAIN));
        }
        let Some(runtime) = of.runtime.clone() else {
            return Err((RefusalReason::Asked, now + Duration::from_millis(1)));
        };
        let keys: Arc<[Key]> = keys.into();
        let state = State::Asked(None);
        of.wishes.insert(
            Arc::clone(&keys),
            Wish {
                touched: now,
                state,
            },
        );
        let asking = runtime.spawn(acquire(Arc::downgrade(inner), Arc::clone(&keys), ask));
        if let Some(Wish {
            state: State::Asked(abort),
            ..
        }) = of.wishes.get_mut(&keys)
        {
            *abort = Some(asking.abort_handle());
        }
        drop(of);
        drop(lapsed);
        Err((RefusalReason::Asked, now + AGAIN))
    }

    /// Gives back what nobody took in time, and forgets what nobody came back for.
    pub(super) fn sweep(&self, now: Timestamp) {
        let mut gone = Vec::new();
        self.of.lock().wishes.retain(|_, wish| {
            let keep = match &wish.state {
                State::Kept(claim) => now <= claim.valid_until,
                State::Refused(_, at) => now < *at || now.since(wish.touched) < KEPT,
                State::Asked(_) => now.since(wish.touched) < KEPT,
            };
            if !keep {
                let state = std::mem::replace(&mut wish.state, State::Asked(None));
                gone.push(state);
            }
            keep
        });
        // A claim that is dropped tells the hub: not under this lock.
        for state in gone {
            state.end();
        }
    }

    pub(super) async fn ready(&self) -> Vec<Key> {
        loop {
            let came = self.ready.notified();
            let ready = std::mem::take(&mut self.of.lock().ready);
            if !ready.is_empty() {
                return ready;
            }
            came.await;
        }
    }

    pub(super) fn close(&self) {
        let mut of = self.of.lock();
        of.closed = true;
        let all = std::mem::take(&mut of.wishes);
        drop(of);
        for wish in all.into_values() {
            wish.state.end();
        }
    }

    fn came(&self, keys: &Arc<[Key]>, now: Timestamp, result: Result<Claim, AcquireError>) {
        let state = match result {
            Ok(claim) => State::Kept(claim),
            Err(AcquireError::Parked(_, rest)) => {
                let reason = politely_core::host::Reason::Parked(
                    politely_core::gate::HoldReason::RetryAfter,
                );
                State::Refused(RefusalReason::Wait(reason), now + rest)
            }
            Err(_) => State::Refused(RefusalReason::Closed, Timestamp::NEVER),
        };
        let mut of = self.of.lock();
        let left = match of.wishes.get_mut(keys) {
            Some(wish) => {
                wish.state = state;
                of.ready.push(keys[0].clone());
                None
            }
            None => Some(state),
        };
        drop(of);
        drop(left);
        self.ready.notify_one();
    }
}

impl State {
    fn end(self) {
        if let Self::Asked(Some(asking)) = self {
            asking.abort();
        }
    }
}

async fn acquire(inner: Weak<Inner>, keys: Arc<[Key]>, ask: Ask) {
    let Some(inner) = inner.upgrade() else { return };
    let turn = Turn(inner.clock.now().as_micros());
    let result = inner.acquire(&keys, ask, turn).await;
    inner.wishes.came(&keys, inner.clock.now(), result);
}
