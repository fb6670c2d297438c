//! The storage under a frontier.

/// A storage for a frontier: four ordered tables of bytes, changed in atomic batches.
///
/// One frontier writes at a time. Reads see all committed batches.
pub trait Store: Send + Sync {
    /// Returns the value of a key.
    fn read(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError>;

    /// Returns the values of several keys, in the order of the keys. Adding pages calls this once
    /// for the domains and once for the pages of a call.
    fn read_many(
        &self,
        table: Table,
        keys: &[Vec<u8>],
    ) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        keys.iter().map(|key| self.read(table, key)).collect()
    }

    /// Calls `visit` for the entries whose key begins with `prefix` and is at least `from`, in the
    /// order of the keys, until it returns `false`.
    fn scan(
        &self,
        table: Table,
        prefix: &[u8],
        from: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError>;

    /// Applies all changes of `batch` or none. The result survives the end of the process.
    fn commit(&self, batch: Batch) -> Result<(), StoreError>;

    /// Waits until all committed batches survive a power failure.
    fn sync(&self) -> Result<(), StoreError>;

    /// Makes the storage usable again after a call failed. Fails while the cause persists. A batch
    /// whose commit failed may be stored or not.
    fn recover(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

/// A table of a [`Store`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Table {
    /// Crawls, units of work, counters and deleted ids: few entries.
    Control,
    /// The names and states of domains.
    Domains,
    /// Every page that was ever accepted.
    Pages,
    /// The pages that wait, in the order in which they are handed out.
    Queue,
}

impl Table {
    /// Every table.
    pub const ALL: [Self; 4] = [Self::Control, Self::Domains, Self::Pages, Self::Queue];

    /// The table's name on disk.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Control => "control",
            Self::Domains => "domains",
            Self::Pages => "pages",
            Self::Queue => "queue",
        }
    }
}

/// Changes that a [`Store`] applies together.
#[derive(Clone, Debug, Default)]
pub struct Batch(pub Vec<Change>);

/// A change of one entry: a new value, or `None` to remove it.
#[derive(Clone, Debug)]
pub struct Change {
    /// The table.
    pub table: Table,
    /// The key.
    pub key: Vec<u8>,
    /// The new value.
    pub value: Option<Vec<u8>>,
}

impl Batch {
    pub(crate) fn put(&mut self, table: Table, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) {
        self.0.push(Change {
            table,
            key: key.into(),
            value: Some(value.into()),
        });
    }

    pub(crate) fn remove(&mut self, table: Table, key: impl Into<Vec<u8>>) {
        self.0.push(Change {
            table,
            key: key.into(),
            value: None,
        });
    }
}

/// Why a storage failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct StoreError(pub String);
