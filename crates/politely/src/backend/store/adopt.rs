//! Permits that another process was granted: a process that knows their leases may use them.
//!
//! The cells of the keys hold everything that belongs to a permit. Before its report is answered,
//! the leases are renewed: the write that renews them meets the engine's own state, so its result
//! shows whether they exist. A report that reaches two processes counts once, since the first one
//! takes the lease.

use std::sync::Arc;
use std::time::Duration;

use politely_core::Timestamp;
use politely_core::gate::LeaseId;
use politely_core::key::Key;
use politely_store::{Event, HeldLease};

use super::Inner;
use super::permit_guard::{Part, StoreGuard};
use crate::permit::Permit;

impl Inner {
    pub(super) async fn adopt(
        self: &Arc<Self>,
        leases: &[(Key, LeaseId)],
        patience: Duration,
    ) -> Option<Permit> {
        if leases.is_empty() {
            return None;
        }
        let part = |(key, lease): &(Key, LeaseId)| Part {
            key: key.clone(),
            lease: Arc::new(HeldLease::new(*lease, Timestamp::ZERO)),
        };
        // There is no guard yet: if the caller drops this future, the permit must not be cancelled.
        let parts: Vec<Part> = leases.iter().map(part).collect();
        let known = tokio::time::timeout(patience, self.look_up(&parts)).await;
        let (now, lasts) = (self.clock.now(), self.state.lock().node.lease());
        if known.is_err() {
            for part in &parts {
                part.lease.presume(now + lasts);
            }
        }
        if parts.iter().all(|part| part.lease.left(now).is_some()) {
            self.state.lock().node.note_adopted();
        }
        Some(StoreGuard::adopted(self, parts, lasts).into_permit())
    }

    /// Renews the leases until it is known of each whether it exists.
    async fn look_up(&self, parts: &[Part]) {
        loop {
            let progress = self.progress.notified();
            tokio::pin!(progress);
            progress.as_mut().enable();
            let mut all = true;
            for part in parts.iter().filter(|part| part.lease.is_unknown()) {
                all = false;
                if part.lease.begin_renewal() {
                    self.apply(&part.key, Event::Renew(Arc::clone(&part.lease)));
                }
            }
            if all {
                return;
            }
            progress.await;
        }
    }
}
