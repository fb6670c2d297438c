//! Numbers that only grow, also after a restart.

use crate::rows;
use crate::{Batch, Store, StoreError, Table};

/// How many numbers are reserved on disk at a time.
const BLOCK: u64 = 1 << 20;
/// The key of the first number that is not reserved.
const KEY: &[u8] = b"s";

/// Numbers that only grow: fencing tokens, and the order of pages within a priority.
///
/// The end of the reserved numbers is stored in the batch that uses the first of them. A restart
/// goes on at that end and skips the rest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Serial {
    next: u64,
    reserved: u64,
    stored: u64,
}

impl Serial {
    pub(super) fn open(store: &impl Store) -> Result<Self, StoreError> {
        let stored = store.read(Table::Control, KEY)?;
        // Number 0 is never used, so that it may mean "no token".
        let next = stored.map_or(1, |bytes| rows::number(&bytes)).max(1);
        Ok(Self {
            next,
            reserved: next,
            stored: next,
        })
    }

    pub(super) const fn take(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        if self.next > self.reserved {
            self.reserved = self.next + BLOCK;
        }
        number
    }

    /// Adds the end of the reserved numbers to a batch, and returns whether it changed.
    pub(super) fn store(&mut self, batch: &mut Batch) -> bool {
        let is_changed = self.reserved != self.stored;
        if is_changed {
            batch.put(Table::Control, KEY, self.reserved.to_be_bytes());
            self.stored = self.reserved;
        }
        is_changed
    }
}
