//! Who gets which permit, and what becomes of it: the coordinator without HTTP.

mod acquire;
mod operate;
mod permits;
mod report;
mod wishes;

pub(crate) use acquire::Granted;
pub(crate) use report::{Aftermath, ms_up};

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use parking_lot::Mutex;
use politely::core::Timestamp;
use politely::core::config::{Config, InvalidConfig};
use politely::core::key::KeyKind;
use politely::core::retry::{BudgetRule, Policy};
use politely::core::signal::Classifier;
use politely::wire::ConfigPatch;
use politely::{Budgets, Limiter};

use crate::watch::Watch;
use permits::Permits;
use wishes::Wishes;

/// How often what runs out by itself is looked for.
const SWEEP_EVERY: Duration = Duration::from_millis(250);

/// What a coordinator starts with.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What every key is told.
    pub config: Config,
    /// `crawler` or `api`, as it is shown.
    pub profile: String,
    /// The law's name, as it is shown.
    pub law: String,
    /// What the limits of a URL attach to.
    pub key: KeyKind,
    /// Most keys kept.
    pub capacity: usize,
}

/// Why there is no coordinator.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A number makes no sense.
    #[error(transparent)]
    Config(#[from] InvalidConfig),
}

/// Directs a fleet: cheap to clone; clones share all.
#[derive(Clone)]
pub struct Coordinator(Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) limiter: Limiter,
    pub(crate) watch: Watch,
    permits: Permits,
    wishes: Wishes,
    /// Items in line, over all calls.
    waiting: AtomicUsize,
    policy: Policy,
    classifier: Classifier,
    budgets: Budgets,
    operated: Mutex<Operated>,
    key: KeyKind,
}

/// What operators have changed while it runs.
struct Operated {
    settings: Settings,
    patch: ConfigPatch,
    version: u64,
}

impl Coordinator {
    /// A coordinator that knows nothing yet.
    ///
    /// # Errors
    /// A number that makes no sense.
    pub fn new(settings: Settings) -> Result<Self, StartError> {
        let limiter = Limiter::builder()
            .config(settings.config.clone())
            .capacity(settings.capacity)
            .build()?;
        let now = limiter.now();
        let inner = Inner {
            watch: Watch::new(now),
            permits: Permits::new(0),
            wishes: Wishes::default(),
            waiting: AtomicUsize::new(0),
            policy: Policy::crawler(),
            classifier: Classifier::default(),
            budgets: Budgets::new(BudgetRule::PER_KEY, BudgetRule::GLOBAL, now),
            key: settings.key,
            operated: Mutex::new(Operated {
                settings,
                patch: ConfigPatch::default(),
                version: 1,
            }),
            limiter,
        };
        Ok(Self(Arc::new(inner)))
    }

    /// What must be done by the clock, until the coordinator is closed: call it once, in a task of its own.
    pub async fn tend(self) {
        loop {
            tokio::time::sleep(SWEEP_EVERY).await;
            let now = self.now();
            self.sweep(now);
            self.0.watch.tick(now, &self.0.limiter.stats());
        }
    }

    /// Ends all waiting; permits that are out may still be reported.
    pub fn close(&self) {
        self.0.limiter.close();
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.0.limiter.now()
    }

    pub(crate) fn watch(&self) -> &Watch {
        &self.0.watch
    }

    pub(crate) fn limiter(&self) -> &Limiter {
        &self.0.limiter
    }

    /// Forgets permits whose leases have run out and places in line that nobody came back to.
    fn sweep(&self, now: Timestamp) {
        self.0.permits.sweep(now, |_, out| out.worker.expired());
        self.0.wishes.sweep(now);
    }
}
