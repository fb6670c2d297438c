//! Decides whether a failure is evidence against the host, or counts against its URL alone.
//!
//! A 429 or a 504 may be about one URL (RFC 6585, section 4). A report that names its URL is
//! weighed (`weigh.rs`) before the law, the breaker and the hold see it. Evidence against a host
//! needs two different URLs, or no success at all. Repeated failures of one URL between successes
//! of others count once.
//!
//! | a failure | counts against the host |
//! | --- | --- |
//! | in a report without a URL | always: the report counts as one about a URL of its own |
//! | a refusal (429, 503, 529, any Retry-After) or a block page | at first sight |
//! | of a URL that failed before another URL was served | never, until that URL itself is served |
//! | any other, on a host that served before | if so long a run of failing URLs is unlikely |
//! | any other, on a host that never served | from the second failure on, for the breaker alone |
//!
//! Two rules correct a verdict at first sight. First, if the URL is refused again although others
//! were served in between, the law gets back the state that it had before the cut. Second, the
//! host's record sets the weight of a first failure. Once a URL proved to be at fault itself,
//! refusals of further URLs need a second URL as well, until one of them recovers. After
//! [`TRANSIENTS`] URLs that failed and were then served, every first failure counts.
//!
//! A limit refuses some URLs twice as well, while it serves others. It is told from bad pages by
//! its beginning: refusals of new URLs suddenly become more frequent than this host's failures
//! usually are. Refusals then count at first sight again. As soon as that seems likely, the second
//! refusal of a URL proves nothing about it.
//!
//! A healthy host has no such state, and a success costs it one comparison.

use serde::{Deserialize, Serialize};

use super::refusal_cusum::RefusalCusum;
use super::usual_share::{TRIES_MAX, UsualShare};
use crate::control::KeyLaw;
use crate::gate::LeaseId;
use crate::signal::{Report, Signal};

/// Number of failed URLs that are remembered, per host.
const URLS_MAX: usize = 16;
/// Number of later requests after which a URL that failed counts as abandoned.
const STALE_LEASES: u64 = 1_000;
/// The probability below which a run of independent failures is evidence.
const RARE_RUN: f64 = 1e-3;
/// The same for plain 500s, which say little about a host.
const RARE_RUN_OF_ERRORS: f64 = 1e-4;
/// Number of failures from which a run must be rarer by [`RARER`]. On a host with many bad pages,
/// runs happen more often by chance.
const MANY_FAILURES: u8 = 5;
const RARER: f64 = 0.01;
/// Consecutive failures of a single URL, with no other request between, that count once.
const LONE_FAILURES: u8 = 4;
/// The record at which a URL has proved to be at fault itself, and none has recovered since.
pub(super) const OWN_FAULTS: i8 = 1;
/// The record from which the Retry-After of a URL that was not refused before no longer holds the
/// host.
pub(super) const OWN_REFUSALS: i8 = 2;
/// The record of a host whose failed URLs were served later.
const TRANSIENTS: i8 = -2;
/// The highest record of a host whose refusals suddenly became more frequent.
const LIMIT_RECORD: i8 = -1;
/// The bounds of the record. They let it follow a host that changes.
const RECORD: (i8, i8) = (-3, 3);

/// The target that a failure counts against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Counts against the law, the breaker and the hold; or the outcome is no failure.
    Host,
    /// Counts against the breaker. A host that never served teaches nothing about its rate.
    Outage,
    /// Counts against its URL alone. Another report tells whether the host was well.
    Url,
    /// Counts against its URL alone, and the host was well. To the law the request was served.
    Page,
}

impl Fault {
    /// Returns whether the URL alone is at fault.
    pub(super) const fn is_the_urls(self) -> bool {
        matches!(self, Self::Url | Self::Page)
    }
}

/// The evidence of a failure about the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The host answered properly, though not with the page: a 403, or a body that cannot be
    /// decoded.
    Answer,
    /// The host refused the request.
    Refusal,
    /// The host showed a block page.
    Block,
    /// No answer came, or a gateway answered.
    Trouble,
    /// A plain 500.
    Error,
}

/// The recent failures of one host's URLs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Evidence {
    /// Failed URLs, in the order of their last failures, the oldest first.
    failed: Vec<FailedUrl>,
    /// Different URLs that failed since the last success, other than by their own fault.
    run: u8,
    /// Further failures of the URLs in `run`.
    repeats: u8,
    usual: UsualShare,
    /// Above zero: URLs that proved to be at fault. Below zero: URLs that recovered.
    pub(super) record: i8,
    /// Whether refusals suddenly become more frequent.
    refusals: RefusalCusum,
    /// Whether the host ever refused with a status that means it.
    pub(super) says_refusals: bool,
    /// The law before the cuts whose causes are marked as `cut`.
    undo: Option<KeyLaw>,
}

/// A URL that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct FailedUrl {
    /// Id of the first lease granted after the failure was known.
    since: u64,
    url: u32,
    /// Whether its last failure was a refusal.
    is_refused: bool,
    standing: Standing,
    cut: Cut,
}

/// Whether a failure cut the rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
enum Cut {
    No,
    /// The failure cut the rate together with others. A run is evidence as a whole, and it is none
    /// if one of its URLs is at fault.
    Shared,
    Alone,
}

/// The state of knowledge about a URL that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
enum Standing {
    /// No other URL was served since.
    Unclear,
    /// Another URL was served since.
    Suspect,
    /// The URL failed again after another was served.
    Proven,
}

impl Kind {
    pub(super) fn of(report: &Report) -> Self {
        match (report.signal, report.status) {
            (Signal::RateLimited, _) | (Signal::Overloaded, Some(503 | 529)) => Self::Refusal,
            (Signal::Overloaded, _) if report.retry_after.is_some() => Self::Refusal,
            (Signal::Overloaded | Signal::Unreachable, _) => Self::Trouble,
            (Signal::Blocked, _) => Self::Block,
            (Signal::UrlError, Some(500..)) => Self::Error,
            (Signal::Ok | Signal::UrlError, _) => Self::Answer,
        }
    }
}

impl Evidence {
    /// Returns the evidence about a host before its first failure, after `tries` requests.
    pub(super) fn after(tries: u64) -> Self {
        Self {
            usual: UsualShare {
                tries: tries.min(u64::from(TRIES_MAX / 2)) as u8,
                failures: 0,
            },
            ..Self::default()
        }
    }

    fn find(&mut self, url: u32) -> Option<usize> {
        self.failed.iter().position(|failed| failed.url == url)
    }

    /// Returns whether `url` failed.
    pub(super) fn remembers(&self, url: u32) -> bool {
        self.failed.iter().any(|failed| failed.url == url)
    }

    /// Returns whether `url` fails although others are served.
    pub(super) fn suspects(&self, url: u32) -> bool {
        let standing = (self.failed.iter()).find(|failed| failed.url == url);
        standing.is_some_and(|failed| failed.standing != Standing::Unclear)
    }

    /// Returns whether `url` failed again although others were served.
    pub(super) fn is_proven(&self, url: u32) -> bool {
        self.has_standing(url, Standing::Proven)
    }

    fn has_standing(&self, url: u32, standing: Standing) -> bool {
        (self.failed.iter()).any(|failed| failed.url == url && failed.standing == standing)
    }

    /// Notes a served page. If `was_open`, the breaker was not closed, and earlier failures were
    /// the host's.
    pub(super) fn served(&mut self, url: Option<u32>, lease: LeaseId, was_open: bool) {
        if let Some(at) = url.and_then(|url| self.find(url)) {
            self.record = (self.record.min(0) - 1).max(RECORD.0);
            let failed = self.failed.remove(at);
            if failed.cut != Cut::No {
                self.keep_cuts();
            }
            if failed.standing == Standing::Proven {
                // The proof was wrong, so those of the others may be as well.
                self.has_a_limit();
            }
        }
        if was_open && usize::from(self.run) >= URLS_MAX {
            self.failed
                .retain(|failed| failed.standing != Standing::Unclear);
        } else if !self.is_rare(RARE_RUN) {
            self.usual.count(self.run, self.run);
        }
        self.refusals.served(self.usual.get());
        self.usual.count(1, 0);
        (self.run, self.repeats) = (0, 0);
        for failed in &mut self.failed {
            // A success says nothing about the failure if its request was sent before the failure
            // was known.
            if failed.standing == Standing::Unclear && lease.0 >= failed.since {
                failed.standing = Standing::Suspect;
            }
        }
    }

    /// Notes that the host has a limit. So a URL that it refused twice need not be at fault itself.
    fn has_a_limit(&mut self) {
        self.record = self.record.min(LIMIT_RECORD);
        for failed in &mut self.failed {
            if failed.is_refused {
                failed.standing = failed.standing.min(Standing::Suspect);
            }
        }
    }

    /// Notes that the host answered `url` properly, though not with a page.
    pub(super) fn answered(&mut self, url: u32) {
        if let Some(at) = self.find(url)
            && self.failed.remove(at).cut != Cut::No
        {
            self.keep_cuts();
        }
        (self.run, self.repeats) = (0, 0);
    }

    /// Notes a failure of `url` and returns what it counts against. `next` is the first lease that
    /// will be granted after it.
    pub(super) fn failed(
        &mut self,
        url: u32,
        kind: Kind,
        lease: LeaseId,
        next: LeaseId,
        served_before: bool,
    ) -> Fault {
        let may_be_a_limit = self.may_be_a_limit(kind);
        if let Some(at) = self.find(url) {
            let failed = &mut self.failed[at];
            failed.is_refused = may_be_a_limit;
            if failed.standing != Standing::Unclear {
                let is_again = lease.0 >= failed.since;
                if failed.standing == Standing::Suspect
                    && is_again
                    && may_be_a_limit
                    && (self.record < 0 || self.refusals.are_rising())
                {
                    // URLs that this host refused were served later, or it now refuses new URLs
                    // too, so a limit is more likely than a fault of the URL.
                    failed.since = next.0;
                    self.record += i8::from(self.record < 0);
                    self.failed.sort_unstable();
                    return Fault::Host;
                }
                if failed.standing != Standing::Proven && is_again {
                    failed.standing = Standing::Proven;
                    self.record = (self.record + 1).min(RECORD.1);
                }
                return Fault::Url;
            }
            failed.since = next.0;
            self.repeats = self.repeats.saturating_add(1);
        } else {
            if self.failed.len() >= URLS_MAX {
                self.make_room(next);
            }
            self.failed.push(FailedUrl {
                since: next.0,
                url,
                is_refused: may_be_a_limit,
                standing: Standing::Unclear,
                cut: Cut::No,
            });
            self.run = self.run.saturating_add(1);
            if may_be_a_limit && self.refusals.refused(url, self.usual.get()) {
                self.has_a_limit();
            }
        }
        self.failed.sort_unstable();
        if self.counts_at_first_sight(kind) && (served_before || kind != Kind::Trouble) {
            return Fault::Host;
        }
        if !served_before && kind != Kind::Refusal {
            let enough = match kind {
                Kind::Error => {
                    self.is_rare_run(self.run.saturating_add(self.repeats), RARE_RUN_OF_ERRORS)
                }
                _ => self.run.saturating_add(self.repeats) >= 2,
            };
            return if enough { Fault::Outage } else { Fault::Url };
        }
        let rare = match kind {
            Kind::Error => self.is_rare(RARE_RUN_OF_ERRORS),
            _ => self.is_rare(RARE_RUN),
        };
        if rare { Fault::Host } else { Fault::Url }
    }

    /// Returns whether a limit may cause such a failure. A limit refuses in one way: if it never
    /// says so itself, its gateway may answer for it.
    fn may_be_a_limit(&self, kind: Kind) -> bool {
        kind == Kind::Refusal || kind == Kind::Trouble && !self.says_refusals
    }

    const fn counts_at_first_sight(&self, kind: Kind) -> bool {
        match kind {
            Kind::Block => true,
            Kind::Refusal => self.record < OWN_FAULTS,
            Kind::Trouble => self.record <= TRANSIENTS,
            Kind::Error | Kind::Answer => false,
        }
    }

    /// Forgets one URL: the newest proven one, else a stale one, else the newest that cut nothing.
    ///
    /// Older URLs stay, because they are requested again soonest, and their next outcome shows
    /// whose fault a failure is. The cause of a cut stays as long as possible: without it, the cut
    /// cannot be undone.
    fn make_room(&mut self, next: LeaseId) {
        let proven = |failed: &FailedUrl| failed.standing == Standing::Proven;
        let stale = |failed: &FailedUrl| next.0.saturating_sub(failed.since) > STALE_LEASES;
        let at = match self.failed.iter().rposition(proven) {
            Some(at) => at,
            None if self.failed.first().is_some_and(stale) => 0,
            None => {
                let free = self.failed.iter().rposition(|failed| failed.cut == Cut::No);
                free.unwrap_or(self.failed.len() - 1)
            }
        };
        let FailedUrl {
            url, standing, cut, ..
        } = self.failed.remove(at);
        if standing == Standing::Proven {
            self.refusals.note_at_fault(url);
        }
        if cut == Cut::Alone || cut == Cut::Shared && !self.has_cut(Cut::Shared) {
            self.keep_cuts();
        }
    }

    fn has_cut(&self, cut: Cut) -> bool {
        self.failed.iter().any(|failed| failed.cut == cut)
    }

    fn is_rare(&self, below: f64) -> bool {
        let lone = self.repeats.saturating_sub(LONE_FAILURES);
        self.is_rare_run(self.run.saturating_add(lone), below)
    }

    /// Returns whether a run of this length is less likely than `below`, if URLs fail independently
    /// at the host's usual share.
    fn is_rare_run(&self, length: u8, below: f64) -> bool {
        let many = self.usual.failures >= MANY_FAILURES;
        self.usual.of_run(length) < if many { below * RARER } else { below }
    }

    /// Saves the law before it cuts the rate for `url`.
    pub(super) fn before_cut(&mut self, url: Option<u32>, kind: Kind, law: &KeyLaw) {
        let Some(at) = url.and_then(|url| self.find(url)) else {
            return self.keep_cuts();
        };
        self.undo.get_or_insert_with(|| law.clone());
        self.failed[at].cut = Cut::Alone;
        if !self.counts_at_first_sight(kind) && self.run > 1 {
            self.failed[at].cut = Cut::Shared;
            for failed in &mut self.failed {
                if failed.standing == Standing::Unclear {
                    failed.cut = failed.cut.max(Cut::Shared);
                }
            }
        }
    }

    /// Makes all cuts final. One of them was right, so the others that came with it stand as well.
    pub(super) fn keep_cuts(&mut self) {
        self.undo = None;
        for failed in &mut self.failed {
            failed.cut = Cut::No;
        }
    }

    /// Returns the law from before the cuts, once each URL that caused one has proven to be at
    /// fault.
    pub(super) fn undo_cuts(&mut self) -> Option<KeyLaw> {
        self.undo.as_ref()?;
        let proven = |failed: &FailedUrl| failed.standing == Standing::Proven;
        let refuted = |failed: &FailedUrl| proven(failed) && failed.cut == Cut::Shared;
        let run_refuted = self.failed.iter().any(refuted);
        for failed in &mut self.failed {
            if proven(failed) || run_refuted && failed.cut == Cut::Shared {
                failed.cut = Cut::No;
            }
        }
        if self.has_cut(Cut::Alone) || self.has_cut(Cut::Shared) {
            return None;
        }
        self.undo.take()
    }

    /// Adapts the saved law to another configuration, or to a clock that was set back.
    pub(super) fn adopt(&mut self, adopt: impl FnOnce(&mut KeyLaw)) {
        if let Some(law) = &mut self.undo {
            adopt(law);
        }
    }

    /// Returns whether reports could have led to this state. Restored bytes may be anything.
    pub(super) fn is_plausible(&self) -> bool {
        self.failed.len() <= URLS_MAX
            && (RECORD.0..=RECORD.1).contains(&self.record)
            && self.usual.is_plausible()
            && self.refusals.is_plausible()
    }

    /// Merges `other`: the latest failures of both, and the record that blames the host sooner.
    pub(super) fn join(&mut self, other: &Self) {
        for theirs in &other.failed {
            match self.find(theirs.url) {
                Some(at) => self.failed[at] = self.failed[at].max(*theirs),
                None => self.failed.push(*theirs),
            }
        }
        self.failed.sort_unstable();
        let surplus = self.failed.len().saturating_sub(URLS_MAX);
        self.failed.drain(..surplus);
        self.run = self.run.max(other.run);
        self.repeats = self.repeats.max(other.repeats);
        self.usual.join(other.usual);
        self.refusals.join(&other.refusals);
        self.record = self.record.min(other.record);
        self.says_refusals |= other.says_refusals;
        if self.undo != other.undo {
            self.keep_cuts();
        }
    }
}

#[cfg(test)]
#[path = "evidence_tests.rs"]
mod tests;
