//! Pages whose answers may be refusals that nobody listed, and the proof that tells.
//!
//! Core says whether a host is in doubt (`core/src/host/suspicion.rs`). A lane keeps the pages that
//! got such answers until the doubt is over. If they were refusals, the pages are requested again;
//! otherwise the answers were theirs. The proof is a request for a page that was served before.

use std::path::PathBuf;

use politely::core::Timestamp;
use politely::core::host::Doubt;
use politely::core::signal::Alike;
use url::Url;

use super::pending::Pending;
use super::sample::Sample;
use super::{LaneId, Lanes, Refused};

/// A page whose answer may be a refusal, with its result in case it is none.
pub(crate) struct Kept {
    pub(crate) pending: Box<Pending>,
    /// What its answer shares with others.
    pub(crate) alike: u32,
    pub(crate) bytes: u64,
    pub(crate) latency_ms: u64,
    pub(crate) saved: Option<PathBuf>,
    pub(crate) error: Option<String>,
    /// Where its answer leads, and the lane of that.
    pub(crate) onward: Option<(LaneId, Url)>,
}

/// What a lane knows about its host's answers.
#[derive(Default)]
pub(crate) struct Doubts {
    /// A page that the host served before, without a redirect.
    pub(super) served: Option<Box<str>>,
    /// The texts of the first page, and of the last one, if they were short.
    first: Option<u32>,
    last: Option<u32>,
    /// The target of the last redirect.
    target: Option<u32>,
    pub(super) pages: Vec<Kept>,
    /// What core said last.
    doubt: Doubt,
}

/// What an answer looks like beside others of its host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Look {
    /// Like a page.
    #[default]
    Page,
    /// A short page unlike the first one, or a redirect. The next answer tells whether it is a
    /// refusal.
    New(u32),
    /// Like others that may be refusals. The number is what they share.
    Odd(u32),
}

impl Look {
    /// Returns what the answer shares with others that may be refusals.
    pub(crate) const fn alike(self) -> Alike {
        match self {
            Self::Odd(alike) => Alike::Of(alike),
            Self::Page | Self::New(_) => Alike::Nothing,
        }
    }
}

impl Doubts {
    /// Returns whether the next request is for a page that was served before.
    pub(super) fn wants_proof(&self) -> bool {
        self.doubt == Doubt::Suspected && self.served.is_some()
    }

    /// Returns the look of an answer to a page.
    fn look(&mut self, sample: Sample) -> Look {
        let has_served = self.served.is_some();
        let alike = sample.alike();
        match sample {
            // A host that never served a page is no host that changed.
            Sample::Status(400..) if has_served => Look::Odd(alike),
            Sample::Target(target) if has_served => match self.target.replace(target) {
                Some(last) if last == target => Look::Odd(alike),
                _ => Look::New(alike),
            },
            Sample::Status(_) | Sample::Target(_) => Look::Page,
            Sample::Text(text) => {
                let last = self.last.replace(text);
                if *self.first.get_or_insert(text) == text || !has_served {
                    Look::Page
                } else if last == Some(text) {
                    Look::Odd(alike)
                } else {
                    Look::New(alike)
                }
            }
        }
    }

    /// Returns the look of the answer to a page that was served before.
    fn look_of_proof(&self, sample: Sample) -> Look {
        match sample {
            Sample::Target(target) if self.target != Some(target) => Look::Page,
            Sample::Text(text) if self.last != Some(text) || self.first == Some(text) => Look::Page,
            _ => Look::Odd(sample.alike()),
        }
    }
}

impl Lanes {
    /// Returns the look of an answer to a request of lane `id`.
    pub(crate) fn look(&mut self, id: LaneId, sample: Sample, is_proof: bool) -> Look {
        let doubts = &mut self.all[id as usize].doubts;
        if is_proof {
            doubts.look_of_proof(sample)
        } else {
            doubts.look(sample)
        }
    }

    /// Records a page that lane `id` served without a redirect.
    pub(crate) fn served_page(&mut self, id: LaneId, url: &str) {
        let served = &mut self.all[id as usize].doubts.served;
        if served.is_none() {
            *served = Some(url.into());
        }
    }

    /// Keeps a page of lane `id` until the doubt about its answer is over.
    pub(crate) fn keep(&mut self, id: LaneId, page: Kept, now: Timestamp) {
        let lane = &mut self.all[id as usize];
        if lane.set_aside.is_some() {
            return self.begin_again(page.pending, now);
        }
        lane.doubts.pages.push(page);
        self.waiting += 1;
    }

    /// Handles what a report about lane `id`, with an answer that looks like `look`, says about its
    /// host.
    pub(crate) fn doubt(&mut self, id: LaneId, doubt: Doubt, look: Look, now: Timestamp) {
        let is_doubted = matches!(doubt, Doubt::Unclear | Doubt::Suspected);
        if is_doubted && let Look::Odd(alike) = look {
            // Another kind of answer began, so the kept ones were theirs.
            self.finish_kept(id, now, |kept| kept.alike != alike);
        }
        let lane = &mut self.all[id as usize];
        lane.doubts.doubt = doubt;
        match doubt {
            Doubt::Unclear | Doubt::Suspected => {}
            Doubt::Checking => {
                if !lane.doubts.pages.is_empty() {
                    let page = lane.doubts.pages.remove(0).pending;
                    lane.put_redirected(page);
                }
            }
            Doubt::Limited => self.release(id, now),
            Doubt::None => self.finish_kept(id, now, |_| true),
        }
    }

    /// Ends the pages that are kept if lane `id` has nothing left that could tell.
    pub(super) fn settle_kept(&mut self, id: LaneId, now: Timestamp) {
        let lane = &self.all[id as usize];
        let is_over = lane.is_empty() && lane.in_flight == 0;
        if is_over && !lane.doubts.wants_proof() {
            self.finish_kept(id, now, |_| true);
        }
    }

    /// Ends kept pages with their answers, or continues where these lead.
    fn finish_kept(&mut self, id: LaneId, now: Timestamp, which: impl Fn(&Kept) -> bool) {
        let pages = &mut self.all[id as usize].doubts.pages;
        let pages: Vec<Kept> = pages.extract_if(.., |kept| which(kept)).collect();
        for mut page in pages {
            if let Some((lane, to)) = page.onward.take() {
                let status = page.pending.status;
                page.pending.go_on(to, status);
                self.waiting -= 1;
                self.put_redirected(lane, page.pending, now);
            } else {
                self.finished.push((id, page));
            }
        }
    }

    /// Puts the pages that lane `id` keeps back among those that wait.
    pub(super) fn release(&mut self, id: LaneId, now: Timestamp) {
        for page in std::mem::take(&mut self.all[id as usize].doubts.pages) {
            self.waiting -= 1;
            self.begin_again(page.pending, now);
        }
    }

    /// Puts a page back that begins again at its own URL.
    fn begin_again(&mut self, mut page: Box<Pending>, now: Timestamp) {
        page.restart();
        self.put_back(page.home, page, now, now);
    }

    /// Sets lane `id` aside, because its host refuses everything.
    pub(crate) fn block(&mut self, id: LaneId, why: String, now: Timestamp) {
        if self.all[id as usize].set_aside.is_none() {
            self.refused(id, Refused::SetAside(why), now);
        }
    }
}
