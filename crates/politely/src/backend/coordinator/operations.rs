//! The operations of a limiter on the keys of a coordinator.

use std::sync::Arc;
use std::time::Duration;

use politely_api::wire::{ALL_BUDGETS, Change, HOLD_MAX_MS, KeyPatch, RATE_MAX, RATE_MIN};
use politely_core::Timestamp;
use politely_core::budget::{DeclaredLimit, DeclaredLimits};
use politely_core::config::Config;
use politely_core::gate::{HoldReason, LeaseId};
use politely_core::host::{AcquireRequest, CrawlDelay, KeyRule, OperatorNumbers};
use politely_core::key::Key;
use politely_core::lock::{LockOp, SessionId};
use politely_core::share::Charge;

use super::Coordinator;
use super::permit_guard::CoordinatorGuard;
use crate::backend::local::registry::Full;
use crate::backend::local::waiters::Arrival;
use crate::backend::operations::{Head, Later, Operations};
use crate::backend::prefetch;
use crate::error::{AcquireError, Refusal, SetError, Unsupported};
use crate::lock_guard::LockGuard;
use crate::locks::LockError;
use crate::permit::Permit;
use crate::snapshot::{Earlier, Recovery};
use crate::stats::Stats;

/// The name of this backend in errors.
const BACKEND: &str = "with a coordinator";
/// The alternative to an operation on the configuration.
const CONFIGURE_THERE: &str = "change the coordinator's: PATCH /api/v1/config";
/// The alternative to an operation on a stored state.
const RESTORE_THERE: &str = "restore it where the coordinator runs";
/// The alternative to an operation on an earlier permit.
const ACQUIRE_ANEW: &str = "acquire a new permit";

impl Operations for Coordinator {
    fn acquire<'a>(
        &'a self,
        keys: &'a [Key],
        ask: AcquireRequest,
        _arrival: Arrival,
        head: Option<Head<'a>>,
    ) -> Later<'a, Result<Permit, AcquireError>> {
        Box::pin(self.acquire_and_wait(keys, ask, head))
    }

    fn try_acquire(
        &self,
        keys: &[Key],
        ask: AcquireRequest,
        _arrival: Arrival,
    ) -> Result<Permit, Refusal> {
        assert!(!keys.is_empty(), "a request needs a key");
        let now = self.now();
        let found = self.0.session.lock().try_acquire(keys, ask, now);
        match found {
            Ok(granted) => Ok(CoordinatorGuard::new(&self.0, granted).into_permit()),
            Err((reason, at)) => {
                self.0.wake.notify_one();
                Err(Refusal {
                    key: keys[0].clone(),
                    reason,
                    at,
                    index: 0,
                })
            }
        }
    }

    fn adopt<'a>(
        &'a self,
        _leases: &'a [(Key, LeaseId)],
        _patience: Duration,
    ) -> Later<'a, Result<Option<Permit>, Unsupported>> {
        Box::pin(std::future::ready(Err(unsupported("adopt", ACQUIRE_ANEW))))
    }

    fn readmit(&self, _earlier: &Earlier<'_>) -> Result<Permit, SetError> {
        Err(unsupported("readmit", ACQUIRE_ANEW).into())
    }

    /// Does nothing, since the coordinator charges its keys.
    fn charge_share(&self, _key: &Key, _charge: &Charge) -> Result<(), Full> {
        Ok(())
    }

    fn ready(&self) -> Later<'_, Vec<Key>> {
        let take = || self.0.session.lock().take_ready();
        Box::pin(prefetch::ready(&self.0.ready, take))
    }

    fn set_numbers(&self, key: &Key, numbers: OperatorNumbers) -> Result<(), SetError> {
        let is_beyond = |set: Option<f64>| {
            set.is_some_and(|set| set.is_finite() && !(RATE_MIN..=RATE_MAX).contains(&set))
        };
        if is_beyond(numbers.rate) || is_beyond(numbers.burst) {
            return Err(SetError::Unsupported(Unsupported {
                operation: "a rate or burst outside 0.000001 to 1,000,000",
                backend: BACKEND,
                instead: "set one within these bounds",
            }));
        }
        self.patch(key, patch_of(numbers));
        Ok(())
    }

    fn set_limits(&self, key: &Key, limits: Option<DeclaredLimits>) -> Result<(), Full> {
        let limits = limits.map_or(Change::TakeBack, |limits| Change::To(limits.texts()));
        let patch = KeyPatch {
            limits,
            ..KeyPatch::default()
        };
        self.patch(key, patch);
        Ok(())
    }

    /// Does nothing, since the coordinator has the rules.
    fn follow_rule(&self, _key: &Key, _rule: Option<&Arc<KeyRule>>) -> Result<(), Full> {
        Ok(())
    }

    fn limits(&self, _key: &Key) -> Result<Option<DeclaredLimits>, Unsupported> {
        let instead = "ask the coordinator: GET /api/v1/keys/{key}";
        Err(unsupported("limits", instead))
    }

    fn hold(&self, key: &Key, length: Duration, _reason: HoldReason) -> Result<(), Full> {
        let ms = u64::try_from(length.as_millis()).unwrap_or(HOLD_MAX_MS);
        let patch = KeyPatch {
            hold_ms: Some(ms.min(HOLD_MAX_MS)),
            ..KeyPatch::default()
        };
        self.patch(key, patch);
        Ok(())
    }

    fn crawl_delay(&self, key: &Key, delay: CrawlDelay) -> Result<(), Full> {
        let now = self.now();
        self.0.session.lock().crawl_delay(key, delay, now);
        Ok(())
    }

    fn apply_lock(&self, _key: &Key, _op: LockOp) -> Result<(), LockError> {
        Err(unsupported("a claim of a session", "lock the key with lock").into())
    }

    fn lock_time(&self) -> Timestamp {
        self.now()
    }

    fn lock_there<'a>(
        &'a self,
        key: &'a Key,
        max: u16,
    ) -> Option<Later<'a, Result<LockGuard, LockError>>> {
        Some(Box::pin(self.lock_key(key, max)))
    }

    fn resume_locks(&self, _key: &Key, _lasts: &mut dyn FnMut(SessionId) -> Option<Duration>) {
        // The coordinator continues its locks.
    }

    fn unpark(&self, key: &Key) {
        let patch = KeyPatch {
            unpark: Some(true),
            ..KeyPatch::default()
        };
        self.patch(key, patch);
    }

    fn forget(&self, key: &Key) {
        let patch = KeyPatch {
            forget: Some(true),
            ..KeyPatch::default()
        };
        self.patch(key, patch);
    }

    fn reset_budgets(&self, key: &Key, which: Option<&DeclaredLimit>) {
        let patch = KeyPatch {
            reset_budget: Some(which.map_or_else(|| ALL_BUDGETS.to_owned(), ToString::to_string)),
            ..KeyPatch::default()
        };
        self.patch(key, patch);
    }

    fn numbers(&self, _key: &Key) -> Result<OperatorNumbers, Unsupported> {
        let instead = "ask the coordinator: GET /api/v1/keys/{key}";
        Err(unsupported("numbers", instead))
    }

    fn reconfigure(&self, _config: Arc<Config>) -> Result<(), Unsupported> {
        Err(unsupported("reconfigure", CONFIGURE_THERE))
    }

    fn config(&self) -> Result<Arc<Config>, Unsupported> {
        Err(unsupported("reconfigure_new", CONFIGURE_THERE))
    }

    fn restore(&self, _key: &Key, _state: &[u8]) -> Result<(), SetError> {
        Err(unsupported("restore", RESTORE_THERE).into())
    }

    fn resume(&self, _key: &Key, _recovery: &Recovery<'_>) -> Result<(), SetError> {
        Err(unsupported("resume", RESTORE_THERE).into())
    }

    fn rate(&self, key: &Key) -> Option<f64> {
        self.0.session.lock().rate(key)
    }

    fn stats(&self) -> Stats {
        self.0.session.lock().stats()
    }

    fn flush(&self, patience: Duration) -> Later<'_, bool> {
        let accepted = async {
            loop {
                let ended = self.0.call_ended.notified();
                tokio::pin!(ended);
                ended.as_mut().enable();
                let is_accepted = self.0.session.lock().is_accepted();
                if let Some(is_accepted) = is_accepted {
                    return is_accepted;
                }
                ended.await;
            }
        };
        Box::pin(async move {
            let is_accepted = tokio::time::timeout(patience, accepted).await;
            is_accepted.unwrap_or(false)
        })
    }

    fn ping(&self) -> Later<'_, Result<(), String>> {
        Box::pin(async {
            let before = self.0.session.lock().ping();
            self.0.wake.notify_one();
            loop {
                let ended = self.0.call_ended.notified();
                tokio::pin!(ended);
                ended.as_mut().enable();
                if let Some(result) = self.0.session.lock().ping_result(before) {
                    return result;
                }
                ended.await;
            }
        })
    }

    fn last_error(&self) -> Option<String> {
        self.0.session.lock().last_error()
    }

    fn close(&self) {
        self.0.close();
    }
}

const fn unsupported(operation: &'static str, instead: &'static str) -> Unsupported {
    Unsupported {
        operation,
        backend: BACKEND,
        instead,
    }
}

/// Returns the change of a key that sets `numbers`. Infinity and the largest integer remove one.
fn patch_of(numbers: OperatorNumbers) -> KeyPatch {
    let number = |set: Option<f64>| match set {
        Some(number) if number.is_infinite() => Change::TakeBack,
        set => set.into(),
    };
    let integer = |set: Option<u32>| match set {
        Some(u32::MAX) => Change::TakeBack,
        set => set.into(),
    };
    KeyPatch {
        rate: number(numbers.rate),
        burst: number(numbers.burst),
        in_flight: integer(numbers.in_flight),
        law: match numbers.law {
            None => Change::Keep,
            Some(law) => law
                .name()
                .map_or(Change::TakeBack, |name| Change::To(name.to_owned())),
        },
        learn: numbers.learn.into(),
        crawl_delay_ms: integer(numbers.crawl_delay_ms),
        ..KeyPatch::default()
    }
}
