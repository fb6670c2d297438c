//! The configuration that operators set, in a cell of the engine. All coordinators that share keys
//! apply it, and read the cell once a second.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use politely::cells::{Engine, Written};
use politely_api::wire::{ConfigPatch, EventKind};
use serde::{Deserialize, Serialize};

use super::Coordinator;
use super::config_changes::Changes;
use super::operate::NotSet;
use super::policy_cell::POLICY_CELL;
use crate::cells::{CellError, Cells, FOREVER, unseal};

const CELL: &str = "politely:config";
const READ_EVERY: Duration = Duration::from_secs(1);

/// The content of the cell, as JSON.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Kept {
    /// The number of changes so far.
    number: u64,
    changes: Changes,
}

/// A cell whose content this coordinator applies.
pub(super) struct FollowedCell {
    pub(super) name: Arc<str>,
    pub(super) cells: Cells,
    /// The value of the cell that was applied last.
    pub(super) seen: Mutex<Option<Vec<u8>>>,
    /// Held while the cell is read and applied, so that both are one step.
    pub(super) reading: tokio::sync::Mutex<()>,
    /// Whether the cell was read since the start, so that its content is in force.
    pub(super) is_read: AtomicBool,
    /// The earliest time at which a waiting call reads the cell for the first time.
    next_read: tokio::sync::Mutex<Option<Instant>>,
}

impl FollowedCell {
    pub(super) fn new(engine: Arc<dyn Engine>) -> Self {
        Self::named(CELL, engine)
    }

    pub(super) fn named(name: &str, engine: Arc<dyn Engine>) -> Self {
        Self {
            name: name.into(),
            cells: Cells::new(engine),
            seen: Mutex::new(None),
            reading: tokio::sync::Mutex::new(()),
            is_read: AtomicBool::new(false),
            next_read: tokio::sync::Mutex::new(None),
        }
    }

    pub(super) async fn read(&self) -> Result<Option<Vec<u8>>, CellError> {
        Ok(self.cells.read(&self.name).await?)
    }

    /// Writes content into a cell that the engine lost.
    pub(super) async fn restore(&self, content: &[u8]) -> Result<(), CellError> {
        let value = self.cells.seal(content);
        let kept = (FOREVER, false);
        let written = self
            .cells
            .write(&self.name, None, value.clone(), kept)
            .await?;
        if written == Written::Done {
            *self.seen.lock() = Some(value);
        }
        Ok(())
    }

    /// Hands the value to `apply`, unless it was applied already, and notes that the cell was read:
    /// one that cannot be decoded does not stop the coordinator. `own` is as in
    /// [`FollowedCell::news`].
    ///
    /// # Errors
    /// The engine did not answer, or what `apply` says.
    pub(super) async fn follow<F: Future<Output = Result<(), String>>>(
        &self,
        own: impl FnOnce() -> Option<Vec<u8>>,
        apply: impl FnOnce(Vec<u8>) -> F,
    ) -> Result<(), String> {
        let _one = self.reading.lock().await;
        let news = self.news(own).await.map_err(|why| why.to_string())?;
        let applied = match news {
            Some(value) => apply(value).await,
            None => Ok(()),
        };
        self.is_read.store(true, Release);
        applied
    }

    /// Returns the value, unless it was applied already. If the engine is new or has lost the cell,
    /// writes this coordinator's `own` content into it, if there is any.
    pub(super) async fn news(
        &self,
        own: impl FnOnce() -> Option<Vec<u8>>,
    ) -> Result<Option<Vec<u8>>, CellError> {
        let Some(value) = self.read().await? else {
            if let Some(content) = own() {
                self.restore(&content).await?;
            }
            return Ok(None);
        };
        let is_seen = self.seen.lock().as_deref() == Some(&*value);
        Ok(Some(value).filter(|_| !is_seen))
    }

    /// Changes the content as [`Cells::update`] does.
    pub(super) async fn update<E: From<CellError>>(
        &self,
        change: impl FnMut(Option<&[u8]>) -> Result<Option<Vec<u8>>, E>,
    ) -> Result<Option<Vec<u8>>, E> {
        let held = self.read().await?;
        self.cells.update(&self.name, held, FOREVER, change).await
    }

    fn decode(&self, value: &[u8]) -> Result<Kept, CellError> {
        let content = unseal(&self.name, value)?;
        serde_json::from_slice(content).map_err(|_| CellError::Damaged(Arc::clone(&self.name)))
    }
}

impl Coordinator {
    /// Shares operators' changes of the configuration, and the policy, through `engine`.
    ///
    /// `engine` must hold the same cells as the engine of the keys. It needs a connection of its
    /// own, because its calls come from the caller's runtime.
    #[must_use]
    pub fn share_config(self, engine: Arc<dyn Engine>) -> Self {
        let _ = self
            .0
            .policy_cell
            .set(FollowedCell::named(POLICY_CELL, Arc::clone(&engine)));
        let _ = self.0.config_cell.set(FollowedCell::new(engine));
        self
    }

    /// Applies the configuration and the policy that the engine holds, if they are shared. Waits at
    /// most a second for each.
    ///
    /// # Errors
    /// The engine did not answer, or a cell cannot be read. The error is one line.
    pub async fn read_shared(&self) -> Result<(), String> {
        let (config, policy) = tokio::join!(self.refresh_config(), self.refresh_policy());
        config.and(policy)
    }

    /// Returns whether the limits that the engine holds are in force here, so that permits may be
    /// granted. Reads them if that is due, at most for a second.
    pub(super) async fn has_read_limits(&self) -> bool {
        let cells = self.0.config_cell.get().zip(self.0.policy_cell.get());
        let Some((config, policy)) = cells else {
            return true;
        };
        let are_read = || [config, policy].iter().all(|it| it.is_read.load(Acquire));
        if are_read() {
            return true;
        }
        let mut next = config.next_read.lock().await;
        if !are_read() && next.is_none_or(|next| Instant::now() >= next) {
            let _ = self.read_shared().await;
            *next = Some(Instant::now() + READ_EVERY);
        }
        are_read()
    }

    /// Applies the configuration that the engine holds, if the configuration is shared. Waits at
    /// most a second for the engine.
    ///
    /// # Errors
    /// The engine did not answer, or the cell cannot be read. The error is one line.
    pub async fn refresh_config(&self) -> Result<(), String> {
        let Some(cell) = self.0.config_cell.get() else {
            return Ok(());
        };
        self.go_by(cell).await
    }

    /// Reads the cell, and applies it if it has changed.
    pub(super) async fn go_by(&self, cell: &FollowedCell) -> Result<(), String> {
        let own = || {
            let (changes, _) = self.operated_now();
            let is_any = changes != Changes::default();
            is_any.then(|| to_json(&Kept { number: 1, changes }))
        };
        cell.follow(own, |value| self.follow_config(cell, value))
            .await
    }

    async fn follow_config(&self, cell: &FollowedCell, value: Vec<u8>) -> Result<(), String> {
        let Kept { number, changes } = cell.decode(&value).map_err(|why| why.to_string())?;
        let set = self.replace_config(&changes, number + 1);
        set.map_err(|wrong| format!("the cell {CELL:?}: {} {}", wrong.field, wrong.detail))?;
        *cell.seen.lock() = Some(value);
        let text = "the configuration was changed by another coordinator";
        self.0.watch.announce(EventKind::Config, None, text);
        self.keep_config_too().await;
        Ok(())
    }

    /// Merges `patch` into the configuration of the engine, and applies the result.
    pub(super) async fn change_shared_config(
        &self,
        cell: &FollowedCell,
        patch: &ConfigPatch,
    ) -> Result<(), NotSet> {
        let _one = cell.reading.lock().await;
        let mut made = Kept::default();
        let change = |found: Option<&[u8]>| {
            let known = match found {
                Some(value) => cell.decode(value)?,
                None => Kept {
                    number: 0,
                    changes: self.operated_now().0,
                },
            };
            made = Kept {
                number: known.number + 1,
                changes: self.merged(patch, &known.changes)?,
            };
            Ok::<_, NotSet>(Some(to_json(&made)))
        };
        let value = cell.update(change).await?;
        self.replace_config(&made.changes, made.number + 1)?;
        *cell.seen.lock() = value;
        self.keep_config_too().await;
        Ok(())
    }

    /// Reads and applies the cell once a second.
    pub(super) async fn keep_config_read(self) {
        let mut log = CellLog::default();
        loop {
            log.note(CELL, self.refresh_config().await);
            tokio::time::sleep(READ_EVERY).await;
        }
    }
}

/// Logs what is wrong with a cell itself, once while it lasts. An unavailable engine is logged
/// elsewhere.
#[derive(Default)]
pub(super) struct CellLog(Option<String>);

impl CellLog {
    pub(super) fn note(&mut self, cell: &str, read: Result<(), String>) {
        let wrong = read.err().filter(|why| why.contains(cell));
        if let Some(why) = wrong.as_ref().filter(|_| wrong != self.0) {
            tracing::error!("{why}");
        }
        self.0 = wrong;
    }
}

fn to_json(kept: &Kept) -> Vec<u8> {
    serde_json::to_vec(kept).unwrap_or_default()
}
