//! The limiter: grants permits per key.
//!
//! [`Limiter::try_acquire`] returns at once, with a permit or with the time to ask again. It is for
//! schedulers that have other hosts to turn to. [`Limiter::acquire`] waits in the key's queue. It
//! is for clients that have one request to send. Neither overtakes a request that waits in a queue.

mod builder;
#[cfg(feature = "policy")]
mod in_force;
#[cfg(not(feature = "policy"))]
mod no_policy;
mod operate;
mod own;
#[cfg(feature = "policy")]
mod plan;
#[cfg(feature = "url")]
mod scopes;
#[cfg(feature = "policy")]
mod share;

use std::borrow::Cow;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use politely_core::Timestamp;
use politely_core::host::AcquireRequest;
use politely_core::key::Key;
use politely_store::Risk;

use crate::backend::Backend;
use crate::backend::local::waiters::Arrival;
use crate::backend::operations::{Head, Operations};
use crate::clock::Clock;
use crate::error::{AcquireError, Keys, MissingLabel, Refusal};
use crate::permit::Permit;
#[cfg(feature = "policy")]
use crate::policy::RuleBook;
use crate::sync::AtomicU64;
pub use builder::Builder;
#[cfg(feature = "policy")]
use in_force::InForce;
#[cfg(not(feature = "policy"))]
use no_policy::InForce;
#[cfg(not(feature = "policy"))]
pub(crate) use no_policy::{Plan, RequestView, Share};
use own::Own;
#[cfg(feature = "policy")]
pub use plan::{Plan, RequestView};
#[cfg(feature = "policy")]
pub use share::Share;

/// The time by which each step of priority moves a request forward in the queue.
const PRIORITY_STEP: Duration = Duration::from_secs(10);

/// Grants permits and keeps the state of every key. Clones are cheap and share all state.
#[derive(Clone)]
pub struct Limiter(Arc<Inner>);

struct Inner {
    backend: Backend,
    own: OnceLock<Own>,
    clock: Clock,
    policy: InForce,
    #[cfg(feature = "url")]
    scopes: scopes::Scopes,
    /// The last arrival that was assigned, in microseconds.
    came: AtomicU64,
}

impl Limiter {
    /// Returns the builder of a limiter.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Creates a limiter whose permits come from `backend`.
    pub(crate) fn new(backend: Backend, clock: Clock) -> Self {
        Self(Arc::new(Inner {
            backend,
            own: OnceLock::new(),
            clock,
            policy: InForce::default(),
            #[cfg(feature = "url")]
            scopes: scopes::Scopes::default(),
            came: AtomicU64::new(0),
        }))
    }

    /// Puts a new limiter under `policy`.
    #[cfg(feature = "policy")]
    pub(crate) fn under(mut self, policy: Option<Arc<RuleBook>>) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.0) {
            inner.policy = InForce::of(policy);
        }
        self
    }

    /// Adds the keys and the costs of the rules that the keys of a request fall under, if there is
    /// a policy that was not applied to them yet.
    #[inline]
    fn by_policy<'a>(
        &self,
        keys: Keys<'a>,
        ask: AcquireRequest,
    ) -> Result<(Cow<'a, [Key]>, AcquireRequest), MissingLabel> {
        if keys.are_planned || !self.0.policy.is_set() {
            return Ok((Cow::Borrowed(keys.keys), ask));
        }
        let plan = self.plan(RequestView::of_keys(keys.keys.to_vec()))?;
        let ask = plan.costing(ask);
        Ok((Cow::Owned(plan.into_keys()), ask))
    }

    pub(crate) fn operations(&self) -> &dyn Operations {
        self.0.backend.operations()
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
            None => self.try_in_turn(keys, AcquireRequest::default(), Arrival::LAST)?,
        };
        Ok(permit)
    }

    /// Grants one departure of one key now, if the key is in this process and the fast path of
    /// [`Local::pass`] applies. This is the most frequent case.
    ///
    /// The function is compiled into its caller, so the permit is built where it stays. Extra
    /// writes would delay the processor: it should fetch the next call's key while it waits for
    /// this call's state (docs/reference/benchmarks.md).
    #[inline(always)]
    fn let_pass(&self, keys: Keys<'_>) -> Option<Permit> {
        let [key] = keys.keys else {
            return None;
        };
        // This load comes first. It then overlaps with the previous call's wait for its state.
        let place = key.place();
        let Backend::Local(local) = &self.0.backend else {
            return None;
        };
        if self.0.policy.is_set() && !keys.are_planned {
            return None;
        }
        local.pass(place)
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
        ask: AcquireRequest,
        arrival: Arrival,
    ) -> Result<Permit, Refusal> {
        let keys = keys.into();
        let by_policy = self.by_policy(keys, ask);
        let (keys, ask) = by_policy.map_err(|_| Refusal::no_label(keys.keys))?;
        self.try_acquire_all(&keys, ask, arrival)
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
        if let Some(permit) = self.let_pass(keys) {
            return Ok(permit);
        }
        let (ask, arrival) = (AcquireRequest::default(), self.arrival());
        self.acquire_in_turn(keys, ask, arrival).await
    }

    /// Waits until each key of a plan allows `ask`, and returns a permit for all.
    ///
    /// In the queue of a rule with shares, the request stands among those of its group, which
    /// `consumer` selects.
    #[cfg_attr(
        not(any(feature = "tower", feature = "reqwest")),
        allow(dead_code, reason = "the HTTP layers call it")
    )]
    pub(crate) async fn acquire_planned(
        &self,
        plan: &Plan,
        ask: AcquireRequest,
        head: Head<'_>,
        consumer: &str,
    ) -> Result<Permit, AcquireError> {
        let keys = plan.keys();
        let share = self.enter_share(plan, consumer, ask.cost);
        if share.is_none()
            && ask == AcquireRequest::default()
            && let Some(permit) = self.let_pass(keys)
        {
            return Ok(permit);
        }
        let arrival = (share.as_ref()).map_or_else(|| self.arrival(), Share::arrival);
        let arrival = arrival.earlier(PRIORITY_STEP * u32::from(head.priority));
        let permit = self
            .acquire_all(keys.keys, ask, arrival, Some(head))
            .await?;
        if let Some(share) = share {
            share.granted();
        }
        Ok(permit)
    }

    /// Returns an arrival for this caller. In every queue it stands behind all earlier arrivals.
    pub fn arrival(&self) -> Arrival {
        let now = self.now().as_micros();
        let later = |came: u64| Some(now.max(came.saturating_add(1)));
        let came = &self.0.came;
        let before = came.fetch_update(Ordering::Relaxed, Ordering::Relaxed, later);
        Arrival::from_micros(now.max(before.unwrap_or_default().saturating_add(1)))
    }

    /// Works like [`Limiter::acquire`], with a given arrival and a given `ask`.
    ///
    /// With the `arrival` of an earlier call, the caller is served as if it had waited in the queue
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
        ask: AcquireRequest,
        arrival: Arrival,
    ) -> Result<Permit, AcquireError> {
        let (keys, ask) = self.by_policy(keys.into(), ask)?;
        self.acquire_all(&keys, ask, arrival, None).await
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
        ask: AcquireRequest,
        arrival: Arrival,
    ) -> Result<Permit, Refusal> {
        let keys = keys.into();
        let by_policy = self.by_policy(keys, ask);
        let (keys, ask) = by_policy.map_err(|_| Refusal::no_label(keys.keys))?;
        self.request_all(&keys, ask, arrival).await
    }

    /// Waits until permits came that [`Limiter::try_acquire`] was refused for.
    ///
    /// Returns their keys, of each request the first. Call `try_acquire` again for them. This is
    /// for one caller at a time. A limiter whose keys are all in this process waits forever here.
    ///
    /// Cancel-safe.
    pub async fn ready(&self) -> Vec<Key> {
        self.operations().ready().await
    }

    /// Waits until all reports and settings so far have reached the coordinator or the engine, at
    /// most for `patience`.
    ///
    /// Returns whether all have reached it. A report that a coordinator refused has not; the log
    /// has the reason. Call this at the end of a program.
    pub async fn flush(&self, patience: Duration) -> bool {
        self.operations().flush(patience).await
    }

    /// Returns whether permits come from a coordinator or an engine, and not from this process.
    pub fn is_shared(&self) -> bool {
        !matches!(self.0.backend, Backend::Local(_))
    }

    /// Calls the coordinator or the engine once, and returns whether it accepts this client.
    ///
    /// A backend that is unavailable now may accept this client later.
    ///
    /// # Errors
    /// The reason why it does not accept this client. Examples: the token is wrong, or the server
    /// is no coordinator.
    pub async fn ping(&self) -> Result<(), String> {
        self.operations().ping().await
    }

    /// Returns the error of the last call of the coordinator or the engine, if it failed.
    pub fn last_error(&self) -> Option<String> {
        self.operations().last_error()
    }

    /// Returns the settings of the engine that may lose acknowledged writes, the critical ones
    /// first.
    ///
    /// They are read with the first answer of the engine ([`Limiter::ping`] waits for it), every
    /// minute, and after the engine was unavailable or another server took over. Permits are
    /// granted nevertheless. A limiter without an engine has none.
    pub fn risks(&self) -> Vec<Risk> {
        self.operations().risks()
    }

    /// Returns the rate of `key` in requests per second. With a coordinator or an engine, this is
    /// its last answer.
    pub fn rate(&self, key: &Key) -> Option<f64> {
        self.operations_on(key).rate(key)
    }

    /// Ends all waiting: current and future waiters get an error. Permits already granted may still
    /// be reported.
    pub fn close(&self) {
        self.operations().close();
        if let Some(own) = self.0.own.get() {
            own.local.close();
        }
    }
}

impl std::fmt::Debug for Limiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Limiter")
            .field("is_shared", &self.is_shared())
            .finish_non_exhaustive()
    }
}
