//! Hands out units of work.

use std::time::Duration;

use hashbrown::HashSet;

use super::Frontier;
use super::runs::NewRuns;
use super::stage::Stage;
use crate::queue::{Dated, Ready, Row, RunId};
use crate::rows::{self, DomainId, PageRow, UnitRow};
use crate::schedule::Domain;
use crate::units::Held;
use crate::{
    Batch, CrawlName, Date, FrontierError, Moment, Priority, Store, StoreError, Table, Take,
    TakenPage, Token, Unit,
};

/// The most domains that one call offers to its gate.
const OFFERS_MAX: usize = 64;
/// The most pages whose date has come that one call makes ready.
const PROMOTED_MAX: usize = 1_000;
/// The least time for which a gate puts off a domain.
const PUT_OFF_MIN: Duration = Duration::from_millis(1);

/// Decides whether a domain may be handed out now. It gets the domain's name and the number of
/// pages. It returns how many of them may leave, or how long to wait.
///
/// A limiter is such a gate: it acquires the permits. If the call then fails, or hands out fewer
/// pages, the caller gives the other permits back.
pub trait Gate: FnMut(&str, u32) -> Result<u32, Duration> {}

impl<F: FnMut(&str, u32) -> Result<u32, Duration>> Gate for F {}

/// The pages of a domain that leave now.
struct Selection {
    pages: Vec<Ready>,
    /// The run of the first page after them.
    head: Option<RunId>,
}

/// The pages whose date has come, and the date of the first page after them.
type DuePages = (Vec<Dated>, Option<Date>);

impl<S: Store> Frontier<S> {
    /// Hands out the domain that is next, with its first pages. Returns `None` if no domain may be
    /// handed out now; [`Frontier::wake`] then returns how long to wait.
    ///
    /// # Errors
    /// Fails for an unknown crawl, for too many units, and if the storage fails.
    pub fn take(
        &mut self,
        take: &Take,
        now: Moment,
        gate: &mut dyn Gate,
    ) -> Result<Option<Unit>, FrontierError> {
        self.call(now, |frontier, now| {
            let crawl = take
                .crawl
                .as_ref()
                .map(|name| frontier.crawl(name))
                .transpose()?;
            frontier.check_units()?;
            for _ in 0..OFFERS_MAX {
                let Some(id) = frontier.schedule.next(crawl, now) else {
                    break;
                };
                if let Some(unit) = frontier.offer(id, take, now, gate)? {
                    return Ok(Some(unit));
                }
            }
            Ok(None)
        })
    }

    /// Hands out one domain of a crawl. Returns `None` if it may not be handed out now.
    ///
    /// # Errors
    /// Fails for an unknown crawl or domain, for too many units, and if the storage fails.
    pub fn take_domain(
        &mut self,
        crawl: &CrawlName,
        domain: &str,
        take: &Take,
        now: Moment,
        gate: &mut dyn Gate,
    ) -> Result<Option<Unit>, FrontierError> {
        self.call(now, |frontier, now| {
            let id = frontier.find_domain(crawl, domain)?;
            frontier.check_units()?;
            if !frontier.schedule.is_due(id, now) {
                return Ok(None);
            }
            frontier.offer(id, take, now, gate)
        })
    }

    /// Adds the next pages of its domain to a unit, and returns them. The lease stays as it is.
    ///
    /// # Errors
    /// Fails for a unit that has ended, and if the storage fails.
    pub fn refill(
        &mut self,
        token: Token,
        pages_max: u32,
        now: Moment,
    ) -> Result<Vec<TakenPage>, FrontierError> {
        self.call(now, |frontier, now| {
            let held = frontier.held(token, now)?;
            let (id, expires, mut pages) = (held.domain, held.expires, held.pages.clone());
            let shares_domain = held.shares_domain;
            let room = frontier.settings.pages_per_unit_max as usize;
            let most = room.saturating_sub(pages.len()).min(pages_max as usize);
            let Some(&(mut domain)) = frontier.schedule.domain(id) else {
                return Err(FrontierError::Stale(token));
            };
            if most == 0 || !frontier.schedule.has_due_pages(id, now) {
                return Ok(Vec::new());
            }
            let mut stage = Stage::default();
            let selection = frontier.select(&mut stage.batch, id, &mut domain, most, now)?;
            let name = frontier.domain_name(id)?;
            let taken = frontier.taken_pages(id, &name, &selection.pages)?;
            domain.leased += taken.len() as u32;
            domain.priority = selection.head.map_or(Priority::MIN, RunId::priority);
            stage.domains.insert(id, domain);
            pages.extend(selection.pages);
            let held = Held {
                domain: id,
                expires,
                shares_domain,
                pages,
            };
            stage.put_unit(token, &held, now);
            frontier.finish(stage, now)?;
            frontier.schedule.serve(domain.crawl, taken.len() as u32);
            frontier.units.insert(token, held);
            Ok(taken)
        })
    }

    fn check_units(&self) -> Result<(), FrontierError> {
        let units = self.units.len();
        if units >= self.settings.units_max {
            return Err(FrontierError::TooManyUnits(units));
        }
        Ok(())
    }

    /// Hands out one domain, or puts it off.
    fn offer(
        &mut self,
        id: DomainId,
        take: &Take,
        now: Moment,
        gate: &mut dyn Gate,
    ) -> Result<Option<Unit>, FrontierError> {
        let mut stage = Stage::default();
        let Some(&before) = self.schedule.domain(id) else {
            return Ok(None);
        };
        let mut domain = before;
        let most = take
            .pages_max
            .clamp(1, self.settings.pages_per_unit_max.max(1));
        let mut selection = self.select(&mut stage.batch, id, &mut domain, most as usize, now)?;
        let Ok(wanted @ 1..) = u32::try_from(selection.pages.len()) else {
            // The counts promised a page that is not in the queue.
            tracing::warn!(domain = id.0, "a domain has fewer pages than counted");
            domain.ready = domain.leased;
            stage.domains.insert(id, domain);
            self.finish(stage, now)?;
            return Ok(None);
        };
        let name = self.domain_name(id)?;
        let granted = match gate(&name, wanted) {
            Ok(0) => Err(PUT_OFF_MIN),
            other => other,
        };
        match granted {
            Ok(granted) if granted < wanted => {
                let rest = selection.pages.split_off(granted as usize);
                selection.head = rest.first().map(|page| page.run);
            }
            Ok(_) => {}
            Err(wait) => {
                // Only the memory changes, so a restart offers the domain again.
                let mut domain = before;
                domain.next = now.at + wait.max(PUT_OFF_MIN);
                self.schedule.set(id, domain, now);
                return Ok(None);
            }
        }
        let pages = self.taken_pages(id, &name, &selection.pages)?;
        let lease = take.lease.min(self.settings.lease_max);
        let token = Token(self.serial.take());
        let row = UnitRow {
            domain: id,
            expires: now.date_after(lease),
            shares_domain: take.shares_domain,
            pages: selection.pages,
        };
        stage
            .batch
            .put(Table::Control, rows::unit_key(token), rows::encode(&row));
        if take.shares_domain {
            domain.next = domain.next.max(now.at + self.draw_spacing());
        } else {
            domain.owners += 1;
        }
        domain.taken = now.at;
        domain.leased += pages.len() as u32;
        domain.priority = selection.head.map_or(Priority::MIN, RunId::priority);
        stage.domains.insert(id, domain);
        self.finish(stage, now)?;
        self.schedule.serve(domain.crawl, pages.len() as u32);
        let held = Held {
            domain: id,
            expires: now.at + lease,
            shares_domain: row.shares_domain,
            pages: row.pages,
        };
        self.units.insert(token, held);
        let crawl = self.schedule.crawls().get(&domain.crawl);
        let crawl =
            crawl.ok_or_else(|| rows::damaged("control", &rows::crawl_key(domain.crawl)))?;
        Ok(Some(Unit {
            token,
            crawl: crawl.name.clone(),
            domain: name,
            lease,
            pages,
        }))
    }

    /// Selects the first pages of a domain, and makes pages ready whose date has come.
    fn select(
        &mut self,
        batch: &mut Batch,
        id: DomainId,
        domain: &mut Domain,
        most: usize,
        now: Moment,
    ) -> Result<Selection, StoreError> {
        let leased: HashSet<u64, foldhash::fast::FixedState> = self
            .units
            .of_domain(id)
            .flat_map(|(_, held)| held.pages.iter().map(Ready::hash))
            .collect();
        let mut pages = self.promote(batch, domain, now)?;
        let mut found = Vec::new();
        let mut error = None;
        let mut first = None;
        let prefix = domain.queue.0.to_be_bytes();
        let front = self.fronts.find(id);
        let from = front.map_or_else(|| prefix.to_vec(), |front| front.key(domain.queue));
        self.store
            .scan(Table::Queue, &prefix, &from, &mut |key, value| {
                match Row::decode(key, value) {
                    Ok(Row::Run(run, pages)) => {
                        first = first.or(Some(run));
                        found.extend(
                            pages
                                .ready(run)
                                .filter(|page| !leased.contains(&page.hash())),
                        );
                    }
                    Ok(Row::Dated(_)) => return false,
                    Err(why) => error = Some(why),
                }
                error.is_none() && found.len() <= most
            })?;
        if let Some(error) = error {
            return Err(error);
        }
        if let Some(first) = first {
            self.fronts.set(id, first);
        }
        for page in &pages {
            self.fronts.add(id, page.run);
        }
        pages.extend(found);
        pages.sort_unstable();
        let head = pages.get(most).map(|page| page.run);
        pages.truncate(most);
        Ok(Selection { pages, head })
    }

    /// Moves pages whose date has come to the lane of their priority, behind those of earlier
    /// dates, and returns them.
    fn promote(
        &mut self,
        batch: &mut Batch,
        domain: &mut Domain,
        now: Moment,
    ) -> Result<Vec<Ready>, StoreError> {
        let (due, next) = self.due_pages(domain, now)?;
        let mut promoted = Vec::with_capacity(due.len());
        let mut runs = NewRuns::default();
        for page in due {
            page.remove(batch, domain.queue);
            promoted.push(runs.push(batch, &mut self.serial, domain.queue, page));
            domain.dated = domain.dated.saturating_sub(1);
            domain.add_ready(page.priority);
        }
        runs.store(batch);
        match next {
            Some(next) => domain.dated_first = next,
            None if domain.dated_first <= now.date => domain.dated = 0,
            None => {}
        }
        Ok(promoted)
    }

    /// Returns the pages whose date has come, and the date of the first page after them.
    fn due_pages(&self, domain: &Domain, now: Moment) -> Result<DuePages, StoreError> {
        let mut due = Vec::new();
        let mut next = None;
        if domain.dated == 0 || domain.dated_first > now.date {
            return Ok((due, next));
        }
        let mut error = None;
        let prefix = Dated::prefix(domain.queue);
        // No page is before this date. The entries before it were deleted.
        let from = Dated::first_key(domain.queue, domain.dated_first);
        self.store
            .scan(Table::Queue, &prefix, &from, &mut |key, value| {
                match Row::decode(key, value) {
                    Ok(Row::Dated(page)) => {
                        if page.due <= now.date && due.len() < PROMOTED_MAX {
                            due.push(page);
                            return true;
                        }
                        next = Some(page.due);
                    }
                    Ok(Row::Run(..)) => {}
                    Err(why) => error = Some(why),
                }
                false
            })?;
        error.map_or(Ok((due, next)), Err)
    }

    fn taken_pages(
        &self,
        id: DomainId,
        name: &str,
        pages: &[Ready],
    ) -> Result<Vec<TakenPage>, StoreError> {
        let keys = pages.iter().map(|page| rows::page_key(id, page.hash()));
        let keys: Vec<_> = keys.collect();
        let rows = self.store.read_many(Table::Pages, &keys)?;
        let taken = |((page, row), key): ((&Ready, Option<Vec<u8>>), &Vec<u8>)| {
            let row = row.ok_or_else(|| rows::damaged("pages", key))?;
            let row = PageRow::decode(&row)?;
            Ok(TakenPage {
                url: row.url(name),
                priority: page.run.priority(),
                metadata: row.metadata.to_vec(),
                attempts: page.page.failures.attempts,
                free: page.page.failures.free,
            })
        };
        pages.iter().zip(rows).zip(&keys).map(taken).collect()
    }

    /// Ends all units of a domain, and forgets where its queue begins.
    pub(super) fn end_units(&mut self, batch: &mut Batch, id: DomainId) {
        self.fronts.remove(id);
        let tokens: Vec<_> = self.units.of_domain(id).map(|(token, _)| token).collect();
        for token in tokens {
            batch.remove(Table::Control, rows::unit_key(token));
            self.units.remove(token);
        }
    }
}
