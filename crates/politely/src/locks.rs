//! Locks on keys: claims of sessions, and waiting for them.
//!
//! The state and its rules are in [`politely_core::lock`]. This module applies changes to the
//! backend, and wakes callers that wait.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use politely_core::Timestamp;
use politely_core::key::Key;
use politely_core::lock::{CLAIMS_MAX, LockOp, Locks, SessionId};
use tokio::sync::Notify;

use crate::backend::local::registry::Full;
use crate::error::Unsupported;
use crate::limiter::Limiter;

/// The time for the engine to confirm a change.
const CONFIRMED: Duration = Duration::from_secs(2);
/// The interval at which a waiting caller reads the engine, in case a notice was lost.
const REREAD: Duration = Duration::from_secs(1);

pub(crate) const NO_LOCKS: Unsupported = Unsupported {
    operation: "lock",
    backend: "of this kind",
    instead: "lock the key with lock, or open a session at the coordinator",
};

/// A claim on a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockRequest {
    /// The session. A session has one claim on each key.
    pub session: SessionId,
    /// The id of the call. A repeated call with the same id finds its claim. 0 means that the call
    /// is not repeated, so its claim ends if the caller stops waiting.
    pub id: u64,
    /// The most holders beside each other. 1 is an exclusive lock.
    pub max: u16,
    /// How long the claim lasts unless it is renewed.
    pub lasts: Duration,
}

/// The result of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claimed {
    /// The session holds the key.
    Held {
        /// The fencing number of the lock.
        fencing: u64,
    },
    /// The claim waits in the key's queue.
    Waiting {
        /// The number of waiting claims before it.
        position: usize,
    },
    /// The session has a claim of another call on this key.
    Twice {
        /// The fencing number of that claim, `None` while it waits.
        fencing: Option<u64>,
    },
    /// The key's queue is full.
    QueueFull,
    /// The claim has ended: it was released, or its session was not renewed.
    Ended,
}

/// The locks of a key at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockView {
    /// The locks, with times of the backend's clock.
    pub locks: Locks,
    /// The present time of the backend's clock.
    pub now: Timestamp,
}

impl LockView {
    /// Returns the result of `request`.
    fn claimed(&self, request: &LockRequest) -> Claimed {
        match self.locks.of(request.session) {
            None if self.locks.claims().len() >= CLAIMS_MAX => Claimed::QueueFull,
            None => Claimed::Ended,
            Some(claim) if claim.id != request.id => Claimed::Twice {
                fencing: claim.fencing(),
            },
            Some(claim) => match claim.fencing() {
                Some(fencing) => Claimed::Held { fencing },
                None => Claimed::Waiting {
                    position: self.locks.position(request.session),
                },
            },
        }
    }

    /// Returns the fencing number of the lock that `session` holds.
    pub fn fencing(&self, session: SessionId) -> Option<u64> {
        let claim = self.locks.of(session)?;
        claim.fencing().filter(|_| claim.ends > self.now)
    }
}

/// Why a lock cannot be changed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// The backend has no locks.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// The key is unknown, and there is no room for another.
    #[error(transparent)]
    Full(#[from] Full),
    /// The engine did not confirm the change in time. The change may still be made.
    #[error("the engine has not confirmed the change of a lock in 2 s; repeat the call")]
    Unconfirmed,
    /// Too many claims wait for the key.
    #[error("the queue of the key is full; try again later")]
    QueueFull,
    /// The coordinator refuses the call.
    #[error("the coordinator refuses the lock: {0}")]
    Refused(String),
    /// The limiter is closed.
    #[error("the limiter is closed")]
    Closed,
}

/// The callers that wait for a change of locks, by key.
#[derive(Default)]
pub(crate) struct LockChanges(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    is_closed: bool,
    keys: HashMap<Key, Weak<Notify>, foldhash::fast::RandomState>,
    /// The number of keys at which keys without a caller are removed.
    clean_at: usize,
}

impl LockChanges {
    /// Returns the notifier of `key`.
    fn of(&self, key: &Key) -> Arc<Notify> {
        let mut waiting = self.0.lock();
        if let Some(known) = waiting.keys.get(key).and_then(Weak::upgrade) {
            return known;
        }
        if waiting.keys.len() >= waiting.clean_at {
            waiting.keys.retain(|_, known| known.strong_count() > 0);
            waiting.clean_at = 64.max(2 * waiting.keys.len());
        }
        let notify = Arc::new(Notify::new());
        waiting.keys.insert(key.clone(), Arc::downgrade(&notify));
        notify
    }

    fn is_closed(&self) -> bool {
        self.0.lock().is_closed
    }

    /// Ends all waiting.
    pub(crate) fn close(&self) {
        let mut waiting = self.0.lock();
        waiting.is_closed = true;
        for notify in waiting.keys.values().filter_map(Weak::upgrade) {
            notify.notify_waiters();
        }
    }

    /// Wakes the callers that wait for `keys`.
    pub(crate) fn notify(&self, keys: &[Key]) {
        if keys.is_empty() {
            return;
        }
        let waiting = self.0.lock();
        for key in keys {
            if let Some(notify) = waiting.keys.get(key).and_then(Weak::upgrade) {
                notify.notify_waiters();
            }
        }
    }
}

/// Ends a claim when it is dropped, unless it was kept.
struct Withdraw<'a> {
    limiter: &'a Limiter,
    key: &'a Key,
    session: Option<SessionId>,
}

impl Drop for Withdraw<'_> {
    fn drop(&mut self) {
        if let Some(session) = self.session {
            let operations = self.limiter.operations();
            let _ = operations.apply_lock(self.key, LockOp::Release { session });
        }
    }
}

impl Limiter {
    /// Claims `key` for a session, and waits at most `wait` until the session holds it.
    ///
    /// [`Claimed::Waiting`] with an id keeps the claim's place in the queue; repeat the call. A
    /// claim without an id ends then.
    ///
    /// Cancel-safe: a claim without an id ends with a future that is dropped. A claim with an id
    /// stays until its time is over or it is released.
    ///
    /// # Errors
    /// The backend has no locks, there is no room for the key, or the engine did not answer.
    pub async fn claim_lock(
        &self,
        key: &Key,
        request: LockRequest,
        wait: Duration,
    ) -> Result<Claimed, LockError> {
        let known = self.operations().lock_changes().ok_or(NO_LOCKS)?;
        let changes = known.of(key);
        let deadline = self.now() + wait;
        let before = self.locks(key);
        if let Some(claim) = before
            .as_ref()
            .and_then(|seen| seen.locks.of(request.session))
            && (claim.id != request.id || request.id == 0)
        {
            let fencing = claim.fencing();
            return Ok(Claimed::Twice { fencing });
        }
        let mut withdraw = Withdraw {
            limiter: self,
            key,
            session: (request.id == 0).then_some(request.session),
        };
        let mut op = Some(LockOp::Claim {
            session: request.session,
            id: request.id,
            max: request.max,
            lasts: request.lasts,
        });
        loop {
            let changed = changes.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if let Some(op) = op.take() {
                self.change_lock(key, op).await?;
            }
            let Some(view) = self.locks(key) else {
                return Err(LockError::Unconfirmed);
            };
            let claimed = view.claimed(&request);
            let Claimed::Waiting { .. } = claimed else {
                withdraw.session = None;
                return Ok(claimed);
            };
            if known.is_closed() {
                return Err(LockError::Closed);
            }
            let left = deadline.since(self.now());
            if left.is_zero() {
                return Ok(claimed);
            }
            let ends_in = view.locks.first_end().since(view.now);
            if ends_in.is_zero() {
                op = Some(LockOp::Tend);
                continue;
            }
            let pause = left.min(ends_in + Duration::from_millis(1)).min(REREAD);
            if tokio::time::timeout(pause, changed).await.is_err() && pause == REREAD {
                // Its answer shows in the locks. While the engine is unavailable, the claim waits.
                let _ = self.refresh(key, REREAD).await;
            }
        }
    }

    /// Lets the claim of `session` on `key` last for `lasts` from now on. Returns the fencing
    /// number, or `None` if the session does not hold the key.
    ///
    /// # Errors
    /// As [`Limiter::claim_lock`].
    pub async fn renew_lock(
        &self,
        key: &Key,
        session: SessionId,
        lasts: Duration,
    ) -> Result<Option<u64>, LockError> {
        self.change_lock(key, LockOp::Renew { session, lasts })
            .await?;
        Ok(self.locks(key).and_then(|view| view.fencing(session)))
    }

    /// Ends the claim of `session` on `key`, and serves the next one. Returns whether the session
    /// had one.
    ///
    /// # Errors
    /// As [`Limiter::claim_lock`].
    pub async fn release_lock(&self, key: &Key, session: SessionId) -> Result<bool, LockError> {
        let before = self.locks(key);
        self.change_lock(key, LockOp::Release { session }).await?;
        Ok(before.is_some_and(|view| view.locks.of(session).is_some()))
    }

    /// Returns the locks of `key`, as far as the engine has confirmed them. Returns `None` for a
    /// key that never had one, and with a coordinator.
    pub fn locks(&self, key: &Key) -> Option<LockView> {
        self.operations().locks(key)
    }

    /// Returns the time that the ends of locks are measured by.
    pub fn lock_time(&self) -> Timestamp {
        self.operations().lock_time()
    }

    /// Continues the locks of `key` after a restart: keeps the claims for which `lasts` returns a
    /// length. It changes nothing in an engine, which has kept the locks.
    pub fn resume_locks(
        &self,
        key: &Key,
        mut lasts: impl FnMut(SessionId) -> Option<Duration>,
    ) -> Option<LockView> {
        self.operations().resume_locks(key, &mut lasts);
        self.locks(key)
    }

    async fn change_lock(&self, key: &Key, op: LockOp) -> Result<(), LockError> {
        self.operations().apply_lock(key, op)?;
        if self.confirm(key, CONFIRMED).await {
            return Ok(());
        }
        Err(LockError::Unconfirmed)
    }
}
