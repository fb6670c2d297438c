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

/// The keys of a request, by kind and in their order.
#[derive(Default)]
struct ByKind {
    own: Vec<Key>,
    shared: Vec<Key>,
}

impl Own {
    pub(super) fn new(clock: Clock) -> Self {
        Self {
            local: Local::new(Config::default(), clock, usize::MAX, QUEUE_MAX, 0),
            names: RwLock::default(),
        }
    }

    pub(super) fn add(&self, key: &Key) {
        self.names.write().insert(key.clone());
    }

    pub(super) fn has(&self, key: &Key) -> bool {
        self.names.read().contains(key)
    }

    /// Returns the keys of a request by kind, or `None` if all are shared.
    fn split(&self, keys: &[Key]) -> Option<ByKind> {
        let names = self.names.read();
        let mut split = ByKind::default();
        for key in keys {
            let of_kind = if names.contains(key) {
                &mut split.own
            } else {
                &mut split.shared
            };
            of_kind.push(key.clone());
        }
        (!split.own.is_empty()).then_some(split)
    }
}

/// Returns what the own keys are asked for. The first shared key learns.
fn of_own(ask: &AcquireRequest, shared: &[Key]) -> AcquireRequest {
    AcquireRequest {
        is_limit_only: !shared.is_empty(),
        ..ask.clone()
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

    pub(super) fn try_acquire_kinds(
        &self,
        keys: &[Key],
        ask: AcquireRequest,
        arrival: Arrival,
    ) -> Result<Permit, Refusal> {
        let Some((own, kinds)) = self.kinds(keys) else {
            return self.operations().try_acquire(keys, ask, arrival);
        };
        let of_own = of_own(&ask, &kinds.shared);
        let permit = own.local.try_acquire(&kinds.own, of_own, arrival);
        let permit = permit.map_err(|refusal| refusal.among(keys))?;
        if kinds.shared.is_empty() {
            return Ok(permit);
        }
        let shared = self.operations().try_acquire(&kinds.shared, ask, arrival);
        Ok(shared
            .map_err(|refusal| refusal.among(keys))?
            .with_own(permit))
    }

    pub(super) async fn request_kinds(
        &self,
        keys: &[Key],
        ask: AcquireRequest,
        arrival: Arrival,
    ) -> Result<Permit, Refusal> {
        let Some((own, kinds)) = self.kinds(keys) else {
            return self.operations().request(keys, ask, arrival).await;
        };
        let of_own = of_own(&ask, &kinds.shared);
        let permit = own.local.try_acquire(&kinds.own, of_own, arrival);
        let permit = permit.map_err(|refusal| refusal.among(keys))?;
        if kinds.shared.is_empty() {
            return Ok(permit);
        }
        let shared = self.operations().request(&kinds.shared, ask, arrival).await;
        Ok(shared
            .map_err(|refusal| refusal.among(keys))?
            .with_own(permit))
    }

    pub(super) async fn acquire_kinds(
        &self,
        keys: &[Key],
        ask: AcquireRequest,
        arrival: Arrival,
        head: Option<Head<'_>>,
    ) -> Result<Permit, AcquireError> {
        let Some((own, kinds)) = self.kinds(keys) else {
            return self.operations().acquire(keys, ask, arrival, head).await;
        };
        let of_own = of_own(&ask, &kinds.shared);
        let permit = own.local.acquire(&kinds.own, of_own, arrival, head).await?;
        if kinds.shared.is_empty() {
            return Ok(permit);
        }
        let operations = self.operations();
        let shared = operations
            .acquire(&kinds.shared, ask, arrival, head)
            .await?;
        Ok(shared.with_own(permit))
    }

    fn kinds(&self, keys: &[Key]) -> Option<(&Own, ByKind)> {
        let own = self.0.own.get()?;
        Some((own, own.split(keys)?))
    }
}
