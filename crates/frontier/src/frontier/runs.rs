//! Pages enter the queue in runs and leave it.

use std::collections::BTreeMap;

use hashbrown::HashMap;

use super::Frontier;
use super::serial::Serial;
use crate::page::Priority;
use crate::queue::{Dated, Ready, Run, RunId};
use crate::rows::QueueId;
use crate::{Batch, Store, StoreError, Table};

/// The pages of one run have one queue, one priority, and one second from which on they are due.
type Kind = (QueueId, Priority, u64);

/// The runs that one call adds.
#[derive(Default)]
pub(super) struct NewRuns {
    last: HashMap<Kind, (RunId, Run), foldhash::fast::FixedState>,
}

impl NewRuns {
    /// Adds a page behind all pages of its priority that are due since the same second or before.
    /// A run that is full goes to `batch`.
    pub(super) fn push(
        &mut self,
        batch: &mut Batch,
        serial: &mut Serial,
        queue: QueueId,
        page: Dated,
    ) -> Ready {
        let Dated { priority, due, .. } = page;
        let mut new = || (RunId::new(priority, due, serial.take()), Run::default());
        let kind = (queue, priority, due.millis() / 1_000);
        let last = self.last.entry(kind).or_insert_with(&mut new);
        if !last.1.has_room() {
            let (run, pages) = std::mem::replace(last, new());
            pages.store(batch, queue, run);
        }
        Ready {
            run: last.0,
            page: last.1.push(page.hash, page.failures),
        }
    }

    /// Adds all runs to a batch.
    pub(super) fn store(self, batch: &mut Batch) {
        for ((queue, ..), (run, pages)) in self.last {
            pages.store(batch, queue, run);
        }
    }
}

impl<S: Store> Frontier<S> {
    /// Removes pages from their runs. Each run is read and written once.
    pub(super) fn remove_ready(
        &self,
        batch: &mut Batch,
        queue: QueueId,
        pages: impl Iterator<Item = Ready>,
    ) -> Result<(), StoreError> {
        let mut places: BTreeMap<RunId, Vec<u8>> = BTreeMap::new();
        for ready in pages {
            places.entry(ready.run).or_default().push(ready.page.place);
        }
        let keys: Vec<_> = places.keys().map(|run| run.key(queue)).collect();
        let rows = self.store.read_many(Table::Queue, &keys)?;
        for ((run, places), row) in places.into_iter().zip(rows) {
            // A run that is not there has no pages to remove.
            let Some(row) = row else { continue };
            let mut pages = Run::decode(&row)?;
            for place in places {
                pages.remove(place);
            }
            pages.store(batch, queue, run);
        }
        Ok(())
    }
}
