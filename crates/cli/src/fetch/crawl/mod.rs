//! The pages of a run that wait.
//!
//! Each origin is a domain, and its lane takes the pages out. With `--state`, the pages are in a
//! frontier in the state folder. Without it, nothing survives the process, so they are in a
//! temporary file without a name.

pub(super) mod again;
mod every_page;
mod host_pages;
mod kept;
pub(super) mod metadata;
pub(super) mod note;

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use politely::core::key::Key;
use politely_frontier::{Answer, Date, Scratch, TakenPage, ValidPage};
use tempfile::SpooledTempFile;
use url::{Position, Url};

use super::lanes::LaneId;
use super::lanes::pending::Page;
use super::request::PageRequest;
use super::site::named::Named;
use crate::exit::io_words;
pub(crate) use kept::{Finished, Kept};
use note::Note;

/// The most pages that a lane takes in one call.
const UNIT_LEN_MAX: u32 = 500;
/// The same with `--state`, where each finished page is one write.
const KEPT_UNIT_LEN_MAX: u32 = 32;
/// The most bytes of pages that are in memory and not in a temporary file.
const IN_MEMORY_MAX: usize = 1 << 20;

/// The pages of a run.
pub(crate) enum Crawl {
    /// They are in the state folder.
    Kept(Box<Kept>),
    /// They vanish with the process.
    Vanishing(Vanishing),
}

/// The pages of a run that vanish with the process. The number of a domain is its lane's.
pub(crate) struct Vanishing(Mutex<Scratch<SpooledTempFile>>);

impl Crawl {
    /// Returns a crawl that vanishes with the process.
    pub(crate) fn vanishing() -> Self {
        let pages = Scratch::new(SpooledTempFile::new(IN_MEMORY_MAX), random());
        Self::Vanishing(Vanishing(Mutex::new(pages)))
    }

    /// Returns the crawl of a state folder, or `None` without one.
    pub(crate) fn kept(&self) -> Option<&Kept> {
        match self {
            Self::Kept(kept) => Some(kept),
            Self::Vanishing(_) => None,
        }
    }

    /// Returns the most pages of a lane that one call takes.
    pub(crate) fn unit_len_max(&self) -> u32 {
        match self {
            Self::Kept(_) => KEPT_UNIT_LEN_MAX,
            Self::Vanishing(_) => UNIT_LEN_MAX,
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
        let then = |taken: Vec<TakenPage>| then(taken.into_iter().map(page).collect());
        match self {
            Self::Kept(kept) => kept.take(lane, origin, most, then),
            Self::Vanishing(pages) => pages.take(lane, most, then),
        }
    }

    /// Frees the memory that only adding pages needs.
    pub(crate) fn close_input(&self) -> Result<(), String> {
        match self {
            Self::Kept(_) => Ok(()),
            Self::Vanishing(pages) => pages.lock().close().map_err(|why| io_words(&why)),
        }
    }
}

impl Vanishing {
    /// Adds the pages of lanes. `then` gets one answer for each, before a page of them is handed
    /// out.
    pub(crate) fn put<'a>(
        &self,
        pages: impl Iterator<Item = (LaneId, &'a ValidPage)>,
        then: impl FnOnce(Vec<Answer>),
    ) -> Result<(), String> {
        let mut scratch = self.lock();
        let put = |(lane, page): (LaneId, &ValidPage)| {
            let is_new = scratch.push(lane, &page.url, &page.metadata)?;
            Ok(if is_new { Answer::New } else { Answer::Known })
        };
        let answers: io::Result<_> = pages.map(put).collect();
        then(answers.map_err(|why| io_words(&why))?);
        Ok(())
    }

    fn take(
        &self,
        lane: LaneId,
        most: u32,
        then: impl FnOnce(Vec<TakenPage>),
    ) -> Result<(), String> {
        let mut scratch = self.lock();
        let taken = scratch.pop(lane, most as usize);
        then(taken.map_err(|why| io_words(&why))?);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Scratch<SpooledTempFile>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns a page of the input as a crawl takes it. A `request` is more than a GET of `url`.
pub(crate) fn input_page(
    url: Url,
    given: &str,
    request: Option<&PageRequest>,
) -> Result<ValidPage, String> {
    let key = domain_of(&url).map_err(|why| why.to_string())?;
    if let Some(request) = request {
        let mut page =
            ValidPage::of_url(url, key.clone(), Vec::new()).map_err(|why| why.to_string())?;
        if let Some(id) = request.id() {
            page.url = PageRequest::known_as(id);
        }
        // Its bound is that of an input line.
        page.metadata = request.stored();
        return Ok(page);
    }
    let metadata = if url.fragment().is_none() && url.as_str() == given {
        Vec::new()
    } else {
        given.as_bytes().to_vec()
    };
    ValidPage::of_url(url, key, metadata).map_err(|why| why.to_string())
}

/// Returns the domain of a URL: its origin.
pub(crate) fn domain_of(url: &Url) -> Result<Key, politely::core::key::KeyError> {
    Key::custom(&origin_of(url))
}

/// Returns the origin of a URL, without a login.
pub(crate) fn origin_of(url: &Url) -> String {
    let host = &url[Position::BeforeHost..Position::BeforePath];
    format!("{}://{host}", url.scheme())
}

fn page(taken: TakenPage) -> Page {
    let (note, stored) = Note::split(&taken.metadata);
    let note = (note != Note::default()).then(|| Box::new(note));
    let request = PageRequest::read(stored).map(Box::new);
    let named = Named::read(stored).map(Box::new);
    let given = match (&request, &named) {
        (None, None) => std::str::from_utf8(stored).unwrap_or_default(),
        _ => "",
    };
    Page {
        url: taken.url.into(),
        given: (!given.is_empty()).then(|| given.into()),
        request,
        named,
        note,
    }
}

/// Returns a date for the frontier.
pub(crate) fn date(time: SystemTime) -> Date {
    Date::EPOCH.after(time.duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// Returns a number that differs from run to run.
pub(crate) fn random() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_the_text_of_the_input_and_is_known_without_its_fragment() {
        let crawl = Crawl::vanishing();
        let Crawl::Vanishing(pages) = &crawl else {
            panic!("no state folder");
        };
        let texts = ["http://A.com", "http://u:p@a.com/x#1", "http://a.com/#2"];
        let given = texts.map(|text| input_page(Url::parse(text).unwrap(), text, None).unwrap());
        let mut answers = Vec::new();
        let lanes = std::iter::repeat(3);
        pages
            .put(lanes.zip(&given), |found| answers = found)
            .unwrap();
        assert_eq!(answers, [Answer::New, Answer::New, Answer::Known]);
        crawl.close_input().unwrap();
        let mut taken = Vec::new();
        crawl
            .take(3, "http://a.com", 9, |pages| taken = pages)
            .unwrap();
        let given: Vec<_> = taken.iter().map(Page::given).collect();
        assert_eq!(given, texts[..2]);
        let urls: Vec<_> = taken.iter().map(|page| &*page.url).collect();
        assert_eq!(urls, ["http://a.com/", "http://u:p@a.com/x"]);
    }
}
