//! Detects whether a host serves requests. A page's attempts are spent only while it does.
//!
//! A failed request is evidence against its own URL once another URL of the host was served after
//! it. Until then the host itself may be down. Failures of one URL between two served requests
//! count once. An outage is bounded by time: a host that served nothing for
//! [`Patience::give_up_after`] is given up. A host that never answered is given up sooner, with all
//! of its URLs: nothing says that it exists.

use std::fmt::Write as _;
use std::time::Duration;

use politely::core::Timestamp;
use politely::core::signal::Resource;

use super::pending::Pending;

/// The limits on how long pages and hosts are tried.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Failures of a page that count before the page fails, at least 1.
    pub(crate) attempts_max: u32,
    /// A host that serves nothing for this long is given up.
    pub(crate) give_up_after: Duration,
}

/// The time after which a host whose URLs were all tried and answer plain 500s is given up. The
/// pages are more likely broken than the host is down.
const LAST_PAGES_MAX: Duration = Duration::from_mins(1);
/// The shortest time for which the last pages of a host are tried. A server restarts faster.
const LAST_PAGES_MIN: Duration = Duration::from_secs(30);
/// The number of failures before a host can be given up.
const FAILURES_MIN: u32 = 3;
/// A host without requests for longer than this is given up only after a further failure.
const RECENT: Duration = Duration::from_mins(2);
/// A host that never answered is given up after this many tries, but not before a server would have
/// restarted; and after the longest time in any case.
const SILENT_TRIES: u32 = 6;
const SILENT_MIN: Duration = Duration::from_secs(5);
const SILENT_MAX: Duration = Duration::from_secs(30);
/// The number of waits in a row that do not count as time of an outage.
const LONG_WAITS_MAX: u32 = 3;

/// Whether a host serves requests.
#[derive(Debug, Default)]
pub(crate) struct Health {
    /// The number of requests that it served.
    served: u64,
    /// Whether it ever answered, with a page or an error.
    has_answered: bool,
    /// The failures since the last served request.
    trouble: Option<Box<Trouble>>,
}

/// Failures with nothing served between them.
#[derive(Debug)]
struct Trouble {
    /// The first failure, or the end of the last long wait that the host asked for.
    since: Timestamp,
    last: Timestamp,
    failures: u32,
    evidence: Evidence,
    /// Whether every answer was an error that says nothing against the host, such as a plain 500.
    is_plain: bool,
    /// Whether every waiting URL was tried.
    all_tried: bool,
    long_waits: u32,
    /// The last failure, in words.
    words: Box<str>,
    /// The host is given up, and why.
    gave_up: Option<Box<str>>,
}

/// The URLs that failed, without those that failed while others were served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Evidence {
    None,
    One(Resource),
    Several,
}

/// The other requests that wait or are under way for the host of a failed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Company {
    /// No other request.
    Alone,
    /// Other URLs, and each was tried.
    Tried,
    /// Other URLs, and at least one was not tried yet.
    Untried,
}

/// A request that was not served.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failed<'a> {
    pub(crate) resource: Resource,
    /// Whether the host refused the request for all its URLs, so the page itself is not at fault.
    pub(crate) is_refusal: bool,
    /// Whether the answer says nothing against the host.
    pub(crate) is_plain: bool,
    /// Whether the host did not answer: an unknown name, no connection, a failed handshake, a
    /// time-out.
    pub(crate) is_silence: bool,
    /// The wait that the host asked for, or `None` if it named the URL alone.
    pub(crate) asked_wait: Option<Duration>,
    pub(crate) company: Company,
    /// The failure, in words.
    pub(crate) words: &'a str,
}

/// The meaning of a failure for its page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The failure counts against the page. A page out of attempts fails, but not before this time.
    Charged(Timestamp),
    /// The failure does not count, since the host may be down.
    Uncharged,
    /// The host is given up, and why.
    GiveUp(String),
}

impl Health {
    /// Records that a request was served.
    pub(crate) fn served(&mut self) {
        self.served += 1;
        self.has_answered = true;
        self.trouble = None;
    }

    /// Returns whether the host ever answered.
    pub(crate) fn has_answered(&self) -> bool {
        self.has_answered
    }

    /// Forgets failures that were not the host's.
    pub(crate) fn forget_trouble(&mut self) {
        if self.gave_up().is_none() {
            self.trouble = None;
        }
    }

    /// Returns whether the host ever served a request.
    pub(crate) fn has_served(&self) -> bool {
        self.served > 0
    }

    /// Returns whether the last known event of the host is a failure.
    pub(crate) fn in_trouble(&self) -> bool {
        self.trouble.is_some()
    }

    /// Counts an earlier failure of `page` against it if another URL was served since.
    pub(crate) fn settle(&self, page: &mut Pending) {
        if page
            .failed_in
            .is_some_and(|(served, _)| served < self.served)
        {
            page.failed_in = None;
            page.own_failures += 1;
        }
    }

    /// Records that a request of `page` failed at `now`.
    pub(crate) fn failed(
        &mut self,
        now: Timestamp,
        page: &mut Pending,
        failed: &Failed<'_>,
        patience: &Patience,
    ) -> Verdict {
        self.settle(page);
        let had_served = self.served > 0;
        self.has_answered |= !failed.is_silence;
        let is_silent = !self.has_answered;
        let trouble = self
            .trouble
            .get_or_insert_with(|| Box::new(Trouble::at(now)));
        trouble.add(now, page, failed, patience);
        if let Some(why) = trouble.given_up(now, patience, is_silent) {
            return Verdict::GiveUp(why);
        }
        if failed.is_refusal {
            return Verdict::Uncharged;
        }
        let is_suspect = page.own_failures > 0;
        let charged = if failed.company == Company::Alone {
            Some(!had_served || is_suspect)
        } else if trouble.evidence == Evidence::Several || failed.company == Company::Untried {
            None
        } else {
            Some(false)
        };
        if let Some(at_once) = charged {
            page.failed_in = None;
            page.own_failures += 1;
            return Verdict::Charged(if at_once {
                now
            } else {
                trouble.since + LAST_PAGES_MIN.min(patience.give_up_after)
            });
        }
        let times = page.failed_in.map_or(0, |(_, times)| times);
        page.failed_in = Some((self.served, times.saturating_add(1)));
        Verdict::Uncharged
    }

    /// Returns when the host is given up if it serves nothing before.
    pub(crate) fn deadline(&self, now: Timestamp, patience: &Patience) -> Option<Timestamp> {
        let trouble = self.trouble.as_ref()?;
        (trouble.failures >= FAILURES_MIN && now.since(trouble.last) <= RECENT)
            .then(|| trouble.deadline(patience, !self.has_answered))
    }

    /// Gives the host up. Returns why.
    pub(crate) fn give_up(&mut self, now: Timestamp, patience: &Patience) -> Option<String> {
        let is_silent = !self.has_answered;
        self.trouble.as_mut()?.given_up(now, patience, is_silent)
    }

    /// Returns why the host was given up, if it was.
    pub(crate) fn gave_up(&self) -> Option<&str> {
        self.trouble.as_ref()?.gave_up.as_deref()
    }

    /// Starts over after the host was given up: new URLs came after all others had failed.
    pub(crate) fn start_over(&mut self) {
        if self.gave_up().is_some() {
            self.trouble = None;
        }
    }

    /// Returns whether the host seems to be down.
    pub(crate) fn is_down(&self) -> bool {
        self.down_since().is_some()
    }

    /// Returns since when a host that seems to be down served nothing.
    pub(crate) fn down_since(&self) -> Option<Timestamp> {
        let trouble = self.trouble.as_ref()?;
        (trouble.evidence == Evidence::Several || trouble.failures >= FAILURES_MIN)
            .then_some(trouble.since)
    }
}

impl Trouble {
    fn at(now: Timestamp) -> Self {
        Self {
            since: now,
            last: now,
            failures: 0,
            evidence: Evidence::None,
            is_plain: true,
            all_tried: false,
            long_waits: 0,
            words: Box::default(),
            gave_up: None,
        }
    }

    fn add(&mut self, now: Timestamp, page: &Pending, failed: &Failed<'_>, patience: &Patience) {
        self.last = now;
        self.failures = self.failures.saturating_add(1);
        self.is_plain &= failed.is_plain;
        self.all_tried = failed.company != Company::Untried;
        self.words = failed.words.into();
        if page.own_failures == 0 {
            self.evidence = match self.evidence {
                Evidence::None => Evidence::One(failed.resource),
                Evidence::One(other) if other != failed.resource => Evidence::Several,
                known => known,
            };
        }
        // The host got no request in all that time, so the wait proves nothing.
        if let Some(wait) = failed.asked_wait
            && wait > patience.give_up_after
            && (self.long_waits < LONG_WAITS_MAX || self.since > now)
        {
            self.long_waits += u32::from(self.since <= now);
            self.since = self.since.max(now + wait);
        }
    }

    /// Returns when the host is given up. `is_silent` means that it never answered.
    fn deadline(&self, patience: &Patience, is_silent: bool) -> Timestamp {
        let bound = if is_silent && self.failures >= SILENT_TRIES {
            patience.give_up_after.min(SILENT_MIN)
        } else if is_silent {
            patience.give_up_after.min(SILENT_MAX)
        } else if self.is_plain && self.all_tried {
            patience.give_up_after.min(LAST_PAGES_MAX)
        } else {
            patience.give_up_after
        };
        self.since + bound
    }

    fn given_up(&mut self, now: Timestamp, patience: &Patience, is_silent: bool) -> Option<String> {
        let deadline = self.deadline(patience, is_silent);
        if self.gave_up.is_none() && self.failures >= FAILURES_MIN && deadline <= now {
            let (mut why, last) = if is_silent {
                let tries = self.failures;
                let why = format!("the host never answered, in {tries} tries");
                (why, "failure")
            } else {
                let secs = now.since(self.since).as_secs();
                (format!("the host served nothing for {secs} s"), "answer")
            };
            if deadline == self.since + patience.give_up_after {
                why.push_str(" (--give-up-after)");
            }
            // Writing to a `String` cannot fail.
            let _ = write!(why, "; the last {last}: {}", self.words);
            self.gave_up = Some(why.into());
        }
        self.gave_up.as_deref().map(str::to_owned)
    }
}

#[cfg(test)]
#[path = "outage_tests.rs"]
mod tests;
