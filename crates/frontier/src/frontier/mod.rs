//! The frontier: the schedule, the live units and the storage together.
//!
//! Each call is one atomic batch of the storage. The memory changes after the batch is committed,
//! so a process that is killed between any two steps leaves a storage that is whole. If the storage
//! fails, it is in doubt whether the batch is in it. The frontier then refuses all further calls,
//! until `recover` reads what is stored.

mod add;
mod again;
mod forget;
mod fronts;
mod give_back;
mod look;
mod open;
mod operate;
mod revise;
mod runs;
mod serial;
mod stage;
mod sweep;
mod take;

use std::collections::BTreeMap;
use std::time::Duration;

use politely_core::{Rng, Timestamp};

pub use self::forget::Forgotten;
use self::fronts::Fronts;
pub use self::look::{DomainStatus, PageStatus, UnitStatus};
pub use self::revise::Revision;
use self::serial::Serial;
use self::stage::Stage;
pub use self::take::Gate;
use crate::page::{self, NewPage, ValidPage};
use crate::rows::{self, CrawlId, DomainId};
use crate::schedule::{Domain, Schedule};
use crate::units::Units;
use crate::{
    Answer, CrawlName, Date, FrontierError, Moment, Priority, Settings, Store, StoreError, Table,
};

/// The most expired units that one call ends.
const EXPIRED_MAX: usize = 256;

/// A persistent queue of domains and their pages, with one owner of a domain at a time.
///
/// The methods are of four types: [`put`](Self::put) adds pages; [`take`](Self::take),
/// [`give_back`](Self::give_back) and [`extend`](Self::extend) are a worker's;
/// [`block`](Self::block), [`delay`](Self::delay), [`pause`](Self::pause), [`purge`](Self::purge)
/// and [`delete`](Self::delete) are an operator's; [`counts`](Self::counts),
/// [`domains`](Self::domains) and [`page`](Self::page) only read. A method that changes something
/// takes the current time.
///
/// When a method returns, its changes survive the end of the process. They survive a power failure
/// after [`Store::sync`] of [`Frontier::store`].
#[derive(Debug)]
pub struct Frontier<S> {
    store: S,
    settings: Settings,
    schedule: Schedule,
    units: Units,
    fronts: Fronts,
    crawls: BTreeMap<CrawlName, CrawlId>,
    serial: Serial,
    next_domain: u32,
    next_queue: u32,
    /// The next ids of a domain and a queue as the storage has them.
    stored_ids: (u32, u32),
    next_crawl: u32,
    /// The seed of the hashes of URLs.
    seed: u64,
    rng: Rng,
    /// The latest monotonic time of a call.
    latest: Timestamp,
    /// Why the storage failed, until it works again.
    failure: Option<StoreError>,
}

impl<S: Store> Frontier<S> {
    /// Returns the storage.
    pub const fn store(&self) -> &S {
        &self.store
    }

    /// Adds pages to a crawl, and returns one answer for each. The first page creates the crawl.
    ///
    /// # Errors
    /// Fails for too many pages or crawls, and if the storage fails. No page is added then.
    pub fn put(
        &mut self,
        crawl: &CrawlName,
        pages: Vec<NewPage>,
        now: Moment,
    ) -> Result<Vec<Answer>, FrontierError> {
        self.check_len(pages.len())?;
        let (valid, answers) = page::check(pages, self.settings.kind);
        Ok(page::merge(answers, self.put_valid(crawl, &valid, now)?))
    }

    /// Adds pages that were checked before, and returns one answer for each. See
    /// [`put`](Self::put).
    ///
    /// # Errors
    /// Fails for too many pages or crawls, and if the storage fails. No page is added then.
    pub fn put_valid(
        &mut self,
        crawl: &CrawlName,
        pages: &[ValidPage],
        now: Moment,
    ) -> Result<Vec<Answer>, FrontierError> {
        self.call(now, |frontier, now| {
            frontier.check_len(pages.len())?;
            let mut stage = Stage::default();
            let id = frontier.crawl_or_new(crawl, &mut stage)?;
            let answers = frontier.add_pages(&mut stage, id, pages, now)?;
            frontier.finish(stage, now)?;
            Ok(answers)
        })
    }

    /// Returns how long nothing becomes due: no domain and no expired unit. `None` means that only
    /// another call can change this.
    pub fn wake(&self, now: Moment) -> Option<Duration> {
        let now = self.normalize(now);
        let expiry = self.units.next_expiry().map(|at| at.since(now.at));
        [self.schedule.wake(now), expiry]
            .into_iter()
            .flatten()
            .min()
    }

    /// Runs a call that may change something.
    fn call<T>(
        &mut self,
        now: Moment,
        work: impl FnOnce(&mut Self, Moment) -> Result<T, FrontierError>,
    ) -> Result<T, FrontierError> {
        if let Some(why) = &self.failure {
            return Err(FrontierError::Closed(why.clone()));
        }
        let now = self.normalize(now);
        self.latest = now.at;
        let result = self.expire(now).and_then(|()| work(self, now));
        if let Err(FrontierError::Store(why)) = &result {
            self.failure = Some(why.clone());
        }
        result
    }

    /// Returns the time of a call. The monotonic part never steps back.
    fn normalize(&self, now: Moment) -> Moment {
        let at = now.at.max(self.latest);
        Moment { at, ..now }
    }

    /// Ends units whose lease is over. Their pages are in the queue already.
    fn expire(&mut self, now: Moment) -> Result<(), FrontierError> {
        let tokens = self.units.expired(now.at, EXPIRED_MAX);
        if tokens.is_empty() {
            return Ok(());
        }
        let mut stage = Stage::default();
        for token in tokens {
            stage.batch.remove(Table::Control, rows::unit_key(token));
            let Some(held) = self.units.remove(token) else {
                continue;
            };
            let pause_ends = now.at + self.draw_spacing();
            if let Some(domain) = stage.domain(&self.schedule, held.domain) {
                domain.leased = domain.leased.saturating_sub(held.pages.len() as u32);
                let priorities = held.pages.iter().map(|page| page.run.priority());
                domain.priority = priorities.fold(domain.priority, Priority::max);
                if !held.shares_domain {
                    domain.end_owner(pause_ends);
                }
            }
        }
        self.finish(stage, now)
    }

    /// Ends all units whose lease is over, so that the numbers of crawls and domains are exact.
    ///
    /// # Errors
    /// Fails if the storage fails.
    pub fn end_expired(&mut self, now: Moment) -> Result<(), FrontierError> {
        while self.units.next_expiry().is_some_and(|at| at <= now.at) {
            self.call(now, |_, _| Ok(()))?;
        }
        Ok(())
    }

    /// Draws the pause of a domain between two units.
    fn draw_spacing(&mut self) -> Duration {
        self.settings.spacing.draw(&mut self.rng)
    }

    /// Commits a stage, and then puts its domains into the schedule.
    fn finish(&mut self, mut stage: Stage, now: Moment) -> Result<(), FrontierError> {
        for (id, domain) in &stage.domains {
            let row = self.domain_row(*id, domain, now);
            stage
                .batch
                .put(Table::Domains, rows::domain_key(*id), rows::encode(&row));
        }
        let is_reserved = self.serial.store(&mut stage.batch);
        let ids = (self.next_domain, self.next_queue);
        if self.stored_ids != ids {
            stage.batch.put(Table::Control, b"i", ids.0.to_be_bytes());
            stage.batch.put(Table::Control, b"q", ids.1.to_be_bytes());
        }
        self.store.commit(stage.batch)?;
        self.stored_ids = ids;
        // A power failure must not hand out a fencing token a second time.
        if is_reserved {
            self.store.sync()?;
        }
        for (id, domain) in stage.domains {
            self.schedule.set(id, domain, now);
        }
        Ok(())
    }

    fn domain_row(&self, id: DomainId, domain: &Domain, now: Moment) -> rows::DomainRow {
        let orders = self.schedule.orders(id);
        let pause = domain.may_leave(&orders).since(now.at);
        // Without a pause there is no date, which a wall clock that is set back would move ahead.
        let next = if pause.is_zero() {
            Date::EPOCH
        } else {
            now.date_after(pause)
        };
        rows::DomainRow {
            crawl: domain.crawl,
            queue: domain.queue,
            pages: domain.pages,
            ready: domain.ready,
            dated: domain.dated,
            dated_first: domain.dated_first,
            priority: domain.priority.level(),
            next,
            blocked_until: orders.blocked_until,
            delay_ms: u64::try_from(orders.delay.as_millis()).unwrap_or(u64::MAX),
            finished_max: orders.finished_max,
        }
    }

    fn check_len(&self, pages: usize) -> Result<(), FrontierError> {
        let most = self.settings.pages_per_put_max;
        if pages > most {
            return Err(FrontierError::TooManyPages(pages, most));
        }
        Ok(())
    }

    fn crawl(&self, name: &CrawlName) -> Result<CrawlId, FrontierError> {
        let unknown = || FrontierError::UnknownCrawl(name.clone());
        self.crawls.get(name).copied().ok_or_else(unknown)
    }

    /// Returns the name of a domain.
    fn domain_name(&self, id: DomainId) -> Result<String, StoreError> {
        let key = rows::text_key(id);
        let text = self.store.read(Table::Domains, &key)?;
        let text = text.and_then(|text| String::from_utf8(text).ok());
        text.ok_or_else(|| rows::damaged("domains", &key))
    }

    /// Returns the id of a domain of a crawl.
    fn find_domain(&self, crawl: &CrawlName, name: &str) -> Result<DomainId, FrontierError> {
        let unknown = || FrontierError::UnknownDomain(crawl.clone(), name.to_owned());
        let key = rows::name_key(self.crawl(crawl)?, name);
        let id = self.store.read(Table::Domains, &key)?.ok_or_else(unknown)?;
        Ok(DomainId(rows::id(&id)?))
    }
}
