//! The crawl of a run: its pages that wait, in a frontier.
//!
//! Each origin is a domain of the frontier, and its lane is the owner. The workers of this process
//! are the only ones, so a unit never expires.
//!
//! With `--state`, the frontier is in the state folder. A lane then owns the pages that it took
//! until each is finished, and a run that was killed finds the others in the queue. Without it,
//! nothing survives the process. Pages that a lane takes then leave the frontier at once.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use politely::core::Timestamp;
use politely::core::key::Key;
use politely_frontier::{
    Answer, CrawlName, Date, EmbeddedStore, Frontier, FrontierError, GiveBack, MemoryStore, Moment,
    Next, PageOutcome, Settings, Store, Take, TakenPage, Token, ValidPage,
};
use tempfile::TempDir;
use url::{Position, Url};

use super::input::lines::Line;
use super::lanes::LaneId;
use super::lanes::pending::Page;
use crate::exit::io_words;

/// The name of the one crawl.
const CRAWL: &str = "fetch";
/// The prefix of a domain's name before the origin.
const CUSTOM: &str = "custom/";
/// The most pages that a lane takes in one call.
const UNIT_LEN_MAX: u32 = 500;
/// The same with `--state`, where each finished page is one write.
const KEPT_UNIT_LEN_MAX: u32 = 32;
/// A list of at most this many bytes is kept in memory.
const IN_MEMORY_MAX: u64 = 1 << 20;
/// A unit never expires: the process owns it until it ends.
const LEASE: Duration = Duration::from_hours(10 * 365 * 24);
/// The domains and pages that one call lists.
const LISTED: usize = 1_000;

/// The pages of a run.
pub(crate) struct Crawl {
    inner: Mutex<Inner>,
    name: CrawlName,
    /// Whether the frontier is in the state folder.
    is_kept: bool,
    began: Instant,
    /// The temporary folder of the frontier, which is removed with this value.
    folder: Option<TempDir>,
}

struct Inner {
    frontier: Frontier<Arc<dyn Store>>,
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
}

impl Crawl {
    /// Opens the crawl in a folder of a state folder.
    pub(crate) fn kept(folder: &Path) -> Result<Self, String> {
        let store = EmbeddedStore::open_small(folder).map_err(|why| why.to_string())?;
        let crawl = Self::open(Arc::new(store), None, true)?;
        crawl.drop_units()?;
        Ok(crawl)
    }

    /// Opens a crawl that vanishes with the process. `len` is the length of the input in bytes, if
    /// it is known.
    pub(crate) fn temporary(len: Option<u64>) -> Result<Self, String> {
        if len.is_some_and(|len| len <= IN_MEMORY_MAX) {
            return Self::open(Arc::new(MemoryStore::default()), None, false);
        }
        let folder = tempfile::Builder::new().prefix("politely-").tempdir();
        let folder = folder.map_err(|why| {
            let place = std::env::temp_dir();
            format!(
                "cannot make a folder in \"{}\": {}",
                place.display(),
                io_words(&why)
            )
        })?;
        let store = EmbeddedStore::open_temporary(folder.path()).map_err(|why| why.to_string())?;
        Self::open(Arc::new(store), Some(folder), false)
    }

    fn open(store: Arc<dyn Store>, folder: Option<TempDir>, is_kept: bool) -> Result<Self, String> {
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
        let seed = rand_seed();
        let frontier = Frontier::open(store, settings, seed, moment(began))
            .map_err(|why| words(&why.into()))?;
        Ok(Self {
            inner: Mutex::new(Inner {
                frontier,
                units: Vec::new(),
            }),
            name: CRAWL.parse().map_err(|why| format!("{CRAWL}: {why}"))?,
            is_kept,
            began,
            folder,
        })
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

    /// Removes the temporary folder. A process that ends early does not drop this value.
    pub(crate) fn remove_folder(&self) {
        if let Some(folder) = &self.folder {
            // A file that is being written may stay, and is removed with this value.
            let _ = std::fs::remove_dir_all(folder.path());
        }
    }

    /// Returns whether finished pages are recorded.
    pub(crate) fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// Adds pages. `then` gets one answer for each, before a page of them is handed out.
    pub(crate) fn put(
        &self,
        pages: &[ValidPage],
        then: impl FnOnce(Vec<Answer>),
    ) -> Result<(), String> {
        let mut inner = self.lock();
        let put = inner.frontier.put_valid(&self.name, pages, self.now());
        then(put.map_err(|why| words(&why))?);
        Ok(())
    }

    /// Returns whether an input line that is no URL is new, and remembers it with `--state`. It
    /// counts as a page that failed.
    pub(crate) fn is_new_line(&self, line: &[u8]) -> Result<bool, String> {
        if !self.is_kept {
            return Ok(true);
        }
        // RFC 2606 reserves the name, so this is no page of the input.
        let url = Url::parse(&format!("http://line.invalid/{:016x}", line_hash(line)));
        let url = url.map_err(|why| why.to_string())?;
        let mut page = input_page(url, "")?;
        page.is_finished = true;
        let mut is_new = false;
        self.put(&[page], |answers| is_new = answers == [Answer::New])?;
        Ok(is_new)
    }

    /// Returns the most pages of a lane that one call takes.
    pub(crate) fn unit_len_max(&self) -> u32 {
        if self.is_kept {
            KEPT_UNIT_LEN_MAX
        } else {
            UNIT_LEN_MAX
        }
    }

    /// Takes the next `most` pages of a lane. `then` gets them before further pages are added.
    pub(crate) fn take(
        &self,
        lane: LaneId,
        origin: &str,
        most: u32,
        then: impl FnOnce(Vec<Page>),
    ) -> Result<(), String> {
        let mut inner = self.lock();
        let domain = format!("{CUSTOM}{origin}");
        let taken = if self.is_kept {
            inner.take(lane, &self.name, &domain, most, self.now())
        } else {
            inner.frontier.pop(&self.name, &domain, most, self.now())
        };
        let taken = taken.map_err(|why| words(&why))?;
        then(taken.into_iter().map(page).collect());
        Ok(())
    }

    /// Records that a page is finished. It is never handed out again.
    pub(crate) fn finish(&self, finished: Finished<'_>) -> Result<(), String> {
        let mut inner = self.lock();
        let lane = finished.lane as usize;
        let Some(token) = inner.units.get(lane).copied().flatten() else {
            return Err(format!("no unit has the page \"{}\"", finished.url));
        };
        let words_of_owner = GiveBack {
            outcomes: vec![PageOutcome {
                url: finished.url.to_owned(),
                status: finished.status.unwrap_or(0),
                next: Next::Never,
            }],
            keep: true,
            ..GiveBack::of_token(token)
        };
        let now = self.now();
        let accepted = inner.frontier.give_back(words_of_owner, now);
        if accepted.map_err(|why| words(&why))?.kept == 0 {
            inner.units[lane] = None;
        }
        Ok(())
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

    /// Returns how many pages earlier processes finished: fetched and failed.
    pub(crate) fn finished(&self) -> Result<(u64, u64), String> {
        let inner = self.lock();
        let frontier = &inner.frontier;
        let (mut fetched, mut failed) = (0, 0);
        let mut after = String::new();
        loop {
            let domains = match frontier.domains(&self.name, &after, LISTED, self.now()) {
                Err(FrontierError::UnknownCrawl(_)) => return Ok((0, 0)),
                domains => domains.map_err(|why| words(&why))?,
            };
            for domain in &domains {
                let mut last = None;
                loop {
                    let pages = frontier.pages(&self.name, &domain.name, last, LISTED);
                    let pages = pages.map_err(|why| words(&why))?;
                    for (_, page) in &pages {
                        match page.status {
                            Some(200..=299) => fetched += 1,
                            Some(_) => failed += 1,
                            None => {}
                        }
                    }
                    match pages.last() {
                        Some((hash, _)) => last = Some(*hash),
                        None => break,
                    }
                }
            }
            match domains.last() {
                Some(last) => after.clone_from(&last.name),
                None => return Ok((fetched, failed)),
            }
        }
    }

    /// Returns whether the page of a result line has no outcome yet.
    pub(crate) fn is_open(&self, given: &str) -> bool {
        let Line::Url(url) = Line::parse(given.as_bytes()) else {
            return false;
        };
        let inner = self.lock();
        let Ok(key) = domain_of(&url) else {
            return false;
        };
        let page = inner
            .frontier
            .page(&self.name, url.as_str(), Some(key.as_str()));
        matches!(page, Ok(Some(page)) if page.visited.is_none())
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

/// Returns a page of the input for [`Crawl::put`].
pub(crate) fn input_page(url: Url, given: &str) -> Result<ValidPage, String> {
    let key = domain_of(&url).map_err(|why| why.to_string())?;
    let metadata = if url.fragment().is_none() && url.as_str() == given {
        Vec::new()
    } else {
        given.as_bytes().to_vec()
    };
    ValidPage::of_url(url, key, metadata).map_err(|why| why.to_string())
}

/// Returns the domain of a URL: its origin, without a login.
fn domain_of(url: &Url) -> Result<Key, politely::core::key::KeyError> {
    let host = &url[Position::BeforeHost..Position::BeforePath];
    Key::custom(&format!("{}://{host}", url.scheme()))
}

fn page(taken: TakenPage) -> Page {
    let given = String::from_utf8(taken.metadata).unwrap_or_default();
    Page {
        url: taken.url.into(),
        given: (!given.is_empty()).then(|| given.into()),
    }
}

fn moment(began: Instant) -> Moment {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH);
    Moment {
        at: Timestamp::from_micros(began.elapsed().as_micros() as u64),
        date: Date::EPOCH.after(unix.unwrap_or_default()),
    }
}

/// Returns the hash of a line, which is the same in every process.
fn line_hash(line: &[u8]) -> u64 {
    // FNV-1a of 64 bits.
    line.iter().fold(0xcbf2_9ce4_8422_2325, |sum: u64, &byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Returns a number that differs from run to run. A stored frontier keeps its first one.
fn rand_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
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

    const ORIGIN: &str = "http://a.com";

    fn put(crawl: &Crawl, texts: &[&str]) -> Vec<Answer> {
        let page = |text: &&str| {
            let url = Url::parse(text).unwrap();
            input_page(url, text).unwrap()
        };
        let pages: Vec<_> = texts.iter().map(page).collect();
        let mut found = Vec::new();
        crawl.put(&pages, |answers| found = answers).unwrap();
        found
    }

    fn take(crawl: &Crawl, most: u32) -> Vec<Page> {
        let mut found = Vec::new();
        crawl.take(0, ORIGIN, most, |pages| found = pages).unwrap();
        found
    }

    fn finish(crawl: &Crawl, url: &str, status: Option<u16>) {
        let finished = Finished {
            lane: 0,
            url,
            status,
        };
        crawl.finish(finished).unwrap();
    }

    fn urls(pages: &[Page]) -> Vec<&str> {
        pages.iter().map(|page| &*page.url).collect()
    }

    #[test]
    fn a_page_has_the_text_of_the_input_and_is_known_without_its_fragment() {
        let crawl = Crawl::temporary(Some(0)).unwrap();
        let texts = ["http://A.com", "http://u:p@a.com/x#1", "http://a.com/#2"];
        assert_eq!(
            put(&crawl, &texts),
            [Answer::New, Answer::New, Answer::Known]
        );
        let pages = take(&crawl, 9);
        let given: Vec<_> = pages.iter().map(Page::given).collect();
        assert_eq!(given, texts[..2]);
        assert_eq!(urls(&pages), ["http://a.com/", "http://u:p@a.com/x"]);
    }

    #[test]
    fn pages_without_an_outcome_are_found_after_a_kill() {
        let folder = tempfile::tempdir().unwrap();
        let all: Vec<_> = (0..60).map(|page| format!("{ORIGIN}/{page}")).collect();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        {
            let crawl = Crawl::kept(folder.path()).unwrap();
            assert_eq!(crawl.finished().unwrap(), (0, 0));
            put(&crawl, &all);
            assert_eq!(urls(&take(&crawl, 2)), all[..2]);
            finish(&crawl, all[1], Some(200));
            assert_eq!(urls(&take(&crawl, 3)), all[2..5]);
            finish(&crawl, all[3], Some(404));
            finish(&crawl, all[4], None);
            assert!(crawl.is_new_line(b"nonsense").unwrap());
            assert!(crawl.is_open(all[0]) && !crawl.is_open(all[1]));
        }
        let crawl = Crawl::kept(folder.path()).unwrap();
        assert_eq!(crawl.finished().unwrap(), (1, 3));
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
        assert_eq!(crawl.finished().unwrap(), (58, 3));
        assert_eq!(put(&crawl, &all[..1]), [Answer::Known]);
    }
}
