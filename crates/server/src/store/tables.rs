//! The database `politely.redb`: learned states of keys, the configuration, and the number of
//! starts.
//!
//! After one failed write, redb refuses all work until its file is opened again, so the next write
//! opens it again. Before each write, the file is compared with the one that was opened. A database
//! that was emptied, removed or replaced meanwhile must not accept writes as if nothing were
//! missing.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::hash::{BuildHasher, RandomState};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

use parking_lot::{Mutex, RwLock};
use redb::{
    Database, DatabaseError, ReadableDatabase, ReadableTable, StorageError, Table, TableDefinition,
};

use super::commit::Batch;
use super::seal::{self, Damaged, Versioned};
use super::{OpenError, marker, quiet};

const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
const KEYS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("keys");
const BLOBS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("blobs");
/// Values whose checksum is wrong, kept for manual inspection.
const DAMAGED: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("damaged");

const CONFIG: &str = "config";

/// The format of the folder. It is raised when the meaning of a record changes. Folders of
/// `politely fetch` count from 1, so that neither program accepts the other's.
const FORMAT: u64 = 1_002;
const FORMATS_OF_FETCH: std::ops::Range<u64> = 1..1_000;

/// The size of redb's cache, in bytes. redb's default is a gigabyte. The cache only has to hold the
/// upper pages of the tree, because the states of keys in use are in memory already.
const CACHE_BYTES: usize = 32 << 20;

type Result<T, E = redb::Error> = std::result::Result<T, E>;
/// Opens the file, and creates it if the argument is `true`.
pub(super) type Opener = Box<dyn Fn(bool) -> Result<Database, DatabaseError> + Send + Sync>;

pub(super) struct Tables {
    path: PathBuf,
    opener: Opener,
    /// The random id of this database.
    id: u64,
    /// The open database, or `None` after a write failed.
    database: RwLock<Option<Database>>,
    /// The state of the file after the last write. It is locked during writes, so that only one
    /// call opens the file again.
    writing: Mutex<Last>,
}

/// The database and its file after the last write.
#[derive(Clone, Copy, Debug, Default)]
struct Last {
    commits: u64,
    /// Device, inode and length of the file. `None` after a failed write.
    file: Option<(u64, u64, u64)>,
}

/// The content of the database at a start, without the states of keys.
pub(super) struct Start {
    id: u64,
    pub(super) boot: u64,
    /// The number of transactions that wrote states or a configuration, over all runs.
    pub(super) commits: u64,
    pub(super) config: Option<Vec<u8>>,
    config_damaged: bool,
}

impl Tables {
    /// Opens the database in `dir`, or creates it in a new folder.
    pub(super) fn open(dir: &Path) -> Result<(Self, Start), OpenError> {
        let file = path(dir);
        let opener = move |make| {
            let mut builder = Database::builder();
            builder.set_cache_size(CACHE_BYTES);
            if make {
                builder.create_file(crate::private::read_write(&file)?)
            } else {
                builder.open(&file)
            }
        };
        Self::open_with(dir, Box::new(opener))
    }

    pub(super) fn open_with(dir: &Path, opener: Opener) -> Result<(Self, Start), OpenError> {
        let path = path(dir);
        let expected = marker::read(dir)?;
        if expected.is_some() {
            refuse_if_emptied(&path)?;
        }
        let found = quiet::catch(|| begin(&opener, &path, expected));
        let found = found.unwrap_or_else(|panic| Err(damaged(&path, &panic)));
        let (database, start) = found.map_err(|why| set_aside(&path, expected, why))?;
        if expected.is_none() {
            marker::write(dir, start.id)?;
        }
        if start.config_damaged {
            tracing::error!(
                "{}: the configuration is damaged and set aside; set it again with PATCH config",
                path.display()
            );
        }
        let last = Last {
            commits: start.commits,
            file: identity(&path).ok(),
        };
        let tables = Self {
            id: start.id,
            path,
            opener,
            database: RwLock::new(Some(database)),
            writing: Mutex::new(last),
        };
        Ok((tables, start))
    }

    /// Writes `batch` to disk. Returns the number of transactions so far. An error is one line.
    pub(super) fn write(&self, batch: &Batch) -> Result<u64, String> {
        let last = &mut *self.writing.lock();
        // If a step below fails, the database is opened again before the next write.
        let known = std::mem::take(&mut last.file);
        if !self.is_same(known) {
            self.close();
            *self.database.write() = Some(self.open_again(last.commits)?);
        }
        let commits = last.commits + 1;
        let written = quiet::catch(|| match &*self.database.read() {
            Some(database) => write(database, batch, commits),
            None => Err(redb::Error::PreviousIo),
        });
        match written {
            Ok(Ok(())) => {}
            Ok(Err(why)) => return Err(line(&why)),
            Err(panic) => {
                self.close();
                return Err(format!("it is damaged: {panic}"));
            }
        }
        *last = Last {
            commits,
            file: identity(&self.path).ok(),
        };
        Ok(commits)
    }

    /// Closes the file. Catches panics, because a damaged database may panic again when it is
    /// dropped.
    fn close(&self) {
        let database = self.database.write().take();
        let _ = quiet::catch(|| drop(database));
    }

    fn is_same(&self, known: Option<(u64, u64, u64)>) -> bool {
        known.is_some() && identity(&self.path).ok() == known
    }

    /// Opens the file again. Returns an error if it is another database or lacks a transaction.
    fn open_again(&self, commits: u64) -> Result<Database, String> {
        let missing = "it was emptied or replaced while the coordinator ran; stop the coordinator \
                       and restore a backup (politely state restore)";
        if fs::metadata(&self.path).map_or(0, |file| file.len()) == 0 {
            return Err(missing.to_owned());
        }
        let opened = quiet::catch(|| (self.opener)(false));
        // redb may panic here, because the file can have any content now.
        let opened = opened.map_err(|panic| format!("{missing} ({panic})"));
        let database = opened.and_then(|opened| opened.map_err(|why| line(&why)))?;
        let is_ours = || -> Result<bool> {
            let meta = database.begin_read()?.open_table(META)?;
            let get = |name| Ok::<_, redb::Error>(meta.get(name)?.map_or(0, |it| it.value()));
            Ok(get("id")? == self.id && get("commits")? >= commits)
        };
        match is_ours() {
            Ok(true) => Ok(database),
            Ok(false) => Err(missing.to_owned()),
            Err(why) => Err(line(&why)),
        }
    }

    /// Calls `each` with every key and its state, in the order of keys. Sets damaged states aside.
    pub(super) fn for_each_key(
        &self,
        mut each: impl FnMut(&str, &[u8]),
    ) -> Result<BTreeSet<String>, String> {
        let read = || -> Result<BTreeSet<String>> {
            let mut damaged = BTreeSet::new();
            let database = self.database.read();
            let Some(database) = &*database else {
                return Err(redb::Error::PreviousIo);
            };
            for entry in database.begin_read()?.open_table(KEYS)?.iter()? {
                let (key, sealed) = entry?;
                match seal::open(key.value(), sealed.value()) {
                    Ok((_, state)) => each(key.value(), state),
                    Err(Damaged) => {
                        damaged.insert(key.value().to_owned());
                    }
                }
            }
            if !damaged.is_empty() {
                set_states_aside(database, damaged.iter())?;
            }
            Ok(damaged)
        };
        let read = quiet::catch(read).map_err(|panic| format!("it is damaged: {panic}"));
        read?.map_err(|why| line(&why))
    }

    /// Returns the state of the key `name`. A damaged state counts as absent.
    pub(super) fn read(&self, name: &str) -> Result<Option<Vec<u8>>, String> {
        let read = || -> Result<Option<Vec<u8>>> {
            // `for_each_key` may hold the lock in this thread.
            let database = self.database.read_recursive();
            let database = database.as_ref().ok_or(redb::Error::PreviousIo)?;
            let sealed = database.begin_read()?.open_table(KEYS)?.get(name)?;
            let opened = sealed.and_then(|sealed| {
                let (_, state) = seal::open(name, sealed.value()).ok()?;
                Some(state.to_vec())
            });
            Ok(opened)
        };
        let read = quiet::catch(read).map_err(|panic| format!("it is damaged: {panic}"));
        read?.map_err(|why| line(&why))
    }

    /// Adds `count` to the number of starts, after a backup was restored. Later permits and
    /// versions then have higher numbers than those of runs after the backup.
    pub(super) fn skip_boots(&self, count: u64) -> Result<(), String> {
        let database = self.database.read();
        let skip = || -> Result<()> {
            let database = database.as_ref().ok_or(redb::Error::PreviousIo)?;
            let change = database.begin_write()?;
            {
                let mut meta = change.open_table(META)?;
                let boot = meta.get("boot")?.map_or(0, |boot| boot.value());
                meta.insert("boot", boot + count)?;
            }
            Ok(change.commit()?)
        };
        skip().map_err(|why| line(&why))
    }
}

pub(super) fn path(dir: &Path) -> PathBuf {
    dir.join("politely.redb")
}

/// Returns the message of an error in one line.
fn line(why: &impl Display) -> String {
    why.to_string().replace('\n', " ")
}

fn identity(path: &Path) -> io::Result<(u64, u64, u64)> {
    let file = fs::metadata(path)?;
    Ok((file.dev(), file.ino(), file.len()))
}

const RESTORE: &str = "restore a backup (politely state restore), or remove politely.state to \
                       begin anew without what was kept";

fn damaged(path: &Path, why: &impl Display) -> OpenError {
    OpenError::Damaged {
        path: path.to_owned(),
        why: format!("it is damaged ({})", line(why)),
        advice: RESTORE,
    }
}

fn refuse_if_emptied(path: &Path) -> Result<(), OpenError> {
    let why = match fs::metadata(path) {
        Ok(file) if file.len() > 0 => return Ok(()),
        Ok(_) => "it is empty, but politely.state says that it was in use",
        Err(why) if why.kind() == io::ErrorKind::NotFound => {
            "it is missing, but politely.state says that it was in use"
        }
        Err(why) => return Err(OpenError::io(path, why)),
    };
    Err(OpenError::Damaged {
        path: path.to_owned(),
        why: why.to_owned(),
        advice: RESTORE,
    })
}

/// Moves a damaged database away, so that a repair by the next start cannot hide the damage.
fn set_aside(path: &Path, expected: Option<u64>, why: OpenError) -> OpenError {
    match why {
        OpenError::Damaged { path: of, why, .. } if expected.is_some() && of == path => {
            let aside = path.with_extension("redb.damaged");
            let why = match fs::rename(path, &aside) {
                Ok(()) => format!("{why} and was moved to {}", aside.display()),
                Err(_) => why,
            };
            OpenError::Damaged {
                path: of,
                why,
                advice: RESTORE,
            }
        }
        why => why,
    }
}

/// Opens and checks the database, and counts the start.
fn begin(
    opener: &Opener,
    path: &Path,
    expected: Option<u64>,
) -> Result<(Database, Start), OpenError> {
    let database = opener(expected.is_none());
    let mut database = database.map_err(|error| match error {
        DatabaseError::DatabaseAlreadyOpen => OpenError::InUse {
            path: path.to_owned(),
        },
        DatabaseError::UpgradeRequired(format) => OpenError::Version {
            path: path.to_owned(),
            format: format!("redb {format}"),
        },
        DatabaseError::Storage(StorageError::Io(why))
            if !matches!(
                why.kind(),
                io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof
            ) =>
        {
            OpenError::io(path, why)
        }
        other if expected.is_some() => damaged(path, &other),
        other => OpenError::NotOurs {
            path: path.to_owned(),
            why: format!("not a state file of politely ({})", line(&other)),
        },
    })?;
    match database.check_integrity() {
        Ok(true) => {}
        Ok(false) => return Err(damaged(path, &"checksums differ")),
        Err(DatabaseError::Storage(StorageError::Io(why))) => return Err(OpenError::io(path, why)),
        Err(why) => return Err(damaged(path, &why)),
    }
    let start = match start(&database) {
        Ok(start) => start,
        Err(redb::Error::Io(why)) => return Err(OpenError::io(path, why)),
        Err(why) => return Err(damaged(path, &why)),
    };
    let start = start.map_err(|format| {
        if FORMATS_OF_FETCH.contains(&format) {
            OpenError::NotOurs {
                path: path.to_owned(),
                why: "a state folder of politely fetch".to_owned(),
            }
        } else {
            OpenError::Version {
                path: path.to_owned(),
                format: format.to_string(),
            }
        }
    })?;
    if expected.is_some_and(|id| id != start.id) {
        return Err(OpenError::NotOurs {
            path: path.to_owned(),
            why: "not the database that politely.state names".to_owned(),
        });
    }
    Ok((database, start))
}

/// Counts the start. Returns the inner `Err` with the file's format if the format is another.
fn start(database: &Database) -> Result<Result<Start, u64>> {
    let change = database.begin_write()?;
    let start = {
        let mut meta = change.open_table(META)?;
        let format = meta.get("format")?.map(|format| format.value());
        if let Some(other) = format.filter(|&format| format != FORMAT) {
            return Ok(Err(other));
        }
        meta.insert("format", FORMAT)?;
        let id = meta.get("id")?.map(|id| id.value());
        let id = id.unwrap_or_else(|| RandomState::new().hash_one(std::process::id()));
        meta.insert("id", id)?;
        let boot = meta.get("boot")?.map_or(0, |boot| boot.value()) + 1;
        meta.insert("boot", boot)?;
        let commits = meta.get("commits")?.map_or(0, |commits| commits.value());
        change.open_table(KEYS)?;
        let mut blobs = change.open_table(BLOBS)?;
        let sealed = blobs.get(CONFIG)?.map(|config| config.value().to_vec());
        let config = sealed
            .as_deref()
            .map(|sealed| seal::open(CONFIG, sealed).map(|(_, config)| config.to_vec()));
        let config_damaged = matches!(config, Some(Err(Damaged)));
        if let Some(sealed) = sealed.filter(|_| config_damaged) {
            change.open_table(DAMAGED)?.insert(CONFIG, &*sealed)?;
            blobs.remove(CONFIG)?;
        }
        Start {
            id,
            boot,
            commits,
            config: config.and_then(Result::ok),
            config_damaged,
        }
    };
    change.commit()?;
    Ok(Ok(start))
}

fn set_states_aside<'a>(
    database: &Database,
    names: impl Iterator<Item = &'a String>,
) -> Result<()> {
    let change = database.begin_write()?;
    {
        let mut keys = change.open_table(KEYS)?;
        let mut damaged = change.open_table(DAMAGED)?;
        for name in names {
            if let Some(sealed) = keys.remove(name.as_str())? {
                damaged.insert(name.as_str(), sealed.value())?;
            }
        }
    }
    Ok(change.commit()?)
}

fn write(database: &Database, batch: &Batch, commits: u64) -> Result<()> {
    let change = database.begin_write()?;
    {
        change.open_table(META)?.insert("commits", commits)?;
        let mut keys = change.open_table(KEYS)?;
        for (key, state) in &batch.states {
            insert_newer(&mut keys, key, state)?;
        }
        if let Some(config) = &batch.config {
            insert_newer(&mut change.open_table(BLOBS)?, CONFIG, config)?;
        }
    }
    change.commit()?;
    Ok(())
}

/// Inserts `value` unless the table holds a newer value. An empty value removes the row.
fn insert_newer(
    table: &mut Table<'_, &'static str, &'static [u8]>,
    name: &str,
    value: &Versioned,
) -> Result<()> {
    let known = table.get(name)?;
    let known = known.and_then(|sealed| Some(seal::open(name, sealed.value()).ok()?.0));
    if known.is_some_and(|known| known > value.version) {
        return Ok(());
    }
    if value.bytes.is_empty() {
        table.remove(name)?;
    } else {
        table.insert(name, &*seal::seal(name, value))?;
    }
    Ok(())
}
