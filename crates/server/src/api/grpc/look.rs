//! The calls that only read. What does not exist has no pages, so its numbers are 0.

use std::collections::HashMap;
use std::future::ready;

use futures_util::{Stream, StreamExt, TryStreamExt};
use politely_api::wire::{FrontierDomain, FrontierUrl};
use tonic::Status;

use super::messages::{
    CountUrls, KnownUrl, ListUrls, Long, OfUrl, Pagination, QueueList, QueueOfCrawl, Stats,
    StringList, UrlInfo, UrlItem, UrlStatusRequest,
};
use super::walk::{CHUNK, Walk};
use super::{Answer, Calls, if_any, named, status};

/// The number of results by default.
const RESULTS: u32 = 100;
/// The most bytes of the names of queues in one answer, which is one message.
const NAMES_BYTES: usize = 64 << 20;

/// The pages that a list or a count is about.
struct Filter {
    text: Option<String>,
    ignores_case: bool,
}

impl Calls {
    pub(super) async fn queues(self, said: Pagination) -> Answer<QueueList> {
        let crawl = named(&said.crawl_id)?;
        let (start, size) = (said.start as usize, size(said.size));
        let mut found = Vec::new();
        let mut bytes = 0;
        let mut after = String::new();
        let mut skipped = 0;
        while found.len() < size {
            let domains = self
                .frontier
                .domains(crawl.clone(), after.clone(), CHUNK)
                .await;
            let domains = if_any(domains)?.unwrap_or_default();
            let Some(last) = domains.last() else { break };
            after.clone_from(&last.domain);
            for domain in domains {
                if !said.include_inactive && active(&domain) == 0 {
                    continue;
                }
                if skipped < start {
                    skipped += 1;
                } else if found.len() < size {
                    bytes += domain.domain.len();
                    found.push(domain.domain);
                }
            }
            if bytes > NAMES_BYTES {
                let why = format!("the names have over {NAMES_BYTES} bytes; ask for fewer");
                return Err(Status::out_of_range(why));
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
        let numbers = if said.key.is_empty() {
            let counts = if_any(self.frontier.counts(&crawl).await)?;
            counts.map(|counts| {
                let active = counts.ready + counts.dated + counts.leased;
                (active, counts.leased, counts.finished, counts.domains)
            })
        } else {
            let domain = if_any(self.frontier.domain(crawl.clone(), said.key).await)?;
            domain.map(|domain| (active(&domain), domain.leased, domain.finished, 1))
        };
        let (active, leased, finished, queues) = numbers.unwrap_or_default();
        Ok(Stats {
            size: active,
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

    /// Lists pages until the last one, however many there are.
    #[expect(clippy::unused_async, reason = "calls are awaited alike")]
    pub(super) async fn urls(self, said: ListUrls) -> Answer<impl Stream<Item = Answer<UrlItem>>> {
        let crawl = named(&said.crawl_id)?;
        let name = crawl.to_string();
        let filter = Filter::new(said.filter, said.ignore_case);
        let (start, size) = (said.start as usize, size(said.size));
        let mut seen = 0;
        let is_listed = move |page: &FrontierUrl| {
            let is_wanted = filter.lets_through(page);
            seen += usize::from(is_wanted);
            ready(is_wanted && seen > start)
        };
        let pages = Walk::new(self.frontier, crawl, said.key).into_stream();
        let pages = pages.try_filter(is_listed).take(size);
        Ok(pages.map_ok(move |page| item(page, &name)))
    }

    pub(super) async fn count(self, said: CountUrls) -> Answer<Long> {
        let crawl = named(&said.crawl_id)?;
        let filter = Filter::new(said.filter, said.ignore_case);
        let value = if filter.text.is_some() {
            let pages = Walk::new(self.frontier, crawl, said.key).into_stream();
            let matches = pages.try_fold(0, |sum, page| {
                ready(Ok(sum + u64::from(filter.lets_through(&page))))
            });
            matches.await?
        } else if said.key.is_empty() {
            let counts = if_any(self.frontier.counts(&crawl).await)?;
            counts.map_or(0, |counts| counts.pages)
        } else {
            let domain = if_any(self.frontier.domain(crawl, said.key).await)?;
            domain.map_or(0, |domain| domain.pages)
        };
        Ok(Long { value })
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

/// The pages that come again: they wait, or a worker has them.
fn active(domain: &FrontierDomain) -> u64 {
    domain.ready + domain.dated + domain.leased
}

fn size(wanted: u32) -> usize {
    let wanted = if wanted == 0 { RESULTS } else { wanted };
    wanted as usize
}

/// Returns a page as the protocol describes it: known, with the date from which on it may be
/// visited, or 0 if it is not visited again.
fn item(page: FrontierUrl, crawl: &str) -> UrlItem {
    let creation_date = page.added_unix_ms / 1_000;
    let date = match page.visited_unix_ms {
        None => page.added_unix_ms,
        Some(_) => page.again_unix_ms.unwrap_or(0),
    };
    let info = UrlInfo {
        metadata: metadata(page.metadata.as_ref()),
        url: page.url,
        key: page.domain,
        crawl_id: crawl.to_owned(),
    };
    UrlItem {
        item: Some(OfUrl::Known(KnownUrl {
            info: Some(info),
            refetchable_from_date: date / 1_000,
        })),
        id: String::new(),
        creation_date,
    }
}

/// Returns the fields of a page's JSON as lists of texts.
pub(super) fn metadata(json: Option<&serde_json::Value>) -> HashMap<String, StringList> {
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
