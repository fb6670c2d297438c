//! A storage on disk, inside this process: an LSM tree.
//!
//! A committed batch is in the page cache of the operating system, so it survives `kill -9`.
//! [`Store::sync`] writes it to the disk. Calls of several threads share one fsync.

use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use fjall::config::PinningPolicy;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use parking_lot::{MappedRwLockReadGuard, Mutex, RwLock, RwLockReadGuard};

use crate::{Batch, Store, StoreError, Table};

/// The most bytes of journals. Opening reads them again, so this bounds the time of a restart.
const JOURNAL_BYTES_MAX: u64 = 64 << 20;
/// The most bytes of one table in memory, until it is written as a sorted file.
const MEMTABLE_BYTES_MAX: u64 = 32 << 20;
/// The same for a small storage, and its memory for blocks that were read.
const SMALL_MEMTABLE_BYTES_MAX: u64 = 2 << 20;
const SMALL_CACHE_BYTES: u64 = 2 << 20;
/// The room on the disk without which a storage that failed is not opened again, in bytes.
const ROOM_MIN: usize = 16 << 20;
/// The number of keys from which on two threads read.
const SHARED_READS_MIN: usize = 512;

/// A storage on disk, inside this process.
pub struct EmbeddedStore {
    folder: PathBuf,
    size: Size,
    /// `None` while the storage cannot be opened again after a failure.
    open: RwLock<Option<Open>>,
    committed: AtomicU64,
    /// The value of `committed` at the start of the last fsync that succeeded.
    synced: Mutex<u64>,
}

/// The memory that a storage uses.
#[derive(Clone, Copy)]
struct Size {
    cache_bytes: u64,
    memtable_bytes: u64,
    /// Whether the filters and indexes of all files stay in memory: about two bytes for each entry.
    /// Otherwise a read may load them into the cache, and a small cache forgets them at once.
    is_pinned: bool,
}

/// The database while it is open.
struct Open {
    database: Database,
    /// One per [`Table`], in its order.
    tables: [Keyspace; 4],
}

impl EmbeddedStore {
    /// Opens the storage in a folder, which is created if it is missing. Only one process can have
    /// it open. `cache_bytes` bounds the memory for blocks that were read.
    pub fn open(folder: &Path, cache_bytes: u64) -> Result<Self, StoreError> {
        let size = Size {
            cache_bytes,
            memtable_bytes: MEMTABLE_BYTES_MAX,
            is_pinned: false,
        };
        Self::of_size(folder, size)
    }

    /// Opens the storage in a folder as [`open`](Self::open) does, with small buffers: 2 MiB for
    /// each table, 2 MiB for blocks that were read, and about two bytes for each entry.
    pub fn open_small(folder: &Path) -> Result<Self, StoreError> {
        let size = Size {
            cache_bytes: SMALL_CACHE_BYTES,
            memtable_bytes: SMALL_MEMTABLE_BYTES_MAX,
            is_pinned: true,
        };
        Self::of_size(folder, size)
    }

    fn of_size(folder: &Path, size: Size) -> Result<Self, StoreError> {
        Ok(Self {
            folder: folder.to_owned(),
            size,
            open: RwLock::new(Some(Open::new(folder, size)?)),
            committed: AtomicU64::new(0),
            synced: Mutex::new(0),
        })
    }

    /// Returns the bytes on disk, with the journals.
    pub fn disk_bytes(&self) -> Result<u64, StoreError> {
        let bytes = self.get()?.database.disk_space();
        bytes.map_err(|why| failed(&why))
    }

    fn get(&self) -> Result<MappedRwLockReadGuard<'_, Open>, StoreError> {
        let open = RwLockReadGuard::try_map(self.open.read(), Option::as_ref);
        open.map_err(|_| StoreError("it is not open after an earlier failure".to_owned()))
    }
}

impl Size {
    fn options(self) -> KeyspaceCreateOptions {
        let options = KeyspaceCreateOptions::default().max_memtable_size(self.memtable_bytes);
        if !self.is_pinned {
            return options;
        }
        options
            .filter_block_pinning_policy(PinningPolicy::all(true))
            .index_block_pinning_policy(PinningPolicy::all(true))
    }
}

impl Open {
    fn new(folder: &Path, size: Size) -> Result<Self, StoreError> {
        let opening = |why: fjall::Error| {
            let why = match why {
                fjall::Error::Locked => "another process has it open".to_owned(),
                why @ (fjall::Error::Io(_) | fjall::Error::Poisoned) => describe(&why),
                why => format!(
                    "its files are damaged ({why}); move it away to begin anew, or put a backup \
                     in its place"
                ),
            };
            StoreError(format!("cannot open \"{}\": {why}", folder.display()))
        };
        let database = Database::builder(folder)
            .cache_size(size.cache_bytes)
            .max_journaling_size(JOURNAL_BYTES_MAX)
            .open()
            .map_err(opening)?;
        let table = |table: Table| {
            let opened = database.keyspace(table.name(), || size.options());
            opened.map_err(opening)
        };
        let [control, domains, pages, queue] = Table::ALL;
        Ok(Self {
            tables: [
                table(control)?,
                table(domains)?,
                table(pages)?,
                table(queue)?,
            ],
            database,
        })
    }

    fn table(&self, table: Table) -> &Keyspace {
        &self.tables[table as usize]
    }

    fn read(&self, table: Table, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        let table = self.table(table);
        let read = |key: &Vec<u8>| {
            let value = table.get(key).map_err(|why| failed(&why))?;
            Ok(value.map(|value| value.to_vec()))
        };
        keys.iter().map(read).collect()
    }
}

impl Store for EmbeddedStore {
    fn read(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let value = self.get()?.table(table).get(key);
        Ok(value
            .map_err(|why| failed(&why))?
            .map(|value| value.to_vec()))
    }

    fn read_many(
        &self,
        table: Table,
        keys: &[Vec<u8>],
    ) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        let open = self.get()?;
        if keys.len() < SHARED_READS_MIN {
            return open.read(table, keys);
        }
        let (here, there) = keys.split_at(keys.len() / 2);
        std::thread::scope(|scope| {
            let there = scope.spawn(|| open.read(table, there));
            let mut values = open.read(table, here)?;
            let ended = there.join();
            let failed = |_| StoreError("a thread that reads ended early".to_owned());
            values.extend(ended.map_err(failed)??);
            Ok(values)
        })
    }

    fn scan(
        &self,
        table: Table,
        prefix: &[u8],
        from: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        let start = Bound::Included(prefix.max(from).to_vec());
        let end = match after(prefix) {
            Some(end) => Bound::Excluded(end),
            None => Bound::Unbounded,
        };
        let open = self.get()?;
        for entry in open.table(table).range::<Vec<u8>, _>((start, end)) {
            let (key, value) = entry.into_inner().map_err(|why| failed(&why))?;
            if !visit(&key, &value) {
                break;
            }
        }
        Ok(())
    }

    fn commit(&self, mut batch: Batch) -> Result<(), StoreError> {
        let open = self.get()?;
        // Neighbours in a table share their way through memory. The order of equal keys stays.
        batch
            .0
            .sort_by(|a, b| (a.table, &a.key).cmp(&(b.table, &b.key)));
        let mut writes = open.database.batch();
        for change in batch.0 {
            let table = open.table(change.table);
            match change.value {
                Some(value) => writes.insert(table, change.key, value),
                None => writes.remove(table, change.key),
            }
        }
        if let Err(why) = writes.commit() {
            drop(open);
            // The journal's writer still has the batch, and writes it when it is dropped. The disk
            // is full now, so that fails too: a batch that failed must not be there later.
            *self.open.write() = None;
            return Err(failed(&why));
        }
        self.committed.fetch_add(1, Ordering::Release);
        Ok(())
    }

    fn sync(&self) -> Result<(), StoreError> {
        let wanted = self.committed.load(Ordering::Acquire);
        // While one thread waits for the disk, all others queue here. The first of them then serves
        // the rest.
        let mut synced = self.synced.lock();
        if *synced >= wanted {
            return Ok(());
        }
        let covered = self.committed.load(Ordering::Acquire);
        self.get()?
            .database
            .persist(PersistMode::SyncData)
            .map_err(|why| failed(&why))?;
        *synced = covered;
        Ok(())
    }

    fn recover(&self) -> Result<(), StoreError> {
        let mut open = self.open.write();
        // Two databases cannot have one folder open.
        *open = None;
        check_room(&self.folder)?;
        *open = Some(Open::new(&self.folder, self.size)?);
        Ok(())
    }
}

/// Fails unless there is room on the disk of a folder.
fn check_room(folder: &Path) -> Result<(), StoreError> {
    let file = folder.join("room");
    let written = std::fs::write(&file, vec![0; ROOM_MIN]);
    let removed = std::fs::remove_file(&file);
    written.and(removed).map_err(|why| {
        let mib = ROOM_MIN >> 20;
        StoreError(format!(
            "cannot write {mib} MiB to \"{}\": {why}",
            folder.display()
        ))
    })
}

/// Returns the first key after all keys that begin with `prefix`, or `None` if there is none.
fn after(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte < u8::MAX)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

fn failed(why: &fjall::Error) -> StoreError {
    StoreError(describe(why))
}

fn describe(why: &fjall::Error) -> String {
    match why {
        fjall::Error::Io(why) => why.to_string(),
        fjall::Error::Poisoned => "an earlier write failed; the disk may be full".to_owned(),
        why => why.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_folder_is_named_with_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        drop(EmbeddedStore::open_small(folder.path()).unwrap());
        std::fs::write(folder.path().join("version"), "zz").unwrap();
        let why = EmbeddedStore::open_small(folder.path()).err().unwrap();
        let place = format!("cannot open \"{}\"", folder.path().display());
        assert!(why.0.starts_with(&place), "{why}");
        assert!(
            why.0.contains("are damaged") && why.0.contains("move it away"),
            "{why}"
        );
        assert!(!why.0.contains('\n'), "{why}");
    }

    #[test]
    fn a_scan_ends_with_its_prefix() {
        assert_eq!(after(&[1, 2]), Some(vec![1, 3]));
        assert_eq!(after(&[1, 255]), Some(vec![2]));
        assert_eq!(after(&[255]), None);
        assert_eq!(after(&[]), None);
    }
}
