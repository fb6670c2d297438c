//! A domain as the schedule knows it.

use std::time::Duration;

use politely_core::Timestamp;

use crate::Date;
use crate::page::Priority;
use crate::rows::{CrawlId, QueueId};

/// A domain as the schedule knows it: no names, no pages. There may be millions in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Domain {
    /// The place in the schedule. [`super::Schedule`] alone changes it.
    pub(super) place: Place,
    /// The domain is not handed out before this time.
    pub(crate) next: Timestamp,
    /// When its pages were last handed out; zero if never since the frontier was opened.
    pub(crate) taken: Timestamp,
    /// The date of the first page that waits for one. It has a meaning only if `dated` is not 0.
    pub(crate) dated_first: Date,
    pub(crate) crawl: CrawlId,
    pub(crate) queue: QueueId,
    /// Pages that were ever accepted.
    pub(crate) pages: u32,
    /// Pages that wait for no date, with the leased ones.
    pub(crate) ready: u32,
    /// Pages that wait for a date.
    pub(crate) dated: u32,
    /// Pages in live units.
    pub(crate) leased: u32,
    /// The highest priority of a page that waits for no date.
    pub(crate) priority: Priority,
    pub(crate) owners: u8,
}

impl Domain {
    pub(crate) const fn new(crawl: CrawlId, queue: QueueId) -> Self {
        Self {
            place: Place::Idle,
            next: Timestamp::ZERO,
            taken: Timestamp::ZERO,
            dated_first: Date::EPOCH,
            crawl,
            queue,
            pages: 0,
            ready: 0,
            dated: 0,
            leased: 0,
            priority: Priority::MIN,
            owners: 0,
        }
    }

    /// Counts a page that may be handed out.
    pub(crate) fn add_ready(&mut self, priority: Priority) {
        self.ready += 1;
        self.priority = self.priority.max(priority);
    }

    /// Counts a page that waits for a date.
    pub(crate) fn add_dated(&mut self, due: Date) {
        let is_first = self.dated == 0 || due < self.dated_first;
        if is_first {
            self.dated_first = due;
        }
        self.dated += 1;
    }

    /// Returns the pages that are neither queued nor leased.
    pub(crate) const fn finished(&self) -> u32 {
        self.pages
            .saturating_sub(self.ready)
            .saturating_sub(self.dated)
    }

    /// Ends one owner's claim. The domain then pauses.
    pub(crate) fn end_owner(&mut self, pause_ends: Timestamp) {
        self.owners = self.owners.saturating_sub(1);
        self.next = self.next.max(pause_ends);
    }

    /// Returns the time from which on the domain may be handed out, if nothing else keeps it.
    pub(crate) fn may_leave(&self, orders: &Orders) -> Timestamp {
        match self.taken {
            Timestamp::ZERO => self.next,
            taken => self.next.max(taken + orders.delay),
        }
    }
}

/// What an operator ordered for one domain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Orders {
    /// The domain is not handed out before this date.
    pub(crate) blocked_until: Date,
    /// The least time from one take to the next.
    pub(crate) delay: Duration,
    /// The number of finished pages from which on the domain is not handed out; 0 for none.
    pub(crate) finished_max: u32,
}

/// Where a domain is in the schedule. It is in one list at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In no list: no page waits, or an operator's bound is reached.
    Idle,
    /// In no list: the domain has as many owners as it may.
    Owned,
    /// In the list by date: every page waits for a date, or an operator blocked the domain.
    Asleep(Date),
    /// In the list by time: the pause after a unit.
    Waiting(Timestamp),
    /// In its crawl's list, by rank.
    Runnable(Timestamp),
}
