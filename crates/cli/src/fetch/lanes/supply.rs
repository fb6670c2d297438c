//! Pages come out of the crawl into their lanes, and those of a lane that is set aside leave it.

use std::sync::Arc;

use politely::core::Timestamp;
use url::Url;

use super::lane::Awaited;
use super::pending::{Page, Pending};
use super::{LaneId, Lanes};
use crate::fetch::crawl::origin_of;
use crate::fetch::robots::Rules;

impl Lanes {
    /// Returns the rules of the origin of `url`, if they are known.
    pub(crate) fn rules_of(&self, url: &Url) -> Option<Arc<Rules>> {
        let id = self.by_origin.get(&*origin_of(url))?;
        self.all[*id as usize].robots.rules().map(Arc::clone)
    }

    /// Returns the number of pages of the origin of `url` that were ever added.
    pub(crate) fn pages_added(&self, url: &Url) -> u64 {
        let id = self.by_origin.get(&*origin_of(url));
        id.map_or(0, |id| self.all[*id as usize].added)
    }

    /// Returns the origin of a lane, and how many of its pages to take, at most `most`.
    pub(crate) fn fill_len(&mut self, id: LaneId, most: u32, now: Timestamp) -> (Arc<str>, u32) {
        let lane = &mut self.all[id as usize];
        lane.awaits = Some(Awaited::Pages);
        (Arc::clone(&lane.origin), lane.unit.next_len(now, most))
    }

    /// Gives lane `id` the next of its pages. Returns `false` if pages are missing.
    pub(crate) fn filled(&mut self, id: LaneId, pages: Vec<Page>, now: Timestamp) -> bool {
        let lane = &mut self.all[id as usize];
        lane.awaits = None;
        let is_missing = pages.is_empty() && lane.backlog > 0;
        lane.backlog = lane.backlog.saturating_sub(pages.len() as u32);
        lane.fresh.extend(pages);
        self.schedule(id, now);
        !is_missing
    }

    /// Takes out the first page of lane `id`, whose permit is granted already. Returns the reason
    /// too if the page must not leave.
    pub(crate) fn leave_filled(
        &mut self,
        id: LaneId,
        now: Timestamp,
    ) -> Option<(Box<Pending>, Option<String>)> {
        if let Some(why) = self.ends_unsent(id, now) {
            let pending = self.pull(id, now)?;
            self.schedule(id, now);
            return Some((pending, Some(why)));
        }
        let pending = self.all[id as usize].pull_page(id, now)?;
        Some((self.depart(id, pending, now), None))
    }

    /// Returns the first lane from `from` on that is set aside with pages, and the reason.
    pub(crate) fn set_aside(&self, from: LaneId) -> Option<(LaneId, &str)> {
        let mut lanes = self.all.iter().enumerate().skip(from as usize);
        lanes.find_map(|(id, lane)| {
            let why = lane.set_aside.as_deref().filter(|_| lane.has_pages())?;
            Some((id as LaneId, why))
        })
    }

    /// Takes one page out of lane `id`, whose pages are not fetched any more. Returns `None` if the
    /// next page must be taken out of the crawl first, or none is left.
    pub(crate) fn drain_any(&mut self, id: LaneId, now: Timestamp) -> Option<Box<Pending>> {
        self.release(id, now);
        self.pull(id, Timestamp::NEVER)
    }

    /// Takes one page out of lane `id`, which is set aside. Returns `None` if the next page must be
    /// taken out of the crawl first.
    pub(crate) fn drain(&mut self, id: LaneId) -> Option<Box<Pending>> {
        let pending = self.pull(id, Timestamp::NEVER)?;
        self.aside -= 1;
        Some(pending)
    }
}
