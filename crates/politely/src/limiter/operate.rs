//! Methods for operators, and state that outlives a restart.

use std::sync::Arc;
use std::time::Duration;

use politely_core::Timestamp;
use politely_core::config::{Config, Limits};
use politely_core::gate::{HoldReason, LeaseId};
use politely_core::host::{Ask, CrawlDelay, Explanation, Host, OperatorNumbers};
use politely_core::key::Key;

use super::Limiter;
use crate::asked::{SetError, Unsupported};
use crate::elsewhere::Operation;
use crate::permit::{Departure, Part, Permit};
use crate::registry::{Entry, Full};
use crate::snapshot::Snapshot;
use crate::stats::{Commits, Stats};
use crate::waiters::{Turn, Waiters};

impl Limiter {
    /// Sets an operator's numbers for one key: `rate` requests per second, `burst` back to back.
    ///
    /// On a key that learns, the numbers are upper bounds. They are the limits themselves under the
    /// laws `Fixed` and `Advice`, with `learn: false`, and on a key that receives no outcomes.
    /// Waiting requests notice the change at once. Infinity removes a number.
    ///
    /// # Errors
    /// As [`Limiter::set_numbers`].
    pub fn set_rate(&self, key: &Key, rate: f64, burst: f64) -> Result<(), SetError> {
        self.set_numbers(key, OperatorNumbers::rate(rate, burst))
    }

    /// Sets any of an operator's numbers, as [`Limiter::set_rate`] does. Absent numbers stay as
    /// they are.
    ///
    /// # Errors
    /// A number is invalid, the coordinator would refuse it, or there is no room for the key.
    pub fn set_numbers(&self, key: &Key, numbers: OperatorNumbers) -> Result<(), SetError> {
        numbers.validate()?;
        if let Some(elsewhere) = self.elsewhere() {
            elsewhere.supports_numbers(numbers)?;
            elsewhere.operate(key, Operation::Set(numbers));
            return Ok(());
        }
        Ok(self.with_key(key, |now, entry| entry.host.set(now, numbers, entry.config))?)
    }

    /// Returns the numbers that an operator set for `key`. An unknown key has none.
    ///
    /// # Errors
    /// A coordinator keeps the numbers: ask it with `GET /api/v1/keys/{key}`.
    pub fn numbers(&self, key: &Key) -> Result<OperatorNumbers, Unsupported> {
        if let Some(elsewhere) = self.elsewhere() {
            return elsewhere.numbers(key);
        }
        let found = self.0.registry.find(key);
        let numbers = found.map(|mut found| found.entry().host.operator_numbers());
        Ok(numbers.unwrap_or_default())
    }

    /// Forgets everything that was learned of `key`, its Crawl-delay, and its operator's numbers.
    /// Permits already granted stay valid.
    pub fn forget(&self, key: &Key) {
        if let Some(elsewhere) = self.elsewhere() {
            return elsewhere.operate(key, Operation::Forget);
        }
        self.with_known(key, |now, entry| entry.host.forget(now, entry.config));
    }

    /// Sets `config` for all keys that have no configuration of their own.
    ///
    /// States stay. If the law changes, it begins anew. Waiting requests notice the change. One
    /// shard is locked at a time.
    ///
    /// # Errors
    /// The first invalid number, or a coordinator keeps the configuration. Then nothing changes.
    pub fn reconfigure(&self, config: Config) -> Result<(), SetError> {
        config.validate()?;
        if let Some(elsewhere) = self.elsewhere() {
            return Ok(elsewhere.reconfigure(&config)?);
        }
        let config = Arc::new(config);
        for shard in self.0.registry.shards() {
            let now = self.now();
            shard.lock().reconfigure(&config, now);
        }
        Ok(())
    }

    /// Sets the limits of keys that are created from now on.
    ///
    /// Known keys keep their limits until the next [`Limiter::reconfigure`], also across
    /// [`Limiter::restore`]. After a restart, give the builder the same configuration, with its
    /// [`cohorts`](Config::cohorts). Each call adds the earlier limits to the configuration.
    ///
    /// # Errors
    /// The first invalid number, or a coordinator keeps the configuration. Then nothing changes.
    pub fn reconfigure_new(&self, limits: Limits) -> Result<(), SetError> {
        let config = match self.elsewhere() {
            Some(elsewhere) => elsewhere.config()?,
            None => self.0.registry.config(),
        };
        self.reconfigure(Config::clone(&config).for_new_keys(limits))
    }

    /// Gives one key a configuration of its own. Such a key is never evicted.
    ///
    /// Its state begins anew, holds included, so call this before the first request.
    ///
    /// # Errors
    /// The first invalid number, no room for the key, or the keys are shared. Each process has one
    /// configuration for all shared keys.
    pub fn configure(&self, key: &Key, config: Config) -> Result<(), SetError> {
        config.validate()?;
        if self.elsewhere().is_some() {
            return Err(SetError::Unsupported(Unsupported {
                operation: "configure",
                backend: "whose keys are shared",
                instead: "set the key's numbers and law with set_numbers",
            }));
        }
        let now = self.now();
        let mut found = self.0.registry.find_or_make(key, now)?;
        found.shard.configure(found.slot, &Arc::new(config), now);
        Ok(())
    }

    /// Takes over a permit that another process on the same engine was granted, by its
    /// [`Permit::leases`].
    ///
    /// Its leases are renewed. It may be reported, cancelled and renewed as if this process had
    /// granted it. Use this when the other process is gone.
    ///
    /// If a lease has expired, [`Permit::renew`] returns `None` and the permit's report is late. If
    /// the engine does not answer within `patience`, the leases count as valid, and changes are
    /// written when the engine is back.
    ///
    /// Returns `None` without an engine, or if `leases` is empty.
    pub async fn adopt(&self, leases: &[(Key, LeaseId)], patience: Duration) -> Option<Permit> {
        self.elsewhere()?.adopt(leases, patience).await
    }

    /// Waits until all reports and changes of `key` so far are in the engine, at most for
    /// `patience`.
    ///
    /// The changes include holds and operator's numbers. If it returns `false`, they may be in the
    /// engine or not. Without an engine it returns at once.
    ///
    /// Cancel-safe: a future that is dropped cancels no write.
    pub async fn confirm(&self, key: &Key, patience: Duration) -> bool {
        match self.elsewhere() {
            Some(elsewhere) => elsewhere.confirm(key, patience).await,
            None => true,
        }
    }

    /// Reads the state of `key` from the engine, at most for `patience`, and returns whether the
    /// key is known.
    ///
    /// After that, [`Limiter::explain`] and [`Limiter::numbers`] include the writes of other
    /// processes. Without an engine it reads nothing.
    ///
    /// # Errors
    /// The engine did not answer. The error is one line.
    pub async fn refresh(&self, key: &Key, patience: Duration) -> Result<bool, String> {
        match self.elsewhere() {
            Some(elsewhere) => elsewhere.refresh(key, patience).await,
            None => Ok(self.explain(key).is_some()),
        }
    }

    /// Holds `key` for `length` from now on, unless it is held for longer already.
    ///
    /// # Errors
    /// There is no room for the key. Requests for a permit then fail with the same error. Once
    /// there is room, the hold is lost.
    pub fn hold(&self, key: &Key, length: Duration, reason: HoldReason) -> Result<(), Full> {
        if let Some(elsewhere) = self.elsewhere() {
            elsewhere.operate(key, Operation::Hold(length, reason));
            return Ok(());
        }
        self.with_key(key, |now, entry| {
            entry.host.hold(now, now + length, reason);
        })
    }

    /// Sets the Crawl-delay that the host of `key` requests in its robots.txt.
    ///
    /// From now on requests leave one at a time, with this pause after each, for all users of the
    /// key. Of several delays the largest applies as long as it is fresh. So call this for each
    /// request that is sent under that file; a delay that is known already costs little. An
    /// operator's numbers stay: the slower limit applies.
    ///
    /// # Errors
    /// There is no room for the key.
    pub fn crawl_delay(&self, key: &Key, delay: CrawlDelay) -> Result<(), Full> {
        if let Some(elsewhere) = self.elsewhere() {
            elsewhere.operate(key, Operation::CrawlDelay(delay));
            return Ok(());
        }
        self.with_key(key, |now, entry| {
            entry.host.crawl_delay(now, delay, entry.config);
        })
    }

    /// Lifts the hold, the breaker and the quarantine of `key`. An unknown key has none.
    pub fn unpark(&self, key: &Key) {
        if let Some(elsewhere) = self.elsewhere() {
            return elsewhere.operate(key, Operation::Unpark);
        }
        self.with_known(key, |now, entry| entry.host.unpark(now, entry.config));
    }

    /// Returns why `key` waits, until when, and since which event. Returns `None` for an unknown
    /// key.
    pub fn explain(&self, key: &Key) -> Option<Explanation> {
        if let Some(elsewhere) = self.elsewhere() {
            return elsewhere.explain(key);
        }
        let now = self.now();
        let mut found = self.0.registry.find(key)?;
        let entry = found.entry();
        Some(entry.host.look(now, entry.config))
    }

    /// Returns whether `key` is known.
    pub fn knows(&self, key: &Key) -> bool {
        match self.elsewhere() {
            Some(elsewhere) => elsewhere.knows(key),
            None => self.0.registry.find(key).is_some(),
        }
    }

    /// Calls `may_go` with every known key, and evicts the keys for which it returns true.
    ///
    /// A key stays if its eviction would lose something: a lease, a waiter, a hold, a debt, an
    /// operator's number, or a learned limit that is not saved. `may_go` must not call this
    /// limiter, because one shard is locked at a time.
    pub fn evict_idle(&self, mut may_go: impl FnMut(&Key) -> bool) {
        match self.elsewhere() {
            Some(elsewhere) => elsewhere.evict_idle(&mut may_go),
            None => self.0.registry.evict_idle(self.now(), &mut may_go),
        }
    }

    /// Calls `visit` with every known key, its [`Limiter::explain`], and the number of its waiters.
    ///
    /// The keys come in no order. `visit` may call this limiter.
    pub fn each(&self, mut visit: impl FnMut(&Key, &Explanation, usize)) {
        if let Some(elsewhere) = self.elsewhere() {
            for key in elsewhere.keys() {
                if let Some(explained) = elsewhere.explain(&key) {
                    visit(&key, &explained, elsewhere.position(&key, Turn::LAST));
                }
            }
            return;
        }
        let now = self.now();
        for shard in self.0.registry.shards() {
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

    /// Returns the number of waiters for `key` that arrived before `turn`.
    pub fn position(&self, key: &Key, turn: Turn) -> usize {
        if let Some(elsewhere) = self.elsewhere() {
            return elsewhere.position(key, turn);
        }
        let found = self.0.registry.find(key);
        found
            .and_then(|mut found| Some(found.entry().waiters.as_deref()?.before(turn)))
            .unwrap_or(0)
    }

    /// Returns totals and the present state. It locks every shard in turn.
    pub fn stats(&self) -> Stats {
        if let Some(elsewhere) = self.elsewhere() {
            return elsewhere.stats();
        }
        let mut sum = Stats::default();
        for shard in self.0.registry.shards() {
            let shard = shard.lock();
            sum += shard.stats;
            sum.memory += shard.memory() as u64;
        }
        sum.keys = self.0.registry.len() as u64;
        sum
    }

    /// Returns statistics about the writes to the engine. Returns `None` for a limiter without an
    /// engine.
    pub fn commits(&self) -> Option<Commits> {
        self.elsewhere()?.commits()
    }

    /// Returns all known keys, in no order.
    pub fn keys(&self) -> Vec<Key> {
        if let Some(elsewhere) = self.elsewhere() {
            return elsewhere.keys();
        }
        let shards = self.0.registry.shards().iter();
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

    /// Returns the state of `key` as bytes, for [`Limiter::restore`] after a restart.
    ///
    /// Returns `None` for an unknown key. A key whose state was saved may be evicted when room is
    /// short.
    pub fn snapshot(&self, key: &Key) -> Option<Snapshot> {
        if let Some(elsewhere) = self.elsewhere() {
            return elsewhere.snapshot(key);
        }
        let mut found = self.0.registry.find(key)?;
        found.shard.snapshots += 1;
        let version = found.shard.snapshots;
        let entry = found.entry();
        *entry.saved = true;
        let state = entry.host.snapshot();
        self.0.registry.look_again();
        Some(Snapshot { version, state })
    }

    /// Returns the states that changed by learning since the last call, each key once.
    ///
    /// Store them, and give them to [`Limiter::restore`] after a restart. Call this about once a
    /// second. One shard is locked at a time.
    pub fn take_learned(&self) -> Vec<(Key, Snapshot)> {
        if let Some(elsewhere) = self.elsewhere() {
            return elsewhere.take_learned();
        }
        let shards = self.0.registry.shards().iter();
        let learned = shards.flat_map(|shard| shard.lock().take_learned());
        let learned = learned.collect();
        self.0.registry.look_again();
        learned
    }

    /// Replaces the state of `key` by a state that [`Limiter::snapshot`] returned.
    ///
    /// The holders of its leases and locks are gone, so their slots return.
    ///
    /// # Errors
    /// The state is of another version or damaged, there is no room for the key, or a coordinator
    /// keeps the states. The known state stays then.
    pub fn restore(&self, key: &Key, state: &[u8]) -> Result<(), SetError> {
        if let Some(elsewhere) = self.elsewhere() {
            return Ok(elsewhere.remember(key, state)?);
        }
        self.restore_with(key, state, Host::forget_locks)
    }

    /// Restores a key, after `change` was applied to its state.
    fn restore_with(
        &self,
        key: &Key,
        state: &[u8],
        change: impl FnOnce(&mut Host),
    ) -> Result<(), SetError> {
        let now = self.now();
        let registry = &self.0.registry;
        let mut host = match registry.find(key) {
            Some(mut found) => Host::restore(state, now, found.entry().config)?,
            None => Host::restore(state, now, &registry.config())?,
        };
        host.forget_leases();
        change(&mut host);
        // The key is created after decoding: a state that cannot be decoded evicts no other key.
        let mut found = registry.find_or_make(key, now)?;
        found.shard.replace(found.slot, host);
        Ok(())
    }

    /// Restores a key, as [`Limiter::restore`] does, after the process that kept the state has
    /// died.
    ///
    /// Its last grants may be missing in the state. `newest` is the latest departure that may have
    /// been granted. No request leaves for one interval after it.
    ///
    /// The locks stay, see [`Limiter::resume_locks`].
    ///
    /// # Errors
    /// As [`Limiter::restore`].
    pub fn resume(
        &self,
        key: &Key,
        state: Option<&[u8]>,
        newest: Timestamp,
    ) -> Result<(), SetError> {
        if self.elsewhere().is_some() {
            return Err(SetError::Unsupported(Unsupported {
                operation: "resume",
                backend: "whose keys are shared",
                instead: "give a kept state to restore",
            }));
        }
        if let Some(state) = state {
            self.restore_with(key, state, |_| {})?;
        }
        self.with_key(key, |now, entry| {
            entry.host.resume_after(now, newest, entry.config);
        })?;
        Ok(())
    }

    /// Recreates a permit that was granted before a restart and that its holder may still use.
    ///
    /// Its slot is taken until its lease ends.
    ///
    /// # Errors
    /// There is no room for the key.
    pub fn readmit(&self, key: &Key, start: Timestamp, lease: Duration) -> Result<Permit, Full> {
        let now = self.now();
        let mut found = self.0.registry.find_or_make(key, now)?;
        let (shard, slot) = (Arc::clone(found.shared), found.slot);
        let entry = found.entry();
        let id = entry.host.readmit(start, lease);
        entry.stats.granted += 1;
        let part = Part {
            shard,
            slot,
            born: entry.born,
            lease: id,
        };
        let departure = Departure::new(start, f64::INFINITY, 1, Ask::default().unused());
        Ok(Permit::of(part, departure))
    }

    pub(crate) fn with_key(
        &self,
        key: &Key,
        f: impl FnOnce(Timestamp, &mut Entry<'_>),
    ) -> Result<(), Full> {
        let now = self.now();
        change(self.0.registry.find_or_make(key, now)?.entry(), now, f);
        Ok(())
    }

    pub(crate) fn with_known(&self, key: &Key, f: impl FnOnce(Timestamp, &mut Entry<'_>)) {
        let now = self.now();
        if let Some(mut found) = self.0.registry.find(key) {
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
