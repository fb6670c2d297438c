//! A permit that was granted to another process: whoever names its leases may go on with it.
//!
//! All there is to a permit is in its keys' cells. So that what is answered to its report is true, the leases are renewed first:
//! the write that does it meets the engine's own state, and says whether they are there. The same report brought to two
//! processes counts once, since the first takes the lease.

use std::sync::Arc;
use std::time::Duration;

use politely_core::Timestamp;
use politely_core::gate::LeaseId;
use politely_core::key::Key;

use super::Inner;
use super::claim::{Claim, Part};
use super::event::Event;
use super::lease::Lease;
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
            lease: Arc::new(Lease::new(*lease, Timestamp::ZERO)),
        };
        // No claim yet: should nobody wait for the answer any more, the permit must not be cancelled.
        let parts: Vec<Part> = leases.iter().map(part).collect();
        let known = tokio::time::timeout(patience, self.know(&parts)).await;
        let (now, lasts) = (self.clock.now(), self.state.lock().hub.lease());
        if known.is_err() {
            for part in &parts {
                part.lease.presume(now + lasts);
            }
        }
        if parts.iter().all(|part| part.lease.left(now).is_some()) {
            self.state.lock().hub.adopted();
        }
        Some(Claim::adopted(self, parts, lasts).into_permit())
    }

    /// Has the leases renewed until of each it is known whether it is there.
    async fn know(&self, parts: &[Part]) {
        loop {
            let said = self.said.notified();
            tokio::pin!(said);
            said.as_mut().enable();
            let mut all = true;
            for part in parts.iter().filter(|part| part.lease.is_unknown()) {
                all = false;
                if part.lease.ask() {
                    self.tell(&part.key, Event::Renew(Arc::clone(&part.lease)));
                }
            }
            if all {
                return;
            }
            said.await;
        }
    }
}
