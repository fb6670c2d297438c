//! Why a call of the frontier failed.

use crate::{CrawlName, Invalid, StoreError, Token};

/// Why a call of the frontier failed. Nothing changed, unless the storage failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum FrontierError {
    /// The unit has ended, was never handed out, or its crawl or domain was deleted.
    #[error("the unit {0} has ended; drop its pages and take another unit")]
    Stale(Token),
    /// No page was ever added to this crawl.
    #[error("no crawl is named \"{0}\"; add a page to it first")]
    UnknownCrawl(CrawlName),
    /// The crawl has no page of this domain.
    #[error("the crawl \"{0}\" has no domain \"{1}\"")]
    UnknownDomain(CrawlName, String),
    /// The frontier holds as many crawls as it may.
    #[error("there are {0} crawls already; delete one before adding \"{1}\"")]
    TooManyCrawls(usize, CrawlName),
    /// There are as many units of work as there may be.
    #[error("there are {0} units of work already; give some back first")]
    TooManyUnits(usize),
    /// The call has too many pages.
    #[error("the call has {0} pages; at most {1} are accepted, so send several calls")]
    TooManyPages(usize, usize),
    /// An outcome is about a page that is not in the unit, or the second about one page.
    #[error("the unit {0} has no page \"{1}\" without an outcome")]
    NotInUnit(Token, String),
    /// An outcome's URL is not valid.
    #[error("the URL of an outcome is not valid: {0}")]
    Invalid(#[from] Invalid),
    /// The storage failed. It is in doubt whether the last change is stored. The frontier refuses
    /// every call until [`Frontier::recover`](crate::Frontier::recover) succeeds.
    #[error("the storage of the frontier failed: {0}; repair it or free some space")]
    Store(#[from] StoreError),
    /// A server of a shared frontier does not answer. The call may have been carried out, and may
    /// be repeated.
    #[error("the engine of the frontier does not answer: {0}; repeat the call later")]
    Unavailable(String),
    /// A frontier that coordinators share does not have this call.
    #[error("a shared frontier cannot {0}")]
    NotShared(&'static str),
    /// The storage failed at an earlier call.
    #[error("the storage of the frontier failed before: {0}; repair it or free some space")]
    Closed(StoreError),
}
