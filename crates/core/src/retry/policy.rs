//! The policy: which requests are tried again, when, and how often.
//!
//! What a crawler's user expects is every page, so the default policy loses none to our own speed: a refused
//! request goes back to its key's queue ([`Refusals::Requeue`]), costs no budget (it waits for hold and pace
//! like a first try, so it cannot multiply the load) and does not count as an attempt. Only its own generous
//! cap ends it, so that a page the server refuses for ever does not ride the limit for ever. Failures count:
//! five attempts, spaced by backoff. Where a retry budget runs dry, the default policy waits for it rather
//! than losing the page.
//!
//! What the server says comes first: a Retry-After replaces our own delay and is never shortened; one beyond
//! the user's ceiling parks the request. `Retry-After: 0` says nothing (servers send it by default) and our
//! own delay stands.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use http::Method;

use super::backoff::Backoff;
use super::budget::{Account, withdraw};
use crate::signal::{Failure, Report, Signal};
use crate::{Rng, Timestamp};

/// Which requests are tried again, when, and how often. The default is [`Policy::crawler`].
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// Methods that may be sent twice.
    pub methods: Methods,
    /// Statuses of failures that are tried again. A refused request is, whatever its status.
    pub statuses: Vec<RangeInclusive<u16>>,
    /// Failures without a response that are final at once.
    pub permanent: Vec<Failure>,
    /// The delay before a retry, unless the server names one.
    pub backoff: Backoff,
    /// Added to the backoff's delay after its cap; of several that match, the first.
    pub bonuses: Vec<Bonus>,
    /// Attempts that count, the first included; 1 never retries.
    pub attempts_max: u32,
    /// What becomes of refused requests.
    pub refusals: Refusals,
    /// So many answers 429 in a row to one request are final; none: 429s in a row mean nothing special.
    pub consecutive_429_max: Option<u32>,
    /// The longest Retry-After that is waited for; the request is given up as parked beyond it.
    pub retry_after_max: Duration,
    /// How long a retry may wait for a dry budget before it is given up; zero: a dry budget is final.
    pub budget_patience: Duration,
}

/// Methods that may be sent again without asking whether the first one arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Methods {
    /// GET, HEAD, OPTIONS.
    Fetching,
    /// Those and TRACE: the safe methods of RFC 9110, section 9.2.1.
    Safe,
    /// Those, PUT and DELETE: the idempotent methods of RFC 9110, section 9.2.2.
    Idempotent,
}

/// What becomes of a refused request (`RateLimited`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusals {
    /// Back to the key's queue, where hold and pace decide; given up when refused more than `max` times.
    Requeue {
        /// Refusals of one request that are put up with.
        max: u32,
    },
    /// A failure like any other: it counts, waits out its backoff and costs budget.
    Fail,
}

/// An extra delay after certain statuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bonus {
    /// After which statuses.
    pub statuses: RangeInclusive<u16>,
    /// How much longer the retry waits.
    pub extra: Duration,
}

/// The attempt that a report is about. Start with [`Attempt::first`], go on with [`Attempt::following`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// How many times the request has been sent, this time included: 1, 2, … Proxies may rotate by it.
    pub number: u32,
    /// The request's method.
    pub method: Method,
    /// How many earlier attempts were refused (`RateLimited`).
    pub refusals: u32,
    /// How many attempts just before this one were answered 429.
    pub consecutive_429: u32,
    /// The delay this attempt waited out, if it did: decorrelated jitter grows from it.
    pub previous_delay: Option<Duration>,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Send it again.
    Retry {
        /// How long this request waits, beyond whatever hold its key is under. It keeps no lease and no worker
        /// meanwhile, and asks for a new permit afterwards.
        after: Duration,
        /// Whether it goes back to its key's queue: the key was refused, and this request waits for nothing of
        /// its own. Otherwise it alone was put off.
        requeue: bool,
    },
    /// It will not be sent again.
    GiveUp(GiveUpReason),
    /// It was served.
    Done,
}

/// Why a request will not be sent again, for a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GiveUpReason {
    /// Sending its method twice might do something twice.
    Method,
    /// This failure will not go away.
    Permanent(Failure),
    /// This status says that the same request would be answered alike.
    Status(u16),
    /// A challenge or block page: trying on would be evading it.
    Blocked,
    /// The server asked to be left alone for longer than the user's ceiling.
    Parked(Duration),
    /// So many 429s in a row.
    Consecutive429(u32),
    /// Refused so many times.
    Refused(u32),
    /// Failed so many times.
    Attempts(u32),
    /// The retry budget of the key or the process is spent.
    BudgetSpent,
}

impl Policy {
    /// A crawler's: safe methods; 408, 429, 500, 502-504, 520-524 (Cloudflare: origin in trouble) and 529 are tried
    /// again, as are failures other than an unknown name, bad TLS or a malformed response; five attempts;
    /// refused requests requeue up to 100 times; Retry-After up to an hour; ten minutes' patience with budgets.
    pub fn crawler() -> Self {
        Self {
            methods: Methods::Safe,
            statuses: vec![
                408..=408,
                429..=429,
                500..=500,
                502..=504,
                520..=524,
                529..=529,
            ],
            permanent: vec![Failure::NoSuchHost, Failure::Tls, Failure::Malformed],
            backoff: Backoff::CRAWLER,
            bonuses: Vec::new(),
            attempts_max: 5,
            refusals: Refusals::Requeue { max: 100 },
            consecutive_429_max: None,
            retry_after_max: Duration::from_hours(1),
            budget_patience: Duration::from_mins(10),
        }
    }

    /// The job scraper's retrying transport (DESIGN, mission line 1): the delay before retry n, from 0, is
    /// `min(300 ms x 2^n, 4 s) + U[0, 120 ms) + bonus`. Its cap binds the doubling alone: jitter and bonus come
    /// on top, so the longest delay is just below 4.72 s. 429 and 5xx are tried again; 401, 403 and 406 only
    /// where they carry a limit's headers, and then their bonus counts. The transport has no budget: call
    /// [`Policy::decide`] with no accounts.
    ///
    /// Two things are ours. The scraper leaves the count to its caller: this preset makes four attempts. It
    /// does not read Retry-After: here one replaces the delay, up to an hour.
    pub fn job_scraper() -> Self {
        let bonus = |statuses, ms| Bonus {
            statuses,
            extra: Duration::from_millis(ms),
        };
        Self {
            methods: Methods::Fetching,
            statuses: vec![429..=429, 500..=599],
            permanent: vec![Failure::NoSuchHost, Failure::Tls, Failure::Connect],
            backoff: Backoff::JOB_SCRAPER,
            bonuses: vec![
                bonus(429..=429, 300),
                bonus(500..=599, 80),
                bonus(401..=401, 600),
                bonus(403..=403, 600),
                bonus(406..=406, 600),
            ],
            attempts_max: 4,
            refusals: Refusals::Fail,
            consecutive_429_max: Some(2),
            retry_after_max: Duration::from_hours(1),
            budget_patience: Duration::ZERO,
        }
    }

    /// What becomes of the request whose `attempt` ended in `report`. Call it once per attempt: a served
    /// request pays into all `accounts` (its key's and the process's; none is fine), a retry is paid from them.
    pub fn decide(
        &self,
        attempt: &Attempt,
        report: &Report,
        accounts: &mut [Account<'_>],
        rng: &mut Rng,
        now: Timestamp,
    ) -> Next {
        if report.signal == Signal::Ok {
            for account in accounts {
                account.budget.deposit(account.rule, now);
            }
            return Next::Done;
        }
        if let Some(reason) = self.hopeless(attempt, report) {
            return Next::GiveUp(reason);
        }
        let refused = report.signal == Signal::RateLimited;
        if let (true, Refusals::Requeue { max }) = (refused, self.refusals) {
            let refusals = attempt.refusals.saturating_add(1);
            return if refusals > max {
                Next::GiveUp(GiveUpReason::Refused(refusals))
            } else {
                Next::Retry {
                    after: Duration::ZERO,
                    requeue: true,
                }
            };
        }
        let counted = self.counted(attempt);
        if counted >= self.attempts_max {
            return Next::GiveUp(GiveUpReason::Attempts(counted));
        }
        let own = self
            .backoff
            .delay(counted - 1, attempt.previous_delay, rng)
            .saturating_add(self.bonus(report));
        let delay = report
            .retry_after
            .filter(|asked| !asked.is_zero())
            .unwrap_or(own);
        match withdraw(accounts, self.budget_patience, now) {
            Some(wait) => Next::Retry {
                after: delay.max(wait),
                requeue: false,
            },
            None => Next::GiveUp(GiveUpReason::BudgetSpent),
        }
    }

    /// Puts off this request alone: what [`Policy::decide`] answered about a failure that counts against its
    /// URL only ([`crate::host::Directions::url_fault`]), so that no hold of its key makes it wait.
    ///
    /// A refused request waits its Retry-After, and no less than a backoff that grows with each refusal, so
    /// that one refused URL does not take its neighbours' turns. All other answers stand.
    #[must_use]
    pub fn put_off(&self, next: Next, attempt: &Attempt, report: &Report, rng: &mut Rng) -> Next {
        let Next::Retry {
            after,
            requeue: true,
        } = next
        else {
            return next;
        };
        let own = self
            .backoff
            .delay(attempt.refusals, attempt.previous_delay, rng);
        Next::Retry {
            after: after.max(own).max(report.retry_after.unwrap_or_default()),
            requeue: false,
        }
    }

    /// Why no further attempt could be right, however few there were.
    fn hopeless(&self, attempt: &Attempt, report: &Report) -> Option<GiveUpReason> {
        if report.signal == Signal::Blocked {
            return Some(GiveUpReason::Blocked);
        }
        if let Some(failure) = report
            .failure
            .filter(|failure| self.permanent.contains(failure))
        {
            return Some(GiveUpReason::Permanent(failure));
        }
        let tried_again = |status| {
            report.signal == Signal::RateLimited
                || self.statuses.iter().any(|range| range.contains(&status))
        };
        // A connection may break after a fine status: then the failure counts.
        let status = report.status.filter(|_| report.failure.is_none());
        if let Some(status) = status.filter(|&status| !tried_again(status)) {
            return Some(GiveUpReason::Status(status));
        }
        if !self.methods.contains(&attempt.method) {
            return Some(GiveUpReason::Method);
        }
        let in_a_row = attempt.in_a_row(report);
        if self
            .consecutive_429_max
            .is_some_and(|max| in_a_row > 0 && in_a_row >= max)
        {
            return Some(GiveUpReason::Consecutive429(in_a_row));
        }
        report
            .retry_after
            .filter(|&asked| asked > self.retry_after_max)
            .map(GiveUpReason::Parked)
    }

    /// Attempts that count against the cap and lengthen the backoff, this one included: at least one.
    fn counted(&self, attempt: &Attempt) -> u32 {
        let free = if self.refusals == Refusals::Fail {
            0
        } else {
            attempt.refusals
        };
        attempt.number.saturating_sub(free).max(1)
    }

    fn bonus(&self, report: &Report) -> Duration {
        let matching = |bonus: &&Bonus| {
            report
                .status
                .is_some_and(|status| bonus.statuses.contains(&status))
        };
        self.bonuses
            .iter()
            .find(matching)
            .map_or(Duration::ZERO, |bonus| bonus.extra)
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self::crawler()
    }
}

impl Methods {
    /// Whether a request with this method may be sent again.
    pub fn contains(self, method: &Method) -> bool {
        match *method {
            Method::GET | Method::HEAD | Method::OPTIONS => true,
            Method::TRACE => self != Self::Fetching,
            Method::PUT | Method::DELETE => self == Self::Idempotent,
            _ => false,
        }
    }
}

impl Attempt {
    /// The first attempt of a request.
    pub const fn first(method: Method) -> Self {
        Self {
            number: 1,
            method,
            refusals: 0,
            consecutive_429: 0,
            previous_delay: None,
        }
    }

    /// The attempt after this one, which ended in `report` and is followed by a retry after `delay`.
    #[must_use]
    pub fn following(self, report: &Report, delay: Duration) -> Self {
        Self {
            number: self.number.saturating_add(1),
            refusals: self
                .refusals
                .saturating_add(u32::from(report.signal == Signal::RateLimited)),
            consecutive_429: self.in_a_row(report),
            // A requeued request waited for nothing of its own.
            previous_delay: if delay.is_zero() {
                self.previous_delay
            } else {
                Some(delay)
            },
            method: self.method,
        }
    }

    /// 429s in a row up to and with this report.
    const fn in_a_row(&self, report: &Report) -> u32 {
        if matches!(report.status, Some(429)) {
            self.consecutive_429.saturating_add(1)
        } else {
            0
        }
    }
}

impl fmt::Display for GiveUpReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Method => f.write_str("its method must not be sent twice"),
            Self::Permanent(failure) => f.write_str(match failure {
                Failure::NoSuchHost => "the host does not exist",
                Failure::Resolver => "the name cannot be resolved",
                Failure::Connect => "the host is unreachable",
                Failure::Tls => "the host's TLS is bad",
                Failure::Timeout => "no answer in time",
                Failure::Reset => "the connection broke",
                Failure::Malformed => "the response is malformed",
            }),
            Self::Status(status) => write!(f, "status {status} is final"),
            Self::Blocked => f.write_str("blocked by the host"),
            Self::Parked(asked) => write!(f, "parked: the host asked for {} s", asked.as_secs()),
            Self::Consecutive429(count) => write!(f, "{count} x 429 in a row"),
            Self::Refused(count) => write!(f, "refused {count} times"),
            Self::Attempts(count) => write!(f, "failed {count} times"),
            Self::BudgetSpent => f.write_str("the retry budget is spent"),
        }
    }
}

#[cfg(test)]
#[path = "policy_tests.rs"]
mod tests;
