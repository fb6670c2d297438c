//! The changes of one call, before they are committed.

use std::collections::BTreeMap;

use hashbrown::HashMap;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::Frontier;
use crate::page::{NewPage, ValidPage};
use crate::rows::{self, CrawlId, CrawlRow, DomainId, PageRow, QueueId, QueueRow, UrlForm, Visit};
use crate::schedule::{Crawl, Domain, Schedule};
use crate::{
    Answer, Batch, CrawlName, Date, FrontierError, Moment, Priority, Store, StoreError, Table,
};

/// The most pages of a domain whose hashes collide. A caller does not know the seed.
pub(super) const PROBES_MAX: u64 = 8;

/// The changes of one call, before they are committed.
#[derive(Default)]
pub(super) struct Stage {
    pub(super) batch: Batch,
    /// The domains that change, as they will be.
    pub(super) domains: BTreeMap<DomainId, Domain>,
    /// Domains that this call has looked up or created.
    names: HashMap<String, DomainId, foldhash::fast::RandomState>,
    /// Pages that this call adds.
    pages: HashMap<(DomainId, u64), String, foldhash::fast::RandomState>,
    /// How many domains this call creates.
    domains_added: usize,
}

impl Stage {
    /// Returns the staged state of a domain, or `None` if it is not known.
    pub(super) fn domain(&mut self, schedule: &Schedule, id: DomainId) -> Option<&mut Domain> {
        use std::collections::btree_map::Entry;
        match self.domains.entry(id) {
            Entry::Occupied(entry) => Some(entry.into_mut()),
            Entry::Vacant(entry) => Some(entry.insert(*schedule.domain(id)?)),
        }
    }
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
        pages: Vec<NewPage>,
        now: Moment,
    ) -> Result<Vec<Answer>, StoreError> {
        let counts = self.schedule.crawls().get(&crawl).map(|crawl| crawl.counts);
        let room = self.settings.pages_per_crawl_max;
        let mut room = room.saturating_sub(counts.map_or(0, |counts| counts.pages));
        let mut answers = Vec::with_capacity(pages.len());
        for page in pages {
            let answer = match ValidPage::new(page, self.settings.kind) {
                Ok(page) => self.add_page(stage, crawl, page, room, now)?,
                Err(why) => Answer::Invalid(why),
            };
            room -= u64::from(answer == Answer::New);
            answers.push(answer);
        }
        Ok(answers)
    }

    fn add_page(
        &mut self,
        stage: &mut Stage,
        crawl: CrawlId,
        page: ValidPage,
        room: u64,
        now: Moment,
    ) -> Result<Answer, StoreError> {
        let name = page.key.as_str();
        let Some(id) = self.domain_or_new(stage, crawl, name, room)? else {
            return Ok(Answer::Full);
        };
        let hash = match self.free_hash(stage, id, name, &page.url)? {
            Ok(hash) => hash,
            Err(answer) => return Ok(answer),
        };
        let Some(domain) = stage.domain(&self.schedule, id) else {
            return Err(rows::damaged("domains", name.as_bytes()));
        };
        if room == 0 || domain.pages >= self.settings.pages_per_domain_max {
            return Ok(Answer::Full);
        }
        domain.pages += 1;
        let queue = domain.queue;
        let mut visit = None;
        if page.is_finished {
            visit = Some(Visit::elsewhere(now.date));
        } else if let Some(due) = page.due.filter(|due| *due > now.date) {
            domain.add_dated(due);
            put_dated(&mut stage.batch, queue, due, hash, page.priority);
        } else {
            domain.add_ready(page.priority);
            let row = QueueRow::ready(page.priority, self.serial.take(), hash);
            stage.batch.put(Table::Queue, row.key(queue), []);
            self.fronts.add(id, row);
        }
        let (form, rest) = UrlForm::split(&page.url, name);
        let row = PageRow {
            form,
            url: rest.to_owned(),
            metadata: page.metadata,
            visit,
        };
        stage
            .batch
            .put(Table::Pages, rows::page_key(id, hash), rows::encode(&row));
        stage.pages.insert((id, hash), page.url);
        Ok(Answer::New)
    }

    /// Returns the id of a domain, which is created if it is missing and there is room.
    fn domain_or_new(
        &mut self,
        stage: &mut Stage,
        crawl: CrawlId,
        name: &str,
        room: u64,
    ) -> Result<Option<DomainId>, StoreError> {
        if let Some(id) = stage.names.get(name) {
            return Ok(Some(*id));
        }
        let key = rows::name_key(crawl, name);
        if let Some(id) = self.store.read(Table::Domains, &key)? {
            let id = DomainId(rows::id(&id)?);
            stage.names.insert(name.to_owned(), id);
            return Ok(Some(id));
        }
        let domains = self.schedule.domains_len() + stage.domains_added;
        // Each domain needs an id for its pages and one for its queue.
        let is_full = domains >= self.settings.domains_max || self.next_id > u32::MAX - 2;
        if room == 0 || is_full || self.settings.pages_per_domain_max == 0 {
            return Ok(None);
        }
        let id = DomainId(self.new_id(&mut stage.batch));
        let queue = QueueId(self.new_id(&mut stage.batch));
        stage.batch.put(Table::Domains, key, id.0.to_be_bytes());
        stage.batch.put(Table::Domains, rows::text_key(id), name);
        stage.domains.insert(id, Domain::new(crawl, queue));
        stage.names.insert(name.to_owned(), id);
        stage.domains_added += 1;
        Ok(Some(id))
    }

    /// Returns a new id for a domain or a queue.
    pub(super) fn new_id(&mut self, batch: &mut Batch) -> u32 {
        let id = self.next_id;
        self.next_id += 1;
        batch.put(Table::Control, b"i", self.next_id.to_be_bytes());
        id
    }

    /// Returns the hash under which a URL can be stored, or the answer for a URL that cannot be.
    fn free_hash(
        &self,
        stage: &Stage,
        domain: DomainId,
        name: &str,
        url: &str,
    ) -> Result<Result<u64, Answer>, StoreError> {
        let first = self.hash(url);
        // A domain that this call creates has no pages on disk.
        let is_stored = self.schedule.domain(domain).is_some();
        for probe in 0..PROBES_MAX {
            let hash = first.wrapping_add(probe);
            if let Some(other) = stage.pages.get(&(domain, hash)) {
                if other == url {
                    return Ok(Err(Answer::Known));
                }
                continue;
            }
            if !is_stored {
                return Ok(Ok(hash));
            }
            match self.read_page(domain, hash)? {
                None => return Ok(Ok(hash)),
                Some(row) if row.form.join(name, &row.url) == url => {
                    return Ok(Err(Answer::Known));
                }
                Some(_) => {}
            }
        }
        Ok(Err(Answer::Full))
    }

    pub(super) fn hash(&self, url: &str) -> u64 {
        xxh3_64_with_seed(url.as_bytes(), self.seed)
    }

    pub(super) fn read_page(
        &self,
        domain: DomainId,
        hash: u64,
    ) -> Result<Option<PageRow>, StoreError> {
        let row = self
            .store
            .read(Table::Pages, &rows::page_key(domain, hash))?;
        row.map(|row| rows::decode("pages", &row)).transpose()
    }
}

/// Queues a page that waits for a date.
pub(super) fn put_dated(
    batch: &mut Batch,
    queue: QueueId,
    due: Date,
    hash: u64,
    priority: Priority,
) {
    let key = QueueRow::dated(due, hash).key(queue);
    batch.put(Table::Queue, key, [priority.level()]);
}
