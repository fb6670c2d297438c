//! The finished pages that a run fetches again.

use std::sync::atomic::{AtomicU64, Ordering};

use politely_frontier::{Date, PageStatus, ValidPage};

use super::note::Note;
use crate::fetch::request::PageRequest;

/// The choice of the finished pages that a run fetches again.
#[derive(Debug, Default)]
pub(crate) struct Again {
    /// The number of the run. Pages that it finished itself are not fetched again.
    pub(crate) run: u32,
    /// Pages that were visited after this date are not fetched again.
    pub(crate) before: Option<Date>,
    /// Whether requests are sent again that may act twice.
    pub(crate) repeats_posts: bool,
    /// The number of pages whose requests may act twice, and are not sent again.
    pub(crate) unrepeated: AtomicU64,
}

impl Again {
    /// Returns the metadata with which a finished page is queued again, or `None` if it is not.
    /// `page` is the page as it is given now.
    pub(super) fn metadata(&self, status: &PageStatus, page: &ValidPage) -> Option<Vec<u8>> {
        let (note, stored) = Note::split(&status.metadata);
        let is_recent = self.before.is_some() && status.visited > self.before;
        if note.run >= self.run || is_recent {
            return None;
        }
        let request = PageRequest::read(stored);
        if request.is_some_and(|it| !it.method().is_idempotent()) && !self.repeats_posts {
            self.unrepeated.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(note.join(&page.metadata))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use politely::core::key::Key;
    use url::Url;

    fn status(note: &Note, given: &[u8], visited_ms: u64) -> PageStatus {
        PageStatus {
            url: "http://a/".to_owned(),
            domain: String::new(),
            added: Date::EPOCH,
            leased: None,
            visited: Date::from_millis(visited_ms),
            status: Some(200),
            again: None,
            metadata: note.join(given),
        }
    }

    fn page(given: &[u8]) -> ValidPage {
        let url = Url::parse("http://a/").unwrap();
        let key = Key::of_url(&url).unwrap();
        ValidPage::of_url(url, key, given.to_vec()).unwrap()
    }

    #[test]
    fn a_page_of_an_earlier_run_keeps_its_note_and_takes_the_text_of_now() {
        let again = Again {
            run: 3,
            ..Again::default()
        };
        let note = |run| Note {
            run,
            failure: Some("404".into()),
            ..Note::default()
        };
        let queued = again.metadata(&status(&note(2), b"before", 9), &page(b"now"));
        let queued = queued.expect("of an earlier run");
        assert_eq!(Note::split(&queued), (note(2), &b"now"[..]));
        assert_eq!(again.metadata(&status(&note(3), b"", 9), &page(b"")), None);
    }

    #[test]
    fn a_page_that_was_visited_lately_is_not_fetched_again() {
        let again = Again {
            run: 2,
            before: Date::from_millis(5),
            ..Again::default()
        };
        let is_queued = |visited_ms| {
            let status = status(&Note::default(), b"", visited_ms);
            again.metadata(&status, &page(b"")).is_some()
        };
        assert!(is_queued(4) && is_queued(5) && !is_queued(6));
    }
}
