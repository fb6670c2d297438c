//! Orders of operators.

use std::num::NonZeroU32;
use std::time::Duration;

use politely_frontier::{CrawlName, Date, FrontierError, Spacing};

use super::EmbeddedFrontier;

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
}
