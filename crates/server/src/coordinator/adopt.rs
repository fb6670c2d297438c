//! Adoption of permits that another coordinator granted.
//!
//! If coordinators share keys and one of them stops, its workers report their permits to any other
//! coordinator. An adopted permit is treated like a permit of this coordinator. If its leases are
//! over, it was reported already or held for too long. It is then adopted as expired: its report
//! counts as late, but a hold that the report causes is kept.
//!
//! A coordinator can stop after granting a permit whose answer is lost. The worker then repeats the
//! request with the same id at a coordinator that does not know the id. That coordinator grants a
//! second permit from the same cell. The token and the slot of the lost permit stay taken until its
//! lease ends. So the key sends fewer requests than it allows, never more.

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
    /// Adopts the permits that another coordinator granted to `worker`, given by name and slot. No
    /// slot stands for all. Skips permits that this coordinator knows.
    pub(crate) async fn adopt(
        &self,
        worker: &Arc<Worker>,
        permits: impl Iterator<Item = (&str, Option<u16>)>,
    ) {
        if !self.0.limiter.is_shared() {
            return;
        }
        self.0.signer.agree().await;
        let is_new = |name: &Name| {
            !name.leases.is_empty() && self.0.permits.shard(name.number).get(name.number).is_none()
        };
        // Only the client to which a permit was granted may bring it.
        let named = permits.flat_map(|(name, slot)| {
            let name = name.parse::<Name>().ok();
            let name = name.filter(|name| self.0.signer.is_signed(worker.name(), name));
            let slots = name.as_ref().map_or(0, |name| name.slots);
            let slots = slot.map_or(0..slots, |slot| slot..slot.saturating_add(1));
            slots.filter_map(move |slot| name.clone()?.later(slot))
        });
        let adopting = named
            .filter(is_new)
            .map(|name| self.adopt_one(worker, name));
        let mut adopting: FuturesUnordered<_> = adopting.collect();
        while adopting.next().await.is_some() {}
    }

    async fn adopt_one(&self, worker: &Arc<Worker>, name: Name) {
        let limiter = &self.0.limiter;
        let Ok(Some(permit)) = limiter.adopt(&name.leases, ENGINE_TIME).await else {
            return;
        };
        let (now, left) = (self.now(), permit.renew());
        let out = Out {
            permit: Some(permit),
            heard: None,
            expired: left.is_none(),
            key: name.leases[0].0.clone(),
            others: name.leases[1..]
                .iter()
                .map(|(key, _)| key.clone())
                .collect(),
            worker: Arc::clone(worker),
            wish: 0,
            start: now,
            until: now + left.unwrap_or_default(),
            interval: Duration::ZERO,
            slots: 1,
            resource: None,
            plan: None,
            session: None,
        };
        if self.0.permits.put_adopted(name.number, out) && left.is_some() {
            worker.granted(1);
        }
    }
}
