//! Tells a host that refuses everything from a host with many bad pages, by its behaviour.
//!
//! Lists of statuses and words of refusals never end. What refusals share is this: a host served,
//! and then it answers several different URLs alike. Such a host is *suspected*. It gets one
//! request at a time, each after a rest that doubles. The proof is a page that the host served
//! before, and every other time the next page:
//!
//! ```text
//!          a run of like answers that is rare here, or many of them
//!   Clear ------------------------------------------> Suspected --+ refused too:
//!     ^ ^                                               |    ^    | the rest doubles
//!     | |                      served as before         |    +----+
//!     | |                                               v
//!     | +--- a refused URL is refused again, --------- Checking
//!     |      twice: the answer is ordinary here         |
//!     +----- a refused URL is served: a limit ----------+
//! ```
//!
//! The served page may have taken all that a slow limit allows, or come from a cache. So one
//! refused URL proves nothing: another page follows after a longer rest, and another refused one.
//!
//! Workers that keep no refused page send their next page after the rest. If it is served, the
//! suspicion ends. They ask for the refused pages later, and these then tell which it was.
//!
//! [`Report::odd`] says what an answer shares with others: its status, or the caller's hash of it.

mod reports;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use super::answer::Doubt;
use super::error_trial::ErrorTrial;
use super::usual_share::UsualShare;
use crate::gate::BreakerConfig;
use crate::signal::{Report, Signal, are_alike, is_missing};

/// The fewest different URLs in a run of like answers that make a host suspected.
const RUN_MIN: usize = 3;
/// The number of URLs that are remembered of a run.
const RUN_MAX: usize = 16;
/// The probability below which a run is no chance, if pages fail at this host's usual share.
const RARE_RUN: f64 = 1e-3;
/// By how much rarer a run must be after each suspicion that another page ended, and after each two
/// kinds of ordinary answers, up to a number of them: a limit may end many.
const RARER: f64 = 0.01;
const RARER_MAX: u8 = 3; // 24 << 3 is below 256
/// A limit may refuse some requests and serve others, so like answers that are more than a fifth of
/// all are suspicious too: each adds four to a level, and each page takes one away. The level
/// doubles with each suspicion that another page ended.
const OFTEN_ODD: u8 = 4;
const OFTEN_LEVEL: u8 = 24;

/// The number of kinds of answers that are remembered as ordinary.
const ORDINARY_MAX: usize = 8;
/// The answers in a row that make a host suspected although such answers were ordinary. The number
/// doubles each time that a page is served as before.
const ORDINARY_RUN: u16 = 16;
const LONG_RUNS_MAX: u8 = 8;
/// The rests of a suspected host: 2 s, doubling to 10 min. That is thirteen requests in the first
/// hour of a ban, and a limit of some seconds costs one or two rests.
pub(super) const RESTS: BreakerConfig = BreakerConfig {
    trip_after: 1,
    rest_min: Duration::from_secs(2),
    rest_max: Duration::from_mins(10),
};

/// The number of refused pages that are refused again before their answer is ordinary.
const CHECKS: u8 = 2;

/// What the answers of one host have in common.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Suspicion {
    stage: Stage,
    /// What the answers of the present run share.
    alike: u32,
    /// The URLs of the present run.
    run: SmallVec<[u32; 4]>,
    /// The URLs of the run that led to the last suspicion, if another page ended it. None of them
    /// was requested again yet.
    refused: SmallVec<[u32; 4]>,
    /// Pages of the run that were refused again.
    checked: u8,
    /// Suspicions that another page ended, since the last limit.
    false_alarms: u8,
    /// How often like answers come among others, see [`OFTEN_ODD`].
    often: u8,
    /// The answer that proved to be a limit.
    limit: Option<u32>,
    /// Answers that proved to be ordinary at this host.
    ordinary: SmallVec<[u32; 2]>,
    /// Ordinary answers since the last page, and how many such runs were long.
    ordinary_run: u16,
    long_runs: u8,
    /// The answers before the present run, and how many of them were odd.
    usual: UsualShare,
    /// Whether errors are those of an overloaded host.
    errors: ErrorTrial,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
enum Stage {
    #[default]
    Clear,
    /// A page that was served before proved that the host works. Next is a page of the run.
    Checking,
    /// The host seems to refuse everything.
    Suspected,
}

/// What an answer says about the suspicion.
enum Sight {
    /// A page.
    Page,
    /// A redirect. Its target may be refused, so it ends no run.
    Redirect,
    /// An answer that it shares with others.
    Odd(u32),
    /// An answer that other gates judge.
    Other,
}

/// The effect of one answer on the host.
enum Effect {
    Nothing,
    /// The host becomes suspected.
    Suspect,
    /// The probe failed.
    Refused,
    /// The next request may leave after a rest, alone.
    Check,
    /// The suspicion is over.
    Clear,
}

impl Sight {
    fn of(report: &Report) -> Self {
        match (report.odd(), report.signal) {
            (Some(alike), _) => Self::Odd(alike),
            (None, Signal::Ok) if matches!(report.status, Some(300..=303 | 305..=399)) => {
                Self::Redirect
            }
            (None, Signal::Ok) => Self::Page,
            _ => Self::Other,
        }
    }
}

impl Suspicion {
    /// Returns whether the host is not clear of suspicion.
    pub(super) fn is_active(&self) -> bool {
        self.stage != Stage::Clear
    }

    /// Returns what a report says that tells nothing about the suspicion.
    const fn doubt(&self) -> Doubt {
        match self.stage {
            Stage::Clear => Doubt::None,
            Stage::Checking => Doubt::Checking,
            Stage::Suspected => Doubt::Suspected,
        }
    }

    /// Notes that the caller lost the refused pages that it kept, so it cannot check one of them.
    pub(super) fn forget_kept(&mut self) {
        if self.stage == Stage::Checking {
            self.stage = Stage::Suspected;
        }
    }

    /// Handles an answer for `url`. `probe` means that the request was sent alone, to find out.
    fn see(&mut self, url: u32, sight: &Sight, probe: bool, can_check: bool) -> (Effect, Doubt) {
        match (self.stage, sight) {
            // Others were served before it and in between, so it is no refusal.
            (Stage::Clear, Sight::Odd(alike))
                if are_alike(*alike, self.alike)
                    && self.run.is_empty()
                    && self.has_refused(url) =>
            {
                self.make_ordinary(*alike);
                (Effect::Nothing, Doubt::None)
            }
            (Stage::Clear, Sight::Odd(alike)) => self.odd(url, *alike),
            (Stage::Clear, Sight::Page | Sight::Redirect) if self.has_refused(url) => {
                self.begin_anew();
                (Effect::Nothing, Doubt::Limited)
            }
            (Stage::Clear, Sight::Redirect) if self.run.is_empty() => {
                self.usual.count(1, 0);
                (Effect::Nothing, Doubt::None)
            }
            (Stage::Clear, Sight::Page) => {
                self.end_run();
                self.ordinary_run = 0;
                self.often = self.often.saturating_sub(1);
                self.usual.count(1, 0);
                let doubt = if self.often > OFTEN_ODD {
                    Doubt::Unclear
                } else {
                    Doubt::None
                };
                (Effect::Nothing, doubt)
            }
            (Stage::Suspected, Sight::Odd(alike)) => {
                // The page of a proof may be gone and say so.
                if are_alike(*alike, self.alike) {
                    self.remember(url, *alike);
                }
                let effect = if probe {
                    Effect::Refused
                } else {
                    Effect::Nothing
                };
                (effect, Doubt::Suspected)
            }
            (Stage::Suspected | Stage::Checking, Sight::Page | Sight::Redirect)
                if self.run.contains(&url) =>
            {
                // A page that had left before the suspicion proves as much.
                self.begin_anew();
                (Effect::Clear, Doubt::Limited)
            }
            (Stage::Suspected, Sight::Page | Sight::Redirect)
                if probe && self.ordinary.contains(&self.alike) =>
            {
                self.stage = Stage::Clear;
                self.end_run();
                (Effect::Clear, Doubt::None)
            }
            (Stage::Suspected, Sight::Page | Sight::Redirect) if probe && can_check => {
                self.stage = Stage::Checking;
                (Effect::Check, Doubt::Checking)
            }
            (Stage::Suspected, Sight::Page | Sight::Redirect) if probe => {
                self.stage = Stage::Clear;
                self.checked = 0;
                self.refused.clone_from(&self.run);
                self.false_alarms = self.false_alarms.saturating_add(1);
                self.often = 0;
                self.end_run();
                (Effect::Clear, Doubt::None)
            }
            (Stage::Checking, Sight::Odd(alike)) if probe && are_alike(*alike, self.alike) => {
                self.checked += 1;
                if self.checked < CHECKS {
                    self.stage = Stage::Suspected;
                    return (Effect::Refused, Doubt::Suspected);
                }
                self.stage = Stage::Clear;
                self.make_ordinary(*alike);
                (Effect::Clear, Doubt::None)
            }
            (Stage::Checking, Sight::Page | Sight::Redirect | Sight::Odd(_)) if probe => {
                (Effect::Check, Doubt::Checking)
            }
            (Stage::Clear, Sight::Other) if self.run.is_empty() => (Effect::Nothing, Doubt::None),
            (Stage::Clear, Sight::Redirect | Sight::Other) => (Effect::Nothing, Doubt::Unclear),
            (Stage::Suspected | Stage::Checking, _) => (Effect::Nothing, self.doubt()),
        }
    }

    /// Handles an odd answer while the host is clear.
    fn odd(&mut self, url: u32, alike: u32) -> (Effect, Doubt) {
        if self.ordinary.contains(&alike) {
            self.end_run();
            self.usual.count(1, 1);
            self.ordinary_run = self.ordinary_run.saturating_add(1);
            if self.ordinary_run < ORDINARY_RUN << self.long_runs {
                return (Effect::Nothing, Doubt::None);
            }
            self.ordinary_run = 0;
            self.long_runs = (self.long_runs + 1).min(LONG_RUNS_MAX);
            self.remember(url, alike);
            self.stage = Stage::Suspected;
            return (Effect::Suspect, Doubt::Suspected);
        }
        if !are_alike(alike, self.alike) {
            self.end_run();
            self.refused.clear();
            self.often = 0;
        }
        // Missing pages among others say nothing about the host, however many there are.
        let is_missing = u16::try_from(alike).is_ok_and(is_missing);
        if !self.run.contains(&url) && !is_missing {
            self.often = self.often.saturating_add(OFTEN_ODD);
        }
        self.remember(url, alike);
        let kinds = self.ordinary.len() as u8 / 2;
        let alarms = self.false_alarms.saturating_add(kinds).min(RARER_MAX);
        let rare = RARE_RUN * RARER.powi(alarms.into());
        let is_rare = self.usual.of_run(self.run.len() as u8) < rare;
        let is_often = self.often >= OFTEN_LEVEL << alarms;
        if !is_often && (self.run.len() < RUN_MIN || !is_rare) {
            return (Effect::Nothing, Doubt::Unclear);
        }
        self.stage = Stage::Suspected;
        (Effect::Suspect, Doubt::Suspected)
    }

    fn remember(&mut self, url: u32, alike: u32) {
        self.alike = alike;
        if self.run.len() < RUN_MAX && !self.run.contains(&url) {
            self.run.push(url);
        }
    }

    /// Returns whether `url` was refused in the run that led to the last suspicion.
    fn has_refused(&self, url: u32) -> bool {
        self.refused.contains(&url)
    }

    /// Takes answers like this for the pages' own at this host from now on.
    fn make_ordinary(&mut self, alike: u32) {
        if self.ordinary.len() == ORDINARY_MAX {
            self.ordinary.remove(0);
        }
        self.ordinary.push(alike);
        self.limit.take_if(|limit| *limit == alike);
        self.refused.clear();
        (self.often, self.checked) = (0, 0);
        self.end_run();
    }

    /// Forgets all but what is ordinary, after a limit was found. From now on, such an answer is a
    /// refusal.
    fn begin_anew(&mut self) {
        *self = Self {
            limit: Some(self.alike),
            ordinary: std::mem::take(&mut self.ordinary),
            errors: std::mem::take(&mut self.errors),
            ..Self::default()
        };
    }

    /// Counts the run as odd answers of pages.
    fn end_run(&mut self) {
        let length = self.run.len() as u8;
        self.usual.count(length, length);
        self.run.clear();
    }

    /// Returns whether reports could have led to this state. Restored bytes may be anything.
    pub(super) fn is_plausible(&self) -> bool {
        self.run.len() <= RUN_MAX
            && self.refused.len() <= RUN_MAX
            && self.ordinary.len() <= ORDINARY_MAX
            && self.long_runs <= LONG_RUNS_MAX
            && self.usual.is_plausible()
            && self.errors.is_plausible()
    }

    /// Merges `other`: the one that suspects more.
    pub(super) fn join(&mut self, other: &Self) {
        if self.rank() < other.rank() {
            self.clone_from(other);
        }
    }

    fn rank(&self) -> impl Ord {
        let Self {
            stage,
            alike,
            run,
            refused,
            checked,
            false_alarms,
            often,
            limit,
            ordinary,
            ordinary_run,
            long_runs,
            usual,
            errors,
        } = self;
        (
            *stage,
            run.len(),
            *usual,
            *alike,
            run.clone(),
            refused.clone(),
            (*checked, *false_alarms),
            *often,
            *limit,
            (ordinary.clone(), *ordinary_run, *long_runs),
            errors.rank(),
        )
    }
}

#[cfg(test)]
#[path = "suspicion_tests.rs"]
mod tests;
