//! How a limiter comes to share its keys.

use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;

use politely_core::config::InvalidConfig;

use super::{Shared, courier};
use crate::cells::Engine;
use crate::clock::Clock;
use crate::limiter::{Builder, Limiter};

impl Builder {
    /// Keys are shared with all who use the same `engine`.
    pub const fn store(self, engine: Arc<dyn Engine>) -> StoreBuilder {
        StoreBuilder {
            builder: self,
            engine,
            away: Away::Closed,
        }
    }
}

/// Makes a [`Limiter`] whose keys live in an engine's cells.
#[derive(Clone)]
pub struct StoreBuilder {
    builder: Builder,
    engine: Arc<dyn Engine>,
    away: Away,
}

/// What those who share an engine do while it is away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Away {
    /// Nobody leaves; permits already given run out.
    #[default]
    Closed,
    /// Each of the N that were there goes on with 1/N of every key's rate and slots, for a minute at most. The target may see up to
    /// N requests more than the key's limit allows, once.
    Share,
}

impl StoreBuilder {
    /// What to do while the engine is away. Default [`Away::Closed`].
    #[must_use]
    pub const fn when_away(mut self, away: Away) -> Self {
        self.away = away;
        self
    }

    /// The limiter. The engine need not be there yet.
    ///
    /// # Errors
    /// The first number of the configuration that makes no sense.
    ///
    /// # Panics
    /// If the system has no thread left.
    pub fn build(self) -> Result<Limiter, InvalidConfig> {
        let Builder {
            config,
            capacity,
            clock,
            seed,
            ..
        } = self.builder;
        config.validate()?;
        let clock = clock.unwrap_or_else(Clock::system);
        let seed = seed.unwrap_or_else(|| foldhash::fast::RandomState::default().hash_one(0_u8));
        let shared = Shared::new(
            Arc::new(config),
            clock.clone(),
            capacity.max(1),
            seed,
            self.away,
        );
        courier::start(Arc::clone(&shared.0), self.engine);
        Ok(Limiter::from(Box::new(shared), clock))
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
