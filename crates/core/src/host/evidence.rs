//! Is a failure evidence against the host, or the trouble of its URL alone?
//!
//! A 429 or a 504 may be about one URL (RFC 6585, section 4). A report that names its URL is weighed here
//! before the law, the breaker and the hold see it. Evidence against a host needs two different URLs, or
//! no success at all; repeated failures of one URL between successes of others count once.
//!
//! | a failure | counts against the host |
//! | --- | --- |
//! | in a report without a URL | always: the report counts as one about a URL of its own |
//! | a refusal (429, 503, 529, any Retry-After) or a block page | at first sight |
//! | of a URL that failed before another URL was served | never, until that URL itself is served |
//! | any other, on a host that served before | if so many different URLs in a row seldom fail there |
//! | any other, on a host that never served | from the second on, for the breaker alone |
//!
//! Two things correct a first sight. If the URL is refused again although others were served in between, the
//! law gets back what it knew before the cut. And the host's record says what a first sight is worth: after
//! [`OWN_FAULTS`] URLs proved to be at fault themselves, refusals of further URLs need company as well;
//! after [`TRANSIENTS`] URLs that failed and were then served, every first failure counts.
//!
//! A healthy host has no such state, and a success costs it one comparison.

use serde::{Deserialize, Serialize};

use super::Host;
use crate::Timestamp;
use crate::config::Config;
use crate::control::{KeyLaw, Law};
use crate::gate::{Lease, LeaseId};
use crate::signal::{Report, Resource, Signal};

/// URLs whose failures are remembered, per host.
const URLS_MAX: usize = 8;
/// A run of failures is evidence if it is rarer than this among failures that are independent.
const RARE_RUN: f64 = 1e-3;
/// The same for plain 500s, which say little about a host.
const RARE_RUN_OF_ERRORS: f64 = 1e-4;
/// Failures in a row of a single URL, nothing else asked, that count once.
const LONE_FAILURES: u8 = 4;
/// The share of failing URLs before any is known: half a URL of five and a half.
const PRIOR: (f64, f64) = (0.5, 5.5);
/// The counts behind that share are halved here, so that old failures fade.
const TRIES_MAX: u8 = 200;
/// URLs that proved to be at fault themselves, and none of late that recovered.
const OWN_FAULTS: i8 = 2;
/// URLs that failed and were then served.
const TRANSIENTS: i8 = -2;
/// The record's bounds: it follows a host that changes.
const RECORD: (i8, i8) = (-3, 3);

/// What a failure counts against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The law, the breaker and the hold: or it is no failure.
    Host,
    /// The breaker: a host that never served teaches nothing about its rate.
    Outage,
    /// Its URL alone.
    Url,
}

/// How telling a failure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The host answered soundly, though not with the page: 403, a body that cannot be decoded.
    Answer,
    /// The host said no.
    Refusal,
    /// The host shows that it is shut.
    Block,
    /// No answer, or a gateway's.
    Trouble,
    /// A plain 500.
    Error,
}

/// The failures of one host's URLs of late.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Evidence {
    /// In order: the one whose last failure is oldest comes first.
    failed: Vec<FailedUrl>,
    /// Different URLs that failed since the last success, other than by their own fault.
    run: u8,
    /// Failures beyond those, of the same URLs.
    repeats: u8,
    /// First tries of URLs, and how many failed.
    tries: u8,
    failures: u8,
    /// Above zero: URLs that proved to be at fault; below: URLs that recovered.
    record: i8,
    /// The law before the cuts whose causes are marked so.
    undo: Option<KeyLaw>,
}

/// A URL that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct FailedUrl {
    /// First lease granted after the failure was noticed.
    since: u64,
    url: u32,
    standing: Standing,
    /// Its failure cut the rate.
    cut: bool,
}

/// What is known of a URL that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
enum Standing {
    /// No other URL was served since.
    Unclear,
    /// Another URL was served since.
    Suspect,
    /// It failed again after that.
    Proven,
}

impl Kind {
    fn of(report: &Report) -> Self {
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

impl Host {
    /// Says what `report` counts against. A late one, without a `lease`, changes nothing here.
    #[inline]
    pub(super) fn weigh(&mut self, lease: Option<&Lease>, report: &Report) -> Fault {
        if report.signal == Signal::Ok {
            if let Some(rare) = &mut self.rare
                && let Some(evidence) = &mut rare.evidence
                && let Some(lease) = lease
            {
                let was_open = rare.breaker.open_until().is_some();
                evidence.served(report.resource.map(Resource::short), lease.id, was_open);
            }
            return Fault::Host;
        }
        self.weigh_failure(lease, report)
    }

    #[cold]
    fn weigh_failure(&mut self, lease: Option<&Lease>, report: &Report) -> Fault {
        let kind = Kind::of(report);
        let Some(url) = report.resource.map(Resource::short) else {
            return match (kind, report.status) {
                (Kind::Answer, _) => Fault::Url,
                _ => Fault::Host,
            };
        };
        let known = self.rare.as_mut().and_then(|rare| rare.evidence.as_mut());
        if kind == Kind::Answer {
            if let (Some(evidence), Some(_)) = (known, lease) {
                evidence.answered(url);
            }
            return Fault::Url;
        }
        let Some(lease) = lease else {
            return match known {
                Some(evidence) if evidence.suspects(url) => Fault::Url,
                _ => Fault::Host,
            };
        };
        let (next, reported) = (self.leases.next(), self.leases.tally().reported);
        let served_before = self.latency.p50().is_some();
        let evidence = self.rare().evidence.get_or_insert_with(|| {
            Box::new(Evidence {
                // This report is counted already.
                tries: (reported.saturating_sub(1)).min(u64::from(TRIES_MAX / 2)) as u8,
                ..Evidence::default()
            })
        });
        evidence.failed(url, kind, lease.id, next, served_before)
    }

    /// Before the law cuts the rate for `report`: keeps what it knows, should the URL prove to be at fault.
    pub(super) fn before_cut(&mut self, report: &Report) {
        let law = &self.law;
        if let Some(rare) = &mut self.rare
            && let Some(evidence) = &mut rare.evidence
        {
            evidence.before_cut(report.resource.map(Resource::short), law);
        }
    }

    /// Gives the law back what it knew before cuts that were all made for URLs which are at fault themselves.
    pub(super) fn undo_cuts(&mut self, now: Timestamp, config: &Config) {
        let evidence = self.rare.as_mut().and_then(|rare| rare.evidence.as_mut());
        if let Some(mut before) = evidence.and_then(|evidence| evidence.undo_cuts()) {
            let rate = |law: &mut KeyLaw| law.setpoint(now, &config.limits).rate;
            if rate(&mut before) >= rate(&mut self.law) {
                self.law = before;
            }
        }
    }
}

impl Evidence {
    fn find(&mut self, url: u32) -> Option<usize> {
        self.failed.iter().position(|failed| failed.url == url)
    }

    /// Does `url` fail although others are served?
    fn suspects(&self, url: u32) -> bool {
        let standing = (self.failed.iter()).find(|failed| failed.url == url);
        standing.is_some_and(|failed| failed.standing != Standing::Unclear)
    }

    /// A page was served. `was_open`: the breaker was not closed, so failures until now were the host's.
    fn served(&mut self, url: Option<u32>, lease: LeaseId, was_open: bool) {
        if let Some(at) = url.and_then(|url| self.find(url)) {
            self.record = (self.record.min(0) - 1).max(RECORD.0);
            let recovered = self.failed.remove(at);
            if recovered.cut {
                self.keep_cuts();
            }
        }
        if was_open {
            self.failed
                .retain(|failed| failed.standing != Standing::Unclear);
        } else if !self.is_rare(RARE_RUN) {
            self.count(self.run, self.run);
        }
        self.count(1, 0);
        (self.run, self.repeats) = (0, 0);
        for failed in &mut self.failed {
            // A success that was under way before the failure says nothing about what came after it.
            if failed.standing == Standing::Unclear && lease.0 >= failed.since {
                failed.standing = Standing::Suspect;
            }
        }
    }

    /// The host answered `url` soundly, though not with a page.
    fn answered(&mut self, url: u32) {
        if let Some(at) = self.find(url)
            && self.failed.remove(at).cut
        {
            self.keep_cuts();
        }
        (self.run, self.repeats) = (0, 0);
    }

    /// `url` failed; `next`: the first lease that will be granted after it.
    fn failed(
        &mut self,
        url: u32,
        kind: Kind,
        lease: LeaseId,
        next: LeaseId,
        served_before: bool,
    ) -> Fault {
        if let Some(at) = self.find(url) {
            let failed = &mut self.failed[at];
            if failed.standing != Standing::Unclear {
                if failed.standing == Standing::Suspect && lease.0 >= failed.since {
                    failed.standing = Standing::Proven;
                    self.record = (self.record + 1).min(RECORD.1);
                }
                return Fault::Url;
            }
            failed.since = next.0;
            self.repeats = self.repeats.saturating_add(1);
        } else {
            if self.failed.len() >= URLS_MAX && self.failed.remove(0).cut {
                self.keep_cuts();
            }
            self.failed.push(FailedUrl {
                since: next.0,
                url,
                standing: Standing::Unclear,
                cut: false,
            });
            self.run = self.run.saturating_add(1);
        }
        self.failed.sort_unstable();
        let at_first_sight = match kind {
            Kind::Block => true,
            Kind::Refusal => self.record < OWN_FAULTS,
            Kind::Trouble => served_before && self.record <= TRANSIENTS,
            Kind::Error | Kind::Answer => false,
        };
        if at_first_sight {
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

    fn is_rare(&self, below: f64) -> bool {
        let lone = self.repeats.saturating_sub(LONE_FAILURES);
        self.is_rare_run(self.run.saturating_add(lone), below)
    }

    /// Is a run of this length less likely than `below`, if URLs fail independently at the host's usual share?
    fn is_rare_run(&self, length: u8, below: f64) -> bool {
        let share = (f64::from(self.failures) + PRIOR.0) / (f64::from(self.tries) + PRIOR.1);
        let mut likely = 1.0;
        for _ in 0..length {
            likely *= share;
        }
        likely < below
    }

    /// Counts first tries of URLs, and how many of them failed.
    fn count(&mut self, tries: u8, failures: u8) {
        self.tries = self.tries.saturating_add(tries);
        self.failures = self.failures.saturating_add(failures);
        if self.tries >= TRIES_MAX {
            (self.tries, self.failures) = (self.tries / 2, self.failures / 2);
            self.record -= self.record.signum();
        }
    }

    /// The law is about to cut the rate for `url`.
    fn before_cut(&mut self, url: Option<u32>, law: &KeyLaw) {
        match url.and_then(|url| self.find(url)) {
            Some(at) => {
                self.undo.get_or_insert_with(|| law.clone());
                self.failed[at].cut = true;
            }
            None => self.keep_cuts(),
        }
    }

    /// No cut is undone any more: one was right, so those that came with it stand as well.
    pub(super) fn keep_cuts(&mut self) {
        self.undo = None;
        for failed in &mut self.failed {
            failed.cut = false;
        }
    }

    /// The law before the cuts, once each URL that one was made for has proven to be at fault.
    fn undo_cuts(&mut self) -> Option<KeyLaw> {
        self.undo.as_ref()?;
        for failed in &mut self.failed {
            failed.cut &= failed.standing != Standing::Proven;
        }
        if self.failed.iter().any(|failed| failed.cut) {
            return None;
        }
        self.undo.take()
    }

    /// The configuration is another, or the clock was set back: the law that would be put back follows.
    pub(super) fn adopt(&mut self, adopt: impl FnOnce(&mut KeyLaw)) {
        if let Some(law) = &mut self.undo {
            adopt(law);
        }
    }

    /// Could reports have led here? Bytes read back may be anything.
    pub(super) fn is_plausible(&self) -> bool {
        self.failed.len() <= URLS_MAX
            && (RECORD.0..=RECORD.1).contains(&self.record)
            && self.failures <= self.tries
    }

    /// The latest failures of both; the record that blames the host sooner.
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
        self.tries = self.tries.max(other.tries);
        self.failures = self.failures.max(other.failures);
        self.record = self.record.min(other.record);
        if self.undo != other.undo {
            self.keep_cuts();
        }
    }
}
