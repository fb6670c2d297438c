//! Orders of operators, and calls that only read.

use std::num::NonZeroU32;
use std::time::Duration;

use politely_api::wire::{
    FrontierCounts, FrontierCrawls, FrontierDomain, FrontierOwner, FrontierUrl,
};
use politely_frontier::{
    Counts, CrawlName, Date, DomainStatus, FrontierError, PageStatus, Spacing, UnitStatus,
};

use super::EmbeddedFrontier;
use super::take::metadata;
use crate::coordinator::ms_up;

/// The most domains that are listed at a time.
const LISTED_MAX: usize = 1_000;
/// The most pages that one change of the storage forgets.
const FORGOTTEN_MAX: usize = 10_000;

/// An order of an operator about a crawl.
pub(crate) enum Order {
    /// Removes the waiting pages of a domain, or of all domains.
    Purge(Option<String>),
    /// Forgets a domain, or the crawl.
    Delete(Option<String>),
    /// Blocks a domain until a date, or unblocks it.
    Block(String, Option<Date>),
    /// Sets the least time from one take of a domain to the next.
    Delay(String, Duration),
    /// Bounds the finished pages of a domain.
    Limit(String, Option<NonZeroU32>),
    /// Pauses the crawl, or lets it go on.
    Pause(bool),
}

impl Order {
    /// Changes the name of its domain, if it has one.
    pub(super) fn of_domain(self, change: impl FnOnce(String) -> String) -> Self {
        match self {
            Self::Purge(domain) => Self::Purge(domain.map(change)),
            Self::Delete(domain) => Self::Delete(domain.map(change)),
            Self::Block(domain, until) => Self::Block(change(domain), until),
            Self::Delay(domain, delay) => Self::Delay(change(domain), delay),
            Self::Limit(domain, most) => Self::Limit(change(domain), most),
            Self::Pause(is_paused) => Self::Pause(is_paused),
        }
    }
}

impl EmbeddedFrontier {
    /// Carries out an order. It is on disk when this returns.
    pub(crate) async fn order(&self, crawl: CrawlName, order: Order) -> Result<(), FrontierError> {
        self.call(move |service| {
            let now = service.now();
            let mut frontier = service.lock();
            match order {
                Order::Purge(domain) => frontier.purge(&crawl, domain.as_deref(), now),
                Order::Delete(domain) => frontier.delete(&crawl, domain.as_deref(), now),
                Order::Block(domain, until) => frontier.block(&crawl, &domain, until, now),
                Order::Delay(domain, delay) => frontier.delay(&crawl, &domain, delay, now),
                Order::Limit(domain, most) => frontier.limit(&crawl, &domain, most, now),
                Order::Pause(is_paused) => frontier.pause(&crawl, is_paused, now),
            }?;
            drop(frontier);
            service.sync()?;
            service.0.changed.notify_waiters();
            Ok(())
        })
        .await
    }

    /// Sets the pause of all domains between two units of work, until the coordinator ends.
    pub(crate) fn set_spacing(&self, pause: Duration) {
        self.lock().set_spacing(Spacing::Fixed(pause));
    }

    /// Forgets pages that were added more than `days` ago, of a domain or of the whole crawl, and
    /// returns how many. Other calls are served in between.
    pub(crate) async fn forget(
        &self,
        crawl: CrawlName,
        domain: Option<String>,
        days: u32,
    ) -> Result<u64, FrontierError> {
        self.call(move |service| {
            let before = service.now().date.before(Duration::from_hours(24) * days);
            let forgotten = match domain {
                Some(domain) => service.forget_pages(&crawl, &domain, before)?,
                None => service.forget_all(&crawl, before)?,
            };
            service.sync()?;
            Ok(forgotten)
        })
        .await
    }

    fn forget_all(&self, crawl: &CrawlName, before: Date) -> Result<u64, FrontierError> {
        let mut forgotten = 0;
        let mut after = String::new();
        loop {
            let now = self.now();
            let domains = self.lock().domains(crawl, &after, LISTED_MAX, now)?;
            let Some(last) = domains.last() else {
                return Ok(forgotten);
            };
            after.clone_from(&last.name);
            for domain in domains {
                match self.forget_pages(crawl, &domain.name, before) {
                    // An operator deleted the domain meanwhile.
                    Err(FrontierError::UnknownDomain(..)) => {}
                    pages => forgotten += pages?,
                }
            }
        }
    }

    fn forget_pages(
        &self,
        crawl: &CrawlName,
        domain: &str,
        before: Date,
    ) -> Result<u64, FrontierError> {
        let mut forgotten = 0;
        let mut after = None;
        loop {
            let now = self.now();
            let of = (crawl, domain);
            let part = self.lock().forget(of, before, after, FORGOTTEN_MAX, now)?;
            forgotten += part.pages;
            after = part.next;
            if after.is_none() {
                return Ok(forgotten);
            }
        }
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

    /// Returns the numbers of one crawl.
    pub(crate) async fn counts(&self, crawl: &CrawlName) -> Result<FrontierCounts, FrontierError> {
        let crawl = crawl.clone();
        self.call(move |service| {
            let mut frontier = service.lock();
            frontier.end_expired(service.now())?;
            let counts = frontier.counts(&crawl)?;
            let mut crawls = frontier.crawls();
            let is_paused = crawls.any(|(name, _, is_paused)| *name == crawl && is_paused);
            Ok(body(&crawl, counts, is_paused))
        })
        .await
    }

    /// Returns domains of a crawl, by name, after the name `after`.
    pub(crate) async fn domains(
        &self,
        crawl: CrawlName,
        after: String,
        most: usize,
    ) -> Result<Vec<FrontierDomain>, FrontierError> {
        self.call(move |service| {
            let domains = service
                .lock()
                .domains(&crawl, &after, most, service.now())?;
            Ok(domains.into_iter().map(domain_body).collect())
        })
        .await
    }

    /// Returns the oldest owners of domains of a crawl.
    pub(crate) async fn owners(
        &self,
        crawl: CrawlName,
        most: usize,
    ) -> Result<Vec<FrontierOwner>, FrontierError> {
        self.call(move |service| {
            let units = service.lock().units(&crawl, most, service.now())?;
            let owner = |unit: UnitStatus| FrontierOwner {
                client: service.0.owners.client(unit.token),
                domain: unit.domain,
                token: unit.token.0,
                pages: unit.pages,
                lease_ms: ms_up(unit.lease),
            };
            Ok(units.into_iter().map(owner).collect())
        })
        .await
    }

    /// Returns one domain of a crawl.
    pub(crate) async fn domain(
        &self,
        crawl: CrawlName,
        name: String,
    ) -> Result<FrontierDomain, FrontierError> {
        self.call(move |service| {
            let mut frontier = service.lock();
            frontier.end_expired(service.now())?;
            let domain = frontier.domain(&crawl, &name, service.now())?;
            Ok(domain_body(domain))
        })
        .await
    }

    /// Returns pages of a domain after a hash, and the hash after which the list continues.
    pub(crate) async fn pages(
        &self,
        crawl: CrawlName,
        domain: String,
        after: Option<u64>,
        most: usize,
    ) -> Result<(Vec<FrontierUrl>, Option<u64>), FrontierError> {
        self.call(move |service| {
            let pages = service.lock().pages(&crawl, &domain, after, most)?;
            let next = pages.last().map(|(hash, _)| *hash);
            let next = next.filter(|_| pages.len() >= most);
            Ok((
                pages.into_iter().map(|(_, page)| page_body(page)).collect(),
                next,
            ))
        })
        .await
    }

    /// Returns a page, or `None` if the crawl does not know it.
    pub(crate) async fn page(
        &self,
        crawl: CrawlName,
        url: String,
        key: Option<String>,
    ) -> Result<Option<FrontierUrl>, FrontierError> {
        self.call(move |service| {
            let page = service.lock().page(&crawl, &url, key.as_deref())?;
            Ok(page.map(page_body))
        })
        .await
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

pub(super) fn domain_body(domain: DomainStatus) -> FrontierDomain {
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

pub(super) fn page_body(page: PageStatus) -> FrontierUrl {
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
