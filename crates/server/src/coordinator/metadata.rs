//! Operators' metadata of keys: a few texts that the coordinator keeps and does not read.
//!
//! | coordinator | where the metadata of a key is |
//! | --- | --- |
//! | alone | in memory, and a row of the state folder |
//! | shared | a cell of the engine, as JSON |

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use futures_util::{StreamExt, TryStreamExt, stream};
use hashbrown::HashMap;
use parking_lot::Mutex;
use politely::Snapshot;
use politely::cells::Engine;
use politely::core::key::Key;
use politely_api::wire::{self, Change, KeyPatch, Metadata};

use super::Coordinator;
use super::operate::NotSet;
use super::report::error;
use crate::cells::{CellError, Cells, FOREVER, unseal};

/// The prefix of a row in the state folder. No key begins with it.
pub(super) const ROW: &str = "\u{1}metadata/";
/// The most entries of a key, and the most bytes of all their names and values.
const ENTRIES_MAX: usize = 32;
const BYTES_MAX: usize = 4_096;
/// The number of cells that are written at a time, and that are read in one call.
const AT_A_TIME: usize = 64;
const READ_AT_ONCE: usize = 512;

/// The metadata of all keys that have some.
#[derive(Default)]
pub(super) struct KeyMetadata {
    known: Mutex<HashMap<Key, Metadata, foldhash::fast::RandomState>>,
    /// The number of changes in this run, which orders the rows.
    changes: AtomicU64,
    /// The engine that has the metadata, if the keys are shared.
    cells: OnceLock<Cells>,
}

/// Returns an error if the change cannot be kept.
pub(super) fn check(patch: &KeyPatch) -> Result<(), wire::Error> {
    let Change::To(metadata) = &patch.metadata else {
        return Ok(());
    };
    let bytes: usize = metadata
        .iter()
        .map(|(name, value)| name.len() + value.len())
        .sum();
    if metadata.len() > ENTRIES_MAX || bytes > BYTES_MAX {
        return Err(error(
            "metadata",
            "must have at most 32 entries, and 4,096 bytes in all",
        ));
    }
    if metadata.keys().any(String::is_empty) {
        return Err(error("metadata", "must have a name for each entry"));
    }
    Ok(())
}

/// Returns the change of the metadata. What an operator set is forgotten with the rest.
pub(super) fn change(patch: &KeyPatch) -> Change<Metadata> {
    match &patch.metadata {
        Change::Keep if patch.forget == Some(true) => Change::TakeBack,
        change => change.clone(),
    }
}

impl Coordinator {
    pub(super) fn share_metadata(&self, engine: Arc<dyn Engine>) {
        let _ = self.0.metadata.cells.set(Cells::new(engine));
    }

    /// Takes over a row of the state folder.
    pub(super) fn resume_metadata(&self, row: &str, state: &[u8]) {
        let key = row.strip_prefix(ROW).and_then(|name| Key::parse(name).ok());
        if let (Some(key), Ok(metadata)) = (key, serde_json::from_slice(state)) {
            self.0.metadata.known.lock().insert(key, metadata);
        }
    }

    /// Changes the metadata of keys. Returns when the changes are kept.
    pub(super) async fn set_metadata(
        &self,
        changes: Vec<(Key, Change<Metadata>)>,
    ) -> Result<(), NotSet> {
        let changes = changes
            .into_iter()
            .filter_map(|(key, change)| match change {
                Change::Keep => None,
                Change::TakeBack => Some((key, None)),
                Change::To(metadata) => Some((key, Some(metadata))),
            });
        let changes: Vec<_> = changes.collect();
        if let Some(cells) = self.0.metadata.cells.get() {
            let writes = stream::iter(changes).map(|(key, metadata)| set(cells, key, metadata));
            return writes.buffer_unordered(AT_A_TIME).try_collect().await;
        }
        let mut rows = Vec::new();
        for (key, metadata) in changes {
            let state = metadata.as_ref().map(serde_json::to_vec);
            let state = state.and_then(Result::ok).unwrap_or_default();
            let version = self.0.metadata.changes.fetch_add(1, Ordering::Relaxed) + 1;
            rows.push((format!("{ROW}{key}"), Snapshot { version, state }));
            let mut known = self.0.metadata.known.lock();
            match metadata.filter(|metadata| !metadata.is_empty()) {
                Some(metadata) => _ = known.insert(key, metadata),
                None => _ = known.remove(&key),
            }
        }
        match &self.0.store {
            Some(store) if !rows.is_empty() => {
                let kept = store.keep_now(rows).await;
                kept.map_err(|why| NotSet::Unkept(why.to_string()))
            }
            _ => Ok(()),
        }
    }

    /// Returns the metadata of those `keys` that have some.
    ///
    /// # Errors
    /// The engine did not answer.
    pub(crate) async fn metadata(&self, keys: &[Key]) -> Result<BTreeMap<Key, Metadata>, String> {
        let Some(cells) = self.0.metadata.cells.get() else {
            let known = self.0.metadata.known.lock();
            let found = keys
                .iter()
                .filter_map(|key| Some((key.clone(), known.get(key)?.clone())));
            return Ok(found.collect());
        };
        let mut found = BTreeMap::new();
        for keys in keys.chunks(READ_AT_ONCE) {
            let names: Vec<_> = keys.iter().map(cell).collect();
            let values = cells.read_all(names.clone()).await;
            let values = values.map_err(|why| why.to_string())?;
            for ((key, name), value) in keys.iter().zip(&names).zip(values) {
                let content = value.as_deref().and_then(|value| unseal(name, value).ok());
                let metadata = content.and_then(|json| serde_json::from_slice(json).ok());
                let metadata = metadata.filter(|metadata: &Metadata| !metadata.is_empty());
                found.extend(metadata.map(|metadata| (key.clone(), metadata)));
            }
        }
        Ok(found)
    }
}

/// Replaces the metadata of a key. Of two changes at the same time, either may be the last.
async fn set(cells: &Cells, key: Key, metadata: Option<Metadata>) -> Result<(), NotSet> {
    let name = cell(&key);
    let held = cells.read(&name).await.map_err(CellError::from)?;
    if held.is_none() && metadata.is_none() {
        return Ok(());
    }
    let json = serde_json::to_vec(&metadata.unwrap_or_default()).unwrap_or_default();
    let change = |_: Option<&[u8]>| Ok::<_, NotSet>(Some(json.clone()));
    cells.update(&name, held, FOREVER, change).await?;
    Ok(())
}

fn cell(key: &Key) -> Arc<str> {
    format!("politely:metadata:{key}").into()
}
