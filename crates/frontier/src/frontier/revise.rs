//! Words about pages of which the caller has no token, for protocols without tokens.

use super::Frontier;
use super::stage::{PROBES_MAX, Stage, put_dated};
use crate::page::ValidPage;
use crate::rows::{self, DomainId, PageRow, QueueRow, Visit};
use crate::{
    Answer, CrawlName, Date, FrontierError, GiveBack, Moment, NewPage, Next, PageOutcome, Store,
    StoreError, Table, Token,
};

/// The most waiting pages among which a page is looked for.
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
    Leased(Token),
    Stored(DomainId, u64, Box<PageRow>),
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
        if matches!(found, Found::Leased(token) if self.units.live(token, now.at).is_none()) {
            // The unit is over. The call ends it, and its pages are in the queue then.
            self.call(now, |_, _| Ok(()))?;
            found = self.locate(crawl, &valid)?;
        }
        match found {
            Found::Unknown => {
                let page = NewPage {
                    due: again,
                    is_finished: again.is_none(),
                    ..page
                };
                let answers = self.put(crawl, vec![page], now)?;
                Ok(answers.into_iter().next().unwrap_or(Answer::Full))
            }
            Found::Leased(token) => {
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
            Found::Stored(id, hash, row) => self.call(now, |frontier, now| {
                let visit = Visit {
                    status,
                    again,
                    ..Visit::elsewhere(now.date)
                };
                let row = PageRow {
                    metadata: valid.metadata,
                    visit: Some(visit),
                    ..*row
                };
                frontier.settle(id, hash, &row, now)?;
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
            if row.form.join(name, &row.url) != page.url {
                continue;
            }
            let mut units = self.units.of_domain(id);
            let has_page = |row: &QueueRow| row.hash == hash;
            return Ok(
                match units.find(|(_, held)| held.pages.iter().any(has_page)) {
                    Some((token, _)) => Found::Leased(token),
                    None => Found::Stored(id, hash, Box::new(row)),
                },
            );
        }
        Ok(Found::Unknown)
    }

    /// Stores the visit of a page that no unit has, and moves the page within its queue.
    fn settle(
        &mut self,
        id: DomainId,
        hash: u64,
        row: &PageRow,
        now: Moment,
    ) -> Result<(), FrontierError> {
        let mut stage = Stage::default();
        let Some(domain) = stage.domain(&self.schedule, id) else {
            return Ok(());
        };
        let mut domain = *domain;
        let waiting = self.waiting_row(&domain.queue.0.to_be_bytes(), hash)?;
        if let Some(waiting) = waiting {
            stage.batch.remove(Table::Queue, waiting.key(domain.queue));
            if waiting.is_dated() {
                domain.dated = domain.dated.saturating_sub(1);
            } else {
                domain.ready = domain.ready.saturating_sub(1);
            }
        }
        if let Some(date) = row.visit.and_then(|visit| visit.again) {
            let priority = waiting.filter(|row| !row.is_dated());
            let priority = priority.map_or_else(Default::default, QueueRow::priority);
            put_dated(&mut stage.batch, domain.queue, date, hash, priority);
            domain.add_dated(date);
        }
        let key = rows::page_key(id, hash);
        stage.batch.put(Table::Pages, key, rows::encode(row));
        stage.domains.insert(id, domain);
        self.finish(stage, now)
    }

    /// Returns the place of a page in a queue, if it waits there among the first pages.
    fn waiting_row(&self, prefix: &[u8], hash: u64) -> Result<Option<QueueRow>, StoreError> {
        let mut found = Ok(None);
        let mut scanned = 0;
        self.store
            .scan(Table::Queue, prefix, prefix, &mut |key, _| {
                scanned += 1;
                found = QueueRow::of_key(key).map(|row| Some(row).filter(|row| row.hash == hash));
                matches!(found, Ok(None)) && scanned < SCANNED_MAX
            })?;
        found
    }
}
