//! Tells an outage of a host from a failure of one page. A page's attempts are spent only while its
//! host serves others.
//!
//! A failed request is evidence against its own URL once another URL of the host was served after
//! it. Until then the host itself may be down. Failures of one URL between two served requests
//! count once. A page that fails alone spends its attempts, but a host that restarts needs a
//! minute: only a failed connection is no page's fault at all. An outage is bounded by time: a
//! host that served nothing for [`crate::retry::Policy::give_up_after`] is given up. A host that
//! never answered is given up sooner, with all of its URLs: nothing says that it exists.

use std::fmt;
use std::time::Duration;

use crate::Timestamp;
use crate::signal::Resource;

/// The time after which a host whose URLs were all tried and answer plain 500s is given up. The
/// pages are more likely broken than the host is down.
const LAST_PAGES_MAX: Duration = Duration::from_mins(1);
/// The shortest time for which the last pages of a host are tried.
const LAST_PAGES_MIN: Duration = Duration::from_secs(30);
/// The same for a page that fails alone, unless it gets plain errors. A server restarts faster.
const LONE_PAGE_MIN: Duration = Duration::from_mins(1);
/// The number of failures before a host can be given up.
const FAILURES_MIN: u32 = 3;
/// A host without requests for longer than this is given up only after a further failure, and a
/// host that was given up is tried anew.
const RECENT: Duration = Duration::from_mins(2);
/// A host that never answered is given up after this many tries, but not before a server would have
/// restarted; and after the longest time in any case.
const SILENT_TRIES: u32 = 6;
const SILENT_MIN: Duration = Duration::from_secs(5);
const SILENT_MAX: Duration = Duration::from_secs(30);
/// The number of waits in a row that do not count as time of an outage.
const LONG_WAITS_MAX: u32 = 3;

/// Whether a host serves requests: its failures since it last did.
#[derive(Clone, Debug, Default)]
pub struct Outage {
    /// Grows with each request that the host serves.
    served: u64,
    has_served: bool,
    /// Whether it ever answered, with a page or an error.
    has_answered: bool,
    /// The failures since the last served request.
    trouble: Option<Box<Trouble>>,
}

/// Failures with nothing served between them.
#[derive(Clone, Debug)]
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
    given_up: Option<GivenUp>,
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
pub enum Company {
    /// No other request.
    Alone,
    /// Other URLs, and each was tried.
    Tried,
    /// Other URLs, and at least one was not tried yet.
    Untried,
    /// The caller does not know. Its page counts as alone until another one fails too.
    Unknown,
}

/// A request that was not served.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failed {
    /// The requested URL.
    pub(crate) resource: Resource,
    /// Whether the host refused the request for all its URLs, so the page itself is not at fault.
    pub(crate) is_refusal: bool,
    /// Whether the answer says nothing against the host.
    pub(crate) is_plain: bool,
    /// How far the request came.
    pub(crate) reply: Reply,
    /// The wait that the host asked for, or `None` if it named the URL alone.
    pub(crate) asked_wait: Option<Duration>,
    /// The other requests of its host.
    pub(crate) company: Company,
}

/// How far a request came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// To an answer.
    Answered,
    /// To no answer: a name that cannot be looked up, a failed handshake, a time-out.
    Silent,
    /// To no connection. That is no URL's fault.
    Unreachable,
}

/// The failures of one page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Failures {
    /// The number of failures that count against the page.
    pub own: u32,
    /// Failures that do not count yet. They count once if the host serves another page.
    unclear: u32,
    /// The count of the host's served requests at the last failure.
    served: u64,
}

impl Failures {
    /// Returns failures of which `own` count against the page.
    pub const fn counted(own: u32) -> Self {
        Self {
            own,
            unclear: 0,
            served: u64::MAX,
        }
    }

    /// Returns whether the page never failed.
    pub const fn is_empty(&self) -> bool {
        self.own == 0 && self.unclear == 0
    }

    /// Forgets failures that do not count yet: they were those of another host.
    pub const fn forget_unclear(&mut self) {
        *self = Self::counted(self.own);
    }

    /// Returns the number of all failures, by which delays grow.
    pub const fn all(&self) -> u32 {
        self.own.saturating_add(self.unclear)
    }
}

/// The meaning of a failure for its page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The page is at fault, and the failure counts.
    Page {
        /// A page out of attempts fails, but not before this time.
        not_before: Timestamp,
        /// Whether the host ever served a page.
        host_serves: bool,
    },
    /// The host refused the request, as it would have refused one for another page. The failure
    /// does not count.
    Refused {
        /// Whether the host seems to be down.
        is_down: bool,
    },
    /// The host may be at fault, and the failure does not count.
    Host,
    /// The host is suspected of refusing everything, and the failure does not count.
    Doubted {
        /// Whether it refused for so long that it counts as one that blocks.
        is_over: bool,
    },
    /// The host is given up, with all of its pages.
    GivenUp(GivenUp),
}

/// Why a host is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GivenUp {
    /// It never answered.
    NeverAnswered {
        /// The number of requests.
        tries: u32,
        /// Whether [`crate::retry::Policy::give_up_after`] is over.
        is_all: bool,
    },
    /// It answered, and then served nothing.
    ServedNothing {
        /// The time without a served request.
        length: Duration,
        /// Whether [`crate::retry::Policy::give_up_after`] is over.
        is_all: bool,
    },
}

impl fmt::Display for GivenUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NeverAnswered { tries, .. } => {
                write!(f, "the host never answered, in {tries} tries")
            }
            Self::ServedNothing { length, .. } => {
                write!(f, "the host served nothing for {} s", length.as_secs())
            }
        }
    }
}

impl Outage {
    /// Returns the state of a host that was forgotten since it last was in trouble. `served` is
    /// larger than [`Outage::count`] was when it was forgotten.
    pub fn resumed(served: u64, has_served: bool) -> Self {
        Self {
            served,
            has_served,
            has_answered: has_served,
            trouble: None,
        }
    }

    /// Returns a number that grows with each request that the host serves.
    pub const fn count(&self) -> u64 {
        self.served
    }

    /// Records that a request was served.
    pub fn served(&mut self) {
        self.served += 1;
        self.has_served = true;
        self.has_answered = true;
        self.trouble = None;
    }

    /// Returns whether the host ever answered.
    pub fn has_answered(&self) -> bool {
        self.has_answered
    }

    /// Forgets failures that were not the host's.
    pub fn forget_trouble(&mut self) {
        if self.given_up().is_none() {
            self.trouble = None;
        }
    }

    /// Returns whether the last known event of the host is a failure.
    pub fn in_trouble(&self) -> bool {
        self.trouble.is_some()
    }

    /// Counts an earlier failure of a page against it if another URL was served since.
    pub fn settle(&self, page: &mut Failures) {
        if page.unclear > 0 && page.served < self.served {
            page.unclear = 0;
            page.own += 1;
        }
    }

    /// Records that a request failed at `now`, of a page with the failures `page` so far.
    pub(crate) fn failed(
        &mut self,
        now: Timestamp,
        page: &mut Failures,
        failed: &Failed,
        give_up_after: Duration,
    ) -> Verdict {
        self.settle(page);
        let is_old = |trouble: &Trouble| now.since(trouble.last) > RECENT;
        if self.given_up().is_some() && self.trouble.as_deref().is_some_and(is_old) {
            self.trouble = None;
        }
        let host_serves = self.has_served;
        // Another page was served between two failures of this one.
        let is_proven = page.own > 0 && page.served < self.served;
        page.served = self.served;
        self.has_answered |= failed.reply == Reply::Answered;
        let is_silent = !self.has_answered;
        let trouble = self
            .trouble
            .get_or_insert_with(|| Box::new(Trouble::at(now)));
        trouble.add(now, page, failed, give_up_after);
        if let Some(why) = trouble.give_up(now, give_up_after, is_silent) {
            return Verdict::GivenUp(why);
        }
        if failed.is_refusal {
            let is_down = trouble.is_of_host();
            return Verdict::Refused { is_down };
        }
        // The shortest time for which the page is tried, if the failure counts against it.
        let tried_for = match failed.company {
            _ if is_proven => Some(Duration::ZERO),
            _ if failed.reply == Reply::Unreachable && host_serves => None,
            Company::Unknown | Company::Tried if trouble.evidence == Evidence::Several => None,
            Company::Untried => None,
            Company::Alone | Company::Unknown if !host_serves => Some(Duration::ZERO),
            Company::Alone | Company::Unknown if !failed.is_plain => Some(LONE_PAGE_MIN),
            Company::Alone | Company::Unknown if page.own > 0 => Some(Duration::ZERO),
            Company::Alone | Company::Unknown | Company::Tried => Some(LAST_PAGES_MIN),
        };
        if let Some(tried_for) = tried_for {
            page.unclear = 0;
            page.own += 1;
            let not_before = if tried_for.is_zero() {
                now
            } else {
                trouble.since + tried_for.min(give_up_after)
            };
            return Verdict::Page {
                not_before,
                host_serves,
            };
        }
        page.unclear = page.unclear.saturating_add(1);
        Verdict::Host
    }

    /// Returns when the host is given up if it serves nothing before.
    pub fn deadline(&self, now: Timestamp, give_up_after: Duration) -> Option<Timestamp> {
        let trouble = self.trouble.as_ref()?;
        (trouble.failures >= FAILURES_MIN && now.since(trouble.last) <= RECENT)
            .then(|| trouble.deadline(give_up_after, !self.has_answered))
    }

    /// Gives the host up if its time is over. Returns why.
    pub fn give_up(&mut self, now: Timestamp, give_up_after: Duration) -> Option<GivenUp> {
        let is_silent = !self.has_answered;
        self.trouble
            .as_mut()?
            .give_up(now, give_up_after, is_silent)
    }

    /// Returns why the host was given up, if it was.
    pub fn given_up(&self) -> Option<GivenUp> {
        self.trouble.as_ref()?.given_up
    }

    /// Starts over after the host was given up: new URLs came after all others had failed.
    pub fn start_over(&mut self) {
        if self.given_up().is_some() {
            self.trouble = None;
        }
    }

    /// Returns since when a host that seems to be down served nothing.
    pub fn down_since(&self) -> Option<Timestamp> {
        let trouble = self.trouble.as_ref()?;
        trouble.is_of_host().then_some(trouble.since)
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
            given_up: None,
        }
    }

    fn add(&mut self, now: Timestamp, page: &Failures, failed: &Failed, give_up_after: Duration) {
        self.last = now;
        self.failures = self.failures.saturating_add(1);
        self.is_plain &= failed.is_plain;
        self.all_tried = failed.company != Company::Untried;
        if page.own == 0 {
            self.evidence = match self.evidence {
                Evidence::None => Evidence::One(failed.resource),
                Evidence::One(other) if other != failed.resource => Evidence::Several,
                known => known,
            };
        }
        // The host got no request in all that time, so the wait proves nothing.
        if let Some(wait) = failed.asked_wait
            && wait > give_up_after
            && (self.long_waits < LONG_WAITS_MAX || self.since > now)
        {
            self.long_waits += u32::from(self.since <= now);
            self.since = self.since.max(now + wait);
        }
    }

    /// Returns when the host is given up. `is_silent` means that it never answered.
    fn deadline(&self, give_up_after: Duration, is_silent: bool) -> Timestamp {
        let bound = if is_silent && self.failures >= SILENT_TRIES {
            give_up_after.min(SILENT_MIN)
        } else if is_silent {
            give_up_after.min(SILENT_MAX)
        } else if self.is_plain && self.all_tried {
            give_up_after.min(LAST_PAGES_MAX)
        } else {
            give_up_after
        };
        self.since + bound
    }

    /// Returns whether the failures are evidence against the host.
    fn is_of_host(&self) -> bool {
        self.evidence == Evidence::Several || self.failures >= FAILURES_MIN
    }

    fn give_up(
        &mut self,
        now: Timestamp,
        give_up_after: Duration,
        is_silent: bool,
    ) -> Option<GivenUp> {
        let deadline = self.deadline(give_up_after, is_silent);
        if self.given_up.is_none() && self.failures >= FAILURES_MIN && deadline <= now {
            let is_all = deadline == self.since + give_up_after;
            self.given_up = Some(if is_silent {
                GivenUp::NeverAnswered {
                    tries: self.failures,
                    is_all,
                }
            } else {
                GivenUp::ServedNothing {
                    length: now.since(self.since),
                    is_all,
                }
            });
        }
        self.given_up
    }
}

#[cfg(test)]
#[path = "outage_tests.rs"]
mod tests;
