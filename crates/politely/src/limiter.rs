//! Leave to send, key by key.
//!
//! [`Limiter::try_acquire`] answers at once, with a permit or with the time to ask again: what a scheduler
//! wants that has other hosts to turn to. [`Limiter::acquire`] waits in the key's line: what a client
//! wants that has one request to make. Nobody in a line is overtaken, by either.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use politely_core::Timestamp;
use politely_core::config::{Config, InvalidConfig};
use politely_core::gate::HoldReason;
use politely_core::host::{Ask, Decision, Explanation, Host, Reason, Wait};
use politely_core::key::Key;
use smallvec::SmallVec;

use crate::asked::{AcquireError, Keys, Refusal, RefusalReason, SetError};
use crate::clock::Clock;
use crate::permit::{Part, Permit};
use crate::registry::{Entry, Full, Registry, SharedShard};
use crate::stats::Stats;
use crate::sync::{AtomicBool, AtomicU64, sleep};
use crate::waiters::{Rank, Ticket, Waiters};

/// Hands out permits and keeps every key's state. Cheap to clone; clones share all.
#[derive(Clone)]
pub struct Limiter(Arc<Inner>);

struct Inner {
    registry: Registry,
    clock: Clock,
    line_max: usize,
    closed: AtomicBool,
    /// How many came to wait so far.
    came: AtomicU64,
}

/// Makes a [`Limiter`].
#[derive(Clone, Debug)]
pub struct Builder {
    config: Config,
    capacity: usize,
    line_max: usize,
    clock: Option<Clock>,
    seed: Option<u64>,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            config: Config::default(),
            capacity: 1 << 20,
            line_max: 1 << 16,
            clock: None,
            seed: None,
        }
    }
}

impl Builder {
    /// What every key is told that has no configuration of its own. Default [`Config::crawler`].
    #[must_use]
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Most keys kept. Default 1,048,576, at most about 300 MB.
    #[must_use]
    pub const fn capacity(mut self, keys: usize) -> Self {
        self.capacity = keys;
        self
    }

    /// Most that may wait for one key. Default 65,536, about 100 bytes each.
    #[must_use]
    pub const fn line_max(mut self, waiters: usize) -> Self {
        self.line_max = waiters;
        self
    }

    /// Where time comes from. Default [`Clock::system`].
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Makes all jitter repeatable. Default: a seed of the process.
    #[must_use]
    pub const fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// The limiter.
    ///
    /// # Errors
    /// The first number of the configuration that makes no sense.
    pub fn build(self) -> Result<Limiter, InvalidConfig> {
        self.config.validate()?;
        let clock = self.clock.unwrap_or_else(Clock::system);
        let seed = self.seed.unwrap_or_else(|| {
            use std::hash::BuildHasher;
            foldhash::fast::RandomState::default().hash_one(0_u8)
        });
        let registry = Registry::new(&Arc::new(self.config), &clock, self.capacity.max(1), seed);
        let closed = AtomicBool::new(false);
        Ok(Limiter(Arc::new(Inner {
            registry,
            clock,
            line_max: self.line_max,
            closed,
            came: AtomicU64::new(0),
        })))
    }
}

impl Limiter {
    /// A limiter to be.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// This limiter's time.
    pub fn now(&self) -> Timestamp {
        self.0.clock.now()
    }

    /// A permit for all `keys`, if each allows it now; otherwise nothing is taken.
    ///
    /// # Errors
    /// The first key that is in the way, why, and when to ask again.
    ///
    /// # Panics
    /// If no key is named.
    pub fn try_acquire<'a>(&self, keys: impl Into<Keys<'a>>) -> Result<Permit, Refusal> {
        let Keys(keys) = keys.into();
        if let [key] = keys {
            let part = self.try_part(key, 0, Rank::MAX, true)?;
            return Ok(Permit {
                parts: SmallVec::from_buf([part]),
                sent: false,
                given: true,
            });
        }
        let mut permit = Permit {
            parts: SmallVec::new(),
            sent: false,
            given: false,
        };
        for (index, key) in distinct(keys) {
            // On the way out the permit gives back what it has of the others.
            let part = self.try_part(key, index, Rank::MAX, false)?;
            permit.parts.push(part);
        }
        permit.given = true;
        let first = permit.parts.first().expect("a request needs a key");
        first.shard.lock().stats.granted += 1;
        Ok(permit)
    }

    /// A permit for all `keys`, as soon as each allows it. Those who wait for a key are served in the order
    /// they came; with several keys, one waits in the line of the key that is in the way.
    ///
    /// Cancel-safe: a future that is dropped leaves the line and takes nothing with it.
    ///
    /// # Errors
    /// The limiter is closed, the key parked, or its line or the registry full.
    pub async fn acquire<'a>(&self, keys: impl Into<Keys<'a>>) -> Result<Permit, AcquireError> {
        let Keys(keys) = keys.into();
        if keys.is_empty() {
            return Err(AcquireError::NoKey);
        }
        let mut refusal = match self.try_acquire(keys) {
            Ok(permit) => return Ok(permit),
            Err(refusal) => refusal,
        };
        let began = self.now();
        let rank = self.0.came.fetch_add(1, Ordering::Relaxed);
        loop {
            match refusal.reason {
                RefusalReason::Closed => return Err(AcquireError::Closed),
                RefusalReason::Full => return Err(AcquireError::Full),
                RefusalReason::Wait(_) | RefusalReason::Line => {}
            }
            let waited_for = refusal.index;
            let part = self.wait_in_line(&keys[waited_for], rank).await?;
            match self.complete(keys, waited_for, part, rank) {
                Ok(permit) => {
                    let mut shard = permit.parts[0].shard.lock();
                    let waited = self.now().since(began);
                    shard.stats.granted += 1;
                    shard.stats.waits += 1;
                    shard.stats.waited += waited;
                    drop(shard);
                    metrics::histogram!("politely_wait_seconds").record(waited.as_secs_f64());
                    return Ok(permit);
                }
                Err(in_the_way) => refusal = in_the_way,
            }
        }
    }

    /// An operator's number for one key: `rate` requests per second, `burst` back to back. What a law learns
    /// stays below it; where nothing is learned (the laws `Fixed` and `Advice`) it is the rate, also above the
    /// configured one. Those who wait feel it at once.
    ///
    /// # Errors
    /// A number that makes no sense, or no room for the key.
    pub fn set_rate(&self, key: &Key, rate: f64, burst: f64) -> Result<(), SetError> {
        let mut check = Config::fixed(rate, burst);
        check.limits.rate_start = check.limits.rate_max;
        check.validate()?;
        self.with_key(key, |now, entry| {
            entry.host.set_rate(now, rate, burst, entry.config);
        })?;
        Ok(())
    }

    /// Gives one key a configuration of its own; it is never evicted. Its state begins anew, so do this
    /// before its first request.
    ///
    /// # Errors
    /// The first number that makes no sense, or no room for the key.
    pub fn configure(&self, key: &Key, config: Config) -> Result<(), SetError> {
        config.validate()?;
        let now = self.now();
        let (shard, hash) = self.0.registry.shard(key);
        let mut shard = shard.lock();
        let slot = self.0.registry.slot(&mut shard, key, hash, now)?;
        shard.configure(slot, &Arc::new(config), now);
        Ok(())
    }

    /// Nothing leaves for `key` during `length` from now on, unless it is held for longer already.
    ///
    /// # Errors
    /// No room for the key: who asks for a permit is told so too, until there is, and then the hold is lost.
    pub fn hold(&self, key: &Key, length: Duration, reason: HoldReason) -> Result<(), Full> {
        self.with_key(key, |now, entry| {
            entry.host.hold(now, now + length, reason);
        })
    }

    /// Lifts hold, breaker and quarantine of `key`; one that is not known has none.
    pub fn unpark(&self, key: &Key) {
        _ = self.with_key(key, |_, entry| entry.host.unpark());
    }

    /// Why `key` waits, until when, since which event; `None` if it is not known.
    pub fn explain(&self, key: &Key) -> Option<Explanation> {
        let now = self.now();
        let (shard, hash) = self.0.registry.shard(key);
        let mut shard = shard.lock();
        let slot = shard.find(key, hash)?;
        let entry = shard.get(slot);
        Some(entry.host.explain(now, entry.config))
    }

    /// Totals and the present state. Visits every shard.
    pub fn stats(&self) -> Stats {
        let mut sum = Stats::default();
        for shard in self.0.registry.shards() {
            let shard = shard.lock();
            sum += shard.stats;
            sum.memory += shard.memory() as u64;
            sum.waiting += shard
                .iter()
                .filter_map(|slot| slot.waiters.as_deref())
                .map(Waiters::len)
                .sum::<usize>() as u64;
        }
        sum.keys = self.0.registry.len() as u64;
        sum
    }

    /// All keys known, in no order.
    pub fn keys(&self) -> Vec<Key> {
        let shards = self.0.registry.shards().iter();
        shards
            .flat_map(|shard| {
                shard
                    .lock()
                    .iter()
                    .map(|slot| slot.key.clone())
                    .collect::<Vec<_>>()
            })
            .collect()
    }

    /// The state of `key` as bytes, to be given to [`Limiter::restore`] after a restart; `None` if it is not
    /// known. What is saved may be evicted when room is short.
    pub fn snapshot(&self, key: &Key) -> Option<Vec<u8>> {
        let (shard, hash) = self.0.registry.shard(key);
        let mut shard = shard.lock();
        let slot = shard.find(key, hash)?;
        let entry = shard.get(slot);
        *entry.saved = true;
        Some(entry.host.snapshot())
    }

    /// Takes a state back that [`Limiter::snapshot`] gave, in place of what is known of `key`. The holders
    /// of its leases are gone; their slots return.
    ///
    /// # Errors
    /// Another version's state, a damaged one, or no room for the key; what was known stays.
    pub fn restore(&self, key: &Key, state: &[u8]) -> Result<(), SetError> {
        let now = self.now();
        let (shard, hash) = self.0.registry.shard(key);
        let mut shard = shard.lock();
        let slot = self.0.registry.slot(&mut shard, key, hash, now)?;
        let mut host = Host::restore(state, now, shard.get(slot).config)?;
        host.forget_leases();
        shard.replace(slot, host);
        Ok(())
    }

    /// Ends all waiting: those in line and those who come get an error. Permits out may still be reported.
    pub fn close(&self) {
        self.0.closed.store(true, Ordering::Release);
        for shard in self.0.registry.shards() {
            shard
                .lock()
                .iter()
                .filter_map(|slot| slot.waiters.as_deref())
                .for_each(Waiters::wake_all);
        }
    }

    fn closed(&self) -> bool {
        self.0.closed.load(Ordering::Acquire)
    }

    /// `alone`: the part is the whole permit, which is counted while its shard is locked.
    fn try_part(&self, key: &Key, index: usize, rank: Rank, alone: bool) -> Result<Part, Refusal> {
        let refuse = |reason, at| Refusal {
            key: key.clone(),
            reason,
            at,
            index,
        };
        // The key first: its name may be far away, and the clock is read while it comes.
        let (shared, hash) = self.0.registry.shard(key);
        let now = self.now();
        if self.closed() {
            return Err(refuse(RefusalReason::Closed, Timestamp::NEVER));
        }
        let mut shard = shared.lock();
        let slot = self
            .0
            .registry
            .slot(&mut shard, key, hash, now)
            .map_err(|Full| refuse(RefusalReason::Full, now + Duration::from_secs(1)))?;
        let entry = shard.get(slot);
        let overtaking = |waiters: &Waiters| waiters.is_before(rank);
        if entry.waiters.as_deref().is_some_and(overtaking) {
            entry.stats.turned_away += 1;
            let at = entry
                .host
                .explain(now, entry.config)
                .wait
                .map_or(now, |wait| wait.at);
            return Err(refuse(RefusalReason::Line, at));
        }
        match grant(now, slot, entry, shared) {
            Ok(part) => {
                shard.stats.granted += u64::from(alone);
                Ok(part)
            }
            Err(wait) => {
                shard.stats.turned_away += 1;
                Err(refuse(RefusalReason::Wait(wait.reason), wait.at))
            }
        }
    }

    /// The other keys, now that one has been waited for.
    fn complete(
        &self,
        keys: &[Key],
        waited_for: usize,
        part: Part,
        rank: Rank,
    ) -> Result<Permit, Refusal> {
        let mut permit = Permit {
            parts: SmallVec::from_buf([part]),
            sent: false,
            given: false,
        };
        let mut before = 0;
        for (index, key) in distinct(keys).filter(|(index, _)| *index != waited_for) {
            permit.parts.push(self.try_part(key, index, rank, false)?);
            before += usize::from(index < waited_for);
        }
        // In the order they were named: the first hears the outcome.
        permit.parts[..=before].rotate_left(1);
        permit.given = true;
        Ok(permit)
    }

    async fn wait_in_line(&self, key: &Key, rank: Rank) -> Result<Part, AcquireError> {
        let place = self.join_line(key, rank)?;
        loop {
            if self.closed() {
                return Err(AcquireError::Closed);
            }
            let now = self.now();
            let at = match place.step(now) {
                Step::Served(part) => return Ok(part),
                Step::Behind => Timestamp::NEVER,
                // Whoever leaves wakes the next, who is told the same.
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

    fn join_line(&self, key: &Key, rank: Rank) -> Result<Place, AcquireError> {
        let (shared, hash) = self.0.registry.shard(key);
        let mut shard = shared.lock();
        let slot = self
            .0
            .registry
            .slot(&mut shard, key, hash, self.now())
            .map_err(|Full| AcquireError::Full)?;
        let waiters = shard.get(slot).waiters;
        if waiters.as_ref().map_or(0, |line| line.len()) >= self.0.line_max {
            return Err(AcquireError::LineFull(key.clone()));
        }
        let ticket = waiters.get_or_insert_default().join(rank);
        Ok(Place {
            shared: Arc::clone(shared),
            slot,
            ticket,
        })
    }

    fn with_key(&self, key: &Key, f: impl FnOnce(Timestamp, &mut Entry<'_>)) -> Result<(), Full> {
        let now = self.now();
        let (shard, hash) = self.0.registry.shard(key);
        let mut shard = shard.lock();
        let slot = self.0.registry.slot(&mut shard, key, hash, now)?;
        let mut entry = shard.get(slot);
        f(now, &mut entry);
        *entry.saved = false;
        if let Some(waiters) = entry.waiters {
            waiters.wake_head();
        }
        Ok(())
    }
}

impl std::fmt::Debug for Limiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Limiter")
            .field("keys", &self.0.registry.len())
            .finish_non_exhaustive()
    }
}

#[expect(clippy::needless_pass_by_value, reason = "a view made for this call")]
fn grant(
    now: Timestamp,
    slot: u32,
    entry: Entry<'_>,
    shard: &Arc<SharedShard>,
) -> Result<Part, Wait> {
    match entry.host.request(now, Ask::default(), entry.config) {
        Decision::Wait(wait) => Err(wait),
        Decision::Granted(grant) => Ok(Part {
            shard: Arc::clone(shard),
            slot,
            born: entry.born,
            lease: grant.lease,
        }),
    }
}

/// A key once, where it is named first.
fn distinct(keys: &[Key]) -> impl Iterator<Item = (usize, &Key)> {
    let named = |(index, key): &(usize, &Key)| !keys[..*index].contains(key);
    keys.iter().enumerate().filter(named)
}

/// A place in a line; leaves it when dropped. A key with a line is never evicted, so its slot stays its own.
struct Place {
    shared: Arc<SharedShard>,
    slot: u32,
    ticket: Ticket,
}

enum Step {
    Served(Part),
    Head(Wait),
    Behind,
}

impl Place {
    fn step(&self, now: Timestamp) -> Step {
        let mut shard = self.shared.lock();
        let entry = shard.get(self.slot);
        if !entry
            .waiters
            .as_ref()
            .is_some_and(|waiters| waiters.is_head(&self.ticket))
        {
            return Step::Behind;
        }
        match grant(now, self.slot, entry, &self.shared) {
            Ok(part) => Step::Served(part),
            Err(wait) => Step::Head(wait),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut shard = self.shared.lock();
        let entry = shard.get(self.slot);
        let Some(waiters) = entry.waiters else { return };
        waiters.leave(&self.ticket);
        if waiters.is_empty() {
            *entry.waiters = None;
        }
    }
}
