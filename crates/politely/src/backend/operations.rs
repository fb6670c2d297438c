//! The interface of a backend.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use politely_core::Timestamp;
use politely_core::budget::{DeclaredLimit, DeclaredLimits};
use politely_core::config::Config;
use politely_core::gate::{HoldReason, LeaseId};
use politely_core::host::{AcquireRequest, CrawlDelay, Explanation, KeyRule, OperatorNumbers};
use politely_core::key::Key;
use politely_core::lock::{LockOp, SessionId};
use politely_core::share::Charge;
use politely_store::Risk;
#[cfg(feature = "url")]
use url::Url;

use super::local::registry::Full;
use super::local::waiters::Arrival;
use crate::error::{AcquireError, Refusal, SetError, Unsupported};
use crate::labels::Labels;
use crate::lock_guard::LockGuard;
use crate::locks::{LockChanges, LockError, LockView};
use crate::permit::Permit;
use crate::snapshot::{Earlier, Recovery, Snapshot};
use crate::stats::{Commits, Stats};

/// A boxed future.
pub(crate) type Later<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The HTTP request for which a permit is acquired.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(
    not(feature = "coordinator"),
    allow(dead_code, reason = "the session with a coordinator reads it")
)]
pub(crate) struct Head<'a> {
    pub(crate) method: &'a Method,
    #[cfg(feature = "url")]
    pub(crate) url: &'a Url,
    pub(crate) labels: Option<&'a Labels>,
    pub(crate) priority: u8,
}

/// The operations of a limiter's backend. The methods of [`Limiter`](crate::Limiter) with the same
/// names describe them.
///
/// No change has a default. A change that a backend cannot make is an [`Unsupported`] error. The
/// defaults of methods that read follow from other methods, or are those of a backend that keeps no
/// key in this process: it knows no key, and these methods return nothing.
pub(crate) trait Operations: Send + Sync {
    /// Waits until each key allows the request. The rule of a coordinator's policy may depend on
    /// `head`; the other backends get the costs of their policy in `ask`.
    fn acquire<'a>(
        &'a self,
        keys: &'a [Key],
        ask: AcquireRequest,
        arrival: Arrival,
        head: Option<Head<'a>>,
    ) -> Later<'a, Result<Permit, AcquireError>>;

    fn try_acquire(
        &self,
        keys: &[Key],
        ask: AcquireRequest,
        arrival: Arrival,
    ) -> Result<Permit, Refusal>;

    fn request<'a>(
        &'a self,
        keys: &'a [Key],
        ask: AcquireRequest,
        arrival: Arrival,
    ) -> Later<'a, Result<Permit, Refusal>> {
        Box::pin(async move { self.try_acquire(keys, ask, arrival) })
    }

    fn adopt<'a>(
        &'a self,
        leases: &'a [(Key, LeaseId)],
        patience: Duration,
    ) -> Later<'a, Result<Option<Permit>, Unsupported>>;

    fn readmit(&self, earlier: &Earlier<'_>) -> Result<Permit, SetError>;

    fn charge_share(&self, key: &Key, charge: &Charge) -> Result<(), Full>;

    /// Waits for prefetched permits and returns their keys.
    fn ready(&self) -> Later<'_, Vec<Key>>;

    /// Sets numbers that are valid.
    fn set_numbers(&self, key: &Key, numbers: OperatorNumbers) -> Result<(), SetError>;

    fn numbers(&self, key: &Key) -> Result<OperatorNumbers, Unsupported>;

    fn set_limits(&self, key: &Key, limits: Option<DeclaredLimits>) -> Result<(), Full>;

    fn follow_rule(&self, key: &Key, rule: Option<&Arc<KeyRule>>) -> Result<(), Full>;

    fn limits(&self, key: &Key) -> Result<Option<DeclaredLimits>, Unsupported>;

    fn never_fits(&self, _key: &Key, _ask: &AcquireRequest) -> Option<DeclaredLimit> {
        None
    }

    fn hold(&self, key: &Key, length: Duration, reason: HoldReason) -> Result<(), Full>;

    fn crawl_delay(&self, key: &Key, delay: CrawlDelay) -> Result<(), Full>;

    fn unpark(&self, key: &Key);

    /// Applies a change of the locks of `key`. [`Operations::confirm`] waits until it is made.
    fn apply_lock(&self, key: &Key, op: LockOp) -> Result<(), LockError>;

    /// Returns the confirmed locks of `key`.
    fn locks(&self, _key: &Key) -> Option<LockView> {
        None
    }

    /// Returns the present time of the clock that the ends of locks are measured by.
    fn lock_time(&self) -> Timestamp;

    /// Returns the changes of confirmed locks, `None` if the locks are at a coordinator.
    fn lock_changes(&self) -> Option<&LockChanges> {
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

    /// Continues the locks of `key` after a restart.
    fn resume_locks(&self, key: &Key, lasts: &mut dyn FnMut(SessionId) -> Option<Duration>);

    fn forget(&self, key: &Key);

    fn reset_budgets(&self, key: &Key, which: Option<&DeclaredLimit>);

    /// Sets a valid configuration for all keys without one of their own.
    fn reconfigure(&self, config: Arc<Config>) -> Result<(), Unsupported>;

    /// Returns the configuration of keys that are created from now on.
    fn config(&self) -> Result<Arc<Config>, Unsupported>;

    fn explain(&self, _key: &Key) -> Option<Explanation> {
        None
    }

    fn rate(&self, key: &Key) -> Option<f64> {
        self.explain(key).map(|explained| explained.rate)
    }

    fn knows(&self, _key: &Key) -> bool {
        false
    }

    fn keys(&self) -> Vec<Key> {
        Vec::new()
    }

    fn each(&self, _visit: &mut dyn FnMut(&Key, &Explanation, usize)) {}

    fn position(&self, _key: &Key, _arrival: Arrival) -> usize {
        0
    }

    fn evict_idle(&self, _may_go: &mut dyn FnMut(&Key) -> bool) {}

    fn snapshot(&self, _key: &Key) -> Option<Snapshot> {
        None
    }

    fn take_learned(&self) -> Vec<(Key, Snapshot)> {
        Vec::new()
    }

    fn restore(&self, key: &Key, state: &[u8]) -> Result<(), SetError>;

    fn spent(&self, _key: &Key) -> Option<Snapshot> {
        None
    }

    fn resume(&self, key: &Key, recovery: &Recovery<'_>) -> Result<(), SetError>;

    fn stats(&self) -> Stats;

    fn commits(&self) -> Option<Commits> {
        None
    }

    fn flush(&self, patience: Duration) -> Later<'_, bool>;

    fn owes(&self, _key: &Key) -> bool {
        false
    }

    fn confirm<'a>(&'a self, _key: &'a Key, patience: Duration) -> Later<'a, bool> {
        self.flush(patience)
    }

    fn refresh<'a>(&'a self, key: &'a Key, _patience: Duration) -> Later<'a, Result<bool, String>> {
        Box::pin(std::future::ready(Ok(self.knows(key))))
    }

    fn ping(&self) -> Later<'_, Result<(), String>>;

    fn last_error(&self) -> Option<String>;

    /// Returns the settings of the engine that may lose acknowledged writes. Other backends have
    /// none.
    fn risks(&self) -> Vec<Risk> {
        Vec::new()
    }

    fn close(&self);
}

/// Returns the first key with a declared limit that a request of `ask` exceeds alone.
pub(crate) fn first_that_never_fits(
    backend: &dyn Operations,
    keys: &[Key],
    ask: &AcquireRequest,
) -> Option<(Key, DeclaredLimit)> {
    // A request of cost 1 fits every limit.
    if ask.cost <= 1 && ask.bytes == 0 && ask.units.is_empty() {
        return None;
    }
    let never_fits = |key: &Key| Some((key.clone(), backend.never_fits(key, ask)?));
    keys.iter().find_map(never_fits)
}
