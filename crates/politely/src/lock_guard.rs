//! [`Limiter::lock`]: a lock on a key for as long as a guard lives.

use std::hash::BuildHasher;
use std::time::Duration;

use politely_core::Timestamp;
use politely_core::key::Key;
use politely_core::lock::{LockOp, SessionId};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::limiter::Limiter;
use crate::locks::{Claimed, LockError, LockRequest};
use crate::sync::sleep;

/// The time after which a lock in an engine ends if this process dies.
const TTL: Duration = Duration::from_secs(30);
/// A lock in this process ends with its guard, so its time never comes.
const FOREVER: Duration = Duration::from_hours(24 * 366 * 100);
/// The pause after the engine did not confirm a renewal.
const RETRY: Duration = Duration::from_millis(500);

/// A lock on a key. It is released when it is dropped.
///
/// In an engine or at a coordinator, a background task renews the lock. If the process dies, the
/// lock ends 30 s later.
#[derive(Debug)]
pub struct LockGuard {
    fencing: u64,
    state: watch::Receiver<bool>,
    _held: Held,
}

/// What ends the lock when it is dropped.
#[derive(Debug)]
pub(crate) enum Held {
    /// The lock is in a limiter of this process, or in an engine.
    Here {
        _release: Release,
        _renewal: Option<Renewal>,
    },
    /// The lock is at a coordinator. The task releases it when the guard is gone.
    #[cfg(feature = "coordinator")]
    There {
        _gone: tokio::sync::oneshot::Sender<()>,
    },
}

/// Ends a claim when it is dropped.
pub(crate) struct Release {
    limiter: Limiter,
    key: Key,
    session: SessionId,
}

impl std::fmt::Debug for Release {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Release").field(&self.key).finish()
    }
}

impl Drop for Release {
    fn drop(&mut self) {
        let session = self.session;
        let operations = self.limiter.operations();
        let _ = operations.apply_lock(&self.key, LockOp::Release { session });
    }
}

/// A task that ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Renewal(JoinHandle<()>);

impl Drop for Renewal {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl LockGuard {
    pub(crate) const fn new(fencing: u64, state: watch::Receiver<bool>, held: Held) -> Self {
        Self {
            fencing,
            state,
            _held: held,
        }
    }

    /// Returns the fencing number. It is larger than that of every earlier lock on the key.
    pub const fn fencing(&self) -> u64 {
        self.fencing
    }

    /// Returns whether the lock was lost, so that another process may hold the key.
    pub fn is_lost(&self) -> bool {
        *self.state.borrow()
    }

    /// Waits until the lock is lost. A lock of one process is never lost.
    ///
    /// Cancel-safe.
    pub async fn lost(&self) {
        let mut state = self.state.clone();
        if state.wait_for(|lost| *lost).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl Limiter {
    /// Locks `key`, and waits until fewer than `max` others hold it. Waiting callers are served in
    /// order.
    ///
    /// A lock does not limit requests: acquire a permit for each one as usual. `max` 1 is an
    /// exclusive lock. If holders use different numbers, the smallest counts.
    ///
    /// Cancel-safe: a future that is dropped leaves the queue.
    ///
    /// # Errors
    /// There is no room for the key, the limiter is closed, or a coordinator refuses the call.
    ///
    /// # Panics
    /// Outside of a Tokio runtime, if the lock is in an engine or at a coordinator.
    pub async fn lock(&self, key: &Key, max: u16) -> Result<LockGuard, LockError> {
        if let Some(there) = self.operations().lock_there(key, max) {
            return there.await;
        }
        let is_shared = self.is_shared();
        let session = SessionId(foldhash::quality::RandomState::default().hash_one(self.now()));
        let request = LockRequest {
            session,
            id: 0,
            max: max.max(1),
            lasts: if is_shared { TTL } else { FOREVER },
        };
        let (lost, state) = watch::channel(false);
        let waiting = self.claim_lock(key, request, Duration::MAX);
        tokio::pin!(waiting);
        let claimed = loop {
            if !is_shared {
                break waiting.await?;
            }
            tokio::select! {
                claimed = &mut waiting => break claimed?,
                () = sleep(TTL / 3) => {
                    // Without an answer the claim may end, and `waiting` finds that out.
                    let _ = self.renew_lock(key, session, TTL).await;
                }
            }
        };
        let release = Release {
            limiter: self.clone(),
            key: key.clone(),
            session,
        };
        let Claimed::Held { fencing } = claimed else {
            return Err(LockError::QueueFull);
        };
        let renewal = is_shared.then(|| {
            let keep = keep(self.clone(), key.clone(), session, fencing, lost);
            Renewal(tokio::spawn(keep))
        });
        let held = Held::Here {
            _release: release,
            _renewal: renewal,
        };
        Ok(LockGuard::new(fencing, state, held))
    }
}

/// Renews a lock in an engine until it is lost.
async fn keep(
    limiter: Limiter,
    key: Key,
    session: SessionId,
    fencing: u64,
    lost: watch::Sender<bool>,
) {
    let mut until = limiter.now() + TTL;
    let mut pause = TTL / 3;
    loop {
        sleep(pause.min(until.since(limiter.now()))).await;
        let asked: Timestamp = limiter.now();
        match limiter.renew_lock(&key, session, TTL).await {
            Ok(Some(held)) if held == fencing => {
                until = asked + TTL;
                pause = TTL / 3;
            }
            Err(LockError::Unconfirmed) if limiter.now() < until => pause = RETRY,
            _ => break,
        }
    }
    lost.send_replace(true);
}
