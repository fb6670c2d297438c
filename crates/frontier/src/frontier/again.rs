//! Finished pages return to the queue.
//!
//! The visit of such a page has the date of the call as its next one, so a page that waits is told
//! from a finished one, and no call queues it twice.

use hashbrown::HashSet;

use super::Frontier;
use super::runs::NewRuns;
use super::stage::Stage;
use crate::page::ValidPage;
use crate::queue::{Dated, Failures};
use crate::rows::{self, DomainId, PageRow, Visit};
use crate::{
    Answer, Batch, CrawlName, FrontierError, Moment, PageStatus, Store, StoreError, Table,
};

/// The pages that one call queues again.
#[derive(Default)]
struct Requeued {
    runs: NewRuns,
    pages: HashSet<(DomainId, u64), foldhash::fast::FixedState>,
}

impl<S: Store> Frontier<S> {
    /// Adds pages as [`put_valid`](Self::put_valid) does, and queues finished pages again.
    ///
    /// `again` gets what is known about a finished page, and the page as it is given now. It
    /// returns the metadata with which the page is queued again, or `None` for a page that stays
    /// finished.
    /// The answer to a page that is queued again is [`Answer::New`].
    ///
    /// # Errors
    /// Fails for too many pages or crawls, and if the storage fails. Nothing is changed then.
    pub fn put_again(
        &mut self,
        crawl: &CrawlName,
        pages: &[ValidPage],
        mut again: impl FnMut(&PageStatus, &ValidPage) -> Option<Vec<u8>>,
        now: Moment,
    ) -> Result<Vec<Answer>, FrontierError> {
        self.call(now, |frontier, now| {
            frontier.check_len(pages.len())?;
            let mut stage = Stage::default();
            let id = frontier.crawl_or_new(crawl, &mut stage)?;
            let mut answers = frontier.add_pages(&mut stage, id, pages, now)?;
            let mut requeued = Requeued::default();
            for (page, answer) in pages.iter().zip(&mut answers) {
                if *answer == Answer::Known
                    && frontier.requeue(&mut stage, &mut requeued, crawl, page, &mut again, now)?
                {
                    *answer = Answer::New;
                }
            }
            requeued.runs.store(&mut stage.batch);
            frontier.finish(stage, now)?;
            Ok(answers)
        })
    }

    /// Queues a page again if it is finished and `again` wants it. Returns whether it did.
    fn requeue(
        &mut self,
        stage: &mut Stage,
        requeued: &mut Requeued,
        crawl: &CrawlName,
        page: &ValidPage,
        again: &mut impl FnMut(&PageStatus, &ValidPage) -> Option<Vec<u8>>,
        now: Moment,
    ) -> Result<bool, FrontierError> {
        let name = page.key.as_str();
        let id = match self.find_domain(crawl, name) {
            // This call adds the domain.
            Err(FrontierError::UnknownDomain(..)) => return Ok(false),
            id => id?,
        };
        let Some((hash, status)) = self.page_status(id, name, &page.url)? else {
            return Ok(false);
        };
        let (Some(visited), None) = (status.visited, status.again) else {
            return Ok(false);
        };
        if requeued.pages.contains(&(id, hash)) {
            return Ok(false);
        }
        let Some(metadata) = again(&status, page) else {
            return Ok(false);
        };
        let (Some(domain), batch) = stage.parts(&self.schedule, id) else {
            return Ok(false);
        };
        let waiting = Dated {
            due: now.date,
            hash,
            priority: page.priority,
            failures: Failures::NONE,
        };
        domain.add_ready(page.priority);
        let ready = requeued
            .runs
            .push(batch, &mut self.serial, domain.queue, waiting);
        self.fronts.add(id, ready.run);
        let visit = Visit {
            at: visited,
            status: status.status.unwrap_or_default(),
            again: Some(now.date),
        };
        batch.put(
            Table::Pages,
            rows::visit_key(id, hash),
            rows::encode(&visit),
        );
        if metadata != status.metadata {
            self.put_metadata(&mut stage.batch, id, hash, &metadata)?;
        }
        requeued.pages.insert((id, hash));
        Ok(true)
    }

    /// Replaces the metadata of a page.
    pub(super) fn put_metadata(
        &self,
        batch: &mut Batch,
        id: DomainId,
        hash: u64,
        metadata: &[u8],
    ) -> Result<(), StoreError> {
        let Some(row) = self.read_page(id, hash)? else {
            return Ok(());
        };
        let row = PageRow {
            metadata,
            ..PageRow::decode(&row)?
        };
        batch.put(Table::Pages, rows::page_key(id, hash), rows::encode(&row));
        Ok(())
    }
}
