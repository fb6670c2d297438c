//! The queue of a key.
//!
//! A request of several keys waits in one queue at a time. It then needs all other keys at that
//! moment. Requests of a single key could take each of them meanwhile, and that moment would never
//! come.
//!
//! So a request that one key granted and another refused keeps its place in the first key's queue.
//! The requests behind it wait for the time of one departure, and for twice as long in each further
//! round. They lose a departure or two, and the request is served after a few rounds. A request
//! that waits for a hold of an hour blocks no queue.

use std::sync::Arc;
use std::time::Duration;

use politely_core::Timestamp;
use politely_core::gate::Rate;
use politely_core::host::{AcquireRequest, Decision, Reason, Wait};
use politely_core::key::Key;

use super::registry::{Entry, Full, SharedShard};
use super::waiters::{Arrival, Ticket};
use super::{Local, permit};
use crate::error::AcquireError;
use crate::permit::Permit;
use crate::sync::sleep;

/// The minimum time for which a place is kept. A key whose rate is not the bottleneck has no
/// departure interval to go by.
const KEPT_MIN: Duration = Duration::from_millis(10);

impl Local {
    /// Waits until `key` grants a permit to `arrival`. The place in the queue is kept until it is
    /// dropped.
    pub(super) async fn wait_in_queue(
        &self,
        key: &Key,
        ask: AcquireRequest,
        arrival: Arrival,
    ) -> Result<(Place, Permit), AcquireError> {
        let place = self.join_queue(key, arrival)?;
        loop {
            if self.closed() {
                return Err(AcquireError::Closed);
            }
            let now = self.now();
            let at = match place.step(now, ask.clone()) {
                Step::Served(permit) => return Ok((place, permit)),
                Step::Behind => Timestamp::NEVER,
                // The caller leaves the queue and wakes the next one, which gets the same error.
                Step::Head(Wait {
                    at,
                    reason: Reason::Parked(_),
                }) => return Err(AcquireError::Parked(key.clone(), at.since(now))),
                Step::Head(wait) => wait.at,
            };
            let woken = place.ticket.notified();
            if at == Timestamp::NEVER {
                woken.await;
            } else {
                tokio::select! {
                    () = woken => {}
                    () = sleep(at.since(now)) => {}
                }
            }
        }
    }

    fn join_queue(&self, key: &Key, arrival: Arrival) -> Result<Place, AcquireError> {
        let found = self.registry.find_or_make(key, self.now());
        let mut found = found.map_err(|Full| AcquireError::Full)?;
        let (shared, slot) = (Arc::clone(found.shared), found.slot);
        let Entry { waiters, stats, .. } = found.entry();
        if waiters.as_ref().map_or(0, |line| line.len()) >= self.queue_max {
            return Err(AcquireError::QueueFull(key.clone()));
        }
        let ticket = waiters.get_or_insert_default().join(arrival);
        stats.waiting += 1;
        Ok(Place {
            shared,
            slot,
            arrival,
            ticket,
        })
    }
}

/// A place in a queue. Dropping it leaves the queue. A key with a queue is never evicted, so its
/// slot does not change.
pub(super) struct Place {
    shared: Arc<SharedShard>,
    slot: u32,
    arrival: Arrival,
    ticket: Ticket,
}

enum Step {
    Served(Permit),
    Head(Wait),
    Behind,
}

impl Place {
    fn step(&self, now: Timestamp, ask: AcquireRequest) -> Step {
        let mut shard = self.shared.lock();
        let mut entry = shard.get(self.slot);
        if !entry
            .waiters
            .as_ref()
            .is_some_and(|waiters| waiters.is_head(&self.ticket))
        {
            return Step::Behind;
        }
        match entry.host.request(now, ask, entry.config) {
            Decision::Granted(grant) => {
                if entry.host.has_spent() {
                    entry.learned();
                }
                let shared = Arc::clone(&self.shared);
                Step::Served(permit(grant, entry.slot, entry.generation, shared, false))
            }
            Decision::Wait(wait) => Step::Head(wait),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut shard = self.shared.lock();
        let entry = shard.get(self.slot);
        let Some(waiters) = entry.waiters else { return };
        waiters.leave(self.arrival, &self.ticket);
        entry.stats.waiting -= 1;
        if waiters.is_empty() {
            *entry.waiters = None;
        }
    }
}

/// Places in the queues of keys that granted a permit while another key refused.
#[derive(Default)]
pub(super) struct KeptPlaces {
    /// The places, by the index of the key in the request.
    places: Vec<(usize, Place)>,
    lasts: Duration,
    rounds: u32,
}

impl KeptPlaces {
    /// Keeps `place` in the queue of a key that grants `rate` requests per second.
    pub(super) fn keep(&mut self, key: usize, place: Place, rate: f64) {
        let interval = Rate::per_second(rate).interval().max(KEPT_MIN);
        self.lasts = interval.saturating_mul(1 << self.rounds.min(31));
        self.rounds += 1;
        self.places.push((key, place));
    }

    /// Returns the result of `waiting` for `key`. If it takes too long, the kept places are given
    /// up.
    pub(super) async fn during<T>(&mut self, key: usize, waiting: impl Future<Output = T>) -> T {
        // A kept place in the same queue would stand before the new one and block it.
        self.places.retain(|(kept, _)| *kept != key);
        if self.places.is_empty() {
            return waiting.await;
        }
        tokio::pin!(waiting);
        tokio::select! {
            done = &mut waiting => return done,
            () = sleep(self.lasts) => self.places.clear(),
        }
        waiting.await
    }
}
