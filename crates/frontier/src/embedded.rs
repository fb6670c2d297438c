//! A storage on disk, inside this process: an LSM tree.
//!
//! A committed batch is in the page cache of the operating system, so it survives `kill -9`.
//! [`Store::sync`] writes it to the disk. Calls of several threads share one fsync.

use std::ops::Bound;
use std::path::Path;

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Batch, Store, StoreError, Table};

/// The most bytes of journals. Opening reads them again, so this bounds the time of a restart.
const JOURNAL_BYTES_MAX: u64 = 64 << 20;
/// The most bytes of one table in memory, until it is written as a sorted file.
const MEMTABLE_BYTES_MAX: u64 = 16 << 20;

/// A storage on disk, inside this process.
pub struct EmbeddedStore {
    database: Database,
    /// One per [`Table`], in its order.
    tables: [Keyspace; 4],
    committed: AtomicU64,
    /// The value of `committed` at the start of the last fsync that succeeded.
    synced: Mutex<u64>,
}

impl EmbeddedStore {
    /// Opens the storage in a folder, which is created if it is missing. Only one process can have
    /// it open. `cache_bytes` bounds the memory for blocks that were read.
    pub fn open(folder: &Path, cache_bytes: u64) -> Result<Self, StoreError> {
        let opening = |why: fjall::Error| {
            let why = match why {
                fjall::Error::Locked => "another process has it open".to_owned(),
                why => describe(&why),
            };
            StoreError(format!("cannot open \"{}\": {why}", folder.display()))
        };
        let database = Database::builder(folder)
            .cache_size(cache_bytes)
            .max_journaling_size(JOURNAL_BYTES_MAX)
            .open()
            .map_err(opening)?;
        let table = |table: Table| {
            let options = || KeyspaceCreateOptions::default().max_memtable_size(MEMTABLE_BYTES_MAX);
            database.keyspace(table.name(), options).map_err(opening)
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
            committed: AtomicU64::new(0),
            synced: Mutex::new(0),
        })
    }

    /// Returns the bytes on disk, with the journals.
    pub fn disk_bytes(&self) -> Result<u64, StoreError> {
        self.database.disk_space().map_err(|why| failed(&why))
    }

    /// Rewrites all tables without deleted entries. This takes long.
    pub fn compact(&self) -> Result<(), StoreError> {
        for table in &self.tables {
            table
                .rotate_memtable_and_wait()
                .map_err(|why| failed(&why))?;
            table.major_compact().map_err(|why| failed(&why))?;
        }
        Ok(())
    }

    fn keyspace(&self, table: Table) -> &Keyspace {
        &self.tables[table as usize]
    }
}

impl Store for EmbeddedStore {
    fn read(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let value = self.keyspace(table).get(key).map_err(|why| failed(&why))?;
        Ok(value.map(|value| value.to_vec()))
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
        for entry in self.keyspace(table).range::<Vec<u8>, _>((start, end)) {
            let (key, value) = entry.into_inner().map_err(|why| failed(&why))?;
            if !visit(&key, &value) {
                break;
            }
        }
        Ok(())
    }

    fn commit(&self, batch: Batch) -> Result<(), StoreError> {
        let mut writes = self.database.batch();
        for change in batch.0 {
            let table = self.keyspace(change.table);
            match change.value {
                Some(value) => writes.insert(table, change.key, value),
                None => writes.remove(table, change.key),
            }
        }
        writes.commit().map_err(|why| failed(&why))?;
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
        self.database
            .persist(PersistMode::SyncData)
            .map_err(|why| failed(&why))?;
        *synced = covered;
        Ok(())
    }
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
        fjall::Error::Poisoned => "an earlier write failed".to_owned(),
        why => why.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_ends_with_its_prefix() {
        assert_eq!(after(&[1, 2]), Some(vec![1, 3]));
        assert_eq!(after(&[1, 255]), Some(vec![2]));
        assert_eq!(after(&[255]), None);
        assert_eq!(after(&[]), None);
    }
}
