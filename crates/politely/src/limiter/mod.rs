//! The limiter: grants permits per key.
//!
//! [`Limiter::try_acquire`] returns at once, with a permit or with the time to ask again. It is for
//! schedulers that have other hosts to turn to. [`Limiter::acquire`] waits in the key's queue. It
//! is for clients that have one request to send. Neither overtakes a request that waits in a queue.

mod line;
mod operate;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use politely_core::Timestamp;
use politely_core::config::{Config, InvalidConfig};
use politely_core::host::{Ask, Decision, Grant};
use politely_core::key::Key;

use crate::asked::{AcquireError, Keys, Refusal, RefusalReason, alone, distinct, of_key};
use crate::birth::Birth;
use crate::clock::Clock;
use crate::elsewhere::Elsewhere;
use crate::permit::{Departure, Part, Permit};
use crate::registry::{Registry, SharedShard};
use crate::sync::{AtomicBool, AtomicU64};
use crate::waiters::{Turn, Waiters};

use self::line::KeptPlaces;

/// Grants permits and keeps the state of every key. Clones are cheap and share all state.
#[derive(Clone)]
pub struct Limiter(Arc<Inner>);

struct Inner {
    registry: Registry,
    clock: Clock,
    line_max: usize,
    closed: AtomicBool,
    /// The last arrival that was assigned, in microseconds.
    came: AtomicU64,
    /// The backend that permits come from, if it is not the registry.
    elsewhere: Option<Box<dyn Elsewhere>>,
}

/// Builds a [`Limiter`].
#[derive(Clone, Debug)]
pub struct Builder {
    pub(crate) config: Config,
    pub(crate) capacity: usize,
    line_max: usize,
    pub(crate) clock: Option<Clock>,
    pub(crate) seed: Option<u64>,
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
    /// Sets the configuration of all keys that have none of their own. Default:
    /// [`Config::crawler`].
    #[must_use]
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Declares the rate of every key, in requests per second. Nothing is learned then: the rate
    /// stays as declared, and holds and breakers still apply.
    ///
    /// Of [`Builder::config`], the other numbers stay as they are. Four requests may be in flight
    /// per key unless [`Builder::in_flight`] says otherwise.
    #[must_use]
    pub fn rate(mut self, per_second: f64) -> Self {
        self.config = self.config.with_rate(per_second);
        self
    }

    /// Sets how many requests of a key may leave back to back after a rest. Default: 1.
    #[must_use]
    pub fn burst(mut self, requests: u32) -> Self {
        self.config.limits.burst = f64::from(requests);
        self
    }

    /// Sets the most requests of a key in flight. Default: 4.
    #[must_use]
    pub const fn in_flight(mut self, requests: u32) -> Self {
        self.config.limits.in_flight = requests;
        self
    }

    /// Sets the maximum number of keys. Default: 1,048,576, which is at most about 300 MB.
    ///
    /// At that number, a new key takes the place of a key that would lose nothing. Such a key has
    /// no permits out, no waiters, no hold and no settings. It learned nothing in 24 hours that
    /// [`Limiter::snapshot`] or [`Limiter::take_learned`] has not returned. If there is no such
    /// key, the new one is refused with `Full`.
    #[must_use]
    pub const fn capacity(mut self, keys: usize) -> Self {
        self.capacity = keys;
        self
    }

    /// Sets the maximum number of waiters per key. Default: 65,536, about 100 bytes each.
    #[must_use]
    pub const fn line_max(mut self, waiters: usize) -> Self {
        self.line_max = waiters;
        self
    }

    /// Sets the source of time. Default: [`Clock::system`]. If Tokio's time is paused, use
    /// [`Clock::tokio`].
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Makes all jitter repeatable. Default: a random seed.
    #[must_use]
    pub const fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Builds the limiter.
    ///
    /// # Errors
    /// [`InvalidConfig`] for the first invalid number of the configuration.
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
            elsewhere: None,
        })))
    }
}

impl Limiter {
    /// Returns the builder of a limiter.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Creates a limiter whose permits come from a backend.
    pub(crate) fn from(elsewhere: Box<dyn Elsewhere>, clock: Clock) -> Self {
        Self(Arc::new(Inner {
            registry: Registry::new(&Arc::default(), &clock, 1, 0),
            clock,
            line_max: 0,
            closed: AtomicBool::new(false),
            came: AtomicU64::new(0),
            elsewhere: Some(elsewhere),
        }))
    }

    pub(crate) fn elsewhere(&self) -> Option<&dyn Elsewhere> {
        self.0.elsewhere.as_deref()
    }

    /// Returns the time of this limiter's clock.
    pub fn now(&self) -> Timestamp {
        self.0.clock.now()
    }

    /// Returns a permit for all `keys` if each allows it now. Otherwise nothing is taken.
    ///
    /// # Errors
    /// [`Refusal`] with the first key that refused, the reason, and the time to ask again.
    ///
    /// # Panics
    /// If `keys` is empty.
    #[inline(always)]
    pub fn try_acquire<'a>(&self, keys: impl Into<Keys<'a>>) -> Result<Permit, Refusal> {
        let keys = keys.into();
        let permit = match self.let_pass(keys) {
            Some(permit) => permit,
            None => self.try_in_turn(keys, Ask::default(), Turn::LAST)?,
        };
        Ok(permit)
    }

    /// Grants one departure of one key now, if the fast path applies.
    ///
    /// It applies if the key is known here, has no waiters, and
    /// [`Host::pass`](politely_core::host::Host::pass) allows it. This is the most frequent case.
    ///
    /// The function is compiled into its caller, so the permit is built where it stays. Extra
    /// writes would delay the processor: it should fetch the next call's key while it waits for
    /// this call's state (docs/reference/benchmarks.md).
    #[inline(always)]
    fn let_pass(&self, keys: Keys<'_>) -> Option<Permit> {
        let Keys([key]) = keys else {
            return None;
        };
        // This load comes first. It then overlaps with the previous call's wait for its state.
        let place = key.place();
        let now = self.now();
        if self.closed() {
            return None;
        }
        let (shared, slot) = self.0.registry.believed(place)?;
        let shared = Arc::clone(shared);
        let mut shard = shared.lock();
        let (born, grant) = shard.pass(slot, place, now)?;
        drop(shard);
        Some(permit(grant, slot, born, shared, true))
    }

    /// Works like [`Limiter::acquire_in_turn`], but does not wait.
    ///
    /// # Errors
    /// As [`Limiter::try_acquire`].
    ///
    /// # Panics
    /// If `keys` is empty.
    pub fn try_in_turn<'a>(
        &self,
        keys: impl Into<Keys<'a>>,
        ask: Ask,
        turn: Turn,
    ) -> Result<Permit, Refusal> {
        let Keys(keys) = keys.into();
        match (self.elsewhere(), keys) {
            (Some(elsewhere), _) => elsewhere.try_acquire(keys, ask),
            (None, [key]) => self.try_part(key, 0, ask, turn, true),
            (None, _) => self.try_several(keys, ask, turn),
        }
    }

    fn try_several(&self, keys: &[Key], ask: Ask, turn: Turn) -> Result<Permit, Refusal> {
        let ask = alone(ask);
        let mut permit: Option<Permit> = None;
        for (index, key) in distinct(keys) {
            // If a later key refuses, dropping the permit gives back the parts of the earlier keys.
            let part = self.try_part(key, index, of_key(ask, index), turn, false)?;
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

    /// Waits until each of `keys` allows the request, and returns a permit for all.
    ///
    /// Callers that wait for a key are served in the order of their arrival. With several keys, the
    /// caller waits in the queue of the key that refused. It keeps its place in the queue of a key
    /// that granted for the time of one departure, then for two, then for four. So no caller
    /// starves.
    ///
    /// Cancel-safe: a future that is dropped leaves the queue and takes nothing.
    ///
    /// # Errors
    /// The limiter is closed, the key is parked, its queue or the registry is full, or `keys` is
    /// empty.
    ///
    /// # Panics
    /// If it has to wait outside of a Tokio runtime whose time is enabled.
    pub async fn acquire<'a>(&self, keys: impl Into<Keys<'a>>) -> Result<Permit, AcquireError> {
        let keys = keys.into();
        if let Some(elsewhere) = self.elsewhere() {
            return elsewhere.acquire(keys.0, Ask::default(), self.turn()).await;
        }
        if keys.0.is_empty() {
            return Err(AcquireError::NoKey);
        }
        match self.try_acquire(keys) {
            Ok(permit) => Ok(permit),
            Err(refusal) => {
                self.wait(keys.0, Ask::default(), self.turn(), refusal)
                    .await
            }
        }
    }

    /// Returns an arrival for this caller. In every queue it stands behind all earlier arrivals.
    pub fn turn(&self) -> Turn {
        let now = self.now().as_micros();
        let later = |came: u64| Some(now.max(came.saturating_add(1)));
        let came = &self.0.came;
        let before = came.fetch_update(Ordering::Relaxed, Ordering::Relaxed, later);
        Turn::from_micros(now.max(before.unwrap_or_default().saturating_add(1)))
    }

    /// Works like [`Limiter::acquire`], with a given arrival and a given `ask`.
    ///
    /// With the `turn` of an earlier call, the caller is served as if it had waited in the queue
    /// since then. `ask` requests several departures, a reservation ahead, a cost, or bytes. A
    /// request with several keys gets one departure and none ahead.
    ///
    /// # Errors
    /// As [`Limiter::acquire`].
    ///
    /// # Panics
    /// As [`Limiter::acquire`].
    pub async fn acquire_in_turn<'a>(
        &self,
        keys: impl Into<Keys<'a>>,
        ask: Ask,
        turn: Turn,
    ) -> Result<Permit, AcquireError> {
        let Keys(keys) = keys.into();
        if keys.is_empty() {
            return Err(AcquireError::NoKey);
        }
        if let Some(elsewhere) = self.elsewhere() {
            return elsewhere.acquire(keys, ask, turn).await;
        }
        match self.try_in_turn(keys, ask, turn) {
            Ok(permit) => Ok(permit),
            Err(refusal) => self.wait(keys, ask, turn, refusal).await,
        }
    }

    /// Waits for the key that refused, until no key refuses.
    async fn wait(
        &self,
        keys: &[Key],
        ask: Ask,
        turn: Turn,
        mut refusal: Refusal,
    ) -> Result<Permit, AcquireError> {
        let began = self.now();
        let mut kept = KeptPlaces::default();
        loop {
            match refusal.reason {
                RefusalReason::Closed => return Err(AcquireError::Closed),
                RefusalReason::Full => return Err(AcquireError::Full),
                RefusalReason::Wait(_)
                | RefusalReason::Line
                | RefusalReason::Asked
                | RefusalReason::Refused => {}
            }
            let waited_for = refusal.index;
            let asked = if keys.len() == 1 { ask } else { alone(ask) };
            let waiting = self.wait_in_line(&keys[waited_for], of_key(asked, waited_for), turn);
            let (place, permit) = kept.during(waited_for, waiting).await?;
            let rate = permit.rate();
            match self.complete(keys, waited_for, permit, asked, turn) {
                Ok(mut permit) => {
                    permit.waited();
                    let mut shard = permit.parts()[0].shard.lock();
                    let waited = self.now().since(began);
                    shard.stats.granted += u64::from(permit.slots());
                    shard.stats.waits += 1;
                    shard.stats.waited += waited;
                    drop(shard);
                    metrics::histogram!("politely_wait_seconds").record(waited.as_secs_f64());
                    return Ok(permit);
                }
                Err(in_the_way) => {
                    kept.keep(waited_for, place, rate);
                    refusal = in_the_way;
                }
            }
        }
    }

    /// Asks the backend for a permit for all `keys`, and returns it if each allows it now.
    ///
    /// With an engine, this asks the engine. It waits while the engine is unavailable. It is
    /// cancel-safe, so a timeout may end it. With a coordinator, this is [`Limiter::try_acquire`],
    /// which asks the coordinator in the background. Without a backend, this is
    /// [`Limiter::try_in_turn`].
    ///
    /// # Errors
    /// As [`Limiter::try_acquire`].
    ///
    /// # Panics
    /// If `keys` is empty.
    pub async fn request<'a>(
        &self,
        keys: impl Into<Keys<'a>>,
        ask: Ask,
        turn: Turn,
    ) -> Result<Permit, Refusal> {
        let keys = keys.into();
        match self.elsewhere() {
            Some(elsewhere) => elsewhere.request(keys.0, ask, turn).await,
            None => self.try_in_turn(keys, ask, turn),
        }
    }

    /// Waits until permits came that [`Limiter::try_acquire`] was refused for.
    ///
    /// Returns their keys, of each request the first. Call `try_acquire` again for them. This is
    /// for one caller at a time. A limiter whose keys are all in this process waits forever here.
    ///
    /// Cancel-safe.
    pub async fn ready(&self) -> Vec<Key> {
        match self.elsewhere() {
            Some(elsewhere) => elsewhere.ready().await,
            None => std::future::pending().await,
        }
    }

    /// Waits until all reports and settings so far have reached the coordinator or the engine, at
    /// most for `patience`.
    ///
    /// Returns whether all have reached it. A report that a coordinator refused has not; the log
    /// has the reason. Call this at the end of a program.
    pub async fn settled(&self, patience: Duration) -> bool {
        match self.elsewhere() {
            Some(elsewhere) => elsewhere.settled(patience).await,
            None => true,
        }
    }

    /// Returns whether permits come from a coordinator or an engine, and not from this process.
    pub fn is_shared(&self) -> bool {
        self.elsewhere().is_some()
    }

    /// Calls the coordinator or the engine once, and returns whether it accepts this client.
    ///
    /// A backend that is unavailable now may accept this client later.
    ///
    /// # Errors
    /// The reason why it does not accept this client. Examples: the token is wrong, or the server
    /// is no coordinator.
    pub async fn greet(&self) -> Result<(), String> {
        match self.elsewhere() {
            Some(elsewhere) => elsewhere.greet().await,
            None => Ok(()),
        }
    }

    /// Returns the error of the last call of the coordinator or the engine, if it failed.
    pub fn trouble(&self) -> Option<String> {
        self.elsewhere()?.trouble()
    }

    /// Returns the rate of `key` in requests per second. With a coordinator or an engine, this is
    /// its last answer.
    pub fn rate(&self, key: &Key) -> Option<f64> {
        match self.elsewhere() {
            Some(elsewhere) => elsewhere.rate(key),
            None => self.explain(key).map(|explained| explained.rate),
        }
    }

    /// Ends all waiting: current and future waiters get an error. Permits already granted may still
    /// be reported.
    pub fn close(&self) {
        self.0.closed.store(true, Ordering::Release);
        if let Some(elsewhere) = self.elsewhere() {
            elsewhere.close();
        }
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

    /// Tries one key of a request. If `alone` is set, this part is the whole permit, and it is
    /// counted while its shard is locked.
    fn try_part(
        &self,
        key: &Key,
        index: usize,
        ask: Ask,
        turn: Turn,
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
        let Ok(mut found) = self.0.registry.find_or_make(key, now) else {
            return Err(refuse(RefusalReason::Full, now + Duration::from_secs(1)));
        };
        let entry = found.shard.get(found.slot);
        let overtaking = |waiters: &Waiters| waiters.is_before(turn);
        if entry.waiters.as_deref().is_some_and(overtaking) {
            entry.stats.turned_away += 1;
            let known = entry.host.look(now, entry.config);
            let at = known.wait.map_or(now, |wait| wait.at);
            return Err(refuse(RefusalReason::Line, at));
        }
        match entry.host.request(now, ask, entry.config) {
            Decision::Granted(grant) => {
                entry.stats.granted += u64::from(alone) * u64::from(grant.slots);
                let shared = Arc::clone(found.shared);
                Ok(permit(grant, entry.slot, entry.born, shared, alone))
            }
            Decision::Wait(wait) => {
                entry.stats.turned_away += 1;
                Err(refuse(RefusalReason::Wait(wait.reason), wait.at))
            }
        }
    }

    /// Acquires the other keys without waiting, after `waited_for` has granted its part.
    fn complete(
        &self,
        keys: &[Key],
        waited_for: usize,
        mut permit: Permit,
        ask: Ask,
        turn: Turn,
    ) -> Result<Permit, Refusal> {
        let mut before = 0;
        for (index, key) in distinct(keys).filter(|(index, _)| *index != waited_for) {
            permit.add(self.try_part(key, index, of_key(ask, index), turn, false)?);
            before += usize::from(index < waited_for);
        }
        // The parts stand in the order of the keys. The outcome is reported to the first key.
        permit.put_in_order(before);
        permit.given();
        Ok(permit)
    }
}

impl std::fmt::Debug for Limiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Limiter")
            .field("keys", &self.0.registry.len())
            .finish_non_exhaustive()
    }
}

#[inline(always)]
fn permit(grant: Grant, slot: u32, born: Birth, shard: Arc<SharedShard>, given: bool) -> Permit {
    let part = Part {
        shard,
        slot,
        born,
        lease: grant.lease,
    };
    let mut departure = Departure::new(grant.start, grant.rate, grant.slots, grant.unused);
    departure.given = given;
    Permit::of(part, departure)
}
