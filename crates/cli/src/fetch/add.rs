//! Adds pages to the crawl: those of the input, and those that answers name.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{MutexGuard, PoisonError};

use politely_frontier::{Answer, ValidPage};
use url::Url;

use super::crawl::Crawl;
use super::engine::Engine;
use super::lanes::pending::Pending;
use super::lanes::{LaneId, Lanes};
use super::report::talk::Talk;
use super::site::found::Found;

/// The pages that are added in one call. A batch is long enough to be cheap and short enough that
/// no worker waits long.
pub(crate) const BATCH: usize = 500;

/// The number of URLs that are left out, in each place where they are met.
#[derive(Debug, Default)]
pub(crate) struct LeftOut {
    pub(crate) patterns: AtomicU64,
    robots: AtomicU64,
    hosts: AtomicU64,
}

impl LeftOut {
    pub(crate) fn tell(&self, talk: &Talk) {
        for (count, why) in [
            (&self.patterns, "by --include or --exclude"),
            (&self.robots, "by robots.txt"),
            (&self.hosts, "by --pages-per-host"),
        ] {
            let count = count.load(Ordering::Relaxed);
            if count > 0 {
                talk.say(&format!("{count} URLs are left out {why}"));
            }
        }
    }
}

/// The result of adding pages.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Added {
    /// The number of pages that the crawl had before.
    pub(crate) known: u64,
    pub(crate) new: u64,
    /// Whether the crawl is full.
    pub(crate) is_full: bool,
}

impl Engine {
    /// Adds at most [`BATCH`] pages, and no more than `--max-pages` lets. Returns how many were
    /// looked at.
    pub(crate) fn add(&self, urls: &[Url], pages: &[ValidPage]) -> Result<(usize, Added), String> {
        self.add_within(&mut self.pages_taken(), (urls, pages))
    }

    /// Adds pages while `taken` of the run are counted.
    fn add_within(
        &self,
        taken: &mut u64,
        (urls, pages): (&[Url], &[ValidPage]),
    ) -> Result<(usize, Added), String> {
        let most = self.settings.bounds.pages_max.unwrap_or(u64::MAX);
        let len = most.saturating_sub(*taken).min(BATCH as u64);
        let len = pages.len().min(len as usize);
        let added = self.put(&urls[..len], &pages[..len])?;
        *taken += added.new;
        Ok((len, added))
    }

    /// Locks the number of new pages of the run.
    fn pages_taken(&self) -> MutexGuard<'_, u64> {
        self.pages_new
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how many new pages `--max-pages` still lets.
    pub(crate) fn room_for_pages(&self) -> u64 {
        let taken = *self.pages_taken();
        let most = self.settings.bounds.pages_max.unwrap_or(u64::MAX);
        most.saturating_sub(taken)
    }

    /// Adds pages, and wakes their lanes.
    fn put(&self, urls: &[Url], pages: &[ValidPage]) -> Result<Added, String> {
        let mut added = Added::default();
        let mut count = |answers: &[Answer]| {
            let of = |wanted: &Answer| answers.iter().filter(|answer| *answer == wanted).count();
            added = Added {
                known: of(&Answer::Known) as u64,
                new: of(&Answer::New) as u64,
                is_full: of(&Answer::Full) > 0,
            };
        };
        let is_new = |answer: &Answer| *answer == Answer::New;
        let put = match &self.crawl {
            Crawl::Kept(kept) => kept.put(pages, |answers| {
                count(&answers);
                let added = urls.iter().zip(&answers);
                let added = added.filter(|(_, answer)| is_new(answer));
                self.enqueue(added.map(|(url, _)| (url, 1)));
            }),
            Crawl::Vanishing(vanishing) => {
                let lanes = self.lanes_of(urls);
                let given = lanes.iter().copied().zip(pages);
                vanishing.put(given, |answers| {
                    count(&answers);
                    let mut shared = self.lock();
                    let now = self.limits.now();
                    let added = lanes.iter().zip(&answers);
                    for (lane, _) in added.filter(|(_, answer)| is_new(answer)) {
                        shared.lanes.add(*lane, 1, now);
                    }
                })
            }
        };
        self.look_again();
        put.map(|()| added)
    }

    /// Adds the pages that the answer to `pending` names.
    pub(crate) fn add_found(&self, pending: &mut Pending) -> Result<(), String> {
        let Some(found) = pending.found.take() else {
            return Ok(());
        };
        // A sitemap has up to 50,000 pages, and each batch is a commit.
        let add = || {
            self.add_sitemaps(&found.sitemaps)?;
            self.add_pages(&found)
        };
        let added = if found.pages.len() > BATCH {
            tokio::task::block_in_place(add)
        } else {
            add()
        };
        match added {
            Ok(()) => {
                let patterns = &self.left_out.patterns;
                patterns.fetch_add(found.left_out, Ordering::Relaxed);
            }
            Err(_) => pending.found = Some(found),
        }
        added
    }

    /// Adds the pages of each host, up to `--pages-per-host`.
    fn add_pages(&self, found: &Found) -> Result<(), String> {
        let mut by_host: BTreeMap<&str, (Vec<Url>, Vec<ValidPage>)> = BTreeMap::new();
        let (mut forbidden, mut beyond) = (0, 0);
        for (url, page) in found.urls.iter().zip(&found.pages) {
            let (urls, pages) = by_host.entry(page.key.as_str()).or_default();
            urls.push(url.clone());
            pages.push(page.clone());
        }
        for (urls, pages) in by_host.values_mut() {
            forbidden += self.leave_out_forbidden(urls, pages);
            let mut done = 0;
            while done < pages.len() {
                let mut taken = self.pages_taken();
                let room = self.room_at_host(&urls[0], &pages[0])?;
                if room == 0 {
                    beyond += (pages.len() - done) as u64;
                    break;
                }
                let end = pages.len().min(done.saturating_add(room));
                let new = (&urls[done..end], &pages[done..end]);
                let (len, added) = self.add_within(&mut taken, new)?;
                if len == 0 {
                    self.say_full();
                    return Ok(());
                }
                if added.is_full {
                    return Err("the crawl has 4 billion pages or hosts".to_owned());
                }
                done += len;
            }
        }
        self.left_out.robots.fetch_add(forbidden, Ordering::Relaxed);
        self.left_out.hosts.fetch_add(beyond, Ordering::Relaxed);
        Ok(())
    }

    /// Leaves out the pages of one origin that its robots.txt forbids, if that is known. Returns
    /// their number.
    fn leave_out_forbidden(&self, urls: &mut Vec<Url>, pages: &mut Vec<ValidPage>) -> u64 {
        let rules = self.lock().lanes.rules_of(&urls[0]);
        let Some(rules) = rules.filter(|rules| rules.has_any()) else {
            return 0;
        };
        let is_allowed: Vec<bool> = urls
            .iter()
            .map(|url| rules.forbids(url).is_none())
            .collect();
        let (mut of_url, mut of_page) = (is_allowed.iter(), is_allowed.iter());
        urls.retain(|_| of_url.next() == Some(&true));
        pages.retain(|_| of_page.next() == Some(&true));
        is_allowed.iter().filter(|is_allowed| !**is_allowed).count() as u64
    }

    /// Returns how many further pages of the host of `url` may be found.
    fn room_at_host(&self, url: &Url, page: &ValidPage) -> Result<usize, String> {
        let count = match &self.crawl {
            Crawl::Kept(kept) => kept.pages_of(page.key.as_str())?,
            Crawl::Vanishing(_) => self.lock().lanes.pages_added(url),
        };
        let most = u64::from(self.settings.site.pages_per_host_max);
        Ok(usize::try_from(most.saturating_sub(count)).unwrap_or(usize::MAX))
    }

    /// Adds sitemaps, which `--max-pages` does not count.
    pub(crate) fn add_sitemaps(&self, sitemaps: &[(Url, ValidPage)]) -> Result<(), String> {
        for batch in sitemaps.chunks(BATCH) {
            let (urls, pages): (Vec<Url>, Vec<ValidPage>) = batch.iter().cloned().unzip();
            self.put(&urls, &pages)?;
        }
        Ok(())
    }

    /// Says once that `--max-pages` is reached.
    fn say_full(&self) {
        if !self.is_full.swap(true, Ordering::Relaxed) {
            let most = self.settings.bounds.pages_max.unwrap_or_default();
            self.talk.say(&format!(
                "--max-pages: {most} pages are taken; what else the site names is left out"
            ));
        }
    }

    /// Counts pages that are in the crawl now in the lanes of their origins.
    pub(crate) fn enqueue<'a>(&self, pages: impl Iterator<Item = (&'a Url, u32)>) {
        let mut shared = self.lock();
        let now = self.limits.now();
        for (url, count) in pages {
            let lane = self.lane_of(&mut shared.lanes, url);
            shared.lanes.add(lane, count, now);
        }
        self.set_hosts(shared.lanes.all().len());
    }

    /// Returns the lanes of URLs.
    fn lanes_of(&self, urls: &[Url]) -> Vec<LaneId> {
        let mut shared = self.lock();
        let lanes = urls.iter().map(|url| self.lane_of(&mut shared.lanes, url));
        let lanes = lanes.collect();
        self.set_hosts(shared.lanes.all().len());
        lanes
    }

    fn lane_of(&self, lanes: &mut Lanes, url: &Url) -> LaneId {
        // A lane without keys gets its host's key when it is resolved.
        let keys = || self.limits.keys(url).unwrap_or_default();
        let (lane, is_new) = lanes.lane_of(url, keys);
        if is_new {
            self.introduce(lanes.lane_mut(lane));
        }
        lane
    }
}
