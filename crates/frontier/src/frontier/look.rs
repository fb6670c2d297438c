//! Calls that only read.

use std::num::NonZeroU32;
use std::time::Duration;

use super::Frontier;
use crate::page::{ValidPage, canonical};
use crate::queue::Ready;
use crate::rows::{self, DomainId, PageRow, Visit};
use crate::units::Held;
use crate::{
    Counts, CrawlName, Date, FrontierError, Moment, NewPage, Store, StoreError, Table, Token,
};

/// What is known about a domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainStatus {
    /// The domain, as the text of a key.
    pub name: String,
    /// Its numbers.
    pub counts: Counts,
    /// The tokens of its owners.
    pub owners: Vec<Token>,
    /// How long it is not handed out, if pages wait. This ignores a block and dates of pages.
    pub wait: Duration,
    /// The date until which an operator blocked it.
    pub blocked_until: Option<Date>,
    /// The least time from one take to the next, by an operator's order.
    pub delay: Duration,
    /// The number of finished pages from which on it is not handed out, by an operator's order.
    pub finished_max: Option<NonZeroU32>,
}

/// What is known about a live unit of work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitStatus {
    /// Its token.
    pub token: Token,
    /// Its domain, as the text of a key.
    pub domain: String,
    /// Its pages without an outcome.
    pub pages: u32,
    /// The rest of its lease.
    pub lease: Duration,
}

/// What is known about a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageStatus {
    /// The canonical URL.
    pub url: String,
    /// The domain, as the text of a key.
    pub domain: String,
    /// The date at which it was added, in whole seconds.
    pub added: Date,
    /// The unit that has the page now.
    pub leased: Option<Token>,
    /// The date of the last visit.
    pub visited: Option<Date>,
    /// The status of the last visit, 0 for no response.
    pub status: Option<u16>,
    /// The date of the next visit, if the last one set it.
    pub again: Option<Date>,
    /// Data of the caller that added the page.
    pub metadata: Vec<u8>,
}

impl<S: Store> Frontier<S> {
    /// Returns the crawls with their numbers, and whether each is paused.
    pub fn crawls(&self) -> impl Iterator<Item = (&CrawlName, Counts, bool)> {
        let crawls = self.schedule.crawls().values();
        crawls.map(|crawl| (&crawl.name, crawl.counts, crawl.is_paused))
    }

    /// Returns the number of live units of work.
    pub fn units_len(&self) -> usize {
        self.units.len()
    }

    /// Returns the crawl of a unit that has not expired.
    pub fn crawl_of(&self, token: Token, now: Moment) -> Option<&CrawlName> {
        let held = self.units.live(token, self.normalize(now).at)?;
        let domain = self.schedule.domain(held.domain)?;
        Some(&self.schedule.crawls().get(&domain.crawl)?.name)
    }

    /// Returns why the storage failed, if every call fails therefore.
    pub const fn failure(&self) -> Option<&StoreError> {
        self.failure.as_ref()
    }

    /// Returns the numbers of a crawl.
    ///
    /// # Errors
    /// Fails for an unknown crawl.
    pub fn counts(&self, crawl: &CrawlName) -> Result<Counts, FrontierError> {
        let id = self.crawl(crawl)?;
        let unknown = || FrontierError::UnknownCrawl(crawl.clone());
        self.schedule
            .crawls()
            .get(&id)
            .map(|crawl| crawl.counts)
            .ok_or_else(unknown)
    }

    /// Returns at most `most` domains of a crawl in the order of their names, after the name
    /// `after`.
    ///
    /// # Errors
    /// Fails for an unknown crawl, and if the storage fails.
    pub fn domains(
        &self,
        crawl: &CrawlName,
        after: &str,
        most: usize,
        now: Moment,
    ) -> Result<Vec<DomainStatus>, FrontierError> {
        let prefix = rows::name_key(self.crawl(crawl)?, "");
        let mut from = [&prefix, after.as_bytes()].concat();
        if !after.is_empty() {
            from.push(0);
        }
        let mut found = Vec::new();
        if most > 0 {
            self.store
                .scan(Table::Domains, &prefix, &from, &mut |key, id| {
                    found.push((key[prefix.len()..].to_vec(), id.to_vec()));
                    found.len() < most
                })?;
        }
        let status = |(name, id): (Vec<u8>, Vec<u8>)| {
            let name = String::from_utf8(name)
                .map_err(|name| FrontierError::Store(rows::damaged("domains", name.as_bytes())))?;
            Ok(self.status(DomainId(rows::id(&id)?), name, now))
        };
        let statuses = found.into_iter().map(status);
        statuses.filter_map(Result::transpose).collect()
    }

    /// Returns at most `most` live units of a crawl, the oldest first.
    ///
    /// # Errors
    /// Fails for an unknown crawl, and if the storage fails.
    pub fn units(
        &self,
        crawl: &CrawlName,
        most: usize,
        now: Moment,
    ) -> Result<Vec<UnitStatus>, FrontierError> {
        let crawl = self.crawl(crawl)?;
        let now = self.normalize(now).at;
        let crawl_of = |domain| self.schedule.domain(domain).map(|domain| domain.crawl);
        let units = self
            .units
            .iter()
            .filter(|(_, held)| held.expires > now && crawl_of(held.domain) == Some(crawl));
        let mut units: Vec<_> = units.collect();
        units.sort_unstable_by_key(|(token, _)| *token);
        let status = |(token, held): (Token, &Held)| {
            Ok(UnitStatus {
                token,
                domain: self.domain_name(held.domain)?,
                pages: held.pages.len() as u32,
                lease: held.expires.since(now),
            })
        };
        units.into_iter().take(most).map(status).collect()
    }

    /// Returns one domain of a crawl.
    ///
    /// # Errors
    /// Fails for an unknown crawl or domain, and if the storage fails.
    pub fn domain(
        &self,
        crawl: &CrawlName,
        name: &str,
        now: Moment,
    ) -> Result<DomainStatus, FrontierError> {
        let id = self.find_domain(crawl, name)?;
        let unknown = || FrontierError::UnknownDomain(crawl.clone(), name.to_owned());
        self.status(id, name.to_owned(), now).ok_or_else(unknown)
    }

    /// Returns what is known about a page, or `None` if the crawl does not know it. `key` is the
    /// domain under which it was added, if that does not follow from the URL.
    ///
    /// # Errors
    /// Fails for an unknown crawl, for a URL that is not valid, and if the storage fails.
    pub fn page(
        &self,
        crawl: &CrawlName,
        url: &str,
        key: Option<&str>,
    ) -> Result<Option<PageStatus>, FrontierError> {
        let url = canonical(url)?;
        let page = NewPage {
            url: url.into(),
            key: key.map(ToOwned::to_owned),
            ..NewPage::default()
        };
        let page = ValidPage::new(page, self.settings.kind)?;
        let name = page.key.as_str();
        let id = match self.find_domain(crawl, name) {
            Err(FrontierError::UnknownDomain(..)) => return Ok(None),
            other => other?,
        };
        let found = self.page_status(id, name, &page.url)?;
        Ok(found.map(|(_, status)| status))
    }

    /// Returns at most `most` pages of a domain, visited or not, in the order of their hashes, and
    /// the hash of each. `after` is the hash after which the list begins.
    ///
    /// # Errors
    /// Fails for an unknown crawl or domain, and if the storage fails.
    pub fn pages(
        &self,
        crawl: &CrawlName,
        domain: &str,
        after: Option<u64>,
        most: usize,
    ) -> Result<Vec<(u64, PageStatus)>, FrontierError> {
        let id = self.find_domain(crawl, domain)?;
        let prefix = id.0.to_be_bytes();
        let from = match after {
            None => rows::page_key(id, 0),
            Some(u64::MAX) => return Ok(Vec::new()),
            Some(hash) => rows::page_key(id, hash + 1),
        };
        let mut found: Vec<(u64, Vec<u8>, Option<Visit>)> = Vec::new();
        let mut error = None;
        self.store
            .scan(Table::Pages, &prefix, &from, &mut |key, row| {
                let hash = rows::number(&key[prefix.len()..prefix.len() + 8]);
                if key.len() == from.len() {
                    if found.len() >= most {
                        return false;
                    }
                    found.push((hash, row.to_vec(), None));
                } else if let Some(last) = found.last_mut().filter(|last| last.0 == hash) {
                    match rows::decode("pages", row) {
                        Ok(visit) => last.2 = Some(visit),
                        Err(why) => error = Some(why),
                    }
                }
                error.is_none()
            })?;
        if let Some(error) = error {
            return Err(error.into());
        }
        let page = |(hash, row, visit): (u64, Vec<u8>, Option<Visit>)| {
            let row = PageRow::decode(&row)?;
            Ok((hash, self.page_found(id, domain, hash, &row, visit)))
        };
        found.into_iter().map(page).collect()
    }

    fn status(&self, id: DomainId, name: String, now: Moment) -> Option<DomainStatus> {
        let domain = self.schedule.domain(id)?;
        let orders = self.schedule.orders(id);
        Some(DomainStatus {
            name,
            counts: Counts::of_domain(domain),
            owners: self.units.of_domain(id).map(|(token, _)| token).collect(),
            wait: domain.may_leave(&orders).since(self.normalize(now).at),
            blocked_until: Some(orders.blocked_until).filter(|date| *date > now.date),
            delay: orders.delay,
            finished_max: NonZeroU32::new(orders.finished_max),
        })
    }

    /// Returns what is known about a page, and the hash under which it is stored.
    pub(super) fn page_status(
        &self,
        id: DomainId,
        name: &str,
        url: &str,
    ) -> Result<Option<(u64, PageStatus)>, StoreError> {
        for probe in 0..super::add::PROBES_MAX {
            let hash = self.hash(url).wrapping_add(probe);
            let Some(row) = self.read_page(id, hash)? else {
                return Ok(None);
            };
            let row = PageRow::decode(&row)?;
            if !row.is_of(url, name) {
                continue;
            }
            let visit = self.store.read(Table::Pages, &rows::visit_key(id, hash))?;
            let visit = visit.map(|visit| rows::decode("pages", &visit));
            let visit = visit.transpose()?;
            return Ok(Some((hash, self.page_found(id, name, hash, &row, visit))));
        }
        Ok(None)
    }

    fn page_found(
        &self,
        id: DomainId,
        name: &str,
        hash: u64,
        row: &PageRow<'_>,
        visit: Option<Visit>,
    ) -> PageStatus {
        let mut units = self.units.of_domain(id);
        let has_page = |page: &Ready| page.hash() == hash;
        let leased = units.find(|(_, held)| held.pages.iter().any(has_page));
        PageStatus {
            url: row.url(name),
            domain: name.to_owned(),
            added: Date::EPOCH.after(Duration::from_secs(row.added_secs)),
            leased: leased.map(|(token, _)| token),
            visited: visit.map(|visit| visit.at),
            status: visit.map(|visit| visit.status),
            again: visit.and_then(|visit| visit.again),
            metadata: row.metadata.to_vec(),
        }
    }
}
