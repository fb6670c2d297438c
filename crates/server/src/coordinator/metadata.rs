//! Operators' metadata of keys: a few texts that the coordinator keeps and does not read.
//!
//! | coordinator | where the metadata of a key is |
//! | --- | --- |
//! | alone | in memory, and a row of the state folder |
//! | shared | a cell of the engine: a version of 16 bytes, and JSON |

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use futures_util::{StreamExt, TryStreamExt, stream};
use hashbrown::HashMap;
use parking_lot::Mutex;
use politely::Snapshot;
use politely::cells::{Engine, EngineError, Version, Write, Written};
use politely::core::key::Key;
use politely_api::wire::{self, Change, KeyPatch, Metadata};

use super::config_cell::KEEP;
use super::operate::NotSet;
use super::report::error;
use super::{Coordinator, acquire};

/// The prefix of a row in the state folder. No key begins with it.
pub(super) const ROW: &str = "\u{1}metadata/";
/// The most entries of a key, and the most bytes of all their names and values.
const ENTRIES_MAX: usize = 32;
const BYTES_MAX: usize = 4_096;
/// The most attempts of a write while other coordinators write.
const TRIES: u32 = 16;
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
    cells: OnceLock<MetadataCells>,
}

struct MetadataCells {
    engine: Arc<dyn Engine>,
    writer: u64,
    writes: AtomicU64,
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
        let _ = self.0.metadata.cells.set(MetadataCells {
            engine,
            writer: RandomState::new().hash_one(std::process::id()),
            writes: AtomicU64::new(0),
        });
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
            let writes = stream::iter(changes).map(|(key, metadata)| cells.set(key, metadata));
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
            let values = cells.read(keys).await.map_err(|why| why.to_string())?;
            let decoded = keys.iter().zip(values);
            found.extend(decoded.filter_map(|(key, value)| {
                let metadata = decode(&value?)?;
                (!metadata.is_empty()).then(|| (key.clone(), metadata))
            }));
        }
        Ok(found)
    }
}

impl MetadataCells {
    async fn read(&self, keys: &[Key]) -> Result<Vec<Option<Vec<u8>>>, EngineError> {
        let read = self.engine.read(keys.iter().map(cell).collect());
        let read = tokio::time::timeout(acquire::ENGINE_TIME, read).await;
        read.map_err(|_| late())?.into_iter().collect()
    }

    /// Replaces the metadata of a key. Of two changes at the same time, either may be the last.
    async fn set(&self, key: Key, metadata: Option<Metadata>) -> Result<(), NotSet> {
        let away = |why: EngineError| NotSet::Unkept(format!("the engine is away: {why}"));
        let read = self.read(std::slice::from_ref(&key)).await.map_err(away)?;
        let mut before = read.into_iter().next().flatten();
        if before.is_none() && metadata.is_none() {
            return Ok(());
        }
        let json = serde_json::to_vec(&metadata.unwrap_or_default()).unwrap_or_default();
        for _ in 0..TRIES {
            let number = self.writes.fetch_add(1, Ordering::Relaxed);
            let version = [self.writer.to_le_bytes(), number.to_le_bytes()].concat();
            let write = Write {
                cell: cell(&key),
                expected: before.as_deref().and_then(Version::of),
                before: before.map(Arc::from),
                value: [version, json.clone()].concat(),
                keep: KEEP,
                notify: false,
            };
            let written = self.engine.compare_and_set(vec![write]);
            let written = tokio::time::timeout(acquire::ENGINE_TIME, written).await;
            let first = written.ok().and_then(|written| written.into_iter().next());
            match first.unwrap_or_else(|| Err(late())).map_err(away)? {
                Written::Done => return Ok(()),
                Written::Conflict(found) => before = found,
            }
        }
        let why = format!("other coordinators change the metadata of {key} all the time");
        Err(NotSet::Unkept(why))
    }
}

fn cell(key: &Key) -> Arc<str> {
    format!("politely:metadata:{key}").into()
}

fn decode(value: &[u8]) -> Option<Metadata> {
    serde_json::from_slice(value.get(Version::LEN..)?).ok()
}

fn late() -> EngineError {
    EngineError("no answer in 1 s".to_owned())
}
