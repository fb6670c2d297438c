//! The coordinator without HTTP: it grants permits and follows them to their ends.

mod acquire;
mod adopt;
mod answers;
mod config_cell;
mod config_changes;
mod health;
mod keep;
mod key_owners;
mod metadata;
mod names;
mod operate;
mod permits;
mod policy_cell;
mod policy_reads;
mod recover;
mod renew;
mod report;
mod rules;
mod sessions;
mod signer;
mod wanted;
mod wishes;
mod worker_shares;

#[cfg(test)]
mod tests;

pub(crate) use acquire::Outcome;
pub(crate) use health::engine_trouble;
pub(crate) use keep::{Aftermath, wait_for_disk};
pub(crate) use names::Number;
pub(crate) use operate::{NotSet, settings};
pub(crate) use report::{finite, ms_up};
pub(crate) use rules::check_labels;
pub(crate) use sessions::SessionError;

use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use politely::cells::Engine;
use politely::core::Timestamp;
use politely::core::config::{Config, InvalidConfig};
use politely::core::key::{Key, KeyKind};
use politely::core::retry::{BudgetRule, Policy};
use politely::core::signal::Classifier;
use politely::store::Unavailable;
use politely::{Clock, Limiter, Retries};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::cells::Cells;
use crate::fleet_log::FleetLog;
use crate::store::{Kept, Store};
use crate::usage::Usage;
use crate::watch::Watch;
use crate::webhook::{Delivery, Webhook, Webhooks};
use config_cell::FollowedCell;
use config_changes::Changes;
use health::Health;
use key_owners::KeyOwners;
use metadata::KeyMetadata;
use permits::Permits;
pub use policy_reads::{PolicyRead, PolicyReads};
pub use rules::PolicyRefused;
use rules::Rules;
use sessions::Sessions;
use signer::Signer;
use wishes::Wishes;
use worker_shares::WorkerShares;

/// The interval between two searches for expired leases.
const SWEEP_EVERY: Duration = Duration::from_millis(250);

/// The settings of a coordinator at its start.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The configuration of every key.
    pub config: Config,
    /// The policy of the advice on retries.
    pub retry: Policy,
    /// The profile's name, `crawler` or `api`, for display.
    pub profile: String,
    /// The law's name, for display.
    pub law: String,
    /// The kind of key that the limits of a URL attach to.
    pub key: KeyKind,
    /// The most keys that are kept.
    pub capacity: usize,
    /// The source of time.
    pub clock: Clock,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            config: Config::crawler(),
            retry: Policy::crawler(),
            profile: "crawler".to_owned(),
            law: "discover".to_owned(),
            key: KeyKind::Host,
            capacity: 1 << 20,
            clock: Clock::system(),
        }
    }
}

/// Why a coordinator cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A setting is invalid.
    #[error(transparent)]
    Config(#[from] InvalidConfig),
    /// The limiter over an engine cannot be built.
    #[error(transparent)]
    Limiter(#[from] politely::store::StoreError),
    /// The operators' settings of an earlier run cannot be read.
    #[error(
        "the configuration kept in the state folder makes no sense any more: remove the folder, or start with other numbers"
    )]
    KeptConfig,
    /// The store cannot be read.
    #[error("{0}")]
    Store(String),
}

/// Coordinates a fleet of workers. Clones are cheap and share all state.
#[derive(Clone)]
pub struct Coordinator(Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) limiter: Limiter,
    pub(crate) watch: Watch,
    /// The audit of what workers did.
    pub(crate) usage: Usage,
    /// The webhooks whose queues are not emptied yet.
    deliveries: Mutex<Vec<Delivery>>,
    /// The log of the fleet, if the keys are shared.
    fleet_log: OnceLock<FleetLog>,
    permits: Permits,
    signer: Signer,
    store: Option<Store>,
    /// Locked while states are saved to make room for new keys.
    room: Arc<tokio::sync::Mutex<()>>,
    /// The number of such saves.
    saves_for_room: AtomicU64,
    health: Health,
    /// The cell of the shared configuration, if the keys are shared.
    config_cell: OnceLock<FollowedCell>,
    /// The cell of the shared policy, if the keys are shared.
    policy_cell: OnceLock<FollowedCell>,
    /// The number of permits that expired without a report.
    expired: AtomicU64,
    closing: watch::Sender<bool>,
    wishes: Wishes,
    worker_shares: WorkerShares,
    sessions: Sessions,
    /// The cells of sessions, if the keys are shared.
    session_cells: OnceLock<Cells>,
    owners: KeyOwners,
    metadata: KeyMetadata,
    /// Items that wait in queues, over all calls.
    waiting: AtomicUsize,
    /// The number of requested items.
    asked: AtomicU64,
    /// The number of items granted without waiting.
    at_once: AtomicU64,
    policy: Policy,
    classifier: Classifier,
    retries: Retries,
    operated: Mutex<Operated>,
    key: KeyKind,
    rules: Rules,
}

/// The changes that operators made since the start.
struct Operated {
    /// The configuration at the start.
    began: Config,
    settings: Settings,
    changes: Changes,
    version: u64,
}

fn limiter(settings: &Settings) -> politely::Builder {
    Limiter::builder()
        .config(settings.config.clone())
        .capacity(settings.capacity)
        .clock(settings.clock.clone())
}

impl Coordinator {
    /// Creates a coordinator without any state.
    ///
    /// # Errors
    /// A setting is invalid.
    pub fn new(settings: Settings) -> Result<Self, StartError> {
        // Without a store, starts are not counted. The time of the start, in seconds, replaces the
        // count, so that permit names differ between runs.
        let boot = settings.clock.now().as_micros() / 1_000_000 % (1 << 23);
        let limiter = limiter(&settings).build()?;
        Ok(Self::with(settings, (1 << 23) + boot, limiter, None))
    }

    /// Creates a coordinator whose keys live in cells of `engine`. It shares them with all
    /// coordinators that use the same engine.
    ///
    /// With `kept`, states and configuration are kept in the state folder as well, in case the
    /// engine loses everything. Operators' changes of the configuration are shared only after
    /// [`Coordinator::share_config`].
    ///
    /// # Errors
    /// A setting is invalid, or the store cannot be read.
    pub fn shared(
        settings: Settings,
        engine: Arc<dyn Engine>,
        away: Unavailable,
        kept: Option<(Store, Kept)>,
    ) -> Result<Self, StartError> {
        let cells = Arc::clone(&engine);
        let limiter = limiter(&settings)
            .store(engine)
            .when_unavailable(away)
            .build()?;
        // A random number, so that permit names differ between coordinators.
        let boot = RandomState::new().hash_one(std::process::id()) % (1 << 23);
        let (store, kept) = kept.unzip();
        if let Some(store) = &store {
            let restored = store.for_each_key(|name, state| {
                if let Ok(key) = Key::parse(name) {
                    let _ = limiter.restore(&key, state);
                }
            });
            restored.map_err(StartError::Store)?;
        }
        let coordinator = Self::with(settings, (1 << 23) + boot, limiter, store);
        coordinator.0.signer.share(Arc::clone(&cells));
        coordinator.share_metadata(Arc::clone(&cells));
        coordinator.share_sessions(cells);
        if let Some(json) = kept.and_then(|kept| kept.config) {
            coordinator.apply_kept(&json)?;
        }
        Ok(coordinator)
    }

    fn with(settings: Settings, boot: u64, limiter: Limiter, store: Option<Store>) -> Self {
        let now = limiter.now();
        let inner = Inner {
            watch: Watch::new(now),
            usage: Usage::open(store.as_ref().map(Store::folder), now),
            deliveries: Mutex::default(),
            fleet_log: OnceLock::new(),
            permits: Permits::new(boot),
            signer: Signer::new(store.as_ref().map(Store::folder)),
            store,
            room: Arc::default(),
            saves_for_room: AtomicU64::new(0),
            health: Health::default(),
            config_cell: OnceLock::new(),
            policy_cell: OnceLock::new(),
            expired: AtomicU64::new(0),
            closing: watch::Sender::new(false),
            wishes: Wishes::default(),
            worker_shares: WorkerShares::default(),
            sessions: Sessions::default(),
            session_cells: OnceLock::new(),
            owners: KeyOwners::new(usize::MAX),
            metadata: KeyMetadata::default(),
            waiting: AtomicUsize::new(0),
            asked: AtomicU64::new(0),
            at_once: AtomicU64::new(0),
            policy: settings.retry.clone(),
            classifier: Classifier::default(),
            retries: Retries::new(BudgetRule::PER_KEY, BudgetRule::GLOBAL, now),
            key: settings.key,
            rules: Rules::default(),
            operated: Mutex::new(Operated {
                began: settings.config.clone(),
                settings,
                changes: Changes::default(),
                version: 1,
            }),
            limiter,
        };
        Self(Arc::new(inner))
    }

    /// Runs the background tasks until it is dropped. Call it once, in a task of its own.
    ///
    /// Each part runs in its own task. If one ends, [`Coordinator::last_error`] says so.
    pub async fn tend(self) {
        let mut tasks = JoinSet::new();
        self.supervise(&mut tasks, "hands states to the store", Self::keep_learned);
        self.supervise(&mut tasks, "ends leases", Self::keep_sweeping);
        self.supervise(
            &mut tasks,
            "reads the configuration",
            Self::keep_config_read,
        );
        self.supervise(&mut tasks, "reads the policy", Self::keep_policy_read);
        self.supervise(&mut tasks, "reads the permits' secret", Self::keep_agreeing);
        self.supervise(&mut tasks, "writes the audit", Self::keep_usage);
        if self.allows_shares() {
            self.supervise(&mut tasks, "charges shares", Self::keep_charging);
        }
        if self.0.fleet_log.get().is_some() {
            self.supervise(&mut tasks, "follows the fleet's log", Self::follow_log);
        }
        // A webhook may end, and the coordinator goes on.
        for delivery in std::mem::take(&mut *self.0.deliveries.lock()) {
            tasks.spawn(delivery.run());
        }
        while tasks.join_next().await.is_some() {}
    }

    async fn keep_agreeing(self) {
        loop {
            self.0.signer.refresh().await;
            tokio::time::sleep(signer::LOOK_EVERY).await;
        }
    }

    async fn keep_usage(self) {
        let mut took = Duration::ZERO;
        loop {
            let pause = Usage::save_pause(took);
            tokio::time::sleep(pause).await;
            let coordinator = self.clone();
            let begun = tokio::time::Instant::now();
            let saved = tokio::task::spawn_blocking(move || {
                coordinator.0.usage.save(coordinator.now(), pause * 2);
            });
            let _ = saved.await;
            took = begun.elapsed();
        }
    }

    async fn keep_sweeping(self) {
        loop {
            tokio::time::sleep(SWEEP_EVERY).await;
            let now = self.now();
            self.sweep(now);
            self.sweep_sessions();
            if let Some(store) = &self.0.store {
                store.try_journal_again();
            }
            self.0.watch.tick(now, &self.0.limiter.stats());
        }
    }

    /// Sends events to webhooks. Call it once, before [`Coordinator::tend`].
    #[must_use]
    pub fn call_webhooks(self, webhooks: Vec<Webhook>) -> Self {
        let (webhooks, deliveries) = Webhooks::new(webhooks);
        self.0.watch.set_webhooks(webhooks);
        *self.0.deliveries.lock() = deliveries;
        self
    }

    /// Shares events and the audit with all coordinators of `engine`.
    ///
    /// `engine` must hold the same cells as the engine of the keys. It needs a connection of its
    /// own, as that of [`Coordinator::share_config`], which may be the same.
    #[must_use]
    pub fn share_log(self, engine: Arc<dyn Engine>) -> Self {
        let log = FleetLog::new(engine);
        self.0.watch.share_events(Arc::clone(log.outbox()));
        self.0.usage.share();
        let _ = self.0.fleet_log.set(log);
        self
    }

    pub(crate) fn fleet_log(&self) -> Option<&FleetLog> {
        self.0.fleet_log.get()
    }

    pub(crate) fn usage_counts(&self) -> &Usage {
        &self.0.usage
    }

    /// Ends all waiting. Permits that were granted can still be reported.
    pub fn close(&self) {
        self.0.limiter.close();
        self.0.closing.send_replace(true);
    }

    pub(crate) fn is_closed(&self) -> bool {
        *self.0.closing.borrow()
    }

    /// Returns a channel that becomes `true` when the coordinator is closed.
    pub(crate) fn closing(&self) -> watch::Receiver<bool> {
        self.0.closing.subscribe()
    }

    /// Returns the state folder, if there is one.
    pub(crate) fn folder(&self) -> Option<&Path> {
        self.0.store.as_ref().map(Store::folder)
    }

    /// Sets the most keys that one client may create.
    pub(crate) fn set_client_keys(&self, most: usize) {
        self.0.owners.set_most(most);
    }

    /// Returns the number of items that were refused because their client has too many keys.
    pub(crate) fn refused_keys(&self) -> u64 {
        self.0.owners.refused()
    }

    /// Returns the number of items that wait in queues now.
    pub fn waiting(&self) -> u64 {
        self.0.limiter.stats().waiting
    }

    /// Returns the number of permits that expired without a report.
    pub(crate) fn expired(&self) -> u64 {
        self.0.expired.load(Ordering::Relaxed)
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.0.limiter.now()
    }

    pub(crate) fn watch(&self) -> &Watch {
        &self.0.watch
    }

    /// Returns the limiter, which holds the keys and their states.
    pub fn limiter(&self) -> &Limiter {
        &self.0.limiter
    }

    /// Expires permits whose leases have ended, and forgets requests that were not repeated.
    fn sweep(&self, now: Timestamp) {
        let mut count = 0;
        // An expired permit stays in the journal while a late report finds its estimate.
        let forgotten = self.0.permits.sweep(now, |out| {
            count += 1;
            out.worker.expired();
            self.0.usage.expired(now, out.worker.name(), &out.key);
            self.0.watch.expired(now, &out.key);
        });
        self.0.expired.fetch_add(count, Ordering::Relaxed);
        self.keep_gone(&forgotten);
        self.0.wishes.sweep(now);
    }
}
