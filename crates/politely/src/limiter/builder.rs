//! The numbers of a new limiter.

use std::sync::Arc;

use politely_core::budget::DeclaredLimit;
use politely_core::config::{Config, InvalidConfig};

use super::Limiter;
use crate::backend::Backend;
use crate::backend::local::Local;
use crate::clock::Clock;
#[cfg(feature = "policy")]
use crate::policy::RuleBook;
use crate::saved_states::SavedStates;

/// Builds a [`Limiter`].
#[derive(Clone, Debug)]
pub struct Builder {
    pub(crate) config: Config,
    pub(crate) capacity: usize,
    queue_max: usize,
    pub(crate) clock: Option<Clock>,
    pub(crate) seed: Option<u64>,
    saved_states: Option<Arc<dyn SavedStates>>,
    #[cfg(feature = "policy")]
    pub(crate) policy: Option<Arc<RuleBook>>,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            config: Config::default(),
            capacity: 1 << 20,
            queue_max: 1 << 16,
            clock: None,
            seed: None,
            saved_states: None,
            #[cfg(feature = "policy")]
            policy: None,
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

    /// Declares a limit of each key, beside those declared so far. A request leaves when all of
    /// them have room.
    ///
    /// ```
    /// use politely::Limiter;
    ///
    /// let limiter = Limiter::builder()
    ///     .limit("10/s".parse()?)
    ///     .limit("1000/day@UTC".parse()?)
    ///     .build()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn limit(mut self, limit: DeclaredLimit) -> Self {
        self.config.declared = self.config.declared.with(limit);
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

    /// Sets where the saved states of keys are, so that saved keys make room. Default: nowhere.
    ///
    /// A key then leaves memory although a budget is not whole or a limit was learned, once its
    /// state was saved after its last change. It comes back with that state. It stays while it has
    /// a permit out, a waiter, a hold, a lock or an operator's number.
    #[must_use]
    pub fn saved_states(mut self, states: Arc<dyn SavedStates>) -> Self {
        self.saved_states = Some(states);
        self
    }

    /// Sets the maximum number of waiters per key. Default: 65,536, about 100 bytes each.
    #[must_use]
    pub const fn queue_max(mut self, waiters: usize) -> Self {
        self.queue_max = waiters;
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
        let keys_max = self.capacity.max(1);
        let local = Local::new(
            self.config,
            clock.clone(),
            keys_max,
            self.queue_max,
            seed,
            self.saved_states,
        );
        let limiter = Limiter::new(Backend::Local(local), clock);
        #[cfg(feature = "policy")]
        let limiter = limiter.under(self.policy);
        Ok(limiter)
    }
}
