//! The operations of a limiter on the keys of a coordinator.

use std::sync::Arc;
use std::time::Duration;

use politely_api::wire::{Change, HOLD_MAX_MS, KeyPatch, RATE_MAX, RATE_MIN};
use politely_core::Timestamp;
use politely_core::config::Config;
use politely_core::gate::{HoldReason, LeaseId};
use politely_core::host::{Ask, CrawlDelay, Explanation, OperatorNumbers};
use politely_core::key::Key;

use super::Coordinator;
use super::claim::Claim;
use crate::asked::{AcquireError, Refusal, SetError, Unsupported};
use crate::backend::local::registry::Full;
use crate::backend::local::waiters::Turn;
use crate::backend::operations::{Later, Operations};
use crate::permit::Permit;
use crate::snapshot::Snapshot;
use crate::stats::{Commits, Stats};

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
        ask: Ask,
        _turn: Turn,
    ) -> Later<'a, Result<Permit, AcquireError>> {
        Box::pin(self.acquire_in_line(keys, ask))
    }

    fn try_acquire(&self, keys: &[Key], ask: Ask, _turn: Turn) -> Result<Permit, Refusal> {
        assert!(!keys.is_empty(), "a request needs a key");
        let now = self.now();
        let found = self.0.desk.lock().try_ask(keys, ask, now);
        match found {
            Ok(granted) => Ok(Claim::new(&self.0, granted).into_permit()),
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

    fn request<'a>(
        &'a self,
        keys: &'a [Key],
        ask: Ask,
        turn: Turn,
    ) -> Later<'a, Result<Permit, Refusal>> {
        Box::pin(async move { self.try_acquire(keys, ask, turn) })
    }

    fn adopt<'a>(
        &'a self,
        _leases: &'a [(Key, LeaseId)],
        _patience: Duration,
    ) -> Later<'a, Result<Option<Permit>, Unsupported>> {
        Box::pin(std::future::ready(Err(unsupported("adopt", ACQUIRE_ANEW))))
    }

    fn readmit(&self, _key: &Key, _start: Timestamp, _lease: Duration) -> Result<Permit, SetError> {
        Err(unsupported("readmit", ACQUIRE_ANEW).into())
    }

    fn ready(&self) -> Later<'_, Vec<Key>> {
        Box::pin(async {
            loop {
                let ready = self.0.desk.lock().take_ready();
                if !ready.is_empty() {
                    return ready;
                }
                self.0.ready.notified().await;
            }
        })
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
        self.0.desk.lock().crawl_delay(key, delay, now);
        Ok(())
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

    fn numbers(&self, _key: &Key) -> Result<OperatorNumbers, Unsupported> {
        let instead = "ask the coordinator: GET /api/v1/keys/{key}";
        Err(unsupported("numbers", instead))
    }

    fn configure(&self, _key: &Key, _config: Arc<Config>) -> Result<(), SetError> {
        let instead = "set the key's numbers and law with set_numbers";
        Err(unsupported("configure", instead).into())
    }

    fn reconfigure(&self, _config: Arc<Config>) -> Result<(), Unsupported> {
        Err(unsupported("reconfigure", CONFIGURE_THERE))
    }

    fn config(&self) -> Result<Arc<Config>, Unsupported> {
        Err(unsupported("reconfigure_new", CONFIGURE_THERE))
    }

    fn explain(&self, _key: &Key) -> Option<Explanation> {
        None
    }

    fn knows(&self, _key: &Key) -> bool {
        false
    }

    fn keys(&self) -> Vec<Key> {
        Vec::new()
    }

    /// Visits nothing, since the coordinator keeps the keys.
    fn each(&self, _visit: &mut dyn FnMut(&Key, &Explanation, usize)) {}

    /// Returns 0, since the coordinator keeps the queues.
    fn position(&self, _key: &Key, _turn: Turn) -> usize {
        0
    }

    /// Evicts nothing, since the coordinator keeps the keys.
    fn evict_idle(&self, _may_go: &mut dyn FnMut(&Key) -> bool) {}

    fn snapshot(&self, _key: &Key) -> Option<Snapshot> {
        None
    }

    fn take_learned(&self) -> Vec<(Key, Snapshot)> {
        Vec::new()
    }

    fn restore(&self, _key: &Key, _state: &[u8]) -> Result<(), SetError> {
        Err(unsupported("restore", RESTORE_THERE).into())
    }

    fn resume(
        &self,
        _key: &Key,
        _state: Option<&[u8]>,
        _newest: Timestamp,
    ) -> Result<(), SetError> {
        Err(unsupported("resume", RESTORE_THERE).into())
    }

    fn rate(&self, key: &Key) -> Option<f64> {
        self.0.desk.lock().rate(key)
    }

    fn stats(&self) -> Stats {
        self.0.desk.lock().stats()
    }

    fn commits(&self) -> Option<Commits> {
        None
    }

    fn settled(&self, patience: Duration) -> Later<'_, bool> {
        let quiet = async {
            loop {
                let said = self.0.said.notified();
                tokio::pin!(said);
                said.as_mut().enable();
                let heard = self.0.desk.lock().was_heard();
                if let Some(heard) = heard {
                    return heard;
                }
                said.await;
            }
        };
        Box::pin(async move {
            let heard = tokio::time::timeout(patience, quiet).await;
            heard.unwrap_or(false)
        })
    }

    /// Waits as [`Operations::settled`] does: the coordinator writes reports of all keys.
    fn confirm<'a>(&'a self, _key: &'a Key, patience: Duration) -> Later<'a, bool> {
        self.settled(patience)
    }

    fn refresh<'a>(
        &'a self,
        _key: &'a Key,
        _patience: Duration,
    ) -> Later<'a, Result<bool, String>> {
        Box::pin(std::future::ready(Ok(false)))
    }

    fn greet(&self) -> Later<'_, Result<(), String>> {
        Box::pin(async {
            let before = self.0.desk.lock().greet();
            self.0.wake.notify_one();
            loop {
                let said = self.0.said.notified();
                tokio::pin!(said);
                said.as_mut().enable();
                if let Some(greeted) = self.0.desk.lock().greeted(before) {
                    return greeted;
                }
                said.await;
            }
        })
    }

    fn trouble(&self) -> Option<String> {
        self.0.desk.lock().trouble()
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
