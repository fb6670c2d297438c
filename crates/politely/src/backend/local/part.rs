//! The part of a permit that belongs to one key of this process: its lease.

use std::sync::Arc;
use std::time::Duration;

use politely_core::Timestamp;
use politely_core::gate::LeaseId;
use politely_core::host::Directions;
use politely_core::signal::Report;

use super::generation::Generation;
use super::registry::{Entry, SharedShard};

/// The lease of one key.
pub(crate) struct Part {
    pub(crate) shard: Arc<SharedShard>,
    pub(crate) slot: u32,
    pub(crate) generation: Generation,
    pub(crate) lease: LeaseId,
}

impl Part {
    /// Calls `f` with the key's entry if it is still there, and wakes the head of the key's queue.
    pub(crate) fn with<T>(&self, f: impl FnOnce(&mut Entry<'_>) -> T) -> Option<T> {
        let mut shard = self.shard.lock();
        let mut entry = shard.entry_of(self.slot, self.generation)?;
        let result = f(&mut entry);
        if let Some(waiters) = entry.waiters {
            waiters.wake_head();
        }
        Some(result)
    }
}

impl std::fmt::Debug for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Part")
            .field("slot", &self.slot)
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}

/// Reports to the first key, and counts the report.
pub(crate) fn teach(
    part: &Part,
    now: Timestamp,
    report: &Report,
    tell: impl FnOnce(&mut Entry<'_>) -> Directions,
) -> Directions {
    // These directions are returned if the key is gone.
    let mut directions = Directions {
        late: true,
        ..Directions::unknown(now)
    };
    let mut key = None;
    part.with(|entry| {
        entry.learned();
        directions = tell(entry);
        entry.stats.reported += u64::from(!directions.late);
        entry.stats.late += u64::from(directions.late);
        let refused = report.signal.is_refusal() && !directions.late;
        entry.stats.refused += u64::from(refused);
        key = directions.event.then(|| entry.key.clone());
    });
    // The event is logged after the shard is unlocked, since a subscriber may be slow.
    if let Some(key) = key {
        let (key, rate) = (key.as_str(), directions.rate);
        tracing::debug!(target: "politely::permit", key, signal = ?report.signal, status = report.status, rate, "event");
    }
    directions
}

/// Renews all leases. Returns how long they last from now, or `None` if one has expired.
pub(crate) fn renew(parts: &[Part]) -> Option<Duration> {
    parts.iter().try_fold(Duration::MAX, |least, part| {
        let now = part.shard.clock.now();
        let lasts = part.with(|entry| {
            let renewed = entry.host.renew(now, part.lease, entry.config);
            renewed.then_some(entry.config.lease)
        })??;
        Some(least.min(lasts))
    })
}

/// Ends the leases of keys that only limit the request: they learn nothing from `report`.
pub(crate) fn release(parts: &[Part], report: &Report) {
    for part in parts {
        let now = part.shard.clock.now();
        part.with(|entry| {
            let host = &mut *entry.host;
            host.settle(now, part.lease, &report.used, entry.config);
            host.release(now, part.lease, report.bytes, entry.config);
        });
    }
}
