//! The operations of a limiter on keys in this process.

use std::sync::Arc;
use std::sync::atomic::Ordering;
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

use super::Local;
use super::part::Part;
use super::registry::{Entry, Full};
use super::waiters::{Arrival, Waiters};
use crate::backend::operations::{Head, Later, Operations};
use crate::error::{AcquireError, Refusal, SetError, Unsupported, distinct};
use crate::locks::{LockChanges, LockError, LockView};
use crate::permit::{Departure, Permit};
use crate::snapshot::{Earlier, Recovery, Snapshot};
use crate::stats::Stats;

impl Local {
    /// Sets a valid configuration for one key.
    pub(crate) fn configure(&self, key: &Key, config: &Arc<Config>) -> Result<(), Full> {
        let now = self.now();
        let mut found = self.registry.find_or_make(key, now)?;
        found.shard.configure(found.slot, config, now);
        Ok(())
    }
}

impl Operations for Local {
    fn acquire<'a>(
        &'a self,
        keys: &'a [Key],
        ask: AcquireRequest,
        arrival: Arrival,
        _head: Option<Head<'a>>,
    ) -> Later<'a, Result<Permit, AcquireError>> {
        Box::pin(async move {
            if keys.is_empty() {
                return Err(AcquireError::NoKey);
            }
            match self.try_acquire(keys, ask.clone(), arrival) {
                Ok(permit) => Ok(permit),
                Err(refusal) => self.wait(keys, ask, arrival, refusal).await,
            }
        })
    }

    fn try_acquire(
        &self,
        keys: &[Key],
        ask: AcquireRequest,
        arrival: Arrival,
    ) -> Result<Permit, Refusal> {
        match keys {
            [key] => self.try_part(key, 0, ask, arrival, true),
            _ => self.try_several(keys, ask, arrival),
        }
    }

    fn adopt<'a>(
        &'a self,
        _leases: &'a [(Key, LeaseId)],
        _patience: Duration,
    ) -> Later<'a, Result<Option<Permit>, Unsupported>> {
        let why = Unsupported {
            operation: "adopt",
            backend: "whose keys are in this process",
            instead: "share the keys through an engine, or use readmit",
        };
        Box::pin(std::future::ready(Err(why)))
    }

    fn readmit(&self, earlier: &Earlier<'_>) -> Result<Permit, SetError> {
        let Earlier {
            keys,
            start,
            lease,
            estimate,
        } = earlier;
        let now = self.now();
        let unused = AcquireRequest::default().unused();
        let mut permit: Option<Permit> = None;
        for (_, key) in distinct(keys) {
            let mut found = self.registry.find_or_make(key, now)?;
            let (shard, slot) = (Arc::clone(found.shared), found.slot);
            let entry = found.entry();
            let id = entry.host.readmit(*start, *lease, estimate, entry.config);
            entry.stats.granted += 1;
            let part = Part {
                shard,
                slot,
                generation: entry.generation,
                lease: id,
            };
            let departure = Departure::new(*start, f64::INFINITY, 1, unused);
            let of_key = Permit::of(part, departure);
            match &mut permit {
                Some(permit) => permit.add(of_key),
                None => permit = Some(of_key),
            }
        }
        Ok(permit.expect("a permit has a key"))
    }

    fn charge_share(&self, key: &Key, charge: &Charge) -> Result<(), Full> {
        self.with_key(key, |now, entry| {
            entry.host.charge_share(now, charge, entry.config);
        })
    }

    fn ready(&self) -> Later<'_, Vec<Key>> {
        Box::pin(std::future::pending())
    }

    fn set_numbers(&self, key: &Key, numbers: OperatorNumbers) -> Result<(), SetError> {
        Ok(self.with_key(key, |now, entry| entry.host.set(now, numbers, entry.config))?)
    }

    fn numbers(&self, key: &Key) -> Result<OperatorNumbers, Unsupported> {
        let numbers = |host: &mut Host, _: &Config| host.operator_numbers();
        let numbers = self.registry.read(key, self.now(), numbers);
        Ok(numbers.unwrap_or_default())
    }

    fn set_limits(&self, key: &Key, limits: Option<DeclaredLimits>) -> Result<(), Full> {
        self.with_key(key, |now, entry| {
            entry.host.declare(now, limits, entry.config);
        })
    }

    fn follow_rule(&self, key: &Key, rule: Option<&Arc<KeyRule>>) -> Result<(), Full> {
        let (now, rule) = (self.now(), rule.map(|rule| &**rule));
        if rule.is_none() && !self.knows(key) {
            return Ok(());
        }
        let mut found = self.registry.find_or_make(key, now)?;
        let entry = found.entry();
        if entry.host.is_new_rule(rule) {
            change(entry, now, |now, entry| {
                entry.host.follow_rule(now, rule, entry.config);
            });
        }
        Ok(())
    }

    fn limits(&self, key: &Key) -> Result<Option<DeclaredLimits>, Unsupported> {
        let limits = |host: &mut Host, _: &Config| host.own_limits().cloned();
        Ok(self.registry.read(key, self.now(), limits).flatten())
    }

    fn never_fits(&self, key: &Key, ask: &AcquireRequest) -> Option<DeclaredLimit> {
        let of_key = |host: &mut Host, config: &Config| host.never_fits(ask, config);
        let known = self.registry.read(key, self.now(), of_key);
        known.unwrap_or_else(|| never_fits(&self.registry.config().declared, ask))
    }

    fn hold(&self, key: &Key, length: Duration, reason: HoldReason) -> Result<(), Full> {
        self.with_key(key, |now, entry| {
            entry.host.hold(now, now + length, reason);
        })
    }

    fn crawl_delay(&self, key: &Key, delay: CrawlDelay) -> Result<(), Full> {
        self.with_key(key, |now, entry| {
            entry.host.crawl_delay(now, delay, entry.config);
        })
    }

    fn apply_lock(&self, key: &Key, op: LockOp) -> Result<(), LockError> {
        match op {
            LockOp::Claim { .. } => self.with_key(key, |now, entry| entry.host.lock(now, &op))?,
            _ => self.with_known(key, |now, entry| entry.host.lock(now, &op)),
        }
        self.lock_changes.notify(std::slice::from_ref(key));
        Ok(())
    }

    fn locks(&self, key: &Key) -> Option<LockView> {
        let now = self.now();
        let mut found = self.registry.find(key, self.now())?;
        let locks = found.entry().host.locks()?.clone();
        Some(LockView { locks, now })
    }

    fn lock_time(&self) -> Timestamp {
        self.now()
    }

    fn lock_changes(&self) -> Option<&LockChanges> {
        Some(&self.lock_changes)
    }

    fn resume_locks(&self, key: &Key, lasts: &mut dyn FnMut(SessionId) -> Option<Duration>) {
        self.with_known(key, |now, entry| entry.host.resume_locks(now, lasts));
    }

    fn unpark(&self, key: &Key) {
        self.with_known(key, |now, entry| entry.host.unpark(now, entry.config));
    }

    fn forget(&self, key: &Key) {
        self.with_known(key, |now, entry| entry.host.forget(now, entry.config));
    }

    fn reset_budgets(&self, key: &Key, which: Option<&DeclaredLimit>) {
        self.with_known(key, |now, entry| {
            entry.host.reset_budgets(now, which, entry.config);
        });
    }

    fn reconfigure(&self, config: Arc<Config>) -> Result<(), Unsupported> {
        for shard in self.registry.shards() {
            let now = self.now();
            shard.lock().reconfigure(&config, now);
        }
        Ok(())
    }

    fn config(&self) -> Result<Arc<Config>, Unsupported> {
        Ok(self.registry.config())
    }

    fn explain(&self, key: &Key) -> Option<Explanation> {
        let now = self.now();
        let explain = |host: &mut Host, config: &Config| host.look(now, config);
        self.registry.read(key, now, explain)
    }

    fn knows(&self, key: &Key) -> bool {
        self.registry.read(key, self.now(), |_, _| ()).is_some()
    }

    fn keys(&self) -> Vec<Key> {
        let shards = self.registry.shards().iter();
        shards
            .flat_map(|shard| {
                shard
                    .lock()
                    .iter()
                    .map(|slot| slot.key.clone())
                    .collect::<Vec<_>>()
            })
            .collect()
    }

    fn each(&self, visit: &mut dyn FnMut(&Key, &Explanation, usize)) {
        let now = self.now();
        for shard in self.registry.shards() {
            let mut rows = Vec::new();
            shard.lock().each(|key, entry| {
                let waiting = entry.waiters.as_deref().map_or(0, Waiters::len);
                rows.push((key.clone(), entry.host.look(now, entry.config), waiting));
            });
            for (key, explained, waiting) in rows {
                visit(&key, &explained, waiting);
            }
        }
    }

    fn position(&self, key: &Key, arrival: Arrival) -> usize {
        let found = self.registry.find(key, self.now());
        found
            .and_then(|mut found| Some(found.entry().waiters.as_deref()?.before(arrival)))
            .unwrap_or(0)
    }

    fn evict_idle(&self, may_go: &mut dyn FnMut(&Key) -> bool) {
        self.registry.evict_idle(self.now(), may_go);
    }

    fn snapshot(&self, key: &Key) -> Option<Snapshot> {
        let mut found = self.registry.find(key, self.now())?;
        found.shard.snapshots += 1;
        let version = found.shard.snapshots;
        let entry = found.entry();
        *entry.saved = true;
        let state = entry.host.snapshot();
        self.registry.look_again();
        Some(Snapshot { version, state })
    }

    fn take_learned(&self) -> Vec<(Key, Snapshot)> {
        let shards = self.registry.shards().iter();
        let learned = shards.flat_map(|shard| shard.lock().take_learned());
        let learned = learned.collect();
        self.registry.look_again();
        learned
    }

    fn restore(&self, key: &Key, state: &[u8]) -> Result<(), SetError> {
        self.restore_with(key, state, Host::forget_locks)
    }

    fn spent(&self, key: &Key) -> Option<Snapshot> {
        let mut found = self.registry.find(key, self.now())?;
        let entry = found.entry();
        let state = entry.host.spent()?;
        found.shard.snapshots += 1;
        let version = found.shard.snapshots;
        Some(Snapshot { version, state })
    }

    fn resume(&self, key: &Key, recovery: &Recovery<'_>) -> Result<(), SetError> {
        if let Some(state) = recovery.state {
            self.restore_with(key, state, |_| {})?;
        }
        let mut joined = Ok(());
        self.with_key(key, |now, entry| {
            if let Some(spent) = recovery.spent {
                joined = entry.host.join_spent(now, spent, entry.config);
            }
            let newest = recovery.newest.max(now);
            entry.host.resume_after(now, newest, entry.config);
        })?;
        Ok(joined?)
    }

    fn stats(&self) -> Stats {
        let mut sum = Stats::default();
        for shard in self.registry.shards() {
            let shard = shard.lock();
            sum += shard.stats;
            sum.memory += shard.memory() as u64;
        }
        sum.keys = self.registry.len() as u64;
        sum
    }

    fn flush(&self, _patience: Duration) -> Later<'_, bool> {
        Box::pin(std::future::ready(true))
    }

    fn ping(&self) -> Later<'_, Result<(), String>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn last_error(&self) -> Option<String> {
        None
    }

    fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.lock_changes.close();
        for shard in self.registry.shards() {
            shard
                .lock()
                .iter()
                .filter_map(|slot| slot.waiters.as_deref())
                .for_each(Waiters::wake_all);
        }
    }
}

impl Local {
    /// Restores a key, after `change_host` was applied to its state.
    fn restore_with(
        &self,
        key: &Key,
        state: &[u8],
        change_host: impl FnOnce(&mut Host),
    ) -> Result<(), SetError> {
        let now = self.now();
        let mut host = match self.registry.find_in_memory(key) {
            Some(mut found) => Host::restore(state, now, found.entry().config)?,
            None => Host::restore(state, now, &self.registry.config())?,
        };
        host.forget_leases();
        change_host(&mut host);
        // The key is created after decoding: a state that cannot be decoded evicts no other key.
        Ok(self.registry.put(key, now, host)?)
    }

    fn with_key(&self, key: &Key, f: impl FnOnce(Timestamp, &mut Entry<'_>)) -> Result<(), Full> {
        let now = self.now();
        change(self.registry.find_or_make(key, now)?.entry(), now, f);
        Ok(())
    }

    fn with_known(&self, key: &Key, f: impl FnOnce(Timestamp, &mut Entry<'_>)) {
        let now = self.now();
        if let Some(mut found) = self.registry.find(key, self.now()) {
            change(found.entry(), now, f);
        }
    }
}

fn change(mut entry: Entry<'_>, now: Timestamp, f: impl FnOnce(Timestamp, &mut Entry<'_>)) {
    f(now, &mut entry);
    entry.learned();
    if let Some(waiters) = entry.waiters {
        waiters.wake_head();
    }
}
