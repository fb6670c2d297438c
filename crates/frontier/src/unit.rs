//! A unit of work: a domain with some of its pages, owned by one worker for a time.

use std::fmt;
use std::time::Duration;

use crate::{CrawlName, Date, NewPage, Priority};

/// The fencing token of a unit of work.
///
/// A later unit always has a higher token, also after a restart. A word under a token whose unit
/// has ended is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A wish for a unit of work.
#[derive(Clone, Debug)]
pub struct Take {
    /// The crawl. `None` means any crawl; the crawls then take turns.
    pub crawl: Option<CrawlName>,
    /// The most pages in the unit. 0 counts as 1.
    pub pages_max: u32,
    /// The length of the lease, at most [`Settings::lease_max`](crate::Settings::lease_max).
    pub lease: Duration,
    /// Whether other pages of the domain may be handed out while this unit lives. The pages alone
    /// are then leased, and the unit does not count as an owner of the domain.
    pub shares_domain: bool,
}

/// A unit of work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// The name under which the owner speaks about this unit.
    pub token: Token,
    /// The crawl.
    pub crawl: CrawlName,
    /// The domain, as the text of a key.
    pub domain: String,
    /// The length of the lease, from the moment of the call on.
    pub lease: Duration,
    /// The pages, in the order of their priority.
    pub pages: Vec<TakenPage>,
}

/// A page of a unit of work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakenPage {
    /// The canonical URL.
    pub url: String,
    /// The page's priority.
    pub priority: Priority,
    /// Data of the caller that added the page.
    pub metadata: Vec<u8>,
    /// Attempts that failed since the last visit that did not.
    pub attempts: u16,
    /// How many of these attempts did not count: the host refused them, or was down.
    pub free: u16,
}

/// Everything that an owner says about its unit.
#[derive(Clone, Debug)]
pub struct GiveBack {
    /// The unit.
    pub token: Token,
    /// What happened to pages of the unit. Each page occurs at most once.
    pub outcomes: Vec<PageOutcome>,
    /// Pages that were found. They are added to the crawl of the unit.
    pub found: Vec<NewPage>,
    /// Whether the owner keeps the pages without an outcome. Otherwise they return to the queue.
    pub keep: bool,
    /// The time for which the domain is not handed out, beside the spacing. A limiter knows it.
    pub pause: Duration,
}

impl GiveBack {
    /// Creates the words of an owner that returns all pages.
    pub fn of_token(token: Token) -> Self {
        Self {
            token,
            outcomes: Vec::new(),
            found: Vec::new(),
            keep: false,
            pause: Duration::ZERO,
        }
    }
}

/// What happened to a page of a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageOutcome {
    /// The page.
    pub url: String,
    /// The status of the response, 0 for none.
    pub status: u16,
    /// What becomes of the page.
    pub next: Next,
}

/// What becomes of a page after a visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The page is never handed out again.
    Never,
    /// The page is handed out again from this date on.
    At(Date),
    /// The attempt failed. The page is handed out again from this date on.
    Retry {
        /// The date.
        at: Date,
        /// Whether the attempt does not count: the host refused it, or is down.
        is_free: bool,
    },
    /// The page was not visited. It is handed out again in its old place.
    Unvisited,
}

/// A confirmation of [`GiveBack`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// One answer for each found page, in order.
    pub answers: Vec<crate::Answer>,
    /// Pages that the owner still has.
    pub kept: u32,
}
