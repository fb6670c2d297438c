//! A crawl as the schedule knows it.

use std::collections::BTreeSet;

use politely_core::Timestamp;

use crate::rows::DomainId;
use crate::{Counts, CrawlName};

/// A crawl: its domains that may be handed out now, by rank, and its share of the work.
#[derive(Debug)]
pub(crate) struct Crawl {
    pub(crate) name: CrawlName,
    pub(crate) is_paused: bool,
    pub(crate) counts: Counts,
    /// Pages handed out. The crawl with the lowest number is next.
    pub(super) served: u64,
    pub(super) runnable: BTreeSet<(Timestamp, DomainId)>,
}

impl Crawl {
    pub(crate) const fn new(name: CrawlName, is_paused: bool) -> Self {
        Self {
            name,
            is_paused,
            counts: Counts::ZERO,
            served: 0,
            runnable: BTreeSet::new(),
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        !self.is_paused && !self.runnable.is_empty()
    }
}
