//! The finished pages that a run fetches again.

use std::sync::atomic::{AtomicU64, Ordering};

use politely_frontier::{Date, PageStatus, ValidPage};

use super::note::Note;
use crate::config::FailedPages;
use crate::fetch::request::PageRequest;

/// The choice of the finished pages that a run fetches again.
#[derive(Debug)]
pub(crate) struct Again {
    /// The number of the run. Pages that it finished itself are not fetched again.
    run: u32,
    which: Which,
    /// Whether requests are sent again that may act twice.
    repeats_posts: bool,
    /// The number of pages whose requests may act twice, and are not sent again.
    unrepeated: AtomicU64,
}

/// A part of the finished pages.
#[derive(Debug)]
pub(crate) enum Which {
    /// All, or those that were not visited after this date.
    All {
        before: Option<Date>,
    },
    Failed(FailedPages),
}

impl Again {
    pub(crate) const fn new(run: u32, which: Which, repeats_posts: bool) -> Self {
        Self {
            run,
            which,
            repeats_posts,
            unrepeated: AtomicU64::new(0),
        }
    }

    /// Returns how many pages are not fetched again because their requests may act twice.
    pub(super) fn unrepeated(&self) -> u64 {
        self.unrepeated.load(Ordering::Relaxed)
    }

    /// Returns the metadata with which a finished page is queued again, or `None` if it is not.
    /// `page` is the page as it is given now.
    pub(super) fn metadata(&self, status: &PageStatus, page: &ValidPage) -> Option<Vec<u8>> {
        let (note, stored) = Note::split(&status.metadata);
        if note.run >= self.run || !self.is_wanted(status, &note) {
            return None;
        }
        let request = PageRequest::read(stored);
        let may_repeat = request.as_ref().is_none_or(|request| match self.which {
            Which::All { .. } => request.method().is_idempotent(),
            // It is the same action, with the same Idempotency-Key.
            Which::Failed(_) => request.may_repeat(),
        });
        if !may_repeat && !self.repeats_posts {
            self.unrepeated.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(match (&self.which, request) {
            (Which::Failed(_), _) => note.join(stored),
            (Which::All { .. }, Some(request)) if stored == page.metadata => {
                note.join(&request.renewed().stored())
            }
            (Which::All { .. }, _) => note.join(&page.metadata),
        })
    }

    fn is_wanted(&self, status: &PageStatus, note: &Note) -> bool {
        match &self.which {
            Which::All { before } => before.is_none() || status.visited <= *before,
            Which::Failed(failed) => match status.status.unwrap_or_default() {
                200..=299 => false,
                status => failed.contains(status, note.failure.as_deref().unwrap_or_default()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use politely::core::key::Key;
    use url::Url;

    fn again(run: u32, which: Which) -> Again {
        Again::new(run, which, false)
    }

    fn status(note: &Note, given: &[u8], visited_ms: u64) -> PageStatus {
        PageStatus {
            url: "http://a/".to_owned(),
            domain: String::new(),
            added: Date::EPOCH,
            leased: None,
            visited: Date::from_millis(visited_ms),
            status: Some(if note.failure.is_some() { 404 } else { 200 }),
            again: None,
            metadata: note.join(given),
        }
    }

    fn page(given: &[u8]) -> ValidPage {
        let url = Url::parse("http://a/").unwrap();
        let key = Key::of_url(&url).unwrap();
        ValidPage::of_url(url, key, given.to_vec()).unwrap()
    }

    fn failed_in(run: u32) -> Note {
        Note {
            run,
            failure: Some("404 Not Found".into()),
            ..Note::default()
        }
    }

    #[test]
    fn a_page_of_an_earlier_run_keeps_its_note_and_takes_the_text_of_now() {
        let again = again(3, Which::All { before: None });
        let queued = again.metadata(&status(&failed_in(2), b"before", 9), &page(b"now"));
        let queued = queued.expect("of an earlier run");
        assert_eq!(Note::split(&queued), (failed_in(2), &b"now"[..]));
        let of_now = again.metadata(&status(&failed_in(3), b"", 9), &page(b""));
        assert_eq!(of_now, None);
    }

    #[test]
    fn a_page_that_was_visited_lately_is_not_fetched_again() {
        let before = Date::from_millis(5);
        let again = again(2, Which::All { before });
        let is_queued = |visited_ms| {
            let status = status(&Note::default(), b"", visited_ms);
            again.metadata(&status, &page(b"")).is_some()
        };
        assert!(is_queued(4) && is_queued(5) && !is_queued(6));
    }

    #[test]
    fn a_failed_page_is_tried_again_as_it_was() {
        for (failed, is_queued) in [("all", true), ("not found", true), ("5xx", false)] {
            let again = again(2, Which::Failed(failed.parse().unwrap()));
            let of_failed = again.metadata(&status(&failed_in(1), b"before", 9), &page(b"now"));
            let stored = of_failed.map(|queued| Note::split(&queued).1.to_vec());
            assert_eq!(stored, is_queued.then(|| b"before".to_vec()), "{failed}");
            let fetched = status(&Note::default(), b"", 9);
            assert_eq!(again.metadata(&fetched, &page(b"")), None);
        }
    }
}
