//! The calls of an operator. Each is recorded in the audit log.

use std::num::NonZeroU32;
use std::sync::atomic::Ordering;
use std::time::Duration;

use politely_frontier::{CrawlName, FrontierError};
use prost::Message;
use tonic::Status;

use super::messages::{
    Active, BlockQueue, Boolean, CrawlLimit, DeleteCrawl, Empty, Level, LogLevel, Long, PurgeUrls,
    QueueDelay, QueueOfCrawl,
};
use super::{Answer, Calls, PREFIX, if_any, named, status};
use crate::api::audit::Entry;
use crate::frontier::{Order, date};

impl Calls {
    pub(super) async fn delete_crawl(self, said: DeleteCrawl) -> Answer<Long> {
        let crawl = named(&said.value)?;
        let counts = self.frontier.counts(&crawl).await;
        let Some(counts) = if_any(counts)? else {
            return Ok(Long { value: 0 });
        };
        self.order("DeleteCrawl", crawl, &said, Order::Delete(None))
            .await?;
        Ok(Long {
            value: counts.pages,
        })
    }

    pub(super) async fn delete_queue(self, said: QueueOfCrawl) -> Answer<Long> {
        let crawl = named(&said.crawl_id)?;
        let domain = self.frontier.domain(crawl.clone(), said.key.clone());
        let Some(domain) = if_any(domain.await)? else {
            return Ok(Long { value: 0 });
        };
        let order = Order::Delete(Some(said.key.clone()));
        self.order("DeleteQueue", crawl, &said, order).await?;
        Ok(Long {
            value: domain.pages,
        })
    }

    pub(super) async fn block(self, said: BlockQueue) -> Answer<Empty> {
        let until = date(said.time.saturating_mul(1_000)).map_err(Status::invalid_argument)?;
        let order = Order::Block(said.key.clone(), Some(until));
        let crawl = named(&said.crawl_id)?;
        self.order("BlockQueueUntil", crawl, &said, order).await
    }

    /// Sets the pause of a queue, or of all queues until the coordinator ends.
    pub(super) async fn delay(self, said: QueueDelay) -> Answer<Empty> {
        let delay = Duration::from_secs(said.delay_requestable.into());
        if said.key.is_empty() {
            let entry = self.entry("SetDelay", &said);
            self.frontier.set_spacing(delay).map_err(status)?;
            entry.ordered().await;
            return Ok(Empty {});
        }
        let order = Order::Delay(said.key.clone(), delay);
        let crawl = named(&said.crawl_id)?;
        self.order("SetDelay", crawl, &said, order).await
    }

    pub(super) async fn limit(self, said: CrawlLimit) -> Answer<Empty> {
        let order = Order::Limit(said.key.clone(), NonZeroU32::new(said.limit));
        let crawl = named(&said.crawl_id)?;
        self.order("SetCrawlLimit", crawl, &said, order).await
    }

    /// Forgets pages that were added more than some days ago, and returns how many.
    pub(super) async fn forget(self, said: PurgeUrls) -> Answer<Long> {
        let crawl = named(&said.crawl_id)?;
        let entry = self.entry("PurgeURLs", &said);
        let domain = Some(said.key).filter(|key| !key.is_empty());
        let forgotten = to_its_end(async move {
            let forgotten = self.frontier.forget(crawl, domain, said.days).await?;
            entry.ordered().await;
            Ok(forgotten)
        });
        let value = if_any(forgotten.await?)?.unwrap_or(0);
        Ok(Long { value })
    }

    pub(super) fn set_active(&self, said: &Active) -> Empty {
        self.api.is_active.store(said.state, Ordering::Relaxed);
        Empty {}
    }

    pub(super) fn is_active(&self) -> Boolean {
        let state = self.api.is_active.load(Ordering::Relaxed);
        Boolean { state }
    }

    /// Sets the level of a part of the program's log, until the coordinator ends.
    pub(super) fn set_log_level(&self, said: &LogLevel) -> Answer<Empty> {
        let wrong = |_| {
            let level = said.level;
            Status::invalid_argument(format!("{level} is no level; send 0 (TRACE) to 4 (ERROR)"))
        };
        let level = Level::try_from(said.level).map_err(wrong)?;
        let missing = || Status::unimplemented("the log of this program cannot be set");
        let set = self.api.set_log_level.ok_or_else(missing)?;
        set(&said.package, level.as_str()).map_err(Status::invalid_argument)?;
        Ok(Empty {})
    }

    /// Carries out an order and records it in the audit log.
    async fn order(
        &self,
        call: &str,
        crawl: CrawlName,
        said: &(impl Message + std::fmt::Debug),
        order: Order,
    ) -> Answer<Empty> {
        let entry = self.entry(call, said);
        let frontier = self.frontier.clone();
        let ordered = to_its_end(async move {
            frontier.order(crawl, order).await?;
            entry.ordered().await;
            Ok(())
        });
        ordered.await?.map_err(status)?;
        Ok(Empty {})
    }

    fn entry(&self, call: &str, said: &(impl Message + std::fmt::Debug)) -> Entry {
        let call = format!("POST {PREFIX}{call}");
        let said = format!("{said:?}");
        self.api.order_entry(&self.caller, &call, &said)
    }
}

/// Runs an order to its end even if its caller hangs up, so that the audit log misses none.
async fn to_its_end<T: Send + 'static>(
    order: impl Future<Output = Result<T, FrontierError>> + Send + 'static,
) -> Answer<Result<T, FrontierError>> {
    let ended = tokio::spawn(order).await;
    ended.map_err(|_| Status::internal("the order was not carried out to its end"))
}
