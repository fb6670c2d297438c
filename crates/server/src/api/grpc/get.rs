//! `GetURLs`: takes pages of several queues.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::Stream;
use futures_util::stream::iter;

use super::look::metadata;
use super::messages::{GetParams, OfCrawl, UrlInfo};
use super::{Answer, Calls, if_any, named};
use crate::frontier::Wish;

/// The client under which workers of this protocol are counted.
const CLIENT: &str = "urlfrontier";
/// The most queues and the most pages per queue of one call, and the lease of pages by default.
const QUEUES_MAX: u32 = 100;
const PAGES_MAX: u32 = 1_000;
const LEASE: Duration = Duration::from_secs(30);

impl Calls {
    pub(super) async fn get(self, said: GetParams) -> Answer<impl Stream<Item = Answer<UrlInfo>>> {
        let crawl = match &said.item {
            Some(OfCrawl::Any(_)) | None => None,
            Some(OfCrawl::One(name)) => Some(named(name)?),
        };
        let domain = Some(said.key).filter(|key| !key.is_empty());
        // A queue is one of a crawl, so any crawl has no queue of this name.
        if !self.is_active().state || (crawl.is_none() && domain.is_some()) {
            return Ok(iter(Vec::new()));
        }
        let at_most = |wanted: u32, most: u32| match wanted {
            0 => most as u16,
            wanted => wanted.min(most) as u16,
        };
        let lease = match said.delay_requestable {
            0 => LEASE,
            secs => Duration::from_secs(secs.into()),
        };
        let wish = Wish {
            crawl,
            domain,
            worker: self.api.coordinator.worker(&self.caller.worker(CLIENT)),
            units: at_most(said.max_queues, QUEUES_MAX),
            pages_per_unit: at_most(said.max_urls_per_queue, PAGES_MAX),
            wait: Duration::ZERO,
            lease,
            labels: BTreeMap::new(),
            by_page: true,
        };
        let Some(taken) = if_any(self.frontier.take(wish).await)? else {
            return Ok(iter(Vec::new()));
        };
        let (units, crawls) = taken.into_named_units();
        let mut pages = Vec::new();
        for (unit, crawl) in units.into_iter().zip(crawls) {
            for page in unit.pages {
                pages.push(Ok(UrlInfo {
                    url: page.url,
                    key: unit.domain.clone(),
                    metadata: metadata(page.metadata.as_ref()),
                    crawl_id: crawl.to_string(),
                }));
            }
        }
        Ok(iter(pages))
    }
}
