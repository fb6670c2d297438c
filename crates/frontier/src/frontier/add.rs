//! Adds pages: finds their domains, finds which pages are known, and stages the others.
//!
//! A call reads the names of all its domains together, and then all its pages together. A page that
//! was never added costs no read from disk, because the storage has a filter per file.

use hashbrown::HashMap;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::Frontier;
use super::runs::NewRuns;
use super::stage::Stage;
use crate::page::ValidPage;
use crate::queue::{Dated, Failures};
use crate::rows::{self, CrawlId, CrawlRow, DomainId, PageRow, QueueId, UrlForm, Visit};
use crate::schedule::{Crawl, Domain};
use crate::{Answer, CrawlName, FrontierError, Moment, Store, StoreError, Table};

/// The most pages of a domain whose hashes collide. A caller does not know the seed.
pub(super) const PROBES_MAX: u64 = 8;

/// What one call adds to a crawl.
struct Adding<'a> {
    crawl: CrawlId,
    /// How many more pages the crawl may have.
    room: u64,
    /// The domains of the call. `None` means that the crawl has no such domain.
    names: HashMap<&'a str, Option<DomainId>, foldhash::fast::RandomState>,
    /// The pages that the call has added so far.
    pages: HashMap<(DomainId, u64), &'a str, foldhash::fast::RandomState>,
    runs: NewRuns,
    /// How many domains the call creates.
    domains_added: usize,
}

/// A page with the hash of its URL, and the stored page with that hash.
struct Candidate<'a> {
    page: &'a ValidPage,
    hash: u64,
    stored: Option<Vec<u8>>,
}

impl<S: Store> Frontier<S> {
    /// Returns the id of a crawl, which is created if it is missing.
    pub(super) fn crawl_or_new(
        &mut self,
        name: &CrawlName,
        stage: &mut Stage,
    ) -> Result<CrawlId, FrontierError> {
        if let Some(id) = self.crawls.get(name) {
            return Ok(*id);
        }
        if self.crawls.len() >= self.settings.crawls_max {
            return Err(FrontierError::TooManyCrawls(
                self.crawls.len(),
                name.clone(),
            ));
        }
        let id = CrawlId(self.next_crawl);
        self.next_crawl += 1;
        let row = CrawlRow {
            name: name.to_string(),
            is_paused: false,
        };
        stage
            .batch
            .put(Table::Control, rows::crawl_key(id), rows::encode(&row));
        stage
            .batch
            .put(Table::Control, b"n", self.next_crawl.to_be_bytes());
        self.crawls.insert(name.clone(), id);
        self.schedule.add_crawl(id, Crawl::new(name.clone(), false));
        Ok(id)
    }

    /// Adds pages to the stage, and returns one answer for each.
    pub(super) fn add_pages(
        &mut self,
        stage: &mut Stage,
        crawl: CrawlId,
        pages: &[ValidPage],
        now: Moment,
    ) -> Result<Vec<Answer>, StoreError> {
        let counts = self.schedule.crawls().get(&crawl).map(|crawl| crawl.counts);
        let room = self.settings.pages_per_crawl_max;
        let mut adding = Adding {
            crawl,
            room: room.saturating_sub(counts.map_or(0, |counts| counts.pages)),
            names: self.find_domains(crawl, pages)?,
            pages: HashMap::default(),
            runs: NewRuns::default(),
            domains_added: 0,
        };
        let candidates = self.find_candidates(&adding, pages)?;
        let mut answers = Vec::with_capacity(pages.len());
        for candidate in candidates {
            answers.push(self.add_page(stage, &mut adding, candidate, now)?);
        }
        adding.runs.store(&mut stage.batch);
        Ok(answers)
    }

    /// Looks up the domains of pages.
    fn find_domains<'a>(
        &self,
        crawl: CrawlId,
        pages: &'a [ValidPage],
    ) -> Result<HashMap<&'a str, Option<DomainId>, foldhash::fast::RandomState>, StoreError> {
        let mut found = HashMap::default();
        let mut names = Vec::new();
        for page in pages {
            let name = page.key.as_str();
            if found.insert(name, None).is_none() {
                names.push(name);
            }
        }
        let keys = names.iter().map(|name| rows::name_key(crawl, name));
        let ids = self
            .store
            .read_many(Table::Domains, &keys.collect::<Vec<_>>())?;
        for (name, id) in names.into_iter().zip(ids) {
            if let Some(id) = id {
                found.insert(name, Some(DomainId(rows::id(&id)?)));
            }
        }
        Ok(found)
    }

    /// Looks up the pages of domains that exist.
    fn find_candidates<'a>(
        &self,
        adding: &Adding<'a>,
        pages: &'a [ValidPage],
    ) -> Result<Vec<Candidate<'a>>, StoreError> {
        let mut candidates = Vec::with_capacity(pages.len());
        let mut places = Vec::with_capacity(pages.len());
        let mut keys = Vec::with_capacity(pages.len());
        for page in pages {
            let hash = self.hash(&page.url);
            if let Some(Some(id)) = adding.names.get(page.key.as_str()) {
                places.push(candidates.len());
                keys.push(rows::page_key(*id, hash));
            }
            candidates.push(Candidate {
                page,
                hash,
                stored: None,
            });
        }
        let stored = self.store.read_many(Table::Pages, &keys)?;
        for (place, stored) in places.into_iter().zip(stored) {
            candidates[place].stored = stored;
        }
        Ok(candidates)
    }

    fn add_page<'a>(
        &mut self,
        stage: &mut Stage,
        adding: &mut Adding<'a>,
        candidate: Candidate<'a>,
        now: Moment,
    ) -> Result<Answer, StoreError> {
        let page = candidate.page;
        let name = page.key.as_str();
        let Some(id) = self.domain_or_new(stage, adding, name) else {
            return Ok(Answer::Full);
        };
        let hash = match self.free_hash(adding, id, candidate)? {
            Ok(hash) => hash,
            Err(answer) => return Ok(answer),
        };
        let (Some(domain), batch) = stage.parts(&self.schedule, id) else {
            return Err(rows::damaged("domains", name.as_bytes()));
        };
        if adding.room == 0 || domain.pages >= self.settings.pages_per_domain_max {
            return Ok(Answer::Full);
        }
        adding.room -= 1;
        domain.pages += 1;
        let queue = domain.queue;
        if page.is_visited {
            let visit = rows::encode(&Visit::elsewhere(now.date, page.due));
            batch.put(Table::Pages, rows::visit_key(id, hash), visit);
        }
        let waiting = Dated {
            due: page.due.unwrap_or(now.date),
            hash,
            priority: page.priority,
            failures: Failures::NONE,
        };
        if page.is_visited && page.due.is_none() {
            // The page is finished.
        } else if waiting.due > now.date {
            domain.add_dated(waiting.due);
            waiting.store(batch, queue);
        } else {
            domain.add_ready(page.priority);
            let ready = adding.runs.push(batch, &mut self.serial, queue, waiting);
            self.fronts.add(id, ready.run);
        }
        let (form, url) = UrlForm::split(&page.url, name);
        let metadata = &page.metadata;
        let row = rows::encode(&PageRow {
            form,
            url,
            metadata,
            added_secs: now.date.millis() / 1_000,
        });
        batch.put(Table::Pages, rows::page_key(id, hash), row);
        adding.pages.insert((id, hash), &page.url);
        Ok(Answer::New)
    }

    /// Returns the id of a domain, which is created if it is missing and there is room.
    fn domain_or_new<'a>(
        &mut self,
        stage: &mut Stage,
        adding: &mut Adding<'a>,
        name: &'a str,
    ) -> Option<DomainId> {
        if let Some(Some(id)) = adding.names.get(name) {
            return Some(*id);
        }
        let domains = self.schedule.domains_len() + adding.domains_added;
        let ids = self.next_domain.max(self.next_queue);
        let is_full = domains >= self.settings.domains_max || ids == u32::MAX;
        if adding.room == 0 || is_full || self.settings.pages_per_domain_max == 0 {
            return None;
        }
        let id = DomainId(self.next_domain);
        self.next_domain += 1;
        let queue = self.new_queue();
        let key = rows::name_key(adding.crawl, name);
        stage.batch.put(Table::Domains, key, id.0.to_be_bytes());
        stage.batch.put(Table::Domains, rows::text_key(id), name);
        stage.domains.insert(id, Domain::new(adding.crawl, queue));
        adding.names.insert(name, Some(id));
        adding.domains_added += 1;
        Some(id)
    }

    /// Returns the id of a new queue. The batch of the call stores the next one.
    pub(super) const fn new_queue(&mut self) -> QueueId {
        let id = QueueId(self.next_queue);
        self.next_queue = self.next_queue.saturating_add(1);
        id
    }

    /// Returns the hash under which a page can be stored, or the answer for a page that cannot be.
    fn free_hash(
        &self,
        adding: &Adding<'_>,
        domain: DomainId,
        candidate: Candidate<'_>,
    ) -> Result<Result<u64, Answer>, StoreError> {
        let page = candidate.page;
        // A domain that this call creates has no pages on disk.
        let is_stored = self.schedule.domain(domain).is_some();
        let mut stored = candidate.stored;
        for probe in 0..PROBES_MAX {
            let hash = candidate.hash.wrapping_add(probe);
            if let Some(other) = adding.pages.get(&(domain, hash)) {
                if *other == page.url {
                    return Ok(Err(Answer::Known));
                }
                continue;
            }
            if probe > 0 && is_stored {
                stored = self.read_page(domain, hash)?;
            }
            let Some(row) = stored.take() else {
                return Ok(Ok(hash));
            };
            if PageRow::decode(&row)?.is_of(&page.url, page.key.as_str()) {
                return Ok(Err(Answer::Known));
            }
        }
        Ok(Err(Answer::Full))
    }

    pub(super) fn hash(&self, url: &str) -> u64 {
        xxh3_64_with_seed(url.as_bytes(), self.seed)
    }

    /// Returns the bytes of a [`PageRow`].
    pub(super) fn read_page(
        &self,
        domain: DomainId,
        hash: u64,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        self.store.read(Table::Pages, &rows::page_key(domain, hash))
    }
}
