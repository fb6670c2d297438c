//! The configuration that operators set, in a cell of the engine. All coordinators that share keys
//! apply it, and read the cell once a second.

use std::sync::Arc;
use std::time::Duration;

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

    /// Applies the configuration that the engine holds, if the configuration is shared. Waits at
    /// most a second for the engine.
    ///
    /// # Errors
    /// The engine did not answer, or the cell cannot be read. The error is one line.
    pub async fn refresh_config(&self) -> Result<(), String> {
        let Some(cell) = self.0.config_cell.get() else {
            return Ok(());
        };
        let _one = cell.reading.lock().await;
        self.go_by(cell).await
    }

    /// Reads the cell, and applies it if it has changed.
    pub(super) async fn go_by(&self, cell: &FollowedCell) -> Result<(), String> {
        let words = |why: CellError| why.to_string();
        let Some(value) = cell.read().await.map_err(words)? else {
            // The engine is new or has lost the cell, so this coordinator writes its own settings.
            let (changes, _) = self.operated_now();
            if changes != Changes::default() {
                let kept = Kept { number: 1, changes };
                cell.restore(&to_json(&kept)).await.map_err(words)?;
            }
            return Ok(());
        };
        if cell.seen.lock().as_deref() == Some(&*value) {
            return Ok(());
        }
        let Kept { number, changes } = cell.decode(&value).map_err(words)?;
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
        let held = cell.read().await?;
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
        let value = (cell.cells)
            .update(&cell.name, held, FOREVER, change)
            .await?;
        self.replace_config(&made.changes, made.number + 1)?;
        *cell.seen.lock() = value;
        self.keep_config_too().await;
        Ok(())
    }

    /// Reads and applies the cell once a second.
    pub(super) async fn keep_config_read(self) {
        let mut said = None;
        loop {
            let read = self.refresh_config().await;
            // Only errors of the cell itself are logged here. An unavailable engine is logged
            // elsewhere.
            let wrong = read.err().filter(|why| why.contains(CELL));
            if wrong != said {
                if let Some(why) = &wrong {
                    tracing::error!("{why}");
                }
                said = wrong;
            }
            tokio::time::sleep(READ_EVERY).await;
        }
    }
}

fn to_json(kept: &Kept) -> Vec<u8> {
    serde_json::to_vec(kept).unwrap_or_default()
}
