//! `politely.redb` in the state folder: the learned state of keys, and robots.txt.
//!
//! Writes gather for about a second, and only changes are written. A crash between two writes costs
//! a second of learning and no page, since pages are in the crawl. The file's own lock excludes a
//! second process.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock};

use redb::{Database, DatabaseError, ReadableDatabase, ReadableTable, TableDefinition};

use super::runs::RunOfFolder;
use crate::exit::{Wrong, io_words, make_folder};
use crate::fetch::lanes::doubt::Known;
use crate::fetch::robots::Cached;

const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
const KEYS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("keys");
const ROBOTS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("robots");
/// Origins that HTTP/1.1 is spoken with.
const HTTP1: TableDefinition<'_, &str, ()> = TableDefinition::new("http1");

/// The knowledge about the pages of origins, which tells refusals from them.
const KNOWN: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("known");

/// The version of the format. It is raised when a record's meaning changes.
const FORMAT: u64 = 3;

/// Changes gathered for one write.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) keys: Vec<(String, Vec<u8>)>,
    pub(crate) robots: Vec<(String, Cached)>,
    /// Origins that speak HTTP/1.1 only.
    pub(crate) http1: Vec<String>,
    /// The knowledge about the pages of origins.
    pub(crate) known: Vec<(String, Known)>,
}

impl Batch {
    pub(crate) fn is_empty(&self) -> bool {
        let Self {
            keys,
            robots,
            http1,
            known,
        } = self;
        keys.is_empty() && robots.is_empty() && http1.is_empty() && known.is_empty()
    }
}

pub(crate) struct Store {
    path: PathBuf,
    /// `None` if the database could not be opened again after a failure.
    database: RwLock<Option<Database>>,
    /// Whether a write failed. The database refuses all calls from then on.
    has_failed: AtomicBool,
}

/// The result of a redb call. Only the error's words matter here, not its kind.
type Result<T> = std::result::Result<T, redb::Error>;

impl Store {
    /// Opens or makes the store in `dir`.
    pub(crate) fn open(dir: &Path) -> std::result::Result<Self, Wrong> {
        make_folder(dir)?;
        let path = dir.join(super::STORE);
        let wrong = |why: &str| Wrong(format!("{}: {why}", path.display()));
        let database = Database::create(&path).map_err(|error| match error {
            DatabaseError::DatabaseAlreadyOpen => wrong("in use by another run"),
            DatabaseError::UpgradeRequired(_) => {
                wrong("written by another version of politely; use a new --state folder")
            }
            DatabaseError::Storage(redb::StorageError::Io(why)) => Wrong::file(&path, &why),
            other => wrong(&format!("not a state file of politely ({other})")),
        })?;
        let store = Self {
            path: path.clone(),
            database: RwLock::new(Some(database)),
            has_failed: AtomicBool::new(false),
        };
        match store.format() {
            Ok(FORMAT) => Ok(store),
            Ok(other) => Err(wrong(&format!(
                "written by another version of politely (format {other}, this one knows {FORMAT}); use a new --state folder"
            ))),
            Err(why) => Err(wrong(&why.to_string())),
        }
    }

    /// Opens the database again, if a write failed.
    ///
    /// # Errors
    /// It cannot be opened. The error is in words.
    pub(crate) fn open_again(&self) -> std::result::Result<(), String> {
        if !self.has_failed.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut database = self
            .database
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        // Two databases cannot have one file open.
        *database = None;
        *database = Some(Database::create(&self.path).map_err(|why| why.to_string())?);
        self.has_failed.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Runs a call of the database.
    fn call<T>(&self, call: impl FnOnce(&Database) -> Result<T>) -> Result<T> {
        let database = self.database.read().unwrap_or_else(PoisonError::into_inner);
        let database = database.as_ref().ok_or(redb::Error::PreviousIo)?;
        call(database)
    }

    /// Runs a call that writes.
    fn change<T>(&self, call: impl FnOnce(&Database) -> Result<T>) -> Result<T> {
        let changed = self.call(call);
        if changed.is_err() {
            self.has_failed.store(true, Ordering::Relaxed);
        }
        changed
    }

    fn format(&self) -> Result<u64> {
        self.change(|database| {
            let change = database.begin_write()?;
            let format = {
                let mut meta = change.open_table(META)?;
                let known = meta.get("format")?.map(|format| format.value());
                if known.is_none() {
                    meta.insert("format", FORMAT)?;
                }
                change.open_table(KEYS)?;
                change.open_table(ROBOTS)?;
                change.open_table(HTTP1)?;
                change.open_table(KNOWN)?;
                known.unwrap_or(FORMAT)
            };
            change.commit()?;
            Ok(format)
        })
    }

    /// Returns whether the whole input is in the crawl.
    pub(crate) fn input_complete(&self) -> Result<bool> {
        self.call(|database| {
            let table = database.begin_read()?.open_table(META)?;
            let complete = table.get("input_complete")?;
            Ok(complete.is_some_and(|complete| complete.value() == 1))
        })
    }

    pub(crate) fn set_input_complete(&self, is_complete: bool) -> Result<()> {
        self.change(|database| {
            let change = database.begin_write()?;
            let value = u64::from(is_complete);
            change.open_table(META)?.insert("input_complete", value)?;
            Ok(change.commit()?)
        })
    }

    /// Returns the present run of the folder, or `None` if a run wrote none.
    pub(crate) fn run(&self) -> Result<Option<RunOfFolder>> {
        self.call(|database| {
            let table = database.begin_read()?.open_table(META)?;
            let read = |name| Ok::<_, redb::Error>(table.get(name)?.map(|found| found.value()));
            let Some(number) = read("run")? else {
                return Ok(None);
            };
            Ok(Some(RunOfFolder {
                number: u32::try_from(number).unwrap_or(u32::MAX),
                kind: read("run_kind")?.unwrap_or_default(),
                has_ended: read("run_ended")? == Some(1),
            }))
        })
    }

    pub(crate) fn set_run(&self, run: RunOfFolder) -> Result<()> {
        self.change(|database| {
            let change = database.begin_write()?;
            {
                let mut table = change.open_table(META)?;
                table.insert("run", u64::from(run.number))?;
                table.insert("run_kind", run.kind)?;
                table.insert("run_ended", u64::from(run.has_ended))?;
            }
            Ok(change.commit()?)
        })
    }

    /// Returns the state last stored for `key`.
    pub(crate) fn key(&self, key: &str) -> Result<Option<Vec<u8>>> {
        self.call(|database| {
            let table = database.begin_read()?.open_table(KEYS)?;
            Ok(table.get(key)?.map(|state| state.value().to_vec()))
        })
    }

    /// Returns the robots.txt last stored for `origin`.
    pub(crate) fn robots(&self, origin: &str) -> Result<Option<Cached>> {
        self.call(|database| {
            let table = database.begin_read()?.open_table(ROBOTS)?;
            let found = table.get(origin)?;
            Ok(found.and_then(|cached| postcard::from_bytes(cached.value()).ok()))
        })
    }

    /// Returns what is known of the pages of `origin`.
    pub(crate) fn known(&self, origin: &str) -> Result<Option<Known>> {
        self.call(|database| {
            let table = database.begin_read()?.open_table(KNOWN)?;
            let found = table.get(origin)?;
            Ok(found.and_then(|known| postcard::from_bytes(known.value()).ok()))
        })
    }

    /// Returns whether HTTP/1.1 is spoken with `origin`.
    pub(crate) fn is_http1(&self, origin: &str) -> Result<bool> {
        self.call(|database| {
            let table = database.begin_read()?.open_table(HTTP1)?;
            Ok(table.get(origin)?.is_some())
        })
    }

    /// Stores `batch` durably. The error is in words.
    pub(crate) fn keep(&self, batch: &Batch) -> std::result::Result<(), String> {
        let written = self.change(|database| write(database, batch));
        written.map_err(|why| match why {
            redb::Error::Io(why) => io_words(&why),
            other => other.to_string(),
        })
    }
}

fn write(database: &Database, batch: &Batch) -> Result<()> {
    let change = database.begin_write()?;
    {
        let mut keys = change.open_table(KEYS)?;
        for (key, state) in &batch.keys {
            keys.insert(key.as_str(), state.as_slice())?;
        }
        let mut robots = change.open_table(ROBOTS)?;
        for (origin, cached) in &batch.robots {
            if let Ok(bytes) = postcard::to_stdvec(cached) {
                robots.insert(origin.as_str(), bytes.as_slice())?;
            }
        }
        let mut http1 = change.open_table(HTTP1)?;
        for origin in &batch.http1 {
            http1.insert(origin.as_str(), ())?;
        }
        let mut table = change.open_table(KNOWN)?;
        for (origin, known) in &batch.known {
            if let Ok(bytes) = postcard::to_stdvec(known) {
                table.insert(origin.as_str(), bytes.as_slice())?;
            }
        }
    }
    Ok(change.commit()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_kept_is_there_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let cached = Cached {
            fetched_unix_s: 5,
            body: Some(b"User-agent: *".to_vec()),
            has_sitemaps: true,
        };
        let store = Store::open(dir.path()).unwrap();
        assert!(!store.input_complete().unwrap());
        store
            .keep(&Batch {
                keys: vec![("a".into(), vec![1, 2])],
                robots: vec![("http://a".into(), cached.clone())],
                http1: vec!["https://b".into()],
                known: vec![("http://a".into(), Known::default())],
            })
            .unwrap();
        store.set_input_complete(true).unwrap();
        assert_eq!(store.run().unwrap(), None);
        let run = RunOfFolder {
            number: 7,
            kind: 1,
            has_ended: true,
        };
        store.set_run(run).unwrap();
        drop(store);
        let store = Store::open(dir.path()).unwrap();
        assert!(store.input_complete().unwrap());
        assert_eq!(store.run().unwrap(), Some(run));
        assert_eq!(store.key("a").unwrap(), Some(vec![1, 2]));
        assert_eq!(store.key("b").unwrap(), None);
        assert_eq!(store.robots("http://a").unwrap(), Some(cached));
        assert!(store.is_http1("https://b").unwrap());
        assert!(!store.is_http1("https://a").unwrap());
        assert_eq!(store.known("http://a").unwrap(), Some(Known::default()));
    }

    #[test]
    fn an_unusable_folder_is_told_in_one_line() {
        let dir = tempfile::tempdir().unwrap();
        let in_use = Store::open(dir.path()).unwrap();
        let said = Store::open(dir.path()).err().unwrap().to_string();
        assert!(said.ends_with("in use by another run"), "{said}");
        drop(in_use);

        std::fs::write(dir.path().join("politely.redb"), "something else entirely").unwrap();
        let said = Store::open(dir.path()).err().unwrap().to_string();
        assert_eq!(said.lines().count(), 1, "{said}");

        let file = dir.path().join("a file");
        std::fs::write(&file, "").unwrap();
        let said = Store::open(&file).err().unwrap().to_string();
        assert_eq!(said.lines().count(), 1, "{said}");
    }

    #[test]
    fn another_version_is_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let database = store.database.read().unwrap();
        let change = database.as_ref().unwrap().begin_write().unwrap();
        change
            .open_table(META)
            .unwrap()
            .insert("format", 99)
            .unwrap();
        change.commit().unwrap();
        drop(database);
        drop(store);
        let said = Store::open(dir.path()).err().unwrap().to_string();
        assert!(said.contains("another version"), "{said}");
    }
}
