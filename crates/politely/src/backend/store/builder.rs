//! The builder of a limiter whose keys are shared through an engine.

use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;

use politely_core::config::InvalidConfig;

use politely_store::Engine;

use super::{Store, driver};
use crate::backend::Backend;
use crate::clock::Clock;
use crate::limiter::{Builder, Limiter};

impl Builder {
    /// Shares the keys with all processes that use the same `engine`.
    pub const fn store(self, engine: Arc<dyn Engine>) -> StoreBuilder {
        StoreBuilder {
            builder: self,
            engine,
            away: Away::Closed,
        }
    }
}

/// Builds a [`Limiter`] whose keys live in the cells of an engine.
#[derive(Clone)]
pub struct StoreBuilder {
    builder: Builder,
    engine: Arc<dyn Engine>,
    away: Away,
}

/// Why a limiter over an engine cannot be built.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum StoreError {
    /// A number of the configuration is invalid.
    #[error(transparent)]
    Config(#[from] InvalidConfig),
    /// The thread that talks to the engine cannot be started.
    #[error(
        "cannot start the thread that talks to the engine: {0}; allow this process more threads"
    )]
    Thread(String),
}

/// The behavior of a process while the engine is unavailable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Away {
    /// No permit is granted. Permits already granted expire.
    #[default]
    Closed,
    /// Each of the N processes goes on with 1/N of every key's rate and slots, for at most a
    /// minute. Once, the target may see up to N requests more than the limit of the key.
    Share,
}

impl StoreBuilder {
    /// Sets what to do while the engine is unavailable. Default: [`Away::Closed`].
    #[must_use]
    pub const fn when_away(mut self, away: Away) -> Self {
        self.away = away;
        self
    }

    /// Builds the limiter. The engine need not be reachable yet.
    ///
    /// # Errors
    /// [`StoreError`]: a number of the configuration is invalid, or the system has no thread left.
    pub fn build(self) -> Result<Limiter, StoreError> {
        let Builder {
            config,
            capacity,
            clock,
            seed,
            #[cfg(feature = "policy")]
            policy,
            ..
        } = self.builder;
        config.validate()?;
        let clock = clock.unwrap_or_else(Clock::system);
        let seed = seed.unwrap_or_else(|| foldhash::fast::RandomState::default().hash_one(0_u8));
        let store = Store::new(
            Arc::new(config),
            clock.clone(),
            capacity.max(1),
            seed,
            self.away,
        );
        driver::start(&store.0, self.engine).map_err(|why| StoreError::Thread(why.to_string()))?;
        let limiter = Limiter::new(Backend::Store(store), clock);
        #[cfg(feature = "policy")]
        let limiter = limiter.under(policy);
        Ok(limiter)
    }
}

impl fmt::Debug for StoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreBuilder")
            .field("builder", &self.builder)
            .field("away", &self.away)
            .finish_non_exhaustive()
    }
}
