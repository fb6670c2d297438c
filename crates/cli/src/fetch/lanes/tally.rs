//! The counts of a lane, and of the whole run.

use politely_api::wire::StatusCounts;

/// A lane's counts of pages, requests and bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) pages: u64,
    pub(crate) failed: u64,
    /// Fetched pages that are as they were at their last visit.
    pub(crate) not_modified: u64,
    /// Requests that a limit refused.
    pub(crate) refused: u64,
    /// Requests that a challenge or a block page answered.
    pub(crate) blocked: u64,
    pub(crate) requests: u64,
    pub(crate) bytes: u64,
    pub(crate) statuses: StatusCounts,
}
