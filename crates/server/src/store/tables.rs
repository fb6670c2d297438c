//! `politely.redb`: what was learned about keys, the configuration, and how often the coordinator was started.
//!
//! redb refuses all work after one failed write until its file is opened again, so that is what the next write does.

use std::path::Path;

use parking_lot::{Mutex, RwLock};
use redb::{
    Database, DatabaseError, ReadableDatabase, ReadableTable, StorageError, TableDefinition,
};

use super::OpenError;
use super::commit::Batch;

const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
const KEYS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("keys");
const BLOBS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("blobs");

/// Raised when a record's meaning changes. A folder of `politely fetch` counts from 1, so that neither takes the other's.
const FORMAT: u64 = 1_001;
const FORMATS_OF_FETCH: std::ops::Range<u64> = 1..1_000;

/// redb's own default is a gigabyte. All is in the coordinator's memory already; this is for the tree's upper pages.
const CACHE_BYTES: usize = 32 << 20;

type Result<T, E = redb::Error> = std::result::Result<T, E>;
pub(super) type Opener = Box<dyn Fn() -> Result<Database, DatabaseError> + Send + Sync>;

pub(super) struct Tables {
    opener: Opener,
    /// `None` after a write failed.
    database: RwLock<Option<Database>>,
    /// Held while writing, so that the file is opened again once.
    writing: Mutex<()>,
}

/// What a coordinator finds of its earlier runs.
pub(super) struct Start {
    pub(super) boot: u64,
    pub(super) config: Option<Vec<u8>>,
}

impl Tables {
    /// Opens or makes the file at `path`.
    pub(super) fn open(path: &Path) -> Result<(Self, Start), OpenError> {
        let file = path.to_owned();
        let opener = move || {
            let mut builder = Database::builder();
            builder.set_cache_size(CACHE_BYTES);
            builder.create(&file)
        };
        Self::open_with(path, Box::new(opener))
    }

    pub(super) fn open_with(path: &Path, opener: Opener) -> Result<(Self, Start), OpenError> {
        let path = || path.to_owned();
        let database = opener().map_err(|error| match error {
            DatabaseError::DatabaseAlreadyOpen => OpenError::InUse { path: path() },
            DatabaseError::UpgradeRequired(format) => OpenError::Version {
                path: path(),
                format: format!("redb {format}"),
            },
            DatabaseError::Storage(StorageError::Io(why))
                if why.kind() != std::io::ErrorKind::InvalidData =>
            {
                OpenError::io(&path(), why)
            }
            other => OpenError::NotOurs {
                path: path(),
                why: format!("not a state file of politely ({other})"),
            },
        })?;
        let start = start(&database).map_err(|why| OpenError::Database {
            path: path(),
            why: Box::new(why),
        })?;
        let start = start.map_err(|format| {
            if FORMATS_OF_FETCH.contains(&format) {
                OpenError::NotOurs {
                    path: path(),
                    why: "a state folder of politely fetch".to_owned(),
                }
            } else {
                OpenError::Version {
                    path: path(),
                    format: format.to_string(),
                }
            }
        })?;
        let tables = Self {
            opener,
            database: RwLock::new(Some(database)),
            writing: Mutex::new(()),
        };
        Ok((tables, start))
    }

    /// Writes `batch`; it is on disk when this returns.
    pub(super) fn write(&self, batch: &Batch) -> Result<()> {
        let _one = self.writing.lock();
        if self.database.read().is_none() {
            *self.database.write() = Some((self.opener)()?);
        }
        let written = match &*self.database.read() {
            Some(database) => write(database, batch),
            None => Err(redb::Error::PreviousIo),
        };
        if written.is_err() {
            *self.database.write() = None;
        }
        written
    }

    /// Calls `each` with every key and its state, in the keys' order.
    pub(super) fn for_each_key(&self, mut each: impl FnMut(&str, &[u8])) -> Result<()> {
        let database = self.database.read();
        let Some(database) = &*database else {
            return Err(redb::Error::PreviousIo);
        };
        for entry in database.begin_read()?.open_table(KEYS)?.iter()? {
            let (key, state) = entry?;
            each(key.value(), state.value());
        }
        Ok(())
    }
}

/// Counts the start. `Err`: the file's format is another.
fn start(database: &Database) -> Result<Result<Start, u64>> {
    let change = database.begin_write()?;
    let start = {
        let mut meta = change.open_table(META)?;
        let format = meta.get("format")?.map(|format| format.value());
        if let Some(other) = format.filter(|&format| format != FORMAT) {
            return Ok(Err(other));
        }
        meta.insert("format", FORMAT)?;
        let boot = meta.get("boot")?.map_or(0, |boot| boot.value()) + 1;
        meta.insert("boot", boot)?;
        change.open_table(KEYS)?;
        let blobs = change.open_table(BLOBS)?;
        let config = blobs.get("config")?.map(|config| config.value().to_vec());
        Start { boot, config }
    };
    change.commit()?;
    Ok(Ok(start))
}

fn write(database: &Database, batch: &Batch) -> Result<()> {
    let change = database.begin_write()?;
    {
        let mut keys = change.open_table(KEYS)?;
        for (key, state) in &batch.states {
            if state.is_empty() {
                keys.remove(key.as_str())?;
            } else {
                keys.insert(key.as_str(), state.as_slice())?;
            }
        }
        if let Some(config) = &batch.config {
            change
                .open_table(BLOBS)?
                .insert("config", config.as_slice())?;
        }
    }
    change.commit()?;
    Ok(())
}
