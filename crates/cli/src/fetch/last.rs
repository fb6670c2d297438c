//! The result of the last attempt, and what the lanes learn from it.

use std::path::PathBuf;

use politely::core::Timestamp;
use politely::core::host::Doubt;
use politely::core::retry::Policy;
use politely::core::signal::{Report, Signal};
use url::Url;

use super::lanes::doubt::{Kept, Look};
use super::lanes::{LaneId, Lanes};
use super::retry::budgets;
use super::transport::answer::Came;

/// The result of the last attempt.
pub(super) struct Last<'a> {
    pub(super) report: &'a Report,
    pub(super) came: &'a Came,
    pub(super) url: &'a Url,
    /// The retry policy of the request.
    pub(super) policy: &'a Policy,
    /// Whether the key's state is worth storing.
    pub(super) learned: bool,
    /// Whether the answer shows that the host works.
    pub(super) served: bool,
    /// Whether the page never failed before.
    pub(super) first_try: bool,
    /// What the answer looks like beside others.
    pub(super) look: Look,
    /// What the report says about the host.
    pub(super) doubt: Doubt,
    /// The URL of a page, and whether it is the page's own or where its redirects lead for good.
    /// The target of another redirect may be valid only once.
    pub(super) page_url: Option<(&'a Url, bool)>,
}

impl Last<'_> {
    /// Returns the file of the answer's body, if it is saved.
    pub(super) fn saved(&self) -> Option<PathBuf> {
        match self.came {
            Came::Answer(answer) => answer.saved.clone(),
            Came::Failed(_) => None,
        }
    }

    /// Returns what the answer shares with others, if it may be a refusal.
    pub(super) fn in_doubt(&self) -> Option<u32> {
        match (self.look, self.doubt) {
            (Look::New(alike), Doubt::None)
            | (Look::Odd(alike), Doubt::Unclear | Doubt::Suspected | Doubt::Checking) => {
                Some(alike)
            }
            _ => None,
        }
    }
}

/// Handles the end of a request of `lane`, whose page is `kept` if its answer is in doubt.
pub(super) fn came_back(
    lanes: &mut Lanes,
    lane: LaneId,
    now: Timestamp,
    last: Option<&Last<'_>>,
    kept: Option<Kept>,
) {
    if let Some(last) = last {
        lanes.doubt(lane, last.doubt, last.look, now);
        let is_good = last
            .report
            .status
            .is_some_and(|status| (200..300).contains(&status));
        if let Some((url, is_lasting)) = last.page_url.filter(|_| is_good) {
            lanes.served_page(lane, url.as_str(), is_lasting);
        }
        if let Some(kept) = kept {
            lanes.keep(lane, kept, now);
        }
        lanes.answered(lane, last.report);
        if last.first_try {
            lanes.tried(lane);
        }
        if last.served {
            lanes.served(lane);
        }
        if last.report.signal == Signal::Ok {
            for account in lanes.accounts(lane, &budgets(last.policy)) {
                account.budget.deposit(account.rule, now);
            }
        }
        if last.learned {
            lanes.learned(lane);
        }
    }
    lanes.came_back(lane, now);
}
