//! Pages whose answers may be refusals that nobody listed, and the proof that tells.
//!
//! Core says whether a host is in doubt (`core/src/host/suspicion.rs`). A lane keeps the pages that
//! got such answers until the doubt is over. If they were refusals, the pages are requested again;
//! otherwise the answers were theirs. The proof is a request for a page that was served before, and
//! every other time for a page that was not tried: the served one may be gone.

use std::collections::{HashSet, VecDeque};
use std::path::PathBuf;

use politely::core::Timestamp;
use politely::core::host::Doubt;
use politely::core::signal::{Alike, are_alike};
use serde::{Deserialize, Serialize};
use url::Url;

use super::lane::Lane;
use super::pending::Pending;
use super::sample::Sample;
use super::{LaneId, Lanes, Refused};

/// The number of short texts that are remembered of a host. A refusal may come between pages, and
/// in some forms.
const TEXTS_MAX: usize = 16;

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
    pub(super) known: Known,
    /// The target of the last redirect.
    target: Option<u32>,
    pub(super) pages: Vec<Kept>,
    /// What core said last.
    doubt: Doubt,
    /// Whether the next request to a suspected host is for a page that was not tried, and not for
    /// one that it served.
    is_pages_turn: bool,
}

/// The knowledge about a host that tells refusals from pages. A later run continues with it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Known {
    /// A page that the host served.
    pub(super) served: Option<Box<str>>,
    /// Whether that page is certain to have a URL for more than one request.
    is_lasting: bool,
    /// The text of the first page, if it was short.
    first: Option<u32>,
    /// The short texts that came last, and whether each came more than once.
    texts: VecDeque<(u32, bool)>,
    /// Whether this changed since it was stored.
    #[serde(skip)]
    is_new: bool,
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
    /// Returns the look of an answer to a page.
    fn look(&mut self, sample: Sample) -> Look {
        let has_served = self.known.served.is_some();
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
                let is_known = self.known.remember_text(text);
                if self.known.first_text(text) == text || !has_served {
                    Look::Page
                } else if is_known {
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
            Sample::Text(text) if !self.known.is_odd(text) => Look::Page,
            _ => Look::Odd(sample.alike()),
        }
    }
}

impl Known {
    /// Returns the text of the first page: `text`, if this is the first.
    fn first_text(&mut self, text: u32) -> u32 {
        self.is_new |= self.first.is_none();
        *self.first.get_or_insert(text)
    }

    /// Returns whether a text came more than once, and is not that of the first page.
    fn is_odd(&self, text: u32) -> bool {
        self.first != Some(text) && self.texts.contains(&(text, true))
    }

    /// Notes a short text, and returns whether it came before. Texts that came once go first.
    fn remember_text(&mut self, text: u32) -> bool {
        let at = self.texts.iter().position(|(known, _)| *known == text);
        let before = at.and_then(|at| self.texts.remove(at));
        if at.is_none() && self.texts.len() >= TEXTS_MAX {
            let once = self.texts.iter().rposition(|(_, is_again)| !is_again);
            self.texts.remove(once.unwrap_or(TEXTS_MAX - 1));
        }
        self.texts.push_front((text, at.is_some()));
        self.is_new |= before == Some((text, false));
        at.is_some()
    }
}

impl Lane {
    /// Returns whether the next request is for a page that was served before.
    pub(super) fn wants_proof(&self) -> bool {
        let doubts = &self.doubts;
        let is_pages_turn = doubts.is_pages_turn && (self.untried() > 0 || self.has_redirected());
        doubts.doubt == Doubt::Suspected && doubts.known.served.is_some() && !is_pages_turn
    }

    fn is_over(&self) -> bool {
        self.is_empty() && self.in_flight == 0
    }

    /// Sends the page that was kept first again.
    fn check_kept(&mut self) {
        if !self.doubts.pages.is_empty() {
            let page = self.doubts.pages.remove(0).pending;
            self.put_redirected(page);
        }
    }

    /// Returns whether pages are kept that may have been refused.
    pub(crate) fn keeps_refused(&self) -> bool {
        !self.doubts.pages.is_empty()
    }

    /// Continues with what an earlier run knew.
    pub(crate) fn restore_known(&mut self, known: Known) {
        self.doubts.known = known;
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

    /// Records a page that lane `id` served. Its URL is certain to serve more than one request if
    /// it `is_lasting`.
    pub(crate) fn served_page(&mut self, id: LaneId, url: &str, is_lasting: bool) {
        let known = &mut self.all[id as usize].doubts.known;
        if known.served.is_none() || is_lasting && !known.is_lasting {
            known.served = Some(url.into());
            (known.is_lasting, known.is_new) = (is_lasting, true);
        }
    }

    /// Returns what changed of what lane `id` knows, for a later run.
    pub(crate) fn take_known(&mut self, id: LaneId) -> Option<(String, Known)> {
        let lane = &mut self.all[id as usize];
        let is_new = std::mem::take(&mut lane.doubts.known.is_new);
        is_new.then(|| (lane.origin.to_string(), lane.doubts.known.clone()))
    }

    /// Returns what could not be stored. The next call takes it again.
    pub(crate) fn put_back_known(&mut self, known: &[(String, Known)]) {
        for (origin, _) in known {
            if let Some(&id) = self.by_origin.get(origin.as_str()) {
                self.all[id as usize].doubts.known.is_new = true;
                self.learned(id);
            }
        }
    }

    /// Keeps a page of lane `id` until the doubt about its answer is over.
    pub(crate) fn keep(&mut self, id: LaneId, page: Kept, now: Timestamp) {
        let lane = &mut self.all[id as usize];
        if lane.set_aside.is_some() {
            return self.begin_again(page.pending, now);
        }
        let is_redirected = page.pending.home != id;
        lane.doubts.pages.push(page);
        self.waiting += 1;
        if is_redirected && !self.redirected.contains(&id) {
            self.redirected.push(id);
        }
    }

    /// Handles what a report about lane `id`, with an answer that looks like `look`, says about its
    /// host.
    pub(crate) fn doubt(&mut self, id: LaneId, doubt: Doubt, look: Look, now: Timestamp) {
        if doubt == Doubt::Unclear
            && let Look::Odd(alike) = look
        {
            // Another kind of answer began, so the kept ones were theirs.
            self.finish_kept(id, now, |kept| !are_alike(kept.alike, alike));
        }
        let lane = &mut self.all[id as usize];
        let doubts = &mut lane.doubts;
        let is_still = doubt == Doubt::Suspected && doubts.doubt == doubt;
        doubts.is_pages_turn = is_still && !doubts.is_pages_turn;
        doubts.doubt = doubt;
        match doubt {
            // The served page may be gone, and then a kept one tells more.
            Doubt::Suspected if doubts.is_pages_turn && lane.untried() == 0 => lane.check_kept(),
            Doubt::Checking => lane.check_kept(),
            Doubt::Unclear | Doubt::Suspected => {}
            Doubt::Limited => self.release(id, now),
            Doubt::None => self.finish_kept(id, now, |_| true),
        }
    }

    /// Ends the pages that are kept if nothing is left that could tell: no page of lane `id`, and
    /// none that redirects may bring from where they began.
    pub(super) fn settle_kept(&mut self, id: LaneId, now: Timestamp) {
        let lane = &self.all[id as usize];
        if lane.doubts.pages.is_empty() || !lane.is_over() || lane.wants_proof() {
            return;
        }
        let homes = lane.doubts.pages.iter().map(|kept| kept.pending.home);
        let over: HashSet<LaneId> = homes.filter(|&home| self.is_over(home)).collect();
        self.finish_kept(id, now, |kept| over.contains(&kept.pending.home));
    }

    fn is_over(&self, id: LaneId) -> bool {
        let lane = &self.all[id as usize];
        lane.is_over() || lane.set_aside.is_some()
    }

    /// Ends pages that are kept where redirects led, once no more of them come. Returns whether
    /// there were any.
    pub(super) fn settle_redirected(&mut self, now: Timestamp) -> bool {
        for id in std::mem::take(&mut self.redirected) {
            self.settle_kept(id, now);
            if self.all[id as usize].keeps_refused() {
                self.redirected.push(id);
            }
        }
        !self.finished.is_empty()
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
