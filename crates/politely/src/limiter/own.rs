//! Keys that this process limits alone, beside those that it shares with others.
//!
//! A request may name both kinds. The own keys come first: a shared permit that waited for them
//! would lapse.

use std::collections::HashSet;

use parking_lot::RwLock;
use politely_core::config::Config;
use politely_core::host::AcquireRequest;
use politely_core::key::Key;

use super::Limiter;
use crate::backend::local::Local;
use crate::backend::local::waiters::Arrival;
use crate::backend::operations::{Head, Operations};
use crate::clock::Clock;
use crate::error::{AcquireError, Refusal};
use crate::permit::Permit;

/// The most waiters per own key.
const QUEUE_MAX: usize = 1 << 16;

/// The own keys of a limiter whose other keys are shared.
pub(super) struct Own {
    pub(super) local: Local,
    names: RwLock<HashSet<Key>>,
}

/// A request for keys of both kinds.
struct Mixed<'a> {
    local: &'a Local,
    keys: &'a [Key],
    own: Vec<Key>,
    shared: Vec<Key>,
}

impl Own {
    pub(super) fn new(clock: Clock) -> Self {
        Self {
            local: Local::new(Config::default(), clock, usize::MAX, QUEUE_MAX, 0, None),
            names: RwLock::default(),
        }
    }

    pub(super) fn add(&self, key: &Key) {
        self.names.write().insert(key.clone());
    }

    fn has(&self, key: &Key) -> bool {
        self.names.read().contains(key)
    }
}

impl Mixed<'_> {
    /// Returns what the own keys are asked for. The first shared key learns.
    fn of_own(ask: &AcquireRequest) -> AcquireRequest {
        AcquireRequest {
            is_limit_only: true,
            ..ask.clone()
        }
    }

    fn try_own(&self, ask: &AcquireRequest, arrival: Arrival) -> Result<Permit, Refusal> {
        let permit = (self.local).try_acquire(&self.own, Self::of_own(ask), arrival);
        permit.map_err(|refusal| refusal.among(self.keys))
    }

    /// Returns the permit of all keys.
    fn complete(&self, own: Permit, shared: Result<Permit, Refusal>) -> Result<Permit, Refusal> {
        let shared = shared.map_err(|refusal| refusal.among(self.keys))?;
        Ok(shared.with_own(own))
    }
}

impl Limiter {
    /// Returns the operations on `key`, by its kind.
    pub(super) fn operations_on(&self, key: &Key) -> &dyn Operations {
        match self.0.own.get() {
            Some(own) if own.has(key) => &own.local,
            _ => self.operations(),
        }
    }

    /// Returns the operations on keys of one kind.
    fn operations_on_all(&self, keys: &[Key]) -> &dyn Operations {
        match keys.first() {
            Some(key) => self.operations_on(key),
            None => self.operations(),
        }
    }

    /// Returns the keys by kind, or `None` if all are of one kind.
    fn mixed<'a>(&'a self, keys: &'a [Key]) -> Option<Mixed<'a>> {
        let own = self.0.own.get()?;
        let of_kind = |key: &Key| own.has(key);
        let (mine, shared): (Vec<_>, Vec<_>) = keys.iter().cloned().partition(of_kind);
        (!mine.is_empty() && !shared.is_empty()).then(|| Mixed {
            local: &own.local,
            keys,
            own: mine,
            shared,
        })
    }

    pub(super) fn try_acquire_all(
        &self,
        keys: &[Key],
        ask: AcquireRequest,
        arrival: Arrival,
    ) -> Result<Permit, Refusal> {
        let Some(mixed) = self.mixed(keys) else {
            let operations = self.operations_on_all(keys);
            return operations.try_acquire(keys, ask, arrival);
        };
        let own = mixed.try_own(&ask, arrival)?;
        let shared = self.operations().try_acquire(&mixed.shared, ask, arrival);
        mixed.complete(own, shared)
    }

    pub(super) async fn request_all(
        &self,
        keys: &[Key],
        ask: AcquireRequest,
        arrival: Arrival,
    ) -> Result<Permit, Refusal> {
        let Some(mixed) = self.mixed(keys) else {
            let operations = self.operations_on_all(keys);
            return operations.request(keys, ask, arrival).await;
        };
        let own = mixed.try_own(&ask, arrival)?;
        let shared = self.operations().request(&mixed.shared, ask, arrival);
        mixed.complete(own, shared.await)
    }

    pub(super) async fn acquire_all(
        &self,
        keys: &[Key],
        ask: AcquireRequest,
        arrival: Arrival,
        head: Option<Head<'_>>,
    ) -> Result<Permit, AcquireError> {
        let Some(mixed) = self.mixed(keys) else {
            let operations = self.operations_on_all(keys);
            return operations.acquire(keys, ask, arrival, head).await;
        };
        let of_own = Mixed::of_own(&ask);
        let own = mixed.local.acquire(&mixed.own, of_own, arrival, head);
        let own = own.await?;
        let shared = self.operations();
        let shared = shared.acquire(&mixed.shared, ask, arrival, head).await?;
        Ok(shared.with_own(own))
    }
}
