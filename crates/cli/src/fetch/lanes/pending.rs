//! A request on its way through the lanes, with the data of its result line.

use std::path::{Path, PathBuf};

use http::{Method, StatusCode};
use politely::core::retry::Attempt;
use politely::redirect::method_after;
use url::Url;

use super::LaneId;
use crate::fetch::crawl::note::{Note, SavedBody, Validators};
use crate::fetch::report::last_answer::{LastAnswer, Redirect};
use crate::fetch::report::output::Row;
use crate::fetch::report::page_fields::RowOfPage;
use crate::fetch::request::PageRequest;
use crate::fetch::site::found::Found;
use crate::fetch::site::named::{Link, Named, Sitemap};

/// The purpose of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A fetch of an input URL.
    Page,
    /// A fetch of this lane's robots.txt.
    Robots(LaneId),
    /// A fetch of a page that was fetched before, to learn whether its host refuses everything.
    Proof,
}

/// The egress of the last request for a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Through {
    /// It was not sent, or its egress failed.
    #[default]
    None,
    Last(usize),
    /// A refusal may have come through this egress, so the page takes no other.
    Only(usize),
}

impl Through {
    pub(crate) fn egress(self) -> Option<usize> {
        match self {
            Self::None => None,
            Self::Last(egress) | Self::Only(egress) => Some(egress),
        }
    }

    pub(crate) fn is_only(self) -> bool {
        matches!(self, Self::Only(_))
    }

    /// Returns the value for a page that may take no other egress from now on.
    pub(crate) fn only(self) -> Self {
        self.egress().map_or(self, Self::Only)
    }
}

/// A page that was taken out of the crawl.
#[derive(Clone, Debug, Default)]
pub(crate) struct Page {
    /// The URL under which the crawl knows the page.
    pub(crate) url: Box<str>,
    /// The text of the input, if it differs from the URL.
    pub(crate) given: Option<Box<str>>,
    /// The request, if it is more than a GET of the URL.
    pub(crate) request: Option<Box<PageRequest>>,
    /// The way to the page, if no line of the input names it.
    pub(crate) named: Option<Box<Named>>,
    /// The note of the last visit, if there is one.
    pub(crate) note: Option<Box<Note>>,
}

impl Page {
    /// Returns the URL as it was given.
    pub(crate) fn given(&self) -> &str {
        match (&self.request, self.sitemap()) {
            (Some(request), _) => request.given.as_deref().unwrap_or(&request.url),
            (None, Some(sitemap)) => &sitemap.url,
            (None, None) => self.given.as_deref().unwrap_or(&self.url),
        }
    }

    /// Returns the sitemap, if it is one and no page.
    pub(crate) fn sitemap(&self) -> Option<&Sitemap> {
        match self.named.as_deref() {
            Some(Named::Sitemap(sitemap)) => Some(sitemap),
            _ => None,
        }
    }

    /// Returns how a link led to it, if one did.
    pub(crate) fn link(&self) -> Option<Link> {
        match self.named.as_deref() {
            Some(Named::Page(link)) => Some(*link),
            _ => None,
        }
    }

    /// Returns whether the page is not of the origin that the input names.
    fn is_away(&self) -> bool {
        self.named.as_ref().is_some_and(|named| named.is_away())
    }

    /// Returns the URL to request.
    pub(crate) fn address(&self) -> Option<Url> {
        let url = match (&self.request, self.sitemap()) {
            (Some(request), _) => &request.url,
            (None, Some(sitemap)) => &sitemap.url,
            (None, None) => &self.url,
        };
        // The crawl has URLs that were parsed.
        Url::parse(url).ok()
    }

    /// Returns what the crawl stores of the page beside its URL and its note.
    fn stored(&self) -> Vec<u8> {
        match (&self.request, &self.named, &self.given) {
            (Some(request), _, _) => request.stored(),
            (None, Some(named), _) => named.stored(),
            (None, None, given) => given.as_deref().unwrap_or_default().into(),
        }
    }

    /// Returns the number of a request that is not a GET without a body, or of a sitemap.
    pub(crate) fn id(&self) -> Option<u128> {
        match (&self.request, self.sitemap()) {
            (Some(request), _) => request.id(),
            (None, sitemap) => sitemap.map(Sitemap::id),
        }
    }

    fn method(&self) -> Method {
        self.request.as_ref().map_or(Method::GET, |it| it.method())
    }

    /// Returns whether the request may be sent again although the first one may have arrived.
    fn may_repeat(&self) -> bool {
        self.request.as_ref().is_none_or(|it| it.may_repeat())
    }
}

/// A request that waits, is in flight, or will be retried.
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    pub(crate) purpose: Purpose,
    /// The lane whose page it is. A redirect may lead to another lane.
    pub(crate) home: LaneId,
    pub(crate) page: Page,
    /// The target of the last redirect, or the URL of robots.txt. `None` means the page's own URL.
    pub(crate) hop: Option<Url>,
    /// The number of redirects followed so far.
    pub(crate) hops: usize,
    /// The number of requests sent.
    pub(crate) attempts: u32,
    /// The status of the last answer, if there was one.
    pub(crate) status: Option<u16>,
    /// The fields of the result line about the last answer.
    pub(crate) answer: Option<Box<LastAnswer>>,
    /// The redirects that were followed to the present URL.
    pub(crate) redirects: Vec<Redirect>,
    /// The validators of the last answer, if it was good.
    pub(crate) validators: Option<Validators>,
    /// Whether the last request was conditional.
    pub(crate) is_conditional: bool,
    /// The number of requests answered with a refusal (429 and the like).
    pub(crate) refused: u32,
    /// Whether its first refusal held the host, and it does not wait yet.
    pub(crate) blames_host: bool,
    /// The next attempt at the present hop, or of the whole page once it began again.
    pub(crate) attempt: Attempt,
    /// The lane where it failed last.
    pub(crate) failed_at: LaneId,
    /// Whether a redirect on the way is temporary, so the page's own URL stays its address (RFC
    /// 9110, 15.4.3).
    is_temporary: bool,
    /// Whether a redirect made it a GET without a body.
    pub(crate) is_rewritten: bool,
    /// Whether a link or a redirect led it out of the origin of the input.
    pub(crate) is_away: bool,
    /// Whether the page began again at its own URL. Its failures then count together.
    began_again: bool,
    pub(crate) through: Through,
    /// The last failure, in words.
    pub(crate) trouble: Option<Box<str>>,
    /// Time at the head of the queue without a permit, in microseconds.
    pub(crate) waited_us: u64,
    /// The pages that its answer names.
    pub(crate) found: Option<Box<Found>>,
}

impl Pending {
    pub(crate) fn page(home: LaneId, page: Page) -> Self {
        Self {
            purpose: Purpose::Page,
            home,
            hop: None,
            hops: 0,
            attempts: 0,
            status: None,
            answer: None,
            redirects: Vec::new(),
            validators: None,
            is_conditional: false,
            refused: 0,
            blames_host: false,
            attempt: Attempt::first(page.method()),
            is_away: page.is_away(),
            page,
            failed_at: home,
            is_temporary: false,
            is_rewritten: false,
            began_again: false,
            through: Through::default(),
            trouble: None,
            waited_us: 0,
            found: None,
        }
    }

    /// Returns the request for the robots.txt of `lane`, whose origin is `origin`.
    pub(crate) fn robots(lane: LaneId, origin: &str) -> Self {
        // An origin comes from a parsed URL, so this URL parses.
        let hop = Url::parse(&format!("{origin}/robots.txt")).ok();
        Self {
            purpose: Purpose::Robots(lane),
            hop,
            ..Self::page(lane, Page::default())
        }
    }

    /// Returns the request that proves whether a host still serves `url`.
    pub(crate) fn proof(lane: LaneId, url: &str) -> Self {
        Self {
            purpose: Purpose::Proof,
            hop: Url::parse(url).ok(),
            ..Self::page(lane, Page::default())
        }
    }

    /// Returns the URL to request.
    pub(crate) fn url(&self) -> Option<Url> {
        match &self.hop {
            Some(hop) => Some(hop.clone()),
            None => self.page.address(),
        }
    }

    /// Returns whether the request never failed at its present hop.
    pub(crate) fn is_untried(&self) -> bool {
        self.attempt.failures.is_empty() && self.attempt.number == 1
    }

    /// Returns the method of the next request.
    pub(crate) fn method(&self) -> Method {
        match self.page.method() {
            method if self.is_rewritten && method != Method::HEAD => Method::GET,
            method => method,
        }
    }

    /// Returns whether the next request may be sent again although it may have arrived.
    pub(crate) fn may_repeat(&self) -> bool {
        self.is_rewritten || self.page.may_repeat()
    }

    /// Returns whether it is a page that never failed at its present hop.
    pub(crate) fn is_untried_page(&self) -> bool {
        self.purpose == Purpose::Page && self.is_untried()
    }

    /// Returns whether it is a plain GET of a page, so that its URL can be a proof later.
    pub(crate) fn is_plain_page(&self) -> bool {
        let is_plain = self.page.request.is_none() && self.page.sitemap().is_none();
        self.purpose == Purpose::Page && is_plain
    }

    /// Returns the number of a page's request that must not be sent twice.
    pub(crate) fn once_id(&self) -> Option<u128> {
        let request = self.page.request.as_ref().filter(|it| !it.may_repeat());
        request.and_then(|request| request.id())
    }

    /// Returns whether it is a GET of a page without a body, maybe with fields of its own.
    pub(crate) fn is_plain_get(&self) -> bool {
        self.purpose == Purpose::Page && self.page.id().is_none()
    }

    /// Returns the validators of the page's last visit, if its next request can be conditional.
    pub(crate) fn known_validators(&self) -> Option<&Validators> {
        let note = self.page.note.as_ref().filter(|_| self.is_plain_get());
        note.and_then(|note| note.validators.as_ref())
    }

    /// Returns the file below `dir` that has the body of the page's last visit.
    pub(crate) fn saved_before(&self, dir: &Path) -> Option<PathBuf> {
        let saved = self.known_validators()?.saved()?;
        Some(dir.join(saved))
    }

    /// Returns whether the last answer says that the page is as it was at its last visit.
    pub(crate) fn is_unmodified(&self) -> bool {
        self.is_conditional && self.status == Some(304)
    }

    /// Returns the metadata of the page after it ended in run `run`, with `error` if it failed, or
    /// `None` if it stays as it is. `saved` is the file of its body.
    pub(crate) fn metadata(
        &self,
        run: u32,
        error: Option<&str>,
        saved: Option<SavedBody>,
    ) -> Option<Vec<u8>> {
        let before = self.page.note.as_deref().cloned().unwrap_or_default();
        let validators = match &self.validators {
            // The last good answer is still the page that a user has.
            _ if error.is_some() || self.is_unmodified() => before.validators.clone(),
            found => found.clone().map(|found| found.saved_as(saved)),
        };
        let note = Note {
            run,
            failure: error.map(Note::reason),
            validators,
        };
        (note != before).then(|| note.join(&self.page.stored()))
    }

    /// Continues at `to`, the target of a redirect with `status`.
    pub(crate) fn go_on(&mut self, to: Url, status: Option<u16>) {
        let from = self.url();
        self.is_away |= from
            .as_ref()
            .is_none_or(|from| from.origin() != to.origin());
        let after = status.and_then(|status| StatusCode::from_u16(status).ok());
        let after = after.and_then(|status| method_after(status, &self.method()));
        self.is_rewritten |= after.is_some_and(|method| method != self.method());
        if let Some(from) = from {
            self.redirects
                .push(Redirect::of(&from, status.unwrap_or_default()));
        }
        self.hop = Some(to);
        self.hops += 1;
        // Its own URL is not requested twice if that might act twice.
        self.is_temporary |= !matches!(status, Some(301 | 308)) && self.page.may_repeat();
        if !self.began_again {
            self.attempt = Attempt::first(self.method());
        }
    }

    /// Returns whether the present URL is the page's own, or where its redirects lead for good.
    pub(crate) const fn is_at_lasting_url(&self) -> bool {
        !self.is_temporary
    }

    /// Returns whether the next try is at the page's own URL, and not at the target of a redirect.
    pub(crate) fn begins_again(&self) -> bool {
        self.purpose == Purpose::Page && self.hop.is_some() && self.is_temporary
    }

    /// Begins again at the page's own URL.
    pub(crate) fn restart(&mut self) {
        self.hop = None;
        self.hops = 0;
        self.redirects.clear();
        self.is_temporary = false;
        self.is_rewritten = false;
        self.is_away = self.page.is_away();
        self.began_again = true;
        self.blames_host = false;
    }
}

impl Pending {
    /// Returns the result line of a page that ends without a further request.
    pub(crate) fn row<'a>(&'a self, key: &'a str, why: &'a str) -> Row<'a> {
        Row {
            url: self.page.given(),
            key,
            status: self.status,
            attempts: self.attempts,
            refused: self.refused,
            wait_ms: self.waited_us / 1000,
            error: Some(why),
            page: RowOfPage::of(&self.page),
            answer: self.answer.as_deref(),
            ..Row::default()
        }
    }
}
