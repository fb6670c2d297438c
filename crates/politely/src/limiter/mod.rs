//! Leave to send, key by key.
//!
//! [`Limiter::try_acquire`] answers at once, with a permit or with the time to ask again: what a scheduler
//! wants that has other hosts to turn to. [`Limiter::acquire`] waits in the key's line: what a client
//! wants that has one request to make. Nobody in a line is overtaken, by either.

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
    /// Where permits come from, if not from the registry.
    elsewhere: Option<Box<dyn Elsewhere>>,
}

/// Makes a [`Limiter`].
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
    /// What every key is told that has no configuration of its own. Default [`Config::crawler`].
    #[must_use]
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Most keys kept. Default 1,048,576, at most about 300 MB. A newcomer takes the place of a key that would lose nothing: one
    /// that has nothing out, waits for nothing, was set nothing, and learned nothing in 24 hours that
    /// [`Limiter::snapshot`] or [`Limiter::take_learned`] has not given out. If there is none, it is refused: `Full`.
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

    /// Where time comes from. Default [`Clock::system`]; where Tokio's time is paused, [`Clock::tokio`].
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
            elsewhere: None,
        })))
    }
}

impl Limiter {
    /// A limiter to be.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// A limiter whose permits come from elsewhere.
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
    #[inline(always)]
    pub fn try_acquire<'a>(&self, keys: impl Into<Keys<'a>>) -> Result<Permit, Refusal> {
        let keys = keys.into();
        let permit = match self.let_pass(keys) {
            Some(permit) => permit,
            None => self.try_in_turn(keys, Ask::default(), Turn::LAST)?,
        };
        Ok(permit)
    }

    /// One departure of one key, now, if the key is known here, nobody waits for it, and
    /// [`Host::pass`](politely_core::host::Host::pass) has nothing against it: what most ask for. It is compiled into its caller, so
    /// that the permit is made where it stays: what is written on the way adds to what keeps a processor from fetching the next
    /// call's key while it waits for this one's state (docs/reference/benchmarks.md).
    #[inline(always)]
    fn let_pass(&self, keys: Keys<'_>) -> Option<Permit> {
        let Keys([key]) = keys else {
            return None;
        };
        // First of all: it is on its way while the call before this one still waits for its state.
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

    /// [`Limiter::acquire_in_turn`] that does not wait.
    ///
    /// # Errors
    /// As [`Limiter::try_acquire`].
    ///
    /// # Panics
    /// If no key is named.
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
            // On the way out the permit gives back what it has of the others.
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

    /// A permit for all `keys`, as soon as each allows it. Those who wait for a key are served in the order
    /// they came; with several keys, one waits in the line of the key that is in the way, and keeps the place in the line of
    /// one that would have been free for a departure's time, then for two, for four: so nobody starves.
    ///
    /// Cancel-safe: a future that is dropped leaves the line and takes nothing with it.
    ///
    /// # Errors
    /// The limiter is closed, the key parked, its line or the registry full, or no key is named.
    ///
    /// # Panics
    /// Where it has to wait outside of a Tokio runtime whose time is enabled.
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

    /// A place in whatever line this caller joins: behind all who have one already.
    pub fn turn(&self) -> Turn {
        let now = self.now().as_micros();
        let later = |came: u64| Some(now.max(came.saturating_add(1)));
        let came = &self.0.came;
        let before = came.fetch_update(Ordering::Relaxed, Ordering::Relaxed, later);
        Turn::from_micros(now.max(before.unwrap_or_default().saturating_add(1)))
    }

    /// [`Limiter::acquire`] with a place in line kept from before, so that who asks again after giving up is served as if it
    /// had stood there all the time; and with `ask` for more than one departure, for a reservation ahead, a cost or
    /// bytes. A request with several keys asks for one departure and none ahead.
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

    /// Waits for what is in the way, until nothing is.
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
                Ok(permit) => {
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

    /// A permit for all `keys`, if each allows it now, from wherever permits come: where that is another process or an engine,
    /// it is asked. Without one, this is [`Limiter::try_in_turn`]; with a coordinator [`Limiter::try_acquire`], which asks it in the
    /// background. An engine that is away is waited for: cancel-safe, so that a timeout may end it.
    ///
    /// # Errors
    /// As [`Limiter::try_acquire`].
    ///
    /// # Panics
    /// If no key is named.
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

    /// Waits until permits came that [`Limiter::try_acquire`] was refused for, and says for which keys (the first of
    /// each request): it is worth calling again. For one caller at a time. A limiter whose keys are all its own has nothing
    /// to say: it waits for ever.
    ///
    /// Cancel-safe.
    pub async fn ready(&self) -> Vec<Key> {
        match self.elsewhere() {
            Some(elsewhere) => elsewhere.ready().await,
            None => std::future::pending().await,
        }
    }

    /// Waits until all that was reported or set so far has reached the coordinator or the engine, at most `patience`; says whether
    /// it has: what a coordinator refused to hear (the log says why) has not. To be called at a program's end.
    pub async fn settled(&self, patience: Duration) -> bool {
        match self.elsewhere() {
            Some(elsewhere) => elsewhere.settled(patience).await,
            None => true,
        }
    }

    /// Permits come from a coordinator or an engine, not from this process.
    pub fn is_shared(&self) -> bool {
        self.elsewhere().is_some()
    }

    /// Calls the coordinator or the engine once: whether it will listen to us. One that cannot be reached now may later.
    ///
    /// # Errors
    /// What it has against us: a wrong token, say, or it is no coordinator.
    pub async fn greet(&self) -> Result<(), String> {
        match self.elsewhere() {
            Some(elsewhere) => elsewhere.greet().await,
            None => Ok(()),
        }
    }

    /// Why the coordinator or the engine did not answer the last call, if it did not.
    pub fn trouble(&self) -> Option<String> {
        self.elsewhere()?.trouble()
    }

    /// Requests per second for `key`, as the coordinator or the engine said last; without one, as it is now.
    pub fn rate(&self, key: &Key) -> Option<f64> {
        match self.elsewhere() {
            Some(elsewhere) => elsewhere.rate(key),
            None => self.explain(key).map(|explained| explained.rate),
        }
    }

    /// Ends all waiting: those in line and those who come get an error. Permits out may still be reported.
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

    /// `alone`: the part is the whole permit, which is counted while its shard is locked.
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

    /// The other keys, now that one has been waited for.
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
        // In the order they were named: the first hears the outcome.
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
