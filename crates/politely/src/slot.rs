//! The in-flight slots of a request whose body is coming.

use std::time::Duration;

use politely_core::Timestamp;
use politely_core::budget::UnitCosts;
use politely_core::signal::UsageReader;

use crate::backend::local::part::renew;
use crate::leases::Leases;

/// The chunks of a body renew its lease this often. It is far below any sensible lease, and far
/// above the time between two chunks.
const RENEW_EVERY: Duration = Duration::from_secs(1);

/// The in-flight slots of a request whose head has come and whose body has not. Dropping it gives
/// them back.
#[must_use = "dropping it says that the body has come"]
#[derive(Debug)]
pub struct Slot {
    leases: Leases,
    bytes: u64,
    renewed: Timestamp,
    /// Reads what the answer says that it used.
    usage: Option<Box<UsageReader>>,
}

impl Slot {
    pub(crate) const fn new(leases: Leases, renewed: Timestamp) -> Self {
        Self {
            leases,
            bytes: 0,
            renewed,
            usage: None,
        }
    }

    /// Settles the costs by what `usage` reads of the body, when the slot is dropped.
    #[cfg_attr(
        not(any(feature = "tower", feature = "reqwest")),
        expect(dead_code, reason = "attempts read bodies")
    )]
    pub(crate) fn reading(mut self, usage: Option<UsageReader>) -> Self {
        self.usage = usage.map(Box::new);
        self
    }

    /// Notes a further `part` of the body, of which `seen` can be read.
    #[cfg_attr(
        not(any(feature = "tower", feature = "reqwest")),
        expect(dead_code, reason = "attempts read bodies")
    )]
    pub(crate) fn read(&mut self, seen: &[u8], bytes: usize) {
        self.received(bytes as u64);
        // A usage with a gap is no usage.
        self.usage.take_if(|_| seen.len() < bytes);
        if let Some(usage) = &mut self.usage {
            usage.read(seen);
        }
    }

    /// Renews the leases of a long body.
    ///
    /// Returns how long they last from now, or `None` if one has expired.
    pub fn renew(&mut self) -> Option<Duration> {
        self.leases.renew()
    }

    /// Drops the slot without a report of the body's end. Its leases expire by themselves.
    pub fn abandon(mut self) {
        self.leases.take().abandon();
    }

    /// Notes that `bytes` more of the body came.
    ///
    /// They are charged when the slot is dropped. A body that keeps coming keeps its lease.
    pub fn received(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        if let Some(guard) = self.leases.shared_mut() {
            guard.received(bytes);
        }
        let Some(part) = self.leases.parts().first() else {
            return;
        };
        let now = part.shard.clock.now();
        if now.since(self.renewed) >= RENEW_EVERY {
            self.renewed = now;
            renew(self.leases.parts());
        }
    }
}

impl Slot {
    /// Corrects the costs in named units, such as tokens, that the permit was granted for.
    ///
    /// What was estimated too much returns, and what was estimated too little is owed. A second
    /// call corrects the first. Without a call, the estimates count.
    pub fn settle(&mut self, used: &UnitCosts) {
        if let Some(guard) = self.leases.shared_mut() {
            guard.settle(used);
        }
        for part in self.leases.parts() {
            let now = part.shard.clock.now();
            part.with(|entry| entry.host.settle(now, part.lease, used, entry.config));
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let used = self.usage.take().map(|usage| usage.used());
        if let Some(used) = used.filter(|used| !used.is_empty()) {
            self.settle(&used);
        }
        for part in self.leases.parts() {
            let now = part.shard.clock.now();
            part.with(|entry| {
                entry
                    .host
                    .release(now, part.lease, self.bytes, entry.config);
            });
        }
    }
}
