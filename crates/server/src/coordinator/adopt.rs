//! Permits that another coordinator granted: where keys are shared, a worker whose coordinator is gone brings them to any other.
//!
//! Once adopted, a permit is one of ours, and all goes its usual way. One whose leases are over, since it was reported or was
//! held for too long, is known as expired: its report is late, and a hold that it brings is kept all the same.
//!
//! What a dead coordinator had granted in an answer that was lost, nobody brings. Its worker says the wish again, under the same
//! id, to a coordinator that knows nothing of it, and is granted another permit, by the same cell: token and slot of the lost
//! one stay taken there until its lease runs out by itself. So there are never more requests than the key allows, only fewer.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use super::Coordinator;
use super::acquire::ENGINE_TIME;
use super::names::Name;
use super::permits::Out;
use crate::watch::Worker;

impl Coordinator {
    /// Makes permits (by name and departure) ours that are not, if we are allowed to.
    pub(crate) async fn adopt(
        &self,
        worker: &Arc<Worker>,
        permits: impl Iterator<Item = (&str, u16)>,
    ) {
        if !self.0.limiter.is_shared() {
            return;
        }
        self.0.signer.agree().await;
        let is_new = |name: &Name| {
            !name.leases.is_empty() && self.0.permits.shard(name.number).get(name.number).is_none()
        };
        // Only the client that was granted a permit may bring it.
        let named = permits.filter_map(|(name, slot)| {
            let name: Name = name.parse().ok()?;
            let is_signed = self.0.signer.is_signed(worker.name(), &name);
            is_signed.then(|| name.later(slot))?
        });
        let adopting = named
            .filter(is_new)
            .map(|name| self.adopt_one(worker, name));
        let mut adopting: FuturesUnordered<_> = adopting.collect();
        while adopting.next().await.is_some() {}
    }

    async fn adopt_one(&self, worker: &Arc<Worker>, name: Name) {
        let limiter = &self.0.limiter;
        let Some(permit) = limiter.adopt(&name.leases, ENGINE_TIME).await else {
            return;
        };
        let (now, left) = (self.now(), permit.renew());
        let out = Out {
            permit: Some(permit),
            heard: None,
            expired: left.is_none(),
            key: name.leases[0].0.clone(),
            worker: Arc::clone(worker),
            wish: 0,
            start: now,
            until: now + left.unwrap_or_default(),
            interval: Duration::ZERO,
            slots: 1,
        };
        if self.0.permits.put_adopted(name.number, out) && left.is_some() {
            worker.granted(1);
        }
    }
}
