//! Forgets pages that were added long ago.

use hashbrown::HashSet;

use super::Frontier;
use super::stage::Stage;
use crate::queue::{Ready, Row};
use crate::rows::{self, DomainId, PageRow, QueueId};
use crate::{Batch, CrawlName, Date, FrontierError, Moment, Store, StoreError, Table};

type Hashes = HashSet<u64, foldhash::fast::FixedState>;

/// A part of the work of [`Frontier::forget`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forgotten {
    /// The pages that were forgotten.
    pub pages: u64,
    /// The hash after which the next call continues. `None` means that the domain is done.
    pub next: Option<u64>,
}

impl<S: Store> Frontier<S> {
    /// Forgets pages of a domain that were added before a date, visited or not, except pages in
    /// live units. They are new if they are added again. One call looks at `most` pages after the
    /// hash `after`.
    ///
    /// # Errors
    /// Fails for an unknown crawl or domain, and if the storage fails.
    pub fn forget(
        &mut self,
        (crawl, domain): (&CrawlName, &str),
        before: Date,
        after: Option<u64>,
        most: usize,
        now: Moment,
    ) -> Result<Forgotten, FrontierError> {
        self.call(now, |frontier, now| {
            let id = frontier.find_domain(crawl, domain)?;
            let (old, next) = frontier.find_old(id, before, after, most)?;
            if !old.is_empty() {
                frontier.forget_pages(id, &old, now)?;
            }
            let pages = old.len() as u64;
            Ok(Forgotten { pages, next })
        })
    }

    /// Returns pages that are in no unit and older than `before`, and the last page looked at.
    fn find_old(
        &self,
        id: DomainId,
        before: Date,
        after: Option<u64>,
        most: usize,
    ) -> Result<(Hashes, Option<u64>), StoreError> {
        let units = self.units.of_domain(id);
        let leased: Hashes = units
            .flat_map(|(_, held)| held.pages.iter().map(Ready::hash))
            .collect();
        let prefix = id.0.to_be_bytes();
        let from = match after {
            None => rows::page_key(id, 0),
            Some(u64::MAX) => return Ok((Hashes::default(), None)),
            Some(hash) => rows::page_key(id, hash + 1),
        };
        let mut old = Hashes::default();
        let mut seen = 0;
        let mut last = None;
        let mut error = None;
        self.store
            .scan(Table::Pages, &prefix, &from, &mut |key, row| {
                if key.len() != from.len() {
                    return true;
                }
                if seen >= most {
                    return false;
                }
                seen += 1;
                let hash = rows::number(&key[prefix.len()..]);
                last = Some(hash);
                match PageRow::decode(row) {
                    Ok(row) if row.added_secs * 1_000 < before.millis() => {
                        if !leased.contains(&hash) {
                            old.insert(hash);
                        }
                    }
                    Ok(_) => {}
                    Err(why) => error = Some(why),
                }
                error.is_none()
            })?;
        let next = last.filter(|_| seen >= most);
        error.map_or(Ok((old, next)), Err)
    }

    fn forget_pages(
        &mut self,
        id: DomainId,
        old: &Hashes,
        now: Moment,
    ) -> Result<(), FrontierError> {
        let mut stage = Stage::default();
        let Some(domain) = stage.domain(&self.schedule, id) else {
            return Ok(());
        };
        domain.pages = domain.pages.saturating_sub(old.len() as u32);
        let mut batch = Batch::default();
        if domain.ready + domain.dated > 0 {
            let (ready, dated) = self.unqueue(&mut batch, domain.queue, old)?;
            domain.ready = domain.ready.saturating_sub(ready);
            domain.dated = domain.dated.saturating_sub(dated);
        }
        for hash in old {
            batch.remove(Table::Pages, rows::page_key(id, *hash));
            batch.remove(Table::Pages, rows::visit_key(id, *hash));
        }
        stage.batch = batch;
        self.finish(stage, now)
    }

    /// Removes pages from a queue. Returns how many waited for nothing, and how many for a date.
    fn unqueue(
        &self,
        batch: &mut Batch,
        queue: QueueId,
        pages: &Hashes,
    ) -> Result<(u32, u32), StoreError> {
        let (mut ready, mut dated) = (0, 0);
        let mut error = None;
        let prefix = queue.0.to_be_bytes();
        self.store
            .scan(Table::Queue, &prefix, &prefix, &mut |key, value| {
                match Row::decode(key, value) {
                    Ok(Row::Run(id, mut run)) => {
                        let is_gone = |page: &Ready| pages.contains(&page.hash());
                        let gone: Vec<_> = run.ready(id).filter(is_gone).collect();
                        for page in &gone {
                            run.remove(page.page.place);
                        }
                        if !gone.is_empty() {
                            ready += gone.len() as u32;
                            run.store(batch, queue, id);
                        }
                    }
                    Ok(Row::Dated(page)) if pages.contains(&page.hash) => {
                        dated += 1;
                        page.remove(batch, queue);
                    }
                    Ok(Row::Dated(_)) => {}
                    Err(why) => error = Some(why),
                }
                error.is_none()
            })?;
        error.map_or(Ok((ready, dated)), Err)
    }
}
