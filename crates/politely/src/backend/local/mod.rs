//! Keys in this process.
//!
//! | file | the question that it answers |
//! | --- | --- |
//! | `mod.rs` | May a request leave now, and does it wait? |
//! | `operations.rs` | How are all other operations of a limiter carried out? |
//! | `registry.rs` | Where is the state of a key? |
//! | `registry/room.rs` | Which key leaves memory to make room, and how does it come back? |
//! | `slab.rs`, `index.rs`, `generation.rs` | How does the registry find a state fast? |
//! | `waiters.rs`, `queue.rs` | Which waiter of a key is next? How does it wait? |
//! | `part.rs` | What does a permit hold of one key? |

pub(crate) mod generation;
mod index;
mod operations;
pub(crate) mod part;
mod queue;
pub(crate) mod registry;
mod slab;
pub(crate) mod waiters;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use politely_core::Timestamp;
use politely_core::config::Config;
use politely_core::host::{AcquireRequest, Decision, Grant};
use politely_core::key::Key;

use self::generation::Generation;
use self::part::Part;
use self::queue::KeptPlaces;
use self::registry::{Registry, SharedShard};
use self::waiters::{Arrival, Waiters};
use crate::backend::operations::first_that_never_fits;
use crate::clock::Clock;
use crate::error::{AcquireError, Refusal, RefusalReason, alone, distinct, of_key};
use crate::locks::LockChanges;
use crate::permit::{Departure, Permit};
use crate::saved_states::SavedStates;
use crate::sync::AtomicBool;

/// The backend whose keys are in this process.
pub(crate) struct Local {
    registry: Registry,
    clock: Clock,
    queue_max: usize,
    closed: AtomicBool,
    lock_changes: LockChanges,
}

impl Local {
    /// Creates a backend for at most `keys_max` keys with at most `queue_max` waiters each.
    pub(crate) fn new(
        config: Config,
        clock: Clock,
        keys_max: usize,
        queue_max: usize,
        seed: u64,
        saved_states: Option<Arc<dyn SavedStates>>,
    ) -> Self {
        let config = Arc::new(config);
        Self {
            registry: Registry::new(&config, &clock, keys_max, seed, saved_states),
            clock,
            queue_max,
            closed: AtomicBool::new(false),
            lock_changes: LockChanges::default(),
        }
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Grants one departure of the key at `place` now, if the fast path applies.
    ///
    /// It applies if the key is known here, has no waiters, and
    /// [`Host::pass`](politely_core::host::Host::pass) allows it.
    #[inline(always)]
    pub(crate) fn pass(&self, place: u64) -> Option<Permit> {
        let now = self.now();
        if self.closed() {
            return None;
        }
        let (shared, slot) = self.registry.believed(place)?;
        let shared = Arc::clone(shared);
        let mut shard = shared.lock();
        let (generation, grant) = shard.pass(slot, place, now)?;
        drop(shard);
        Some(permit(grant, slot, generation, shared, true))
    }

    fn try_several(
        &self,
        keys: &[Key],
        ask: AcquireRequest,
        arrival: Arrival,
    ) -> Result<Permit, Refusal> {
        let ask = alone(ask);
        let mut permit: Option<Permit> = None;
        for (index, key) in distinct(keys) {
            // If a later key refuses, dropping the permit gives back the parts of the earlier keys.
            let part = self.try_part(key, index, of_key(&ask, index), arrival, false)?;
            match &mut permit {
                None => permit = Some(part),
                Some(permit) => permit.add(part),
            }
        }
        let mut permit = permit.expect("a request needs a key");
        permit.given();
        permit.parts()[0].shard.lock().stats.granted += 1;
        Ok(permit)
    }

    /// Tries one key of a request. If `alone` is set, this part is the whole permit, and it is
    /// counted while its shard is locked.
    fn try_part(
        &self,
        key: &Key,
        index: usize,
        ask: AcquireRequest,
        arrival: Arrival,
        alone: bool,
    ) -> Result<Permit, Refusal> {
        let now = self.now();
        let refuse = |reason, at| Refusal {
            key: key.clone(),
            reason,
            at,
            index,
        };
        if self.closed() {
            return Err(refuse(RefusalReason::Closed, Timestamp::NEVER));
        }
        let Ok(mut found) = self.registry.find_or_make(key, now) else {
            return Err(refuse(RefusalReason::Full, now + Duration::from_secs(1)));
        };
        let mut entry = found.shard.get(found.slot);
        let overtaking = |waiters: &Waiters| waiters.is_before(arrival);
        if entry.waiters.as_deref().is_some_and(overtaking) {
            entry.stats.turned_away += 1;
            let known = entry.host.look(now, entry.config);
            let at = known.wait.map_or(now, |wait| wait.at);
            return Err(refuse(RefusalReason::Queue, at));
        }
        match entry.host.request(now, ask, entry.config) {
            Decision::Granted(grant) => {
                // The quantities that are left have to survive a kill.
                if entry.host.has_spent() {
                    entry.learned();
                }
                entry.stats.granted += u64::from(alone) * u64::from(grant.slots);
                let shared = Arc::clone(found.shared);
                Ok(permit(grant, entry.slot, entry.generation, shared, alone))
            }
            Decision::Wait(wait) => {
                entry.stats.turned_away += 1;
                Err(refuse(RefusalReason::Wait(wait.reason), wait.at))
            }
        }
    }

    /// Waits for the key that refused, until no key refuses.
    async fn wait(
        &self,
        keys: &[Key],
        ask: AcquireRequest,
        arrival: Arrival,
        mut refusal: Refusal,
    ) -> Result<Permit, AcquireError> {
        if let Some((key, limit)) = first_that_never_fits(self, keys, &ask) {
            return Err(AcquireError::NeverFits(key, limit));
        }
        let began = self.now();
        let mut kept = KeptPlaces::default();
        loop {
            match refusal.reason {
                RefusalReason::Closed => return Err(AcquireError::Closed),
                RefusalReason::Full => return Err(AcquireError::Full),
                RefusalReason::Wait(_)
                | RefusalReason::Queue
                | RefusalReason::Asked
                | RefusalReason::Refused
                | RefusalReason::Unavailable
                | RefusalReason::NoLabel => {}
            }
            let waited_for = refusal.index;
            let asked = if keys.len() == 1 {
                ask.clone()
            } else {
                alone(ask.clone())
            };
            let waiting =
                self.wait_in_queue(&keys[waited_for], of_key(&asked, waited_for), arrival);
            let (place, permit) = kept.during(waited_for, waiting).await?;
            let rate = permit.rate();
            match self.complete(keys, waited_for, permit, &asked, arrival) {
                Ok(mut permit) => {
                    permit.waited();
                    let mut shard = permit.parts()[0].shard.lock();
                    let waited = self.now().since(began);
                    shard.stats.granted += u64::from(permit.slots());
                    shard.stats.waits += 1;
                    shard.stats.waited += waited;
                    drop(shard);
                    crate::recorder::record_wait(waited);
                    return Ok(permit);
                }
                Err(refused_by_other) => {
                    kept.keep(waited_for, place, rate);
                    refusal = refused_by_other;
                }
            }
        }
    }

    /// Acquires the other keys without waiting, after `waited_for` has granted its part.
    fn complete(
        &self,
        keys: &[Key],
        waited_for: usize,
        mut permit: Permit,
        ask: &AcquireRequest,
        arrival: Arrival,
    ) -> Result<Permit, Refusal> {
        let mut before = 0;
        for (index, key) in distinct(keys).filter(|(index, _)| *index != waited_for) {
            permit.add(self.try_part(key, index, of_key(ask, index), arrival, false)?);
            before += usize::from(index < waited_for);
        }
        // The parts stand in the order of the keys. The outcome is reported to the first key.
        permit.put_in_order(before);
        permit.given();
        Ok(permit)
    }
}

#[inline(always)]
fn permit(
    grant: Grant,
    slot: u32,
    generation: Generation,
    shard: Arc<SharedShard>,
    given: bool,
) -> Permit {
    let part = Part {
        shard,
        slot,
        generation,
        lease: grant.lease,
    };
    let mut departure = Departure::new(grant.start, grant.rate, grant.slots, grant.unused);
    departure.given = given;
    Permit::of(part, departure)
}
