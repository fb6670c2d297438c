//! Leave to send one request.

use std::sync::Arc;
use std::time::Duration;

use politely_core::Timestamp;
use politely_core::gate::LeaseId;
use politely_core::host::Directions;
use politely_core::signal::{Report, Signal};
use smallvec::SmallVec;

use crate::registry::{Entry, SharedShard};

/// A body's chunks renew its lease this often: far below any sensible lease, far above a chunk's time.
const RENEW_EVERY: Duration = Duration::from_secs(1);

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
                    .release(now, part.lease, report.bytes, entry.config);
            });
        }
        teach(first, report, |entry| {
            entry
                .host
                .report(now, first.lease, report, entry.config, entry.rng)
        })
    }

    /// [`Permit::report`] as soon as the response's head is there: what it says is learned now, while the
    /// slots stay taken until the body has come, since that is how long the server counts the request.
    ///
    /// # Panics
    /// Never: a permit has at least one key.
    pub fn heard(mut self, report: &Report) -> (Directions, Slot) {
        let parts = std::mem::take(&mut self.parts);
        let first = parts.first().expect("a permit has a key");
        let now = first.shard.clock.now();
        let directions = teach(first, report, |entry| {
            entry
                .host
                .hear(now, first.lease, report, entry.config, entry.rng)
        });
        let slot = Slot {
            parts,
            bytes: 0,
            renewed: now,
        };
        (directions, slot)
    }

    /// Extends the leases of a request that takes long; `false` if one has expired.
    pub fn renew(&self) -> bool {
        renew(&self.parts)
    }
}

/// The in-flight slots of a request whose head has come and whose body has not. They return when it is dropped.
#[must_use = "dropping it says that the body has come"]
#[derive(Debug)]
pub struct Slot {
    parts: SmallVec<[Part; 1]>,
    bytes: u64,
    renewed: Timestamp,
}

impl Slot {
    /// So many bytes of the body came: they are charged when the slot is dropped, and a body that keeps
    /// coming keeps its lease.
    pub fn received(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        let Some(part) = self.parts.first() else {
            return;
        };
        let now = part.shard.clock.now();
        if now.since(self.renewed) >= RENEW_EVERY {
            self.renewed = now;
            renew(&self.parts);
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        for part in &self.parts {
            let now = part.shard.clock.now();
            part.with(|entry| {
                entry
                    .host
                    .release(now, part.lease, self.bytes, entry.config);
            });
        }
    }
}

fn renew(parts: &[Part]) -> bool {
    parts.iter().all(|part| {
        let now = part.shard.clock.now();
        part.with(|entry| entry.host.renew(now, part.lease, entry.config))
            .unwrap_or(false)
    })
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
            .finish_non_exhaustive()
    }
}

/// What the first key makes of `report`, entered in the books.
fn teach(
    part: &Part,
    report: &Report,
    tell: impl FnOnce(&mut Entry<'_>) -> Directions,
) -> Directions {
    let directions = part
        .with(|entry| {
            *entry.saved = false;
            let directions = tell(entry);
            entry.stats.reported += u64::from(!directions.late);
            entry.stats.late += u64::from(directions.late);
            entry.stats.refused += u64::from(report.signal == Signal::RateLimited);
            directions
        })
        .unwrap_or_else(|| Directions {
            hold_until: part.shard.clock.now(),
            rate: 0.0,
            event: false,
            late: true,
        });
    if directions.event {
        tracing::debug!(signal = ?report.signal, status = report.status, rate = directions.rate, "event");
    }
    directions
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Clock, Config, Key, Limiter};

    fn limiter() -> Limiter {
        let config = Config::fixed(10.0, 4.0);
        let clock = Clock::tokio();
        let builder = Limiter::builder().config(config).clock(clock);
        builder.build().unwrap()
    }

    /// (in flight, granted, reported, cancelled, expired)
    fn books(limiter: &Limiter, key: &Key) -> (u32, u64, u64, u64, u64) {
        let known = limiter.explain(key).unwrap();
        let tally = known.tally;
        let accounted = tally.reported + tally.cancelled + tally.expired + tally.live;
        assert_eq!(tally.granted, accounted);
        let (granted, reported) = (tally.granted, tally.reported);
        (
            known.in_flight.0,
            granted,
            reported,
            tally.cancelled,
            tally.expired,
        )
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_heard_is_learned_at_once_and_in_flight_until_its_end() {
        let (limiter, key) = (limiter(), Key::host("a.example").unwrap());
        let permit = limiter.try_acquire(&key).unwrap();
        let mut report = Report::of(Signal::RateLimited);
        report.retry_after = Some(Duration::from_secs(5));
        let (directions, slot) = permit.heard(&report);
        assert!(directions.event && !directions.late);
        assert!(directions.hold_until >= limiter.now() + Duration::from_secs(5));
        assert_eq!(limiter.stats().reported, 1);
        assert_eq!(books(&limiter, &key), (1, 1, 0, 0, 0));
        drop(slot);
        assert_eq!(books(&limiter, &key), (0, 1, 1, 0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_keeps_coming_keeps_its_lease() {
        let (limiter, key) = (limiter(), Key::host("a.example").unwrap());
        let (_, mut slot) = limiter
            .try_acquire(&key)
            .unwrap()
            .heard(&Report::of(Signal::Ok));
        for _ in 0..10 {
            tokio::time::advance(Duration::from_mins(1)).await;
            slot.received(1 << 20);
        }
        assert_eq!(books(&limiter, &key), (1, 1, 0, 0, 0));
        drop(slot);
        assert_eq!(books(&limiter, &key), (0, 1, 1, 0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_stalls_loses_it_and_is_counted_once() {
        let (limiter, key) = (limiter(), Key::host("a.example").unwrap());
        let (_, slot) = limiter
            .try_acquire(&key)
            .unwrap()
            .heard(&Report::of(Signal::Ok));
        tokio::time::advance(Duration::from_mins(3)).await;
        assert_eq!(books(&limiter, &key), (0, 1, 0, 0, 1));
        drop(slot);
        assert_eq!(books(&limiter, &key), (0, 1, 0, 0, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_that_was_heard_and_dropped_is_not_lost() {
        let (limiter, key) = (limiter(), Key::host("a.example").unwrap());
        let ask = async |signal| {
            let permit = limiter.acquire(&key).await.unwrap();
            drop(permit.heard(&Report::of(signal)));
        };
        for _ in 0..5 {
            ask(Signal::Overloaded).await;
        }
        ask(Signal::Ok).await;
        assert_eq!(limiter.explain(&key).unwrap().wait, None, "closed again");
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_holds_all_its_keys() {
        let limiter = limiter();
        let keys = ["a.example", "b.example"].map(|name| Key::host(name).unwrap());
        let permit = limiter.try_acquire(&keys).unwrap();
        let (_, slot) = permit.heard(&Report::of(Signal::Ok));
        for key in &keys {
            assert_eq!(books(&limiter, key), (1, 1, 0, 0, 0));
        }
        drop(slot);
        for key in &keys {
            assert_eq!(books(&limiter, key), (0, 1, 1, 0, 0));
        }
    }
}
