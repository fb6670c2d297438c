//! The interface to a limiter's backend: a coordinator, or the cells of an engine.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use politely_core::Timestamp;
use politely_core::config::Config;
use politely_core::gate::{HoldReason, LeaseId};
use politely_core::host::{Ask, CrawlDelay, Explanation, OperatorNumbers};
use politely_core::key::Key;
use politely_core::lock::LockOp;

use crate::asked::{AcquireError, Refusal, SetError, Unsupported};
use crate::lock_guard::LockGuard;
use crate::locks::{LockChanges, LockError, LockView, NO_LOCKS};
use crate::permit::Permit;
use crate::snapshot::Snapshot;
use crate::stats::{Commits, Stats};
use crate::waiters::Turn;

/// A boxed future.
pub(crate) type Later<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A limiter's backend. A backend that does not override a method does not support the operation.
pub(crate) trait Elsewhere: Send + Sync {
    fn acquire<'a>(
        &'a self,
        keys: &'a [Key],
        ask: Ask,
        turn: Turn,
    ) -> Later<'a, Result<Permit, AcquireError>>;

    /// Returns a prefetched permit, or starts a prefetch and returns a refusal.
    fn try_acquire(&self, keys: &[Key], ask: Ask) -> Result<Permit, Refusal>;

    /// Returns the permit or the refusal, as soon as the backend has answered.
    fn request<'a>(
        &'a self,
        keys: &'a [Key],
        ask: Ask,
        _turn: Turn,
    ) -> Later<'a, Result<Permit, Refusal>> {
        Box::pin(async move { self.try_acquire(keys, ask) })
    }

    /// Takes over a permit that another process was granted. Returns `None` if that is not
    /// possible.
    fn adopt<'a>(
        &'a self,
        _leases: &'a [(Key, LeaseId)],
        _patience: Duration,
    ) -> Later<'a, Option<Permit>> {
        Box::pin(async { None })
    }

    /// Waits for prefetched permits and returns their keys.
    fn ready(&self) -> Later<'_, Vec<Key>>;

    fn operate(&self, key: &Key, operation: Operation);

    /// Applies a change of the locks of `key`. [`Elsewhere::confirm`] waits until it is made.
    ///
    /// # Errors
    /// The backend has no locks.
    fn lock(&self, _key: &Key, _op: LockOp) -> Result<(), Unsupported> {
        Err(NO_LOCKS)
    }

    /// Returns the confirmed locks of `key`.
    fn locks(&self, _key: &Key) -> Option<LockView> {
        None
    }

    /// Returns the present time of the backend's clock, `None` for the limiter's own clock.
    fn lock_time(&self) -> Option<Timestamp> {
        None
    }

    /// Locks `key` at a coordinator. Returns `None` if the locks are in this process or an engine.
    fn lock_there<'a>(
        &'a self,
        _key: &'a Key,
        _max: u16,
    ) -> Option<Later<'a, Result<LockGuard, LockError>>> {
        None
    }

    /// Returns the changes of confirmed locks, `None` if the backend has no locks.
    fn lock_changes(&self) -> Option<&LockChanges> {
        None
    }

    fn reconfigure(&self, config: &Config) -> Result<(), Unsupported>;

    /// Returns the configuration of keys that are created from now on.
    fn config(&self) -> Result<Arc<Config>, Unsupported>;

    /// Checks whether [`Operation::Set`] of `numbers` will take effect.
    fn supports_numbers(&self, _numbers: OperatorNumbers) -> Result<(), SetError> {
        Ok(())
    }

    fn explain(&self, _key: &Key) -> Option<Explanation> {
        None
    }

    fn keys(&self) -> Vec<Key> {
        Vec::new()
    }

    fn knows(&self, key: &Key) -> bool {
        self.explain(key).is_some()
    }

    /// Evicts the keys for which `may_go` returns true, if that loses nothing.
    fn evict_idle(&self, _may_go: &mut dyn FnMut(&Key) -> bool) {}

    /// Returns the number of waiters for `key` that arrived before `turn`.
    fn position(&self, _key: &Key, _turn: Turn) -> usize {
        0
    }

    fn numbers(&self, key: &Key) -> Result<OperatorNumbers, Unsupported>;

    fn snapshot(&self, _key: &Key) -> Option<Snapshot> {
        None
    }

    /// Offers the state that an earlier run stored. It applies if the backend has no state of
    /// `key`.
    fn remember(&self, key: &Key, state: &[u8]) -> Result<(), Unsupported>;

    /// Returns the states that changed by learning since the last call.
    fn take_learned(&self) -> Vec<(Key, Snapshot)> {
        Vec::new()
    }

    fn rate(&self, key: &Key) -> Option<f64> {
        self.explain(key).map(|explained| explained.rate)
    }

    fn stats(&self) -> Stats;

    fn commits(&self) -> Option<Commits> {
        None
    }

    /// Waits until everything so far has arrived, at most for `patience`. Returns whether it has.
    fn settled(&self, patience: Duration) -> Later<'_, bool>;

    /// Waits until everything so far about `key` has arrived, at most for `patience`.
    fn confirm<'a>(&'a self, _key: &'a Key, patience: Duration) -> Later<'a, bool> {
        self.settled(patience)
    }

    /// Reads the state of `key` from the backend, and returns whether the key is known.
    fn refresh<'a>(&'a self, key: &'a Key, _patience: Duration) -> Later<'a, Result<bool, String>> {
        Box::pin(async move { Ok(self.explain(key).is_some()) })
    }

    /// Checks that the backend is reachable and accepts this client.
    fn greet(&self) -> Later<'_, Result<(), String>>;

    /// Returns why the backend did not answer the last call, if it did not.
    fn trouble(&self) -> Option<String>;

    fn close(&self);
}

/// A change to a key by an operator, or by a reader of robots.txt.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operation {
    Set(OperatorNumbers),
    CrawlDelay(CrawlDelay),
    Hold(Duration, HoldReason),
    Unpark,
    Forget,
}
