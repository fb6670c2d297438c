//! The frontier of a coordinator: crawls whose units of work come with permits.
//!
//! | file | its part |
//! | --- | --- |
//! | `service.rs` | the calls, of an embedded or of a shared frontier |
//! | `fleet.rs` | a frontier in an engine, which several coordinators share |
//! | `put.rs` | adds pages |
//! | `take.rs` | hands out units; the limiter decides whether a domain may leave |
//! | `done.rs` | accepts the words of owners |
//! | `owners.rs` | which worker owns which unit, and the permits of the unit |
//! | `look.rs` | calls that only read |
//! | `order.rs` | orders of operators |
//!
//! All calls of the storage block, so they run outside the async threads. A call that changes
//! something is on disk before it is answered; calls at the same time share the fsync.

mod done;
mod fleet;
mod look;
mod order;
mod owners;
mod put;
mod service;
mod take;

use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::{Mutex, MutexGuard};
use politely::core::key::KeyKind;
use politely_frontier::{
    CrawlName, Date, EmbeddedStore, Frontier, FrontierError, Moment, Settings, Store as _,
    StoreError,
};
use tokio::sync::Notify;
use tokio::task::spawn_blocking;

pub(crate) use self::done::Words;
pub(crate) use self::order::Order;
use self::owners::{Owner, Owners};
pub(crate) use self::put::{Item, new_page, put_answer};
pub use self::service::FrontierService;
pub(crate) use self::take::Wish;
use crate::coordinator::Coordinator;

/// The memory for blocks that were read from disk, in bytes.
const CACHE_BYTES: u64 = 64 << 20;
/// The interval between two searches for expired units and deleted rows, and between two attempts
/// to open a storage that failed.
const TEND_EVERY: Duration = Duration::from_secs(1);
/// The most rows that one search deletes.
const SWEPT_MAX: usize = 10_000;

/// Why the frontier of a coordinator cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("the frontier in \"{place}\": {why}")]
pub struct FrontierOpenError {
    place: String,
    why: String,
}

/// The frontier of one coordinator, in a folder. Clones are cheap and share all state.
#[derive(Clone)]
pub(crate) struct EmbeddedFrontier(Arc<Inner>);

struct Inner {
    frontier: Mutex<Frontier<Arc<EmbeddedStore>>>,
    /// The storage of `frontier`. An fsync must not wait for the lock.
    store: Arc<EmbeddedStore>,
    owners: Owners,
    /// How the domain of a page follows from its URL.
    kind: KeyKind,
    /// Wakes calls that wait for a unit.
    changed: Notify,
    coordinator: Coordinator,
}

impl EmbeddedFrontier {
    /// Opens the frontier in `folder`, which is created if it is missing. Its units get the permits
    /// of `coordinator`.
    ///
    /// # Errors
    /// The folder cannot be used, is in use, or is damaged. The keys of `coordinator` are shared
    /// through an engine.
    fn open(
        folder: &Path,
        settings: Settings,
        coordinator: &Coordinator,
    ) -> Result<Self, FrontierOpenError> {
        let failed = |why: String| FrontierOpenError {
            place: folder.display().to_string(),
            why,
        };
        if coordinator.limiter().is_shared() {
            let why = "the keys are shared through an engine, so the frontier must be there too";
            return Err(failed(why.to_owned()));
        }
        crate::private::folder(folder).map_err(|why| failed(why.to_string()))?;
        let opened = EmbeddedStore::open(folder, CACHE_BYTES);
        let store = Arc::new(opened.map_err(|why| failed(why.to_string()))?);
        let seed = RandomState::new().hash_one(std::process::id());
        let kind = settings.kind;
        let frontier = Frontier::open(Arc::clone(&store), settings, seed, moment(coordinator));
        Ok(Self(Arc::new(Inner {
            frontier: Mutex::new(frontier.map_err(|why| failed(why.to_string()))?),
            store,
            owners: Owners::default(),
            kind,
            changed: Notify::new(),
            coordinator: coordinator.clone(),
        })))
    }

    /// Frees the space of deleted rows, forgets units that ended, and opens a storage again that
    /// failed, until it is dropped.
    pub(crate) async fn tend(self) {
        loop {
            tokio::time::sleep(TEND_EVERY).await;
            let swept = self.call(|service| {
                let now = service.now();
                let mut frontier = service.lock();
                if frontier.failure().is_some() {
                    frontier.recover(now)?;
                    tracing::info!("the storage of the frontier works again");
                }
                let swept = frontier.sweep(SWEPT_MAX, now);
                let is_live = |token, _: &Owner| frontier.crawl_of(token, now).is_some();
                service.0.owners.retain(is_live);
                swept
            });
            match swept.await {
                Ok(_) => {}
                Err(why) => tracing::warn!("{why}"),
            }
        }
    }

    /// Writes everything to the disk. Returns whether that succeeded.
    pub(crate) async fn save(&self) -> bool {
        let synced = self.call(|service| Ok(service.0.store.sync()?));
        synced.await.is_ok()
    }

    /// Returns why calls fail, in one line.
    pub(crate) fn last_error(&self) -> Option<String> {
        let failure = self.lock().failure().cloned();
        failure.map(|why| FrontierError::Closed(why).to_string())
    }

    fn lock(&self) -> MutexGuard<'_, Frontier<Arc<EmbeddedStore>>> {
        self.0.frontier.lock()
    }

    fn now(&self) -> Moment {
        moment(&self.0.coordinator)
    }

    /// Runs a call that blocks, outside the async threads. It runs to its end even if the caller
    /// hangs up.
    async fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> Result<T, FrontierError> + Send + 'static,
    ) -> Result<T, FrontierError> {
        let service = self.clone();
        let ended = spawn_blocking(move || work(&service)).await;
        ended.unwrap_or_else(|why| Err(StoreError(format!("a call ended early: {why}")).into()))
    }

    /// Waits until all earlier changes are on disk.
    fn sync(&self) -> Result<(), FrontierError> {
        Ok(self.0.store.sync()?)
    }
}

/// Returns the present time of a coordinator, on both clocks.
fn moment(coordinator: &Coordinator) -> Moment {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
    let millis = since_1970.unwrap_or_default().as_millis();
    let millis = u64::try_from(millis).unwrap_or(u64::MAX);
    Moment {
        at: coordinator.now(),
        date: Date::from_millis(millis).unwrap_or(Date::EPOCH),
    }
}

/// Returns the date of a call.
///
/// # Errors
/// A date after the year 9999 is an error in words.
pub(crate) fn date(millis: u64) -> Result<Date, String> {
    let late = || format!("the date {millis} is after the year 9999; send milliseconds since 1970");
    Date::from_millis(millis).ok_or_else(late)
}

/// Returns the name of a crawl.
///
/// # Errors
/// A text that names no crawl is an error in words.
pub(crate) fn crawl_name(text: &str) -> Result<CrawlName, String> {
    let shown: String = text.chars().take(80).collect();
    text.parse().map_err(|why| format!("\"{shown}\" is {why}"))
}
