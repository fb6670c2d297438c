//! The operations of a limiter on the keys of an engine.

use std::sync::Arc;
use std::time::Duration;

use politely_core::Timestamp;
use politely_core::budget::{DeclaredLimit, DeclaredLimits};
use politely_core::config::Config;
use politely_core::gate::{HoldReason, LeaseId};
use politely_core::host::{
    AcquireRequest, CrawlDelay, Explanation, Host, KeyRule, OperatorNumbers, never_fits,
};
use politely_core::key::Key;
use politely_core::lock::{LockOp, SessionId};
use politely_core::share::Charge;
use politely_store::{Event, HEARTBEAT_EVERY, Risk};

use super::Store;
use super::permit_guard::StoreGuard;
use super::prefetch::StorePrefetches;
use crate::backend::local::registry::Full;
use crate::backend::local::waiters::Arrival;
use crate::backend::operations::{Head, Later, Operations, first_that_never_fits};
use crate::error::{AcquireError, Refusal, SetError, Unsupported};
use crate::locks::{LockChanges, LockError, LockView};
use crate::permit::Permit;
use crate::snapshot::{Earlier, Recovery, Snapshot};
use crate::stats::{Commits, Stats};

/// The name of this backend in errors.
const BACKEND: &str = "whose keys are in an engine";
/// The time that a new limiter gives the engine to answer. One lost answer or a short stall is not
/// a failure.
const PING_TIMEOUT: Duration = Duration::from_secs(3);

impl Operations for Store {
    fn acquire<'a>(
        &'a self,
        keys: &'a [Key],
        ask: AcquireRequest,
        arrival: Arrival,
        _head: Option<Head<'a>>,
    ) -> Later<'a, Result<Permit, AcquireError>> {
        Box::pin(async move {
            if let Some((key, limit)) = first_that_never_fits(self, keys, &ask) {
                return Err(AcquireError::NeverFits(key, limit));
            }
            Ok(self.0.acquire(keys, ask, arrival).await?.into_permit())
        })
    }

    fn try_acquire(
        &self,
        keys: &[Key],
        ask: AcquireRequest,
        _arrival: Arrival,
    ) -> Result<Permit, Refusal> {
        assert!(!keys.is_empty(), "a request needs a key");
        let found = StorePrefetches::take_or_start(&self.0, keys, ask);
        found
            .map(StoreGuard::into_permit)
            .map_err(|(reason, at)| Refusal {
                key: keys[0].clone(),
                reason,
                at,
                index: 0,
            })
    }

    fn request<'a>(
        &'a self,
        keys: &'a [Key],
        ask: AcquireRequest,
        arrival: Arrival,
    ) -> Later<'a, Result<Permit, Refusal>> {
        Box::pin(self.try_once(keys, ask, arrival))
    }

    fn adopt<'a>(
        &'a self,
        leases: &'a [(Key, LeaseId)],
        patience: Duration,
    ) -> Later<'a, Result<Option<Permit>, Unsupported>> {
        Box::pin(async move { Ok(self.0.adopt(leases, patience).await) })
    }

    fn readmit(&self, _earlier: &Earlier<'_>) -> Result<Permit, SetError> {
        Err(SetError::Unsupported(Unsupported {
            operation: "readmit",
            backend: BACKEND,
            instead: "take over the permit with adopt",
        }))
    }

    /// Does nothing, since nodes go on with shares of their own.
    fn charge_share(&self, _key: &Key, _charge: &Charge) -> Result<(), Full> {
        Ok(())
    }

    fn ready(&self) -> Later<'_, Vec<Key>> {
        Box::pin(self.0.prefetches.ready())
    }

    fn set_numbers(&self, key: &Key, numbers: OperatorNumbers) -> Result<(), SetError> {
        self.0.apply(key, Event::Set(numbers));
        Ok(())
    }

    fn set_limits(&self, key: &Key, limits: Option<DeclaredLimits>) -> Result<(), Full> {
        self.0.apply(key, Event::Declare(limits));
        Ok(())
    }

    fn follow_rule(&self, key: &Key, rule: Option<&Arc<KeyRule>>) -> Result<(), Full> {
        let is_new = |host: &mut Host| host.is_new_rule(rule.map(|rule| &**rule));
        let known = self.0.state.lock().node.with_host(key, is_new);
        // A key that this process has not read yet may have another rule.
        if known.unwrap_or(rule.is_some()) {
            self.0.apply(key, Event::Rule(rule.cloned()));
        }
        Ok(())
    }

    fn limits(&self, key: &Key) -> Result<Option<DeclaredLimits>, Unsupported> {
        let limits = |host: &mut Host| host.own_limits().cloned();
        Ok(self.0.state.lock().node.with_host(key, limits).flatten())
    }

    fn never_fits(&self, key: &Key, ask: &AcquireRequest) -> Option<DeclaredLimit> {
        let mut state = self.0.state.lock();
        let config = state.node.config();
        let of_host = |host: &mut Host| host.never_fits(ask, &config);
        match state.node.with_host(key, of_host) {
            Some(limit) => limit,
            None => never_fits(&config.declared, ask),
        }
    }

    fn hold(&self, key: &Key, length: Duration, reason: HoldReason) -> Result<(), Full> {
        self.0.apply(key, Event::Hold(length, reason));
        Ok(())
    }

    fn crawl_delay(&self, key: &Key, delay: CrawlDelay) -> Result<(), Full> {
        if self.is_news(key, delay) {
            self.0.apply(key, Event::CrawlDelay(delay));
        }
        Ok(())
    }

    fn apply_lock(&self, key: &Key, op: LockOp) -> Result<(), LockError> {
        self.0.apply(key, Event::Lock(op));
        Ok(())
    }

    fn locks(&self, key: &Key) -> Option<LockView> {
        let local = self.0.clock.now();
        let (locks, now) = self.0.state.lock().node.locks(key, local)?;
        Some(LockView { locks, now })
    }

    fn lock_time(&self) -> Timestamp {
        let local = self.0.clock.now();
        self.0.state.lock().node.shared_time(local)
    }

    fn lock_changes(&self) -> Option<&LockChanges> {
        Some(&self.0.lock_changes)
    }

    fn resume_locks(&self, _key: &Key, _lasts: &mut dyn FnMut(SessionId) -> Option<Duration>) {
        // The engine has kept the claims, which end by its clock.
    }

    fn unpark(&self, key: &Key) {
        self.0.apply(key, Event::Unpark);
    }

    fn forget(&self, key: &Key) {
        self.0.apply(key, Event::Forget);
    }

    fn reset_budgets(&self, key: &Key, which: Option<&DeclaredLimit>) {
        self.0.apply(key, Event::ResetBudgets(which.cloned()));
    }

    fn reconfigure(&self, config: Arc<Config>) -> Result<(), Unsupported> {
        let now = self.0.clock.now();
        self.0.state.lock().node.set_config(config, now);
        self.0.wake.notify_one();
        Ok(())
    }

    fn config(&self) -> Result<Arc<Config>, Unsupported> {
        Ok(self.0.state.lock().node.config())
    }

    fn explain(&self, key: &Key) -> Option<Explanation> {
        let now = self.0.clock.now();
        self.0.state.lock().node.explain(key, now)
    }

    fn keys(&self) -> Vec<Key> {
        self.0.state.lock().node.keys().cloned().collect()
    }

    fn each(&self, visit: &mut dyn FnMut(&Key, &Explanation, usize)) {
        for key in self.keys() {
            if let Some(explained) = self.explain(&key) {
                visit(&key, &explained, self.position(&key, Arrival::LAST));
            }
        }
    }

    fn knows(&self, key: &Key) -> bool {
        self.0.state.lock().node.knows(key)
    }

    fn evict_idle(&self, may_go: &mut dyn FnMut(&Key) -> bool) {
        self.0.state.lock().node.drop_idle(may_go);
    }

    fn position(&self, key: &Key, arrival: Arrival) -> usize {
        self.0.state.lock().node.position(key, arrival)
    }

    fn numbers(&self, key: &Key) -> Result<OperatorNumbers, Unsupported> {
        let numbers = |host: &mut Host| host.operator_numbers();
        let mut state = self.0.state.lock();
        Ok(state.node.with_host(key, numbers).unwrap_or_default())
    }

    fn snapshot(&self, key: &Key) -> Option<Snapshot> {
        self.0.snapshot(key)
    }

    /// Offers the state that an earlier run stored. It applies if the engine has no state of `key`.
    fn restore(&self, key: &Key, state: &[u8]) -> Result<(), SetError> {
        self.0.state.lock().node.remember(key, state);
        Ok(())
    }

    fn resume(&self, _key: &Key, _recovery: &Recovery<'_>) -> Result<(), SetError> {
        Err(SetError::Unsupported(Unsupported {
            operation: "resume",
            backend: BACKEND,
            instead: "give a kept state to restore",
        }))
    }

    fn take_learned(&self) -> Vec<(Key, Snapshot)> {
        self.0.take_learned()
    }

    fn stats(&self) -> Stats {
        let state = self.0.state.lock();
        let count = state.node.counts();
        Stats {
            keys: state.node.keys_len() as u64,
            granted: count.granted,
            reported: count.reported,
            refused: count.refused,
            cancelled: count.cancelled,
            late: count.late,
            waiting: state.callers.len() as u64,
            memory: state.node.memory() as u64,
            ..state.stats
        }
    }

    fn commits(&self) -> Option<Commits> {
        let state = self.0.state.lock();
        let count = state.node.counts();
        let (took_p50, took_p99) = state.node.commit_latency();
        Some(Commits {
            commits: count.commits,
            conflicts: count.conflicts,
            unknown: count.unknown,
            reads: count.reads,
            items: count.items,
            lost: count.lost,
            coordinators: state.node.members() as u64,
            took_p50,
            took_p99,
        })
    }

    fn flush(&self, patience: Duration) -> Later<'_, bool> {
        let now = self.0.clock.now();
        self.0.state.lock().node.flush(now);
        self.0.wake.notify_one();
        Box::pin(async move { tokio::time::timeout(patience, self.flushed()).await.is_ok() })
    }

    fn owes(&self, key: &Key) -> bool {
        self.0.state.lock().node.owes(key)
    }

    fn confirm<'a>(&'a self, key: &'a Key, patience: Duration) -> Later<'a, bool> {
        Box::pin(self.wait_until_written(key, patience))
    }

    fn refresh<'a>(&'a self, key: &'a Key, patience: Duration) -> Later<'a, Result<bool, String>> {
        Box::pin(self.read_now(key, patience))
    }

    fn ping(&self) -> Later<'_, Result<(), String>> {
        Box::pin(async {
            let began = self.0.clock.now();
            loop {
                let progress = self.0.progress.notified();
                tokio::pin!(progress);
                progress.as_mut().enable();
                let now = self.0.clock.now();
                let answered = {
                    let state = self.0.state.lock();
                    state.node.has_tried().then(|| state.node.last_error(now))
                };
                match answered {
                    Some(None) => return Ok(()),
                    Some(Some(why)) if now.since(began) >= PING_TIMEOUT => return Err(why),
                    _ => drop(tokio::time::timeout(HEARTBEAT_EVERY, progress).await),
                }
            }
        })
    }

    fn last_error(&self) -> Option<String> {
        self.0.last_error()
    }

    fn risks(&self) -> Vec<Risk> {
        self.0.state.lock().node.risks()
    }

    fn close(&self) {
        self.0.close();
    }
}
