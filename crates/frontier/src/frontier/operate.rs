//! An operator's orders.

use std::num::NonZeroU32;
use std::time::Duration;

use super::Frontier;
use super::stage::Stage;
use crate::rows::{self, CrawlRow, DomainId, Grave};
use crate::schedule::Orders;
use crate::{Batch, CrawlName, Date, FrontierError, Moment, Priority, Spacing, Store, Table};

/// The most domains of a crawl that are purged in one batch.
const PURGED_MAX: usize = 1_000;

impl<S: Store> Frontier<S> {
    /// Blocks a domain until a date, or unblocks it. A unit that is live goes on.
    ///
    /// # Errors
    /// Fails for an unknown crawl or domain, and if the storage fails.
    pub fn block(
        &mut self,
        crawl: &CrawlName,
        domain: &str,
        until: Option<Date>,
        now: Moment,
    ) -> Result<(), FrontierError> {
        self.order(crawl, domain, now, |orders| {
            orders.blocked_until = until.unwrap_or_default();
        })
    }

    /// Sets the least time from one take of a domain to the next. Zero removes it.
    ///
    /// # Errors
    /// Fails for an unknown crawl or domain, and if the storage fails.
    pub fn delay(
        &mut self,
        crawl: &CrawlName,
        domain: &str,
        delay: Duration,
        now: Moment,
    ) -> Result<(), FrontierError> {
        // Whole milliseconds, as they are stored.
        let millis = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        self.order(crawl, domain, now, |orders| {
            orders.delay = Duration::from_millis(millis);
        })
    }

    /// Bounds the finished pages of a domain. When the bound is reached, the domain is not handed
    /// out until it is raised. `None` removes the bound. A unit that is live goes on.
    ///
    /// # Errors
    /// Fails for an unknown crawl or domain, and if the storage fails.
    pub fn limit(
        &mut self,
        crawl: &CrawlName,
        domain: &str,
        finished_max: Option<NonZeroU32>,
        now: Moment,
    ) -> Result<(), FrontierError> {
        self.order(crawl, domain, now, |orders| {
            orders.finished_max = finished_max.map_or(0, NonZeroU32::get);
        })
    }

    /// Sets the pause of every domain between two units of work, until the frontier is opened
    /// again.
    pub const fn set_spacing(&mut self, spacing: Spacing) {
        self.settings.spacing = spacing;
    }

    /// Pauses a crawl, or lets it go on. No domain of a paused crawl is handed out; units that are
    /// live go on.
    ///
    /// # Errors
    /// Fails for an unknown crawl, and if the storage fails.
    pub fn pause(
        &mut self,
        name: &CrawlName,
        is_paused: bool,
        now: Moment,
    ) -> Result<(), FrontierError> {
        self.call(now, |frontier, _| {
            let id = frontier.crawl(name)?;
            let row = CrawlRow {
                name: name.to_string(),
                is_paused,
            };
            let mut batch = Batch::default();
            batch.put(Table::Control, rows::crawl_key(id), rows::encode(&row));
            frontier.store.commit(batch)?;
            if let Some(crawl) = frontier.schedule.crawl_mut(id) {
                crawl.is_paused = is_paused;
            }
            Ok(())
        })
    }

    /// Removes the pages that wait, of a domain or of a whole crawl, and ends its units. The pages
    /// stay known, so they are not added again.
    ///
    /// Domains are purged in several batches. A process that is killed leaves some of them.
    ///
    /// # Errors
    /// Fails for an unknown crawl or domain, and if the storage fails.
    pub fn purge(
        &mut self,
        crawl: &CrawlName,
        domain: Option<&str>,
        now: Moment,
    ) -> Result<(), FrontierError> {
        self.call(now, |frontier, now| {
            let ids = if let Some(name) = domain {
                vec![frontier.find_domain(crawl, name)?]
            } else {
                let id = frontier.crawl(crawl)?;
                let domains = frontier.schedule.domains();
                domains
                    .filter(|(_, of)| of.crawl == id)
                    .map(|(id, _)| id)
                    .collect()
            };
            ids.chunks(PURGED_MAX)
                .try_for_each(|ids| frontier.purge_domains(ids, now))
        })
    }

    /// Deletes a domain or a whole crawl, and ends its units. Its pages are forgotten, so they are
    /// new if they are added again. [`Frontier::sweep`] frees the space on disk.
    ///
    /// # Errors
    /// Fails for an unknown crawl or domain, and if the storage fails.
    pub fn delete(
        &mut self,
        crawl: &CrawlName,
        domain: Option<&str>,
        now: Moment,
    ) -> Result<(), FrontierError> {
        self.call(now, |frontier, _| match domain {
            Some(name) => frontier.delete_domain(crawl, name),
            None => frontier.delete_crawl(crawl),
        })
    }

    fn order(
        &mut self,
        crawl: &CrawlName,
        domain: &str,
        now: Moment,
        change: impl FnOnce(&mut Orders),
    ) -> Result<(), FrontierError> {
        self.call(now, |frontier, now| {
            let id = frontier.find_domain(crawl, domain)?;
            let mut orders = frontier.schedule.orders(id);
            change(&mut orders);
            frontier.schedule.set_orders(id, orders);
            let mut stage = Stage::default();
            // The row of the domain has the orders.
            stage.domain(&frontier.schedule, id);
            frontier.finish(stage, now)
        })
    }

    fn purge_domains(&mut self, ids: &[DomainId], now: Moment) -> Result<(), FrontierError> {
        let mut stage = Stage::default();
        for id in ids {
            self.end_units(&mut stage.batch, *id);
            let queue = self.new_queue();
            if let Some(domain) = stage.domain(&self.schedule, *id) {
                let old = std::mem::replace(&mut domain.queue, queue);
                domain.ready = 0;
                domain.dated = 0;
                domain.leased = 0;
                domain.owners = 0;
                domain.priority = Priority::MIN;
                stage.batch.put(Table::Control, Grave::Queue(old).key(), []);
            }
        }
        self.finish(stage, now)
    }

    fn delete_domain(&mut self, crawl: &CrawlName, name: &str) -> Result<(), FrontierError> {
        let id = self.find_domain(crawl, name)?;
        let crawl_id = self.crawl(crawl)?;
        let mut batch = Batch::default();
        self.end_units(&mut batch, id);
        batch.remove(Table::Domains, rows::name_key(crawl_id, name));
        batch.remove(Table::Domains, rows::domain_key(id));
        batch.remove(Table::Domains, rows::text_key(id));
        batch.put(Table::Control, Grave::Domain(id).key(), []);
        if let Some(domain) = self.schedule.domain(id) {
            batch.put(Table::Control, Grave::Queue(domain.queue).key(), []);
        }
        self.store.commit(batch)?;
        self.schedule.remove(id);
        Ok(())
    }

    fn delete_crawl(&mut self, crawl: &CrawlName) -> Result<(), FrontierError> {
        let id = self.crawl(crawl)?;
        let mut batch = Batch::default();
        batch.remove(Table::Control, rows::crawl_key(id));
        batch.put(Table::Control, Grave::Crawl(id).key(), []);
        for domain in self.schedule.remove_crawl(id) {
            self.end_units(&mut batch, domain);
        }
        self.store.commit(batch)?;
        self.crawls.remove(crawl);
        Ok(())
    }
}
