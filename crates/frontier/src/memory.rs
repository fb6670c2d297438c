//! A storage in memory, for tests and for crawls that need not survive.

use std::collections::BTreeMap;

use parking_lot::RwLock;

use crate::{Batch, Store, StoreError, Table};

type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

/// A storage in memory. Nothing survives the process.
#[derive(Debug, Default)]
pub struct MemoryStore {
    tables: RwLock<BTreeMap<Table, Entries>>,
}

impl Store for MemoryStore {
    fn read(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let tables = self.tables.read();
        Ok(tables
            .get(&table)
            .and_then(|entries| entries.get(key))
            .cloned())
    }

    fn scan(
        &self,
        table: Table,
        prefix: &[u8],
        from: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        let tables = self.tables.read();
        let Some(entries) = tables.get(&table) else {
            return Ok(());
        };
        for (key, value) in entries.range(prefix.max(from).to_vec()..) {
            if !key.starts_with(prefix) || !visit(key, value) {
                break;
            }
        }
        Ok(())
    }

    fn commit(&self, batch: Batch) -> Result<(), StoreError> {
        let mut tables = self.tables.write();
        for change in batch.0 {
            let entries = tables.entry(change.table).or_default();
            match change.value {
                Some(value) => entries.insert(change.key, value),
                None => entries.remove(&change.key),
            };
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

impl<S: Store + ?Sized> Store for std::sync::Arc<S> {
    fn read(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        (**self).read(table, key)
    }

    fn read_many(
        &self,
        table: Table,
        keys: &[Vec<u8>],
    ) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        (**self).read_many(table, keys)
    }

    fn scan(
        &self,
        table: Table,
        prefix: &[u8],
        from: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        (**self).scan(table, prefix, from, visit)
    }

    fn commit(&self, batch: Batch) -> Result<(), StoreError> {
        (**self).commit(batch)
    }

    fn sync(&self) -> Result<(), StoreError> {
        (**self).sync()
    }

    fn recover(&self) -> Result<(), StoreError> {
        (**self).recover()
    }
}
