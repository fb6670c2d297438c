//! Words about pages of which the caller has no token, for protocols without tokens.

use super::Frontier;
use super::add::PROBES_MAX;
use super::stage::Stage;
use crate::page::ValidPage;
use crate::queue::{Dated, Failures, Ready, Row};
use crate::rows::{self, DomainId, PageRow, QueueId, UrlForm, Visit};
use crate::{
    Answer, Batch, CrawlName, Date, FrontierError, GiveBack, Moment, NewPage, Next, PageOutcome,
    Store, StoreError, Table, Token,
};

/// The most rows of a queue in which a page is looked for.
const SCANNED_MAX: usize = 100_000;

/// The outcome of a page, from a caller that has no token.
#[derive(Clone, Debug)]
pub struct Revision {
    /// The page. A page that the crawl does not know is added.
    pub page: NewPage,
    /// The status of the response, 0 for none or if it is not known.
    pub status: u16,
    /// The date of the next visit. `None` if there is to be none.
    pub again: Option<Date>,
}

/// Where a page is.
enum Found {
    Unknown,
    /// A page that a unit has.
    Leased(Token, Stored),
    /// A page that no unit has.
    Stored(Stored),
}

/// A page that the crawl knows.
struct Stored {
    domain: DomainId,
    hash: u64,
    added_secs: u64,
    has_metadata: bool,
}

impl Stored {
    /// Replaces the metadata of the page, if it changed.
    fn put_metadata(&self, batch: &mut Batch, page: &ValidPage) {
        if self.has_metadata {
            return;
        }
        let (form, url) = UrlForm::split(&page.url, page.key.as_str());
        let row = rows::encode(&PageRow {
            form,
            url,
            metadata: &page.metadata,
            added_secs: self.added_secs,
        });
        batch.put(Table::Pages, rows::page_key(self.domain, self.hash), row);
    }
}

/// The place of a page that waits.
enum Waiting {
    Ready(Ready),
    Dated(Dated),
}

impl<S: Store> Frontier<S> {
    /// Notes the outcome of a page, whichever unit has it. The page leaves its unit.
    ///
    /// Use [`Frontier::give_back`] if the caller has a token: here, a late word of a stale owner is
    /// accepted.
    ///
    /// # Errors
    /// Fails if the crawl must be added and there are too many, and if the storage fails.
    pub fn revise(
        &mut self,
        crawl: &CrawlName,
        revision: Revision,
        now: Moment,
    ) -> Result<Answer, FrontierError> {
        let now = self.normalize(now);
        let Revision {
            page,
            status,
            again,
        } = revision;
        let valid = match ValidPage::new(page.clone(), self.settings.kind) {
            Ok(valid) => valid,
            Err(why) => return Ok(Answer::Invalid(why)),
        };
        let mut found = self.locate(crawl, &valid)?;
        if matches!(found, Found::Leased(token, _) if self.units.live(token, now.at).is_none()) {
            // The unit is over. The call ends it, and its pages are in the queue then.
            self.call(now, |_, _| Ok(()))?;
            found = self.locate(crawl, &valid)?;
        }
        match found {
            Found::Unknown => {
                let page = NewPage {
                    due: again,
                    is_visited: true,
                    ..page
                };
                let answers = self.put(crawl, vec![page], now)?;
                Ok(answers.into_iter().next().unwrap_or(Answer::Full))
            }
            Found::Leased(token, stored) => {
                self.call(now, |frontier, _| frontier.note_metadata(&stored, &valid))?;
                let outcome = PageOutcome {
                    url: valid.url,
                    status,
                    next: again.map_or(Next::Never, Next::At),
                };
                let words = GiveBack {
                    outcomes: vec![outcome],
                    keep: true,
                    ..GiveBack::of_token(token)
                };
                self.give_back(words, now)?;
                Ok(Answer::Known)
            }
            Found::Stored(stored) => self.call(now, |frontier, now| {
                let visit = Visit {
                    at: now.date,
                    status,
                    again,
                };
                frontier.settle(&stored, &valid, visit, now)?;
                Ok(Answer::Known)
            }),
        }
    }

    fn locate(&self, crawl: &CrawlName, page: &ValidPage) -> Result<Found, FrontierError> {
        let name = page.key.as_str();
        let id = match self.find_domain(crawl, name) {
            Err(FrontierError::UnknownCrawl(_) | FrontierError::UnknownDomain(..)) => {
                return Ok(Found::Unknown);
            }
            other => other?,
        };
        for probe in 0..PROBES_MAX {
            let hash = self.hash(&page.url).wrapping_add(probe);
            let Some(row) = self.read_page(id, hash)? else {
                return Ok(Found::Unknown);
            };
            let row = PageRow::decode(&row)?;
            if !row.is_of(&page.url, name) {
                continue;
            }
            let mut units = self.units.of_domain(id);
            let has_page = |page: &Ready| page.hash() == hash;
            let unit = units.find(|(_, held)| held.pages.iter().any(has_page));
            let stored = Stored {
                domain: id,
                hash,
                added_secs: row.added_secs,
                has_metadata: row.metadata == page.metadata,
            };
            return Ok(match unit {
                Some((token, _)) => Found::Leased(token, stored),
                None => Found::Stored(stored),
            });
        }
        Ok(Found::Unknown)
    }

    /// Stores the metadata of a page that is visited, if it changed.
    fn note_metadata(&self, stored: &Stored, page: &ValidPage) -> Result<(), FrontierError> {
        let mut batch = Batch::default();
        stored.put_metadata(&mut batch, page);
        if !batch.0.is_empty() {
            self.store.commit(batch)?;
        }
        Ok(())
    }

    /// Stores the visit of a page that no unit has, and moves the page within its queue.
    fn settle(
        &mut self,
        stored: &Stored,
        page: &ValidPage,
        visit: Visit,
        now: Moment,
    ) -> Result<(), FrontierError> {
        let mut stage = Stage::default();
        let (id, hash) = (stored.domain, stored.hash);
        let Some(domain) = stage.domain(&self.schedule, id) else {
            return Ok(());
        };
        let mut domain = *domain;
        let mut priority = page.priority;
        match self.find_waiting(domain.queue, hash)? {
            Some(Waiting::Ready(ready)) => {
                priority = ready.run.priority();
                domain.ready = domain.ready.saturating_sub(1);
                let pages = std::iter::once(ready);
                self.remove_ready(&mut stage.batch, domain.queue, pages)?;
            }
            Some(Waiting::Dated(dated)) => {
                priority = dated.priority;
                domain.dated = domain.dated.saturating_sub(1);
                dated.remove(&mut stage.batch, domain.queue);
            }
            None => {}
        }
        if let Some(due) = visit.again {
            let dated = Dated {
                due,
                hash,
                priority,
                failures: Failures::NONE,
            };
            dated.store(&mut stage.batch, domain.queue);
            domain.add_dated(due);
        }
        stored.put_metadata(&mut stage.batch, page);
        let visit = rows::encode(&visit);
        stage
            .batch
            .put(Table::Pages, rows::visit_key(id, hash), visit);
        stage.domains.insert(id, domain);
        self.finish(stage, now)
    }

    /// Returns the place of a page in a queue, if it waits there among the first pages.
    fn find_waiting(&self, queue: QueueId, hash: u64) -> Result<Option<Waiting>, StoreError> {
        let mut found = Ok(None);
        let mut scanned = 0;
        let prefix = queue.0.to_be_bytes();
        self.store
            .scan(Table::Queue, &prefix, &prefix, &mut |key, value| {
                scanned += 1;
                found = Row::decode(key, value).map(|row| match row {
                    Row::Run(run, pages) => {
                        let mut pages = pages.ready(run);
                        pages.find(|page| page.hash() == hash).map(Waiting::Ready)
                    }
                    Row::Dated(page) => (page.hash == hash).then_some(Waiting::Dated(page)),
                });
                matches!(found, Ok(None)) && scanned < SCANNED_MAX
            })?;
        found
    }
}
