//! Methods for operators, and state that outlives a restart.

use std::sync::Arc;
use std::time::Duration;

use politely_core::budget::{DeclaredLimit, DeclaredLimits};
use politely_core::config::{Config, Limits};
use politely_core::gate::{HoldReason, LeaseId};
use politely_core::host::{AcquireRequest, CrawlDelay, Explanation, KeyRule, OperatorNumbers};
use politely_core::key::Key;
use politely_core::share::Charge;

use super::Limiter;
use super::own::Own;
use crate::backend::Backend;
use crate::backend::local::registry::Full;
use crate::backend::local::waiters::Arrival;
use crate::backend::operations::first_that_never_fits;
use crate::error::{SetError, Unsupported};
use crate::permit::Permit;
use crate::snapshot::{Earlier, Recovery, Snapshot};
use crate::stats::{Commits, Stats};

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
        self.operations_on(key).set_numbers(key, numbers)
    }

    /// Returns the numbers that an operator set for `key`. An unknown key has none.
    ///
    /// # Errors
    /// A coordinator keeps the numbers: ask it with `GET /api/v1/keys/{key}`.
    pub fn numbers(&self, key: &Key) -> Result<OperatorNumbers, Unsupported> {
        self.operations_on(key).numbers(key)
    }

    /// Declares the limits of one key, in place of those that [`Builder::limit`] declares for all
    /// keys. `None` restores those.
    ///
    /// [`Builder::limit`]: crate::Builder::limit
    ///
    /// # Errors
    /// There is no room for the key.
    pub fn set_limits(&self, key: &Key, limits: Option<DeclaredLimits>) -> Result<(), Full> {
        self.operations_on(key).set_limits(key, limits)
    }

    /// Lets `key` follow a rule of a policy; `None` if no rule matches it. Call it before each
    /// request: it changes nothing if the key follows the rule. With a coordinator it does nothing,
    /// since the coordinator has the rules.
    ///
    /// Limits of [`Limiter::set_limits`] stay.
    ///
    /// # Errors
    /// There is no room for the key.
    pub fn follow_rule(&self, key: &Key, rule: Option<&Arc<KeyRule>>) -> Result<(), Full> {
        self.operations_on(key).follow_rule(key, rule)
    }

    /// Returns the limits that an operator declared for `key`, or `None` if those of all keys apply
    /// to it.
    ///
    /// # Errors
    /// A coordinator keeps the limits: ask it with `GET /api/v1/keys/{key}`.
    pub fn limits(&self, key: &Key) -> Result<Option<DeclaredLimits>, Unsupported> {
        self.operations_on(key).limits(key)
    }

    /// Returns the declared limit of `key` that a request of `ask` exceeds alone. Such a request
    /// never leaves. With a coordinator this returns `None`; the coordinator refuses the request.
    pub fn never_fits(&self, key: &Key, ask: &AcquireRequest) -> Option<DeclaredLimit> {
        first_that_never_fits(self.operations_on(key), std::slice::from_ref(key), ask)
            .map(|(_, limit)| limit)
    }

    /// Forgets everything that was learned of `key`, its Crawl-delay, and its operator's numbers.
    /// Permits already granted stay valid.
    pub fn forget(&self, key: &Key) {
        self.operations_on(key).forget(key);
    }

    /// Charges `key` for what a worker does without a grant, on its share while no coordinator
    /// answers. Only a limiter that keeps the keys itself does so.
    ///
    /// # Errors
    /// There is no room for the key.
    pub fn charge_share(&self, key: &Key, charge: &Charge) -> Result<(), Full> {
        self.operations_on(key).charge_share(key, charge)
    }

    /// Makes the declared limit `which` of `key` whole, or all of them if it is `None`: what was
    /// spent of its present window counts no more.
    ///
    /// Use it after a wrong usage was reported. Permits that are out give nothing back to the limit
    /// and owe it nothing. A limit that the key does not have stays as it is.
    pub fn reset_budgets(&self, key: &Key, which: Option<&DeclaredLimit>) {
        self.operations_on(key).reset_budgets(key, which);
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
        Ok(self.operations().reconfigure(Arc::new(config))?)
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
        let config = self.operations().config()?;
        self.reconfigure(Config::clone(&config).for_new_keys(limits))
    }

    /// Gives one key a configuration of its own. Such a key is never evicted.
    ///
    /// Its state begins anew, holds included, so call this before the first request. If the other
    /// keys are shared through a coordinator or an engine, this one is limited in this process
    /// alone, and a request that names it beside others needs a permit of both kinds.
    ///
    /// # Errors
    /// The first invalid number, or no room for the key.
    pub fn configure(&self, key: &Key, config: Config) -> Result<(), SetError> {
        config.validate()?;
        let config = Arc::new(config);
        if let Backend::Local(local) = &self.0.backend {
            return Ok(local.configure(key, &config)?);
        }
        let own = self.0.own.get_or_init(|| Own::new(self.0.clock.clone()));
        own.local.configure(key, &config)?;
        own.add(key);
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
    /// Returns `None` if `leases` is empty.
    ///
    /// # Errors
    /// The keys are not in an engine.
    pub async fn adopt(
        &self,
        leases: &[(Key, LeaseId)],
        patience: Duration,
    ) -> Result<Option<Permit>, Unsupported> {
        self.operations().adopt(leases, patience).await
    }

    /// Waits until all reports and changes of `key` so far are in the engine, at most for
    /// `patience`.
    ///
    /// The changes include holds and operator's numbers. If it returns `false`, they may be in the
    /// engine or not. Without an engine it returns at once.
    ///
    /// Cancel-safe: a future that is dropped cancels no write.
    pub async fn confirm(&self, key: &Key, patience: Duration) -> bool {
        self.operations().confirm(key, patience).await
    }

    /// Returns whether a report of `key` spent more of its declared limits than its permit did, and
    /// is not in the engine yet. Without an engine it is always `false`.
    pub fn owes(&self, key: &Key) -> bool {
        self.operations().owes(key)
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
        self.operations().refresh(key, patience).await
    }

    /// Holds `key` for `length` from now on, unless it is held for longer already.
    ///
    /// # Errors
    /// There is no room for the key. Requests for a permit then fail with the same error. Once
    /// there is room, the hold is lost.
    pub fn hold(&self, key: &Key, length: Duration, reason: HoldReason) -> Result<(), Full> {
        self.operations_on(key).hold(key, length, reason)
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
        self.operations_on(key).crawl_delay(key, delay)
    }

    /// Lifts the hold, the breaker and the quarantine of `key`. An unknown key has none.
    pub fn unpark(&self, key: &Key) {
        self.operations_on(key).unpark(key);
    }

    /// Returns why `key` waits, until when, and since which event. Returns `None` for an unknown
    /// key.
    pub fn explain(&self, key: &Key) -> Option<Explanation> {
        self.operations_on(key).explain(key)
    }

    /// Returns whether `key` is known.
    pub fn knows(&self, key: &Key) -> bool {
        self.operations_on(key).knows(key)
    }

    /// Calls `may_go` with every known key, and evicts the keys for which it returns true.
    ///
    /// A key stays if its eviction would lose something: a lease, a waiter, a hold, a debt, an
    /// operator's number, or a learned limit that is not saved. A debt that is saved is not lost,
    /// see [`Builder::saved_states`](crate::Builder::saved_states). `may_go` must not call this
    /// limiter, because one shard is locked at a time.
    pub fn evict_idle(&self, mut may_go: impl FnMut(&Key) -> bool) {
        self.operations().evict_idle(&mut may_go);
    }

    /// Calls `visit` with every key in memory, its [`Limiter::explain`], and the number of its
    /// waiters.
    ///
    /// The keys come in no order. `visit` may call this limiter.
    pub fn each(&self, mut visit: impl FnMut(&Key, &Explanation, usize)) {
        self.operations().each(&mut visit);
    }

    /// Returns the number of waiters for `key` that arrived before `arrival`.
    pub fn position(&self, key: &Key, arrival: Arrival) -> usize {
        self.operations_on(key).position(key, arrival)
    }

    /// Returns totals and the present state. It locks every shard in turn.
    pub fn stats(&self) -> Stats {
        self.operations().stats()
    }

    /// Returns statistics about the writes to the engine. Returns `None` for a limiter without an
    /// engine.
    pub fn commits(&self) -> Option<Commits> {
        self.operations().commits()
    }

    /// Returns all keys in memory, in no order.
    pub fn keys(&self) -> Vec<Key> {
        self.operations().keys()
    }

    /// Returns the state of `key` as bytes, for [`Limiter::restore`] after a restart.
    ///
    /// Returns `None` for an unknown key. A key whose state was saved may be evicted when room is
    /// short.
    pub fn snapshot(&self, key: &Key) -> Option<Snapshot> {
        self.operations_on(key).snapshot(key)
    }

    /// Returns the states that changed by learning since the last call, each key once.
    ///
    /// Store them, and give them to [`Limiter::restore`] after a restart. Call this about once a
    /// second. One shard is locked at a time.
    pub fn take_learned(&self) -> Vec<(Key, Snapshot)> {
        self.operations().take_learned()
    }

    /// Replaces the state of `key` by a state that [`Limiter::snapshot`] returned.
    ///
    /// The holders of its leases and locks are gone, so their slots return.
    ///
    /// # Errors
    /// The state is of another version or damaged, there is no room for the key, or a coordinator
    /// keeps the states. The known state stays then.
    pub fn restore(&self, key: &Key, state: &[u8]) -> Result<(), SetError> {
        self.operations_on(key).restore(key, state)
    }

    /// Returns what `key` spent of its declared limits, as bytes for [`Recovery::spent`]. Returns
    /// `None` for a key without such limits.
    ///
    /// A process that may be killed stores the bytes before it gives out a permit of the key.
    pub fn spent(&self, key: &Key) -> Option<Snapshot> {
        self.operations_on(key).spent(key)
    }

    /// Restores a key, as [`Limiter::restore`] does, after the process that kept the state was
    /// killed.
    ///
    /// The state may lack the last grants. No request leaves for one interval after the newest of
    /// them, and what they spent stays spent. The locks stay, see [`Limiter::resume_locks`].
    ///
    /// # Errors
    /// As [`Limiter::restore`].
    pub fn resume(&self, key: &Key, recovery: &Recovery<'_>) -> Result<(), SetError> {
        self.operations_on(key).resume(key, recovery)
    }

    /// Recreates a permit that was granted before a restart and that its holder may still use.
    ///
    /// Its slots are taken until its lease ends. Its estimate is settled as before the restart: a
    /// report of less gives the difference back.
    ///
    /// # Errors
    /// There is no room for a key, or the keys are shared. A permit in an engine survives a
    /// restart: see [`Limiter::adopt`].
    ///
    /// # Panics
    /// If it has no key.
    pub fn readmit(&self, earlier: &Earlier<'_>) -> Result<Permit, SetError> {
        self.operations().readmit(earlier)
    }
}
