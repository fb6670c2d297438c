//! `GetURLs`, and the calls that only read.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use futures_util::Stream;
use futures_util::stream::iter;
use politely_api::wire::{FrontierDomain, FrontierUrl};
use politely_frontier::CrawlName;
use tonic::Status;

use super::messages::{
    CountUrls, DiscoveredUrl, GetParams, KnownUrl, ListUrls, Long, OfCrawl, OfUrl, Pagination,
    QueueList, QueueOfCrawl, Stats, StringList, UrlInfo, UrlItem, UrlStatusRequest,
};
use super::{Answer, Calls, named, status};
use crate::frontier::Wish;

/// The client under which workers of this protocol are counted.
const CLIENT: &str = "urlfrontier";
/// The most queues and the most pages per queue of one call, and the lease of pages by default.
const QUEUES_MAX: u32 = 100;
const PAGES_MAX: u32 = 1_000;
const LEASE: Duration = Duration::from_secs(30);
/// The number of results by default, and the most at a time.
const RESULTS: u32 = 100;
const RESULTS_MAX: usize = 10_000;
/// The most domains or pages that are read at a time.
const CHUNK: usize = 1_000;

/// The pages that a list or a count is about.
struct Filter {
    text: Option<String>,
    ignores_case: bool,
}

impl Calls {
    pub(super) async fn get(self, said: GetParams) -> Answer<impl Stream<Item = Answer<UrlInfo>>> {
        if !self.is_active().state {
            return Ok(iter(Vec::new()));
        }
        let crawl = match &said.item {
            Some(OfCrawl::Any(_)) => None,
            Some(OfCrawl::One(name)) => Some(named(name)?),
            None => Some(named("")?),
        };
        if crawl.is_none() && !said.key.is_empty() {
            return Err(Status::invalid_argument("name the crawl of the queue"));
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
            domain: Some(said.key).filter(|key| !key.is_empty()),
            worker: self.api.coordinator.worker(&self.caller.worker(CLIENT)),
            units: at_most(said.max_queues, QUEUES_MAX),
            pages_per_unit: at_most(said.max_urls_per_queue, PAGES_MAX),
            wait: Duration::ZERO,
            lease,
            labels: BTreeMap::new(),
            keeps_urls: true,
        };
        let taken = match self.frontier.take(wish).await {
            // An unknown crawl has no pages yet.
            Err(politely_frontier::FrontierError::UnknownCrawl(_)) => return Ok(iter(Vec::new())),
            taken => taken.map_err(status)?,
        };
        let (units, crawls, _) = taken.into_named_units();
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

    pub(super) async fn queues(self, said: Pagination) -> Answer<QueueList> {
        let crawl = named(&said.crawl_id)?;
        let (start, size) = (said.start as usize, size(said.size));
        let mut found = Vec::new();
        let mut after = String::new();
        let mut skipped = 0;
        while found.len() < size {
            let domains = self
                .frontier
                .domains(crawl.clone(), after.clone(), CHUNK)
                .await;
            let domains = domains.map_err(status)?;
            let Some(last) = domains.last() else { break };
            after.clone_from(&last.domain);
            let active = |domain: &FrontierDomain| domain.ready + domain.dated + domain.leased > 0;
            for domain in domains {
                if !said.include_inactive && !active(&domain) {
                    continue;
                }
                if skipped < start {
                    skipped += 1;
                } else if found.len() < size {
                    found.push(domain.domain);
                }
            }
        }
        Ok(QueueList {
            size: found.len() as u32,
            values: found,
            total: 0,
            start: said.start,
            crawl_id: crawl.to_string(),
        })
    }

    pub(super) async fn stats(self, said: QueueOfCrawl) -> Answer<Stats> {
        let crawl = named(&said.crawl_id)?;
        let (waiting, leased, finished, queues) = if said.key.is_empty() {
            let counts = self.frontier.counts(&crawl).await.map_err(status)?;
            let waiting = counts.ready + counts.dated;
            (waiting, counts.leased, counts.finished, counts.domains)
        } else {
            let domain = self.domain(crawl.clone(), &said.key).await?;
            let waiting = domain.ready + domain.dated;
            (waiting, domain.leased, domain.finished, 1)
        };
        Ok(Stats {
            size: waiting,
            in_process: u32::try_from(leased).unwrap_or(u32::MAX),
            counts: HashMap::from([("completed".to_owned(), finished)]),
            number_of_queues: queues,
            crawl_id: crawl.to_string(),
        })
    }

    pub(super) async fn url_status(self, said: UrlStatusRequest) -> Answer<UrlItem> {
        let crawl = named(&said.crawl_id)?;
        let key = Some(said.key).filter(|key| !key.is_empty());
        let page = self.frontier.page(crawl.clone(), said.url, key).await;
        let page = page.map_err(status)?;
        let unknown = || Status::not_found("the crawl does not know this page");
        Ok(item(page.ok_or_else(unknown)?, crawl.as_str()))
    }

    pub(super) async fn urls(self, said: ListUrls) -> Answer<impl Stream<Item = Answer<UrlItem>>> {
        let crawl = named(&said.crawl_id)?;
        let filter = Filter::new(said.filter, said.ignore_case);
        let (start, size) = (said.start as usize, size(said.size));
        let mut found = Vec::new();
        let mut skipped = 0;
        self.each_page(&crawl, &said.key, |page| {
            if filter.lets_through(&page) {
                if skipped < start {
                    skipped += 1;
                } else {
                    found.push(Ok(item(page, crawl.as_str())));
                }
            }
            found.len() < size
        })
        .await?;
        Ok(iter(found))
    }

    pub(super) async fn count(self, said: CountUrls) -> Answer<Long> {
        let crawl = named(&said.crawl_id)?;
        let filter = Filter::new(said.filter, said.ignore_case);
        if filter.text.is_none() {
            let value = match said.key.as_str() {
                "" => self.frontier.counts(&crawl).await.map_err(status)?.pages,
                key => self.domain(crawl, key).await?.pages,
            };
            return Ok(Long { value });
        }
        let mut value = 0;
        self.each_page(&crawl, &said.key, |page| {
            value += u64::from(filter.lets_through(&page));
            true
        })
        .await?;
        Ok(Long { value })
    }

    /// Returns one domain of a crawl.
    pub(super) async fn domain(&self, crawl: CrawlName, key: &str) -> Answer<FrontierDomain> {
        let domain = self.frontier.domain(crawl, key.to_owned()).await;
        domain.map_err(status)
    }

    /// Visits the pages of a domain, or of all domains, until `visit` returns `false`.
    async fn each_page(
        &self,
        crawl: &CrawlName,
        key: &str,
        mut visit: impl FnMut(FrontierUrl) -> bool,
    ) -> Answer<()> {
        if !key.is_empty() {
            self.each_page_of(crawl, key, &mut visit).await?;
            return Ok(());
        }
        let mut after = String::new();
        loop {
            let domains = self
                .frontier
                .domains(crawl.clone(), after.clone(), CHUNK)
                .await;
            let domains = domains.map_err(status)?;
            let Some(last) = domains.last() else {
                return Ok(());
            };
            after.clone_from(&last.domain);
            for domain in domains {
                if !self.each_page_of(crawl, &domain.domain, &mut visit).await? {
                    return Ok(());
                }
            }
        }
    }

    async fn each_page_of(
        &self,
        crawl: &CrawlName,
        key: &str,
        visit: &mut impl FnMut(FrontierUrl) -> bool,
    ) -> Answer<bool> {
        let mut after = None;
        loop {
            let pages = self
                .frontier
                .pages(crawl.clone(), key.to_owned(), after, CHUNK);
            let (pages, next) = pages.await.map_err(status)?;
            for page in pages {
                if !visit(page) {
                    return Ok(false);
                }
            }
            after = next;
            if after.is_none() {
                return Ok(true);
            }
        }
    }
}

impl Filter {
    fn new(text: Option<String>, ignores_case: Option<bool>) -> Self {
        let ignores_case = ignores_case.unwrap_or(false);
        let text = text.filter(|text| !text.is_empty());
        Self {
            text: text.map(|text| {
                if ignores_case {
                    text.to_lowercase()
                } else {
                    text
                }
            }),
            ignores_case,
        }
    }

    fn lets_through(&self, page: &FrontierUrl) -> bool {
        let Some(text) = &self.text else { return true };
        if self.ignores_case {
            page.url.to_lowercase().contains(text)
        } else {
            page.url.contains(text)
        }
    }
}

fn size(wanted: u32) -> usize {
    let wanted = if wanted == 0 { RESULTS } else { wanted };
    (wanted as usize).min(RESULTS_MAX)
}

/// Returns a page as the protocol describes it: discovered until its first visit.
fn item(page: FrontierUrl, crawl: &str) -> UrlItem {
    let creation_date = page.added_unix_ms / 1_000;
    let info = Some(UrlInfo {
        metadata: metadata(page.metadata.as_ref()),
        url: page.url,
        key: page.domain,
        crawl_id: crawl.to_owned(),
    });
    let item = match page.visited_unix_ms {
        None => OfUrl::Discovered(DiscoveredUrl { info }),
        Some(_) => OfUrl::Known(KnownUrl {
            info,
            refetchable_from_date: page.again_unix_ms.unwrap_or(0) / 1_000,
        }),
    };
    UrlItem {
        item: Some(item),
        id: String::new(),
        creation_date,
    }
}

/// Returns the fields of a page's JSON as lists of texts.
fn metadata(json: Option<&serde_json::Value>) -> HashMap<String, StringList> {
    let text = |value: &serde_json::Value| match value.as_str() {
        Some(text) => text.to_owned(),
        None => value.to_string(),
    };
    let fields = json.and_then(serde_json::Value::as_object);
    let fields = fields.into_iter().flatten().map(|(name, value)| {
        let values = match value.as_array() {
            Some(values) => values.iter().map(text).collect(),
            None => vec![text(value)],
        };
        (name.clone(), StringList { values })
    });
    fields.collect()
}
