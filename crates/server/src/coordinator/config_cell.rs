//! The configuration that operators set, in a cell of the engine. All coordinators that share keys
//! apply it.
//!
//! | bytes | content |
//! | --- | --- |
//! | 16 | the version: the writer and the number of its write |
//! | 1 | the layout, [`LAYOUT`] |
//! | 4 | CRC-32 of the rest, little-endian |
//! | rest | [`Kept`] as JSON; in the cell of the policy, its text |
//!
//! A change reads the cell, merges the patch, and writes with compare-and-set. The other
//! coordinators read the cell once a second.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use politely::cells::{Engine, EngineError, Version, Write, Written};
use politely_api::wire::{ConfigPatch, EventKind};
use serde::{Deserialize, Serialize};

use super::Coordinator;
use super::config_changes::Changes;
use super::operate::NotSet;
use super::policy_cell::POLICY_CELL;

const CELL: &str = "politely:config";
const LAYOUT: u8 = 2;
/// The lifetime of the cell: a hundred years, so that it never expires in practice.
pub(super) const KEEP: Duration = Duration::from_hours(24 * 366 * 100);
const READ_EVERY: Duration = Duration::from_secs(1);
/// The time for a call of the engine. After that it counts as failed.
const CALL: Duration = Duration::from_secs(1);
/// The most attempts of a change while other coordinators write.
const TRIES: u32 = 16;

/// The content of the cell.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Kept {
    /// The number of changes so far.
    number: u64,
    changes: Changes,
}

pub(super) struct ConfigCell {
    name: &'static str,
    engine: Arc<dyn Engine>,
    writer: u64,
    writes: AtomicU64,
    /// The value of the cell that was applied last.
    pub(super) seen: Mutex<Option<Vec<u8>>>,
    /// Held while the cell is read and applied, so that both are one step.
    pub(super) reading: tokio::sync::Mutex<()>,
}

impl ConfigCell {
    pub(super) fn new(engine: Arc<dyn Engine>) -> Self {
        Self::named(CELL, engine)
    }

    pub(super) fn named(name: &'static str, engine: Arc<dyn Engine>) -> Self {
        Self {
            name,
            engine,
            writer: RandomState::new().hash_one(std::process::id()),
            writes: AtomicU64::new(0),
            seen: Mutex::new(None),
            reading: tokio::sync::Mutex::new(()),
        }
    }

    pub(super) async fn read(&self) -> Result<Option<Vec<u8>>, String> {
        let read = tokio::time::timeout(CALL, self.engine.read(vec![self.name.into()])).await;
        let read = read.map_err(|_| "no answer in 1 s".to_owned())?;
        let first = read.into_iter().next();
        let first = first.unwrap_or_else(|| Err(EngineError("no answer".to_owned())));
        first.map_err(|why| why.to_string())
    }

    /// Writes `value` if the cell still holds `before`. Returns `false` if another coordinator
    /// wrote first.
    pub(super) async fn write(
        &self,
        before: Option<Vec<u8>>,
        value: &[u8],
    ) -> Result<bool, String> {
        let write = Write {
            cell: self.name.into(),
            expected: before.as_deref().and_then(Version::of),
            before: before.map(Arc::from),
            value: value.to_vec(),
            keep: KEEP,
            notify: false,
        };
        let written = tokio::time::timeout(CALL, self.engine.compare_and_set(vec![write])).await;
        let why = match written.map(|written| written.into_iter().next()) {
            Ok(Some(Ok(Written::Done))) => return Ok(true),
            Ok(Some(Ok(Written::Conflict(_)))) => return Ok(false),
            Ok(Some(Err(why))) => why.to_string(),
            Ok(None) | Err(_) => "no answer in 1 s".to_owned(),
        };
        // A write without an answer may have succeeded, so the cell is read again.
        match self.read().await {
            Ok(Some(now)) if now == value => Ok(true),
            _ => Err(why),
        }
    }

    fn encode(&self, kept: &Kept) -> Vec<u8> {
        self.seal(&serde_json::to_vec(kept).unwrap_or_default())
    }

    /// Returns the value of a cell with this content.
    pub(super) fn seal(&self, content: &[u8]) -> Vec<u8> {
        let number = self.writes.fetch_add(1, Ordering::Relaxed);
        let mut value = Vec::with_capacity(Version::LEN + 5 + content.len());
        value.extend_from_slice(&self.writer.to_le_bytes());
        value.extend_from_slice(&number.to_le_bytes());
        value.push(LAYOUT);
        value.extend_from_slice(&crc32fast::hash(content).to_le_bytes());
        value.extend_from_slice(content);
        value
    }
}

fn decode(value: &[u8]) -> Result<Kept, String> {
    let content = unseal(CELL, value)?;
    serde_json::from_slice(content).map_err(|_| damaged(CELL))
}

fn damaged(name: &str) -> String {
    format!("the cell {name:?} is damaged; delete it and set its content again")
}

/// Returns the content of the cell `name`.
///
/// # Errors
/// The value is damaged, or of another layout. The error is one line.
pub(super) fn unseal<'a>(name: &str, value: &'a [u8]) -> Result<&'a [u8], String> {
    let damaged = || damaged(name);
    let rest = value.get(Version::LEN..).ok_or_else(damaged)?;
    let (&layout, rest) = rest.split_first().ok_or_else(damaged)?;
    if layout != LAYOUT {
        return Err(format!(
            "the cell {name:?} has layout {layout}, expected {LAYOUT}; run one version of politely"
        ));
    }
    let (sum, content) = rest.split_first_chunk().ok_or_else(damaged)?;
    if crc32fast::hash(content) != u32::from_le_bytes(*sum) {
        return Err(damaged());
    }
    Ok(content)
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
            .set(ConfigCell::named(POLICY_CELL, Arc::clone(&engine)));
        let _ = self.0.config_cell.set(ConfigCell::new(engine));
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
        let held = cell.read().await?;
        self.go_by(cell, held).await
    }

    #[cfg(test)]
    pub(super) async fn go_by_for_test(&self, cell: &ConfigCell) -> Result<(), String> {
        let held = cell.read().await?;
        self.go_by(cell, held).await
    }

    async fn go_by(&self, cell: &ConfigCell, held: Option<Vec<u8>>) -> Result<(), String> {
        let Some(value) = held else {
            // The engine is new or has lost the cell, so this coordinator writes its own settings.
            let (changes, _) = self.operated_now();
            if changes != Changes::default() {
                let kept = Kept { number: 1, changes };
                let value = cell.encode(&kept);
                if cell.write(None, &value).await? {
                    *cell.seen.lock() = Some(value);
                }
            }
            return Ok(());
        };
        if cell.seen.lock().as_deref() == Some(&*value) {
            return Ok(());
        }
        let Kept { number, changes } = decode(&value)?;
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
        cell: &ConfigCell,
        patch: &ConfigPatch,
    ) -> Result<(), NotSet> {
        let _one = cell.reading.lock().await;
        let away = |why: String| NotSet::Unkept(format!("the engine is away: {why}"));
        for _ in 0..TRIES {
            let held = cell.read().await.map_err(away)?;
            let known = match &held {
                Some(value) => decode(value).map_err(NotSet::Unkept)?,
                None => Kept {
                    number: 0,
                    changes: self.operated_now().0,
                },
            };
            let kept = Kept {
                number: known.number + 1,
                changes: self.merged(patch, &known.changes)?,
            };
            let value = cell.encode(&kept);
            if cell.write(held, &value).await.map_err(away)? {
                self.replace_config(&kept.changes, kept.number + 1)?;
                *cell.seen.lock() = Some(value);
                self.keep_config_too().await;
                return Ok(());
            }
        }
        let why = "other coordinators change the configuration all the time".to_owned();
        Err(NotSet::Unkept(why))
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
