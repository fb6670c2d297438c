//! Leave to send one request.

use std::sync::Arc;

use politely_core::gate::LeaseId;
use politely_core::host::Directions;
use politely_core::signal::{Report, Signal};
use smallvec::SmallVec;

use crate::registry::{Entry, SharedShard};

/// Leave to send one request now, and the claim on its in-flight slots until it is reported.
///
/// Dropped unreported, it gives its slots back; and its tokens too, unless [`Permit::sent`] was called.
#[must_use = "a permit that is dropped gives its slot back"]
#[derive(Debug)]
pub struct Permit {
    pub(crate) parts: SmallVec<[Part; 1]>,
    pub(crate) sent: bool,
}

/// The claim on one key.
pub(crate) struct Part {
    pub(crate) shard: Arc<SharedShard>,
    pub(crate) slot: u32,
    pub(crate) born: u32,
    pub(crate) lease: LeaseId,
}

impl Permit {
    /// The request is leaving: should the permit be dropped from now on, its token stays spent.
    pub fn sent(&mut self) {
        self.sent = true;
    }

    /// What became of the request. The first key named hears the signal and answers with its directions;
    /// the others were limits to be kept: their slots return and the bytes are charged.
    ///
    /// # Panics
    /// Never: a permit has at least one key.
    pub fn report(mut self, report: &Report) -> Directions {
        let parts = std::mem::take(&mut self.parts);
        let (first, rest) = parts.split_first().expect("a permit has a key");
        let now = first.shard.clock.now();
        for part in rest {
            part.with(|entry| {
                entry
                    .host
                    .release(now, part.lease, report.bytes, entry.config)
            });
        }
        let directions = part_report(first, now, report);
        if directions.event {
            tracing::debug!(signal = ?report.signal, status = report.status, rate = directions.rate, "event");
        }
        directions
    }

    /// Extends the leases of a request that takes long; `false` if one has expired.
    pub fn renew(&self) -> bool {
        self.parts.iter().all(|part| {
            let now = part.shard.clock.now();
            part.with(|entry| entry.host.renew(now, part.lease, entry.config))
                .unwrap_or(false)
        })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        for part in &self.parts {
            let now = part.shard.clock.now();
            part.with(|entry| {
                entry.stats.cancelled += 1;
                entry.host.cancel(now, part.lease, self.sent, entry.config);
            });
        }
    }
}

impl Part {
    /// Calls `f` with the key's entry, if it is still there, and wakes who waits for the key.
    fn with<T>(&self, f: impl FnOnce(&mut Entry<'_>) -> T) -> Option<T> {
        let mut shard = self.shard.lock();
        let mut entry = shard.get_born(self.slot, self.born)?;
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
            .finish()
    }
}

fn part_report(part: &Part, now: politely_core::Timestamp, report: &Report) -> Directions {
    part.with(|entry| {
        *entry.saved = false;
        let directions = entry
            .host
            .report(now, part.lease, report, entry.config, entry.rng);
        entry.stats.reported += u64::from(!directions.late);
        entry.stats.late += u64::from(directions.late);
        entry.stats.refused += u64::from(report.signal == Signal::RateLimited);
        directions
    })
    .unwrap_or(Directions {
        hold_until: now,
        rate: 0.0,
        event: false,
        late: true,
    })
}
