//! The pages of a run in the state folder.
//!
//! A lane owns the pages that it took until each is finished. A run that was killed finds the
//! others in the queue. The workers of this process are the only ones, so a unit never expires.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use politely::core::Timestamp;
use politely_frontier::{
    Answer, CrawlName, EmbeddedStore, Frontier, FrontierError, Moment, NewPage, Next, PageOutcome,
    PageStatus, Revision, Settings, Take, TakenPage, Token, ValidPage,
};
use url::Url;
use xxhash_rust::xxh3::xxh3_64;

use super::again::Again;
use super::note::Note;
use super::{date, domain_of, random};
use crate::exit::io_words;
use crate::fetch::input::lines::Line;
use crate::fetch::lanes::LaneId;
use crate::fetch::request::PageRequest;

/// The name of the one crawl.
const CRAWL: &str = "fetch";
/// The prefix of a domain's name before the origin.
pub(super) const CUSTOM: &str = "custom/";
/// A unit never expires: the process owns it until it ends.
const LEASE: Duration = Duration::from_hours(10 * 365 * 24);
/// The domains and pages that one call lists.
const LISTED: usize = 1_000;
/// The domain of input lines that are no URLs. RFC 2606 reserves the name, so no page has it.
pub(super) const LINES: &str = "http://line.invalid";

/// The pages of a run in the state folder.
pub(crate) struct Kept {
    inner: Mutex<Inner>,
    name: CrawlName,
    began: Instant,
    /// The number of the present run.
    run: u32,
    /// The finished pages that the run fetches again.
    again: Option<Again>,
}

struct Inner {
    frontier: Frontier<EmbeddedStore>,
    /// The unit of each lane that owns pages.
    units: Vec<Option<Token>>,
}

/// A page whose outcome is recorded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Finished<'a> {
    pub(crate) lane: LaneId,
    pub(crate) url: &'a str,
    /// The status of the last answer, or `None` if the page was not fetched.
    pub(crate) status: Option<u16>,
    /// The metadata that replaces that of the page.
    pub(crate) metadata: Option<&'a [u8]>,
}

impl Kept {
    /// Opens the pages in a folder of a state folder, for the run with the number `run`. `again`
    /// are the finished pages that it fetches again.
    pub(crate) fn open(folder: &Path, run: u32, again: Option<Again>) -> Result<Self, String> {
        let store = EmbeddedStore::open_small(folder).map_err(|why| why.to_string())?;
        let settings = Settings {
            pages_per_domain_max: u32::MAX,
            pages_per_crawl_max: u64::MAX,
            domains_max: usize::MAX,
            units_max: usize::MAX,
            pages_per_unit_max: u32::MAX,
            lease_max: LEASE,
            ..Settings::default()
        };
        let began = Instant::now();
        let frontier = Frontier::open(store, settings, random(), moment(began))
            .map_err(|why| words(&why.into()))?;
        let kept = Self {
            inner: Mutex::new(Inner {
                frontier,
                units: Vec::new(),
            }),
            name: CRAWL.parse().map_err(|why| format!("{CRAWL}: {why}"))?,
            began,
            run,
            again,
        };
        kept.drop_units()?;
        Ok(kept)
    }

    /// Opens the pages again, if their storage failed. Everything that was recorded is there.
    ///
    /// # Errors
    /// The storage cannot be used.
    pub(crate) fn recover(&self) -> Result<(), String> {
        let now = self.now();
        let frontier = &mut self.lock().frontier;
        if frontier.failure().is_none() {
            return Ok(());
        }
        frontier.recover(now).map_err(|why| words(&why.into()))
    }

    /// Ends the units of a process that was killed. Their pages are in the queue.
    fn drop_units(&self) -> Result<(), String> {
        let mut inner = self.lock();
        let now = self.now();
        let frontier = &mut inner.frontier;
        let units = match frontier.units(&self.name, usize::MAX, now) {
            Err(FrontierError::UnknownCrawl(_)) => return Ok(()),
            units => units.map_err(|why| words(&why))?,
        };
        for unit in units {
            let dropped = frontier.drop_unit(unit.token, now);
            dropped.map_err(|why| words(&why))?;
        }
        Ok(())
    }

    /// Returns the number of the present run.
    pub(crate) const fn run(&self) -> u32 {
        self.run
    }

    /// Returns whether the run fetches finished pages again.
    pub(crate) const fn fetches_again(&self) -> bool {
        self.again.is_some()
    }

    /// Returns how many finished pages were not queued again, because their requests may act twice.
    pub(crate) fn unrepeated(&self) -> u64 {
        self.again.as_ref().map_or(0, Again::unrepeated)
    }

    /// Adds pages, and queues finished ones again if the run fetches them again. `then` gets one
    /// answer for each, before a page of them is handed out.
    pub(crate) fn put(
        &self,
        pages: &[ValidPage],
        then: impl FnOnce(Vec<Answer>),
    ) -> Result<(), String> {
        let mut inner = self.lock();
        let (frontier, now) = (&mut inner.frontier, self.now());
        let put = match &self.again {
            None => frontier.put_valid(&self.name, pages, now),
            Some(again) => {
                let again = |status: &PageStatus, page: &ValidPage| again.metadata(status, page);
                frontier.put_again(&self.name, pages, again, now)
            }
        };
        then(put.map_err(|why| words(&why))?);
        Ok(())
    }

    /// Returns whether an input line that is no URL is new in this run, and remembers it. It counts
    /// as a page that failed.
    pub(crate) fn is_new_line(&self, line: &[u8]) -> Result<bool, String> {
        let url = format!("{LINES}/{:016x}", xxh3_64(line));
        let key = format!("{CUSTOM}{LINES}");
        let mut inner = self.lock();
        let known = match inner.frontier.page(&self.name, &url, Some(&key)) {
            Err(FrontierError::UnknownCrawl(_)) => None,
            known => known.map_err(|why| words(&why))?,
        };
        let is_of_run = |page: &PageStatus| Note::split(&page.metadata).0.run >= self.run;
        if known.is_some_and(|page| !self.fetches_again() || is_of_run(&page)) {
            return Ok(false);
        }
        let note = Note {
            run: self.run,
            ..Note::default()
        };
        let page = NewPage {
            url,
            key: Some(key),
            metadata: note.join(b""),
            ..NewPage::default()
        };
        let revision = Revision {
            page,
            status: 0,
            again: None,
        };
        let revised = inner.frontier.revise(&self.name, revision, self.now());
        revised.map_err(|why| words(&why))?;
        Ok(true)
    }

    /// Takes the next `most` pages of a lane. `then` gets them before further pages are added.
    pub(super) fn take(
        &self,
        lane: LaneId,
        origin: &str,
        most: u32,
        then: impl FnOnce(Vec<TakenPage>),
    ) -> Result<(), String> {
        let mut inner = self.lock();
        let domain = format!("{CUSTOM}{origin}");
        let taken = inner.take(lane, &self.name, &domain, most, self.now());
        then(taken.map_err(|why| words(&why))?);
        Ok(())
    }

    /// Records that a page is finished. It is never handed out again.
    pub(crate) fn finish(&self, finished: Finished<'_>) -> Result<(), String> {
        let mut inner = self.lock();
        let lane = finished.lane as usize;
        let Some(token) = inner.units.get(lane).copied().flatten() else {
            return Err(format!("no unit has the page \"{}\"", finished.url));
        };
        let outcome = PageOutcome {
            url: finished.url.to_owned(),
            status: finished.status.unwrap_or(0),
            next: Next::Never,
        };
        let metadata = finished.metadata.map(<[u8]>::to_vec);
        let now = self.now();
        let kept = inner.frontier.finish_page(token, outcome, metadata, now);
        if kept.map_err(|why| words(&why))? == 0 {
            inner.units[lane] = None;
        }
        Ok(())
    }

    /// Returns the number of pages that a domain ever had.
    pub(crate) fn pages_of(&self, domain: &str) -> Result<u64, String> {
        let inner = self.lock();
        match inner.frontier.domain(&self.name, domain, self.now()) {
            Err(FrontierError::UnknownCrawl(_) | FrontierError::UnknownDomain(..)) => Ok(0),
            status => status.map(|it| it.counts.pages).map_err(|why| words(&why)),
        }
    }

    /// Calls `each` with every origin that has pages in the queue, and their number.
    pub(crate) fn origins(&self, mut each: impl FnMut(&str, u32)) -> Result<(), String> {
        let mut after = String::new();
        loop {
            let inner = self.lock();
            let domains = inner
                .frontier
                .domains(&self.name, &after, LISTED, self.now());
            let domains = match domains {
                Err(FrontierError::UnknownCrawl(_)) => return Ok(()),
                domains => domains.map_err(|why| words(&why))?,
            };
            for domain in &domains {
                let waiting = domain.counts.ready;
                if let (Some(origin), Ok(waiting @ 1..)) =
                    (domain.name.strip_prefix(CUSTOM), u32::try_from(waiting))
                {
                    each(origin, waiting);
                }
            }
            match domains.last() {
                Some(last) => after.clone_from(&last.name),
                None => return Ok(()),
            }
        }
    }

    /// Returns how many pages wait.
    pub(crate) fn waiting(&self) -> u64 {
        let counts = self.lock().frontier.counts(&self.name);
        counts.map_or(0, |counts| counts.ready + counts.leased)
    }

    /// Calls `each` with the name of every domain, until it returns `false`.
    pub(super) fn each_domain(
        &self,
        mut each: impl FnMut(&str) -> Result<bool, String>,
    ) -> Result<(), String> {
        let mut after = String::new();
        loop {
            let found = {
                let inner = self.lock();
                (inner.frontier).domains(&self.name, &after, LISTED, self.now())
            };
            let domains = match found {
                Err(FrontierError::UnknownCrawl(_)) => return Ok(()),
                domains => domains.map_err(|why| words(&why))?,
            };
            for domain in &domains {
                if !each(&domain.name)? {
                    return Ok(());
                }
            }
            match domains.last() {
                Some(last) => after.clone_from(&last.name),
                None => return Ok(()),
            }
        }
    }

    /// Calls `each` with the pages of a domain, some at a time, until it returns `false`.
    pub(super) fn each_chunk(
        &self,
        domain: &str,
        mut each: impl FnMut(&[PageStatus]) -> Result<bool, String>,
    ) -> Result<(), String> {
        let mut last = None;
        loop {
            let found = {
                let inner = self.lock();
                inner.frontier.pages(&self.name, domain, last, LISTED)
            };
            let (hashes, pages): (Vec<_>, Vec<_>) =
                found.map_err(|why| words(&why))?.into_iter().unzip();
            last = hashes.last().copied();
            if last.is_none() || !each(&pages)? {
                return Ok(());
            }
        }
    }

    /// Returns whether the page of a result line of run `run` has no outcome yet. `request` is the
    /// number of a request that is not a GET of its URL.
    pub(crate) fn is_open(&self, given: &str, request: Option<u128>, run: u32) -> bool {
        if run != self.run {
            return false;
        }
        let Line::Url(url) = Line::parse(given.as_bytes()) else {
            return false;
        };
        let known_as = request.map_or_else(|| url.as_str().to_owned(), PageRequest::known_as);
        self.is_unfinished(&url, &known_as)
    }

    /// Returns whether the page that the crawl knows as `known_as` has no outcome yet. `origin` is
    /// a URL of its origin.
    pub(crate) fn is_unfinished(&self, origin: &Url, known_as: &str) -> bool {
        let Ok(key) = domain_of(origin) else {
            return false;
        };
        let inner = self.lock();
        let page = (inner.frontier).page(&self.name, known_as, Some(key.as_str()));
        matches!(page, Ok(Some(page)) if !is_finished(&page))
    }

    fn now(&self) -> Moment {
        moment(self.began)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Takes pages into the unit of a lane.
    fn take(
        &mut self,
        lane: LaneId,
        crawl: &CrawlName,
        domain: &str,
        most: u32,
        now: Moment,
    ) -> Result<Vec<TakenPage>, FrontierError> {
        let lane = lane as usize;
        if self.units.len() <= lane {
            self.units.resize(lane + 1, None);
        }
        if let Some(token) = self.units[lane] {
            return self.frontier.refill(token, most, now);
        }
        let take = Take {
            crawl: None,
            pages_max: most,
            lease: LEASE,
            shares_domain: false,
        };
        let mut gate = |_: &str, pages| Ok(pages);
        let unit = self
            .frontier
            .take_domain(crawl, domain, &take, now, &mut gate)?;
        let Some(unit) = unit else {
            return Ok(Vec::new());
        };
        self.units[lane] = Some(unit.token);
        Ok(unit.pages)
    }
}

fn moment(began: Instant) -> Moment {
    Moment {
        at: Timestamp::from_micros(began.elapsed().as_micros() as u64),
        date: date(SystemTime::now()),
    }
}

/// Returns whether a page was visited, and is not queued again.
pub(super) fn is_finished(page: &PageStatus) -> bool {
    page.visited.is_some() && page.again.is_none()
}

fn words(error: &FrontierError) -> String {
    match error {
        FrontierError::Store(why) | FrontierError::Closed(why) => {
            io_words(&std::io::Error::other(why.0.clone()))
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fetch::crawl::input_page;

    const ORIGIN: &str = "http://a.com";

    fn put(crawl: &Kept, texts: &[&str]) -> Vec<Answer> {
        let page = |text: &&str| {
            let url = Url::parse(text).unwrap();
            input_page(url, text, None).unwrap()
        };
        let pages: Vec<_> = texts.iter().map(page).collect();
        let mut found = Vec::new();
        crawl.put(&pages, |answers| found = answers).unwrap();
        found
    }

    fn take(crawl: &Kept, most: u32) -> Vec<TakenPage> {
        let mut found = Vec::new();
        crawl.take(0, ORIGIN, most, |pages| found = pages).unwrap();
        found
    }

    fn finish(crawl: &Kept, url: &str, status: Option<u16>) {
        let finished = Finished {
            lane: 0,
            url,
            status,
            metadata: None,
        };
        crawl.finish(finished).unwrap();
    }

    fn urls(pages: &[TakenPage]) -> Vec<&str> {
        pages.iter().map(|page| page.url.as_str()).collect()
    }

    #[test]
    fn pages_without_an_outcome_are_found_after_a_kill() {
        let folder = tempfile::tempdir().unwrap();
        let all: Vec<_> = (0..60).map(|page| format!("{ORIGIN}/{page}")).collect();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        {
            let crawl = Kept::open(folder.path(), 1, None).unwrap();
            assert_eq!(crawl.finished(Some(1)).unwrap(), (0, 0));
            put(&crawl, &all);
            assert_eq!(urls(&take(&crawl, 2)), all[..2]);
            finish(&crawl, all[1], Some(200));
            assert_eq!(urls(&take(&crawl, 3)), all[2..5]);
            finish(&crawl, all[3], Some(404));
            finish(&crawl, all[4], None);
            assert!(crawl.is_new_line(b"nonsense").unwrap());
            assert!(crawl.is_open(all[0], None, 1) && !crawl.is_open(all[1], None, 1));
        }
        let crawl = Kept::open(folder.path(), 1, None).unwrap();
        assert_eq!(crawl.finished(Some(1)).unwrap(), (1, 3));
        assert!(!crawl.is_new_line(b"nonsense").unwrap());
        let mut origins = Vec::new();
        let each = |origin: &str, pages| origins.push((origin.to_owned(), pages));
        crawl.origins(each).unwrap();
        assert_eq!(origins, [(ORIGIN.to_owned(), 57)]);
        let pages = take(&crawl, 99);
        assert_eq!(urls(&pages)[..2], [all[0], all[2]]);
        assert_eq!(urls(&pages)[2..], all[5..]);
        for page in &pages {
            finish(&crawl, &page.url, Some(200));
        }
        assert_eq!(crawl.finished(Some(1)).unwrap(), (58, 3));
        assert_eq!(put(&crawl, &all[..1]), [Answer::Known]);
    }
}
