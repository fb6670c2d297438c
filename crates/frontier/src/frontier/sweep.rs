//! Frees the space of what was deleted, little by little.

use super::Frontier;
use crate::rows::{self, DomainId, DomainRow, Grave};
use crate::{Batch, FrontierError, Moment, Store, StoreError, Table};

impl<S: Store> Frontier<S> {
    /// Deletes at most about `entries_max` entries of deleted domains, crawls and queues. Returns
    /// whether any are left.
    ///
    /// # Errors
    /// Fails if the storage fails.
    pub fn sweep(&mut self, entries_max: usize, now: Moment) -> Result<bool, FrontierError> {
        self.call(now, |frontier, _| {
            let mut grave = None;
            frontier
                .store
                .scan(Table::Control, b"g", b"g", &mut |key, _| {
                    grave = Grave::of_key(key);
                    grave.is_none()
                })?;
            let Some(grave) = grave else {
                return Ok(false);
            };
            let mut batch = Batch::default();
            let is_done = match grave {
                Grave::Queue(id) => {
                    frontier.sweep_rows(&mut batch, Table::Queue, id.0, entries_max)?
                }
                Grave::Domain(id) => {
                    frontier.sweep_rows(&mut batch, Table::Pages, id.0, entries_max)?
                }
                Grave::Crawl(id) => {
                    let prefix = rows::name_key(id, "");
                    frontier.sweep_names(&mut batch, &prefix, entries_max)?
                }
            };
            if is_done {
                batch.remove(Table::Control, grave.key());
            }
            frontier.store.commit(batch)?;
            Ok(true)
        })
    }

    /// Removes rows of one id. Returns whether none is left.
    fn sweep_rows(
        &self,
        batch: &mut Batch,
        table: Table,
        id: u32,
        most: usize,
    ) -> Result<bool, StoreError> {
        let prefix = id.to_be_bytes();
        let mut found = 0;
        self.store.scan(table, &prefix, &prefix, &mut |key, _| {
            batch.remove(table, key);
            found += 1;
            found < most
        })?;
        Ok(found < most)
    }

    /// Removes domains of a deleted crawl. Returns whether none is left.
    fn sweep_names(
        &self,
        batch: &mut Batch,
        prefix: &[u8],
        most: usize,
    ) -> Result<bool, StoreError> {
        let mut names = Vec::new();
        self.store
            .scan(Table::Domains, prefix, prefix, &mut |key, id| {
                names.push((key.to_vec(), id.to_vec()));
                names.len() < most
            })?;
        let is_done = names.len() < most;
        for (key, id) in names {
            let id = DomainId(rows::id(&id)?);
            if let Some(row) = self.store.read(Table::Domains, &rows::domain_key(id))? {
                let row: DomainRow = rows::decode("domains", &row)?;
                batch.put(Table::Control, Grave::Queue(row.queue).key(), []);
            }
            batch.put(Table::Control, Grave::Domain(id).key(), []);
            batch.remove(Table::Domains, key);
            batch.remove(Table::Domains, rows::domain_key(id));
            batch.remove(Table::Domains, rows::text_key(id));
        }
        Ok(is_done)
    }
}
