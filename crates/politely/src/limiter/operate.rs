//! What an operator sees and sets, and what outlives a restart.

use std::sync::Arc;
use std::time::Duration;

use politely_core::Timestamp;
use politely_core::config::Config;
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
    /// On a key that learns they are upper bounds. They are the limits themselves under the laws
    /// `Fixed` and `Advice`, with `learn: false`, and on a key that receives no outcomes. Waiting
    /// requests are told at once. Infinity takes a number back.
    ///
    /// # Errors
    /// As [`Limiter::set_numbers`].
    pub fn set_rate(&self, key: &Key, rate: f64, burst: f64) -> Result<(), SetError> {
        self.set_numbers(key, OperatorNumbers::rate(rate, burst))
    }

    /// [`Limiter::set_rate`] for any of an operator's numbers. Absent ones stay as they are.
    ///
    /// # Errors
    /// A number that makes no sense, one that the coordinator would refuse, or no room for the key.
    pub fn set_numbers(&self, key: &Key, numbers: OperatorNumbers) -> Result<(), SetError> {
        numbers.validate()?;
        if let Some(elsewhere) = self.elsewhere() {
            elsewhere.supports_numbers(numbers)?;
            elsewhere.operate(key, Operation::Set(numbers));
            return Ok(());
        }
        Ok(self.with_key(key, |now, entry| entry.host.set(now, numbers, entry.config))?)
    }

    /// Returns what an operator set for `key`; nothing for a key that is not known.
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

    /// Forgets what was learned of `key`, its Crawl-delay, and what an operator set for it. Permits that are out stay out.
    pub fn forget(&self, key: &Key) {
        if let Some(elsewhere) = self.elsewhere() {
            return elsewhere.operate(key, Operation::Forget);
        }
        self.with_known(key, |now, entry| entry.host.forget(now, entry.config));
    }

    /// From now on `config` holds for every key that has none of its own. States stay, but for a law that is another: it begins
    /// anew. Those who wait feel it. One shard is locked at a time.
    ///
    /// # Errors
    /// The first number that makes no sense, or a coordinator keeps the configuration. Then nothing
    /// changes.
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

    /// [`Limiter::reconfigure`] for keys that are made from now on. Known keys go on under the
    /// configuration they have, until the next [`Limiter::reconfigure`].
    ///
    /// # Errors
    /// The first number that makes no sense, or the keys are shared.
    pub fn reconfigure_new(&self, config: Config) -> Result<(), SetError> {
        config.validate()?;
        if self.elsewhere().is_some() {
            return Err(SetError::Unsupported(Unsupported {
                operation: "reconfigure_new",
                backend: "whose keys are shared",
                instead: "change the configuration of all keys",
            }));
        }
        let config = Arc::new(config);
        for shard in self.0.registry.shards() {
            shard.lock().reconfigure_new(&config);
        }
        Ok(())
    }

    /// Gives one key a configuration of its own; it is never evicted. Its state begins anew, holds included, so do this
    /// before its first request.
    ///
    /// # Errors
    /// The first number that makes no sense, no room for the key, or the keys are shared: then
    /// every process goes by one configuration.
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

    /// Takes over a permit that was granted to another process that shares the engine, by its [`Permit::leases`]: its leases
    /// are renewed, and it may be reported, cancelled and renewed as if it had been granted here. For when that process is gone.
    ///
    /// Should a lease be over, [`Permit::renew`] says so, and its report is late. An engine that has not answered after
    /// `patience` is taken to agree: what is done with the permit is written when it is back. Nothing without an engine, or
    /// without a lease.
    pub async fn adopt(&self, leases: &[(Key, LeaseId)], patience: Duration) -> Option<Permit> {
        self.elsewhere()?.adopt(leases, patience).await
    }

    /// Waits until everything that was said about `key` so far is in the engine, at most for
    /// `patience`: reports, holds, operator's numbers. `false`: it may be there or not. Without an
    /// engine there is nothing to wait for.
    ///
    /// Cancellation safe: what was said is written all the same.
    pub async fn confirm(&self, key: &Key, patience: Duration) -> bool {
        match self.elsewhere() {
            Some(elsewhere) => elsewhere.confirm(key, patience).await,
            None => true,
        }
    }

    /// Reads the state of `key` from the engine, at most for `patience`, so that
    /// [`Limiter::explain`] and [`Limiter::numbers`] know what other processes wrote. Says whether
    /// the key is known. Without an engine it reads nothing.
    ///
    /// # Errors
    /// The engine did not answer; one line.
    pub async fn refresh(&self, key: &Key, patience: Duration) -> Result<bool, String> {
        match self.elsewhere() {
            Some(elsewhere) => elsewhere.refresh(key, patience).await,
            None => Ok(self.explain(key).is_some()),
        }
    }

    /// Nothing leaves for `key` during `length` from now on, unless it is held for longer already.
    ///
    /// # Errors
    /// No room for the key: who asks for a permit is told so too, until there is, and then the hold is lost.
    pub fn hold(&self, key: &Key, length: Duration, reason: HoldReason) -> Result<(), Full> {
        if let Some(elsewhere) = self.elsewhere() {
            elsewhere.operate(key, Operation::Hold(length, reason));
            return Ok(());
        }
        self.with_key(key, |now, entry| {
            entry.host.hold(now, now + length, reason);
        })
    }

    /// The host of `key` asks for a Crawl-delay in its robots.txt: from now on its requests leave one at a time, and after each
    /// it is left alone for so long, whoever shares the key. Of several that are told the largest counts as long as it is
    /// fresh, so tell it again whenever a request is made by that file; what is no news costs little. An operator's own
    /// numbers stay: the slower counts.
    ///
    /// # Errors
    /// No room for the key.
    pub fn crawl_delay(&self, key: &Key, delay: CrawlDelay) -> Result<(), Full> {
        if let Some(elsewhere) = self.elsewhere() {
            elsewhere.operate(key, Operation::CrawlDelay(delay));
            return Ok(());
        }
        self.with_key(key, |now, entry| {
            entry.host.crawl_delay(now, delay, entry.config);
        })
    }

    /// Lifts hold, breaker and quarantine of `key`; one that is not known has none.
    pub fn unpark(&self, key: &Key) {
        if let Some(elsewhere) = self.elsewhere() {
            return elsewhere.operate(key, Operation::Unpark);
        }
        self.with_known(key, |now, entry| entry.host.unpark(now, entry.config));
    }

    /// Why `key` waits, until when, since which event; `None` if it is not known.
    pub fn explain(&self, key: &Key) -> Option<Explanation> {
        if let Some(elsewhere) = self.elsewhere() {
            return elsewhere.explain(key);
        }
        let now = self.now();
        let mut found = self.0.registry.find(key)?;
        let entry = found.entry();
        Some(entry.host.look(now, entry.config))
    }

    /// Calls `visit` with every key known, what [`Limiter::explain`] says of it, and how many wait in its line; in
    /// no order. `visit` may call this limiter.
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

    /// How many wait in the line of `key` who came before `turn`.
    pub fn position(&self, key: &Key, turn: Turn) -> usize {
        if let Some(elsewhere) = self.elsewhere() {
            return elsewhere.position(key, turn);
        }
        let found = self.0.registry.find(key);
        found
            .and_then(|mut found| Some(found.entry().waiters.as_deref()?.before(turn)))
            .unwrap_or(0)
    }

    /// Totals and the present state. Visits every shard.
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

    /// What sharing keys through an engine came to; `None` for a limiter that does not.
    pub fn commits(&self) -> Option<Commits> {
        self.elsewhere()?.commits()
    }

    /// All keys known, in no order.
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

    /// The state of `key` as bytes, to be given to [`Limiter::restore`] after a restart; `None` if it is not
    /// known. What is saved may be evicted when room is short.
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

    /// The states that learned something since this was last called, each key once, to be kept and given to
    /// [`Limiter::restore`] after a restart. Call it once a second or so; one shard is locked at a time.
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

    /// Takes a state back that [`Limiter::snapshot`] gave, in place of what is known of `key`. The holders
    /// of its leases are gone; their slots return.
    ///
    /// # Errors
    /// Another version's state, a damaged one, no room for the key, or a coordinator keeps the
    /// states. What was known stays.
    pub fn restore(&self, key: &Key, state: &[u8]) -> Result<(), SetError> {
        if let Some(elsewhere) = self.elsewhere() {
            return Ok(elsewhere.remember(key, state)?);
        }
        let now = self.now();
        let registry = &self.0.registry;
        let mut host = match registry.find(key) {
            Some(mut found) => Host::restore(state, now, found.entry().config)?,
            None => Host::restore(state, now, &registry.config())?,
        };
        host.forget_leases();
        // Only now: for one that cannot be read no other key is forgotten.
        let mut found = registry.find_or_make(key, now)?;
        found.shard.replace(found.slot, host);
        Ok(())
    }

    /// [`Limiter::restore`] where whoever kept the state died, so that what it granted last may not be in it: nothing leaves
    /// for one interval after `newest`, the latest departure that may have been granted.
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
            self.restore(key, state)?;
        }
        self.with_key(key, |now, entry| {
            entry.host.resume_after(now, newest, entry.config);
        })?;
        Ok(())
    }

    /// A permit granted before a restart that its holder may still use: its slot is taken until its lease ends.
    ///
    /// # Errors
    /// No room for the key.
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

    fn with_key(&self, key: &Key, f: impl FnOnce(Timestamp, &mut Entry<'_>)) -> Result<(), Full> {
        let now = self.now();
        change(self.0.registry.find_or_make(key, now)?.entry(), now, f);
        Ok(())
    }

    fn with_known(&self, key: &Key, f: impl FnOnce(Timestamp, &mut Entry<'_>)) {
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
