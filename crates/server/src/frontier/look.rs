//! Calls that only read.

use std::sync::Arc;

use politely_api::wire::{
    FrontierCounts, FrontierCrawls, FrontierDomain, FrontierOwner, FrontierUrl,
};
use politely_frontier::{
    Counts, CrawlName, Date, DomainStatus, EmbeddedStore, Frontier, FrontierError, Moment,
    PageStatus, UnitStatus,
};

use super::service::{Kind, as_key};
use super::take::metadata;
use super::{EmbeddedFrontier, FrontierService};
use crate::coordinator::ms_up;

impl FrontierService {
    /// Returns the numbers of one crawl.
    pub(crate) async fn counts(&self, crawl: &CrawlName) -> Result<FrontierCounts, FrontierError> {
        let (counts, is_paused) = match &self.0 {
            Kind::Embedded(own) => {
                let crawl = crawl.clone();
                own.read(move |frontier, now| {
                    frontier.end_expired(now)?;
                    let counts = frontier.counts(&crawl)?;
                    let mut crawls = frontier.crawls();
                    let is_paused = crawls.any(|(name, _, is_paused)| *name == crawl && is_paused);
                    Ok((counts, is_paused))
                })
                .await?
            }
            Kind::Fleet(fleet) => fleet.in_engine().counts(crawl).await?,
        };
        Ok(body(crawl, counts, is_paused))
    }

    /// Returns domains of a crawl, by name, after the name `after`.
    pub(crate) async fn domains(
        &self,
        crawl: CrawlName,
        after: String,
        most: usize,
    ) -> Result<Vec<FrontierDomain>, FrontierError> {
        let domains = match &self.0 {
            Kind::Embedded(own) => {
                own.read(move |frontier, now| frontier.domains(&crawl, &after, most, now))
                    .await?
            }
            Kind::Fleet(fleet) => fleet.in_engine().domains(&crawl, &after, most).await?,
        };
        Ok(domains.into_iter().map(domain_body).collect())
    }

    /// Returns the oldest owners of domains of a crawl.
    pub(crate) async fn owners(
        &self,
        crawl: CrawlName,
        most: usize,
    ) -> Result<Vec<FrontierOwner>, FrontierError> {
        let (units, owners) = match &self.0 {
            Kind::Embedded(own) => {
                let units = own.read(move |frontier, now| frontier.units(&crawl, most, now));
                (units.await?, &own.0.owners)
            }
            Kind::Fleet(fleet) => (fleet.in_engine().units(&crawl, most).await?, fleet.owners()),
        };
        let owner = |unit: UnitStatus| FrontierOwner {
            client: owners.client(unit.token),
            domain: unit.domain,
            token: unit.token.0,
            pages: unit.pages,
            lease_ms: ms_up(unit.lease),
        };
        Ok(units.into_iter().map(owner).collect())
    }

    /// Returns one domain of a crawl.
    pub(crate) async fn domain(
        &self,
        crawl: CrawlName,
        name: String,
    ) -> Result<FrontierDomain, FrontierError> {
        let name = as_key(name);
        let domain = match &self.0 {
            Kind::Embedded(own) => {
                own.read(move |frontier, now| {
                    frontier.end_expired(now)?;
                    frontier.domain(&crawl, &name, now)
                })
                .await?
            }
            Kind::Fleet(fleet) => fleet.in_engine().domain(&crawl, &name).await?,
        };
        Ok(domain_body(domain))
    }

    /// Returns pages of a domain after a hash, and the hash after which the list continues.
    pub(crate) async fn pages(
        &self,
        crawl: CrawlName,
        domain: String,
        after: Option<u64>,
        most: usize,
    ) -> Result<(Vec<FrontierUrl>, Option<u64>), FrontierError> {
        let domain = as_key(domain);
        let (pages, next) = match &self.0 {
            Kind::Embedded(own) => {
                own.read(move |frontier, _| {
                    let pages = frontier.pages(&crawl, &domain, after, most)?;
                    let next = pages.last().map(|(hash, _)| *hash);
                    let next = next.filter(|_| pages.len() >= most);
                    Ok((pages.into_iter().map(|(_, page)| page).collect(), next))
                })
                .await?
            }
            Kind::Fleet(fleet) => {
                fleet
                    .in_engine()
                    .pages(&crawl, &domain, after, most)
                    .await?
            }
        };
        let pages: Vec<PageStatus> = pages;
        Ok((pages.into_iter().map(page_body).collect(), next))
    }

    /// Returns a page, or `None` if the crawl does not know it.
    pub(crate) async fn page(
        &self,
        crawl: CrawlName,
        url: String,
        key: Option<String>,
    ) -> Result<Option<FrontierUrl>, FrontierError> {
        let page = match &self.0 {
            Kind::Embedded(own) => {
                own.read(move |frontier, _| frontier.page(&crawl, &url, key.as_deref()))
                    .await?
            }
            Kind::Fleet(fleet) => fleet.in_engine().page(&crawl, &url, key.as_deref()).await?,
        };
        Ok(page.map(page_body))
    }
}

impl EmbeddedFrontier {
    /// Reads outside the async threads.
    async fn read<T: Send + 'static>(
        &self,
        look: impl FnOnce(&mut Frontier<Arc<EmbeddedStore>>, Moment) -> Result<T, FrontierError>
        + Send
        + 'static,
    ) -> Result<T, FrontierError> {
        self.call(move |service| look(&mut service.lock(), service.now()))
            .await
    }

    /// Returns the numbers of all crawls.
    pub(crate) fn crawls(&self) -> FrontierCrawls {
        let frontier = self.lock();
        let crawls = frontier.crawls();
        FrontierCrawls {
            crawls: crawls
                .map(|(name, counts, is_paused)| body(name, counts, is_paused))
                .collect(),
            units: frontier.units_len() as u64,
        }
    }
}

pub(super) fn body(crawl: &CrawlName, counts: Counts, is_paused: bool) -> FrontierCounts {
    FrontierCounts {
        crawl: crawl.to_string(),
        paused: is_paused,
        domains: counts.domains,
        pages: counts.pages,
        ready: counts.ready,
        dated: counts.dated,
        leased: counts.leased,
        finished: counts.finished(),
    }
}

fn domain_body(domain: DomainStatus) -> FrontierDomain {
    let counts = domain.counts;
    FrontierDomain {
        domain: domain.name,
        pages: counts.pages,
        ready: counts.ready,
        dated: counts.dated,
        leased: counts.leased,
        finished: counts.finished(),
        owners: domain.owners.into_iter().map(|token| token.0).collect(),
        wait_ms: ms_up(domain.wait),
        blocked_until_unix_ms: domain.blocked_until.map(Date::millis),
        delay_ms: ms_up(domain.delay),
    }
}

fn page_body(page: PageStatus) -> FrontierUrl {
    FrontierUrl {
        url: page.url,
        domain: page.domain,
        added_unix_ms: page.added.millis(),
        leased: page.leased.map(|token| token.0),
        visited_unix_ms: page.visited.map(Date::millis),
        status: page.status,
        again_unix_ms: page.again.map(Date::millis),
        metadata: metadata(&page.metadata),
    }
}
