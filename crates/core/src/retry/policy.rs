//! The policy: which requests are tried again, when, and how often.
//!
//! A crawler's user expects every page, so the default policy loses no page to its own speed. A
//! refused request goes back to its key's queue ([`Refusals::Requeue`]). It costs no budget: it
//! waits for hold and pace like a first attempt, so it cannot multiply the load. It does not count
//! as an attempt. Only a cap of its own ends it, so that a page that is always refused does not use
//! the limit for ever. Failures of the page count: five attempts, spaced by backoff. Failures of
//! its host do not ([`crate::fault`]); an outage is bounded by [`Policy::give_up_after`]. If a
//! retry budget is empty, the default policy waits for it and does not lose the page.
//!
//! The server's Retry-After comes first: it replaces the policy's own delay and is never shortened.
//! If it is longer than the user allows, the request is parked. `Retry-After: 0` says nothing
//! (servers send it by default), and the policy's own delay stands.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use http::Method;

use super::attempt::Attempt;
use super::backoff::Backoff;
use super::budget::{Account, BudgetRule, withdraw};
use crate::fault::{Company, Failed, GivenUp, Outage, Reply, Verdict};
use crate::host::Directions;
use crate::signal::{Failure, Report, Resource, Signal};
use crate::{Rng, Timestamp};

/// The number of failures after which the delays of a page that alone is at fault stop growing:
/// long delays would only lengthen the run.
const OWN_DELAYS: u32 = 2;

/// Which requests are tried again, when, and how often. The default is [`Policy::crawler`].
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// Methods that may be sent twice.
    pub methods: Methods,
    /// Statuses of failures that are tried again. A refused request is tried again with any status.
    pub statuses: Vec<RangeInclusive<u16>>,
    /// Failures without a response that are final at once.
    pub permanent: Vec<Failure>,
    /// The delay before a retry, unless the server names one.
    pub backoff: Backoff,
    /// Extra delays, added after the backoff's cap. The first that matches counts.
    pub bonuses: Vec<Bonus>,
    /// Attempts that count, the first included. 1 never retries.
    pub attempts_max: u32,
    /// How refused requests are treated.
    pub refusals: Refusals,
    /// The number of consecutive 429s to one request that is final. `None` gives them no special
    /// meaning.
    pub consecutive_429_max: Option<u32>,
    /// The longest Retry-After that a request waits for. Beyond it the request is given up as
    /// parked.
    pub retry_after_max: Duration,
    /// A host that serves nothing for this long is given up, with all of its pages. A host that
    /// never answered is given up sooner.
    pub give_up_after: Duration,
    /// How long a retry may wait for an empty budget before it is given up. With zero, an empty
    /// budget is final.
    pub budget_patience: Duration,
    /// The budget of each key, in place of the client's own. The budget of all keys then earns and
    /// saves at least as much. Default none.
    pub budget: Option<BudgetRule>,
}

/// Methods that may be sent again although the first request may have arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Methods {
    /// GET, HEAD, OPTIONS.
    Fetching,
    /// The same and TRACE: the safe methods of RFC 9110, section 9.2.1.
    Safe,
    /// The same, PUT and DELETE: the idempotent methods of RFC 9110, section 9.2.2.
    Idempotent,
}

/// How refused requests (`RateLimited`) are treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusals {
    /// A refused request goes back to the key's queue, where hold and pace decide. It is given up
    /// after more than `max` refusals.
    Requeue {
        /// The most refusals of one request.
        max: u32,
    },
    /// A refusal is a failure like any other: it counts, waits for its backoff and costs budget.
    Fail,
}

/// An extra delay after certain statuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bonus {
    /// The statuses that it follows.
    pub statuses: RangeInclusive<u16>,
    /// How much longer the retry waits, up to the backoff's cap.
    pub extra: Duration,
}

/// The next step for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Send it again.
    Retry {
        /// How long this request waits, beyond any hold of its key. It keeps no lease and no worker
        /// meanwhile, and asks for a new permit afterwards. Zero: it goes back to its key's queue.
        after: Duration,
        /// Whether the attempt counts against the request.
        is_charged: bool,
    },
    /// The request is not sent again.
    GiveUp(GiveUpReason),
    /// The request was served.
    Done,
}

/// Why a request is not sent again, for a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GiveUpReason {
    /// A second request with this method might act twice.
    Method,
    /// This failure is permanent.
    Permanent(Failure),
    /// The same request would get this status again.
    Status(u16),
    /// The server said that the request must not be sent again: by `x-should-retry: false`, or
    /// because the account has no credit.
    DoNotRetry,
    /// The host shows a challenge or block page. A further attempt would try to evade it.
    Blocked,
    /// The host answers this status to every page, also after long rests.
    RefusesAll(u16),
    /// The server's Retry-After is longer than [`Policy::retry_after_max`].
    Parked(Duration),
    /// The number of consecutive 429s reached its limit.
    Consecutive429(u32),
    /// The number of refusals exceeded its limit.
    Refused(u32),
    /// The number of attempts reached its limit.
    Attempts(u32),
    /// The host is given up, with all of its pages.
    Host(GivenUp),
    /// The retry budget of the key or the process is spent.
    BudgetSpent,
}

impl Policy {
    /// Returns a crawler's policy.
    ///
    /// It retries safe methods, after 408, 429, 500, 502-504, 520-524 (Cloudflare: origin in
    /// trouble) and 529. It also retries all failures other than an unknown name, bad TLS or a
    /// malformed response. It makes five attempts. Refused requests requeue up to 100 times. It
    /// waits for a Retry-After of up to an hour, and ten minutes for budgets.
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
            give_up_after: Duration::from_mins(15),
            budget_patience: Duration::from_mins(10),
            budget: None,
        }
    }

    /// Returns the policy of a job scraper's retrying transport.
    ///
    /// The delay before retry n, from 0, is `min(300 ms x 2^n + U[0, 120 ms) + bonus, 4 s)`. 429
    /// and 5xx are tried again. 401, 403 and 406 are tried again only with a limit's headers, and
    /// then their bonus counts. The transport has no budget: call [`Policy::decide`] with no
    /// accounts.
    ///
    /// This preset differs in two ways. The scraper leaves the count to its caller; this preset
    /// makes four attempts. The scraper does not read Retry-After; here a Retry-After of up to an
    /// hour replaces the delay.
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
            give_up_after: Duration::from_mins(15),
            budget_patience: Duration::ZERO,
            budget: None,
        }
    }

    /// Returns the budgets of a key and of all keys, where the client has these.
    pub fn budgets(&self, per_key: BudgetRule, global: BudgetRule) -> (BudgetRule, BudgetRule) {
        (self.budget).map_or((per_key, global), |set| (set, global.at_least(set)))
    }

    /// Returns whether `report` shows that its host works. An answer that is not tried again shows
    /// it.
    pub fn is_served(&self, report: &Report) -> bool {
        match (report.signal, report.status, report.failure) {
            (Signal::Ok, ..) => true,
            (Signal::UrlError, Some(status), None) => {
                !self.retries(status) && report.may_retry != Some(true)
            }
            _ => false,
        }
    }

    /// Says whose fault it is that `attempt` ended in `report`, and counts the failure.
    ///
    /// `outage` is the state of its host, which records a success itself ([`Outage::served`]).
    /// `directions` are the host's answer to `report`.
    pub fn judge(
        &self,
        outage: &mut Outage,
        attempt: &mut Attempt,
        report: &Report,
        directions: &Directions,
        company: Company,
        now: Timestamp,
    ) -> Verdict {
        let url_fault = directions.url_fault;
        if directions.doubts(report) {
            return Verdict::Doubted {
                is_over: directions.refuses_all(),
            };
        }
        if self.is_served(report) || report.signal == Signal::Blocked {
            return Verdict::Host;
        }
        let is_refused = report.signal == Signal::RateLimited && (report.of_scope || !url_fault);
        let failed = Failed {
            resource: report.resource.unwrap_or(Resource::of("")),
            // Where refusals count like failures, they do so by the number of attempts.
            is_refusal: is_refused || self.refusals == Refusals::Fail,
            is_plain: report.signal == Signal::UrlError,
            reply: match (report.status, report.failure) {
                (None, Some(Failure::Connect)) => Reply::Unreachable,
                (Some(_), _) | (None, Some(Failure::CutOff)) => Reply::Answered,
                (None, _) => Reply::Silent,
            },
            asked_wait: report.retry_after.filter(|_| !url_fault),
            company,
        };
        let verdict = outage.failed(now, &mut attempt.failures, &failed, self.give_up_after);
        if self.refusals == Refusals::Fail {
            attempt.failures.own = attempt.failures.own.saturating_add(1);
        }
        verdict
    }

    /// Decides what happens next to the request whose `attempt` ended in `report`, with the
    /// `verdict` of [`Policy::judge`].
    ///
    /// Call it once per attempt. A served request pays into all `accounts`, and a retry after a
    /// failure of the page is paid from them. They are those of its key and of the process; there
    /// may be none.
    pub fn decide(
        &self,
        attempt: &Attempt,
        report: &Report,
        verdict: Verdict,
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
        if let Verdict::GivenUp(why) = verdict {
            return Next::GiveUp(GiveUpReason::Host(why));
        }
        if verdict == (Verdict::Doubted { is_over: true }) {
            let status = report.status.unwrap_or_default();
            return Next::GiveUp(GiveUpReason::RefusesAll(status));
        }
        let is_doubted = matches!(verdict, Verdict::Doubted { .. });
        if let Some(reason) = self.hopeless(attempt, report, is_doubted) {
            return Next::GiveUp(reason);
        }
        let own = attempt.failures.own.max(1);
        let (counted, delays, not_before) = match (self.refusals, verdict) {
            (Refusals::Requeue { .. }, Verdict::Doubted { .. }) => {
                // The host's rests decide when the page is requested again.
                return Next::Retry {
                    after: Duration::ZERO,
                    is_charged: false,
                };
            }
            (Refusals::Requeue { max }, Verdict::Refused { is_down }) => {
                let refusals = attempt.refusals.saturating_add(1);
                // While the host serves no request, only time ends the wait.
                return if refusals > max && !is_down {
                    Next::GiveUp(GiveUpReason::Refused(refusals))
                } else {
                    Next::Retry {
                        after: Duration::ZERO,
                        is_charged: false,
                    }
                };
            }
            (Refusals::Fail, _) => (attempt.number.max(1), attempt.number.max(1), now),
            (
                _,
                Verdict::Page {
                    not_before,
                    host_serves,
                },
            ) => (
                own,
                if host_serves {
                    own.min(OWN_DELAYS)
                } else {
                    own
                },
                not_before,
            ),
            // Only the delay grows.
            _ => {
                let most = self.attempts_max.saturating_sub(1);
                let delays = attempt.failures.all().min(most).max(1);
                (delays.min(own), delays, now)
            }
        };
        let is_charged = matches!(verdict, Verdict::Page { .. }) || self.refusals == Refusals::Fail;
        if counted >= self.attempts_max {
            return if not_before > now && self.attempts_max > 1 {
                Next::Retry {
                    after: not_before.since(now),
                    is_charged,
                }
            } else {
                Next::GiveUp(GiveUpReason::Attempts(counted))
            };
        }
        let backoff = self.backoff.delay(delays - 1, attempt.previous_delay, rng);
        let delay = report
            .retry_after
            .filter(|asked| !asked.is_zero())
            .unwrap_or_else(|| {
                let longer = backoff.saturating_add(self.bonus(report));
                self.backoff.capped(longer)
            });
        let accounts = if is_charged { accounts } else { &mut [] };
        match withdraw(accounts, self.budget_patience, now) {
            Some(wait) => Next::Retry {
                after: delay.max(wait),
                is_charged,
            },
            None => Next::GiveUp(GiveUpReason::BudgetSpent),
        }
    }

    /// Returns why no further attempt can help, independent of the number of attempts. If the
    /// answer `is_doubted`, its status says nothing about the page.
    fn hopeless(
        &self,
        attempt: &Attempt,
        report: &Report,
        is_doubted: bool,
    ) -> Option<GiveUpReason> {
        if report.signal == Signal::Blocked {
            return Some(GiveUpReason::Blocked);
        }
        if report.may_retry == Some(false) {
            return Some(GiveUpReason::DoNotRetry);
        }
        if let Some(failure) = report
            .failure
            .filter(|failure| self.permanent.contains(failure))
        {
            return Some(GiveUpReason::Permanent(failure));
        }
        let is_told = report.may_retry == Some(true);
        let is_tried = is_told || is_doubted || report.signal == Signal::RateLimited;
        let tried_again = |status| is_tried || self.retries(status);
        // A connection may break after a good status. Then the failure counts.
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

    /// Returns whether a failure with this status is tried again.
    fn retries(&self, status: u16) -> bool {
        self.statuses.iter().any(|range| range.contains(&status))
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
    /// Returns whether a request with this method may be sent again.
    pub fn contains(self, method: &Method) -> bool {
        match *method {
            Method::GET | Method::HEAD | Method::OPTIONS => true,
            Method::TRACE => self != Self::Fetching,
            Method::PUT | Method::DELETE => self == Self::Idempotent,
            _ => false,
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
                Failure::CutOff => "the response broke off",
                Failure::Malformed => "the response is malformed",
            }),
            Self::Status(status) => write!(f, "status {status} is final"),
            Self::DoNotRetry => f.write_str("the server says that another try cannot help"),
            Self::Blocked => f.write_str("blocked by the host"),
            Self::RefusesAll(status) => {
                write!(f, "blocked by the host: {status} for every page")
            }
            Self::Parked(asked) => write!(f, "parked: the host asked for {} s", asked.as_secs()),
            Self::Consecutive429(count) => write!(f, "{count} x 429 in a row"),
            Self::Refused(count) => write!(f, "refused {count} times"),
            Self::Attempts(count) => write!(f, "failed {count} times"),
            Self::Host(why) => why.fmt(f),
            Self::BudgetSpent => f.write_str("the retry budget is spent"),
        }
    }
}

#[cfg(test)]
#[path = "policy_tests.rs"]
mod tests;
