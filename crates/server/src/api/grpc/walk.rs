//! All pages of a queue, or of all queues of a crawl, as a stream.

use std::collections::VecDeque;

use futures_util::stream::{iter, try_unfold};
use futures_util::{Stream, TryStreamExt};
use politely_api::wire::FrontierUrl;
use politely_frontier::CrawlName;
use tonic::Status;

use super::{Answer, if_any};
use crate::frontier::FrontierService;

/// The most domains or pages that are read at a time.
pub(super) const CHUNK: usize = 1_000;

/// A place in the pages of a crawl.
pub(super) struct Walk {
    frontier: FrontierService,
    crawl: CrawlName,
    /// The queues that were read and whose pages come next.
    queues: VecDeque<String>,
    /// The last queue that was read, or `None` if no further queue is to be read.
    last_queue: Option<String>,
    /// The last page of the first queue that was read.
    last_page: Option<u64>,
}

impl Walk {
    /// Begins with the first page of a queue, or of a crawl if `key` is empty.
    pub(super) fn new(frontier: FrontierService, crawl: CrawlName, key: String) -> Self {
        let is_whole = key.is_empty();
        Self {
            frontier,
            crawl,
            last_queue: is_whole.then(String::new),
            queues: Some(key).filter(|_| !is_whole).into_iter().collect(),
            last_page: None,
        }
    }

    /// Returns the pages. Those of a queue that is deleted meanwhile are left out.
    pub(super) fn into_stream(self) -> impl Stream<Item = Answer<FrontierUrl>> {
        let chunks = try_unfold(self, |mut walk| async {
            let next = walk.next().await?;
            let pages = next.map(|pages| iter(pages.into_iter().map(Ok)));
            Ok::<_, Status>(pages.map(|pages| (pages, walk)))
        });
        chunks.try_flatten()
    }

    async fn next(&mut self) -> Answer<Option<Vec<FrontierUrl>>> {
        loop {
            let Some(queue) = self.queues.front().cloned() else {
                if self.read_queues().await? {
                    continue;
                }
                return Ok(None);
            };
            let pages = self
                .frontier
                .pages(self.crawl.clone(), queue, self.last_page, CHUNK);
            let (pages, next) = if_any(pages.await)?.unwrap_or_default();
            self.last_page = next;
            if next.is_none() {
                self.queues.pop_front();
            }
            if !pages.is_empty() {
                return Ok(Some(pages));
            }
        }
    }

    /// Reads the next queues. Returns whether there are any.
    async fn read_queues(&mut self) -> Answer<bool> {
        let Some(after) = self.last_queue.take() else {
            return Ok(false);
        };
        let domains = self.frontier.domains(self.crawl.clone(), after, CHUNK);
        let domains = if_any(domains.await)?.unwrap_or_default();
        self.queues
            .extend(domains.into_iter().map(|domain| domain.domain));
        self.last_queue = self.queues.back().cloned();
        Ok(self.last_queue.is_some())
    }
}
