//! Decides whether a request that was refused or failed is sent again, and when.
//!
//! A refusal or failure of the host costs the page none of its attempts. The page goes behind the
//! others of its host and waits for the host's hold. A failure of the page's own counts, see
//! `core/src/fault/`.

use std::time::Duration;

use http::Method;
use politely::core::host::Directions;
use politely::core::retry::{BudgetRule, GiveUpReason, Next, Policy, Refusals};
use politely::core::signal::{Report, Signal};

use super::engine::Engine;
use super::lanes::LaneId;
use super::lanes::pending::{Pending, Purpose};
use super::last::Last;
use super::transport::answer::{Answer, Came};
use super::worker::After;
use crate::config::{RetryName, Settings};

/// Returns the retry policy of `settings`.
pub(crate) fn policy(settings: &Settings) -> Policy {
    let mut policy = match settings.retry {
        RetryName::Crawler => Policy::crawler(),
        RetryName::JobScraper => Policy::job_scraper(),
    };
    if let Some(retries) = settings.retries {
        policy.attempts_max = retries + 1;
    }
    policy.give_up_after = settings.give_up_after;
    settings.trouble.over(&policy).into_owned()
}

/// Returns the retry budgets of a lane and of the run under `policy`.
pub(crate) fn budgets(policy: &Policy) -> (BudgetRule, BudgetRule) {
    policy.budgets(BudgetRule::PER_KEY, BudgetRule::GLOBAL)
}

/// Returns whether `report` shows that the host works. An answer that is not retried shows it.
pub(super) fn is_served(policy: &Policy, report: &Report, purpose: Purpose) -> bool {
    match (report.status, report.failure) {
        (Some(status), None) if purpose != Purpose::Page && report.signal != Signal::Ok => {
            no_rules(status)
        }
        _ => policy.is_served(report),
    }
}

/// Returns whether this status of a robots.txt means that there are no rules (RFC 9309, 2.3.1.3).
fn no_rules(status: u16) -> bool {
    (400..500).contains(&status) && status != 429
}

/// Decides what follows for `pending`, whose request ended in `report`.
pub(super) fn after_failure(
    engine: &Engine,
    lane: LaneId,
    pending: &mut Pending,
    last: &Last<'_>,
    directions: &Directions,
) -> After {
    let (came, report, policy) = (last.came, last.report, last.policy);
    let answered = matches!(came, Came::Answer(_));
    let is_page = pending.purpose == Purpose::Page;
    let words = match (came, report.status) {
        // It was served, and proved to be no page.
        (Came::Answer(_), Some(status @ ..400)) if report.signal == Signal::RateLimited => {
            let leads = if status < 300 { "with" } else { "to" };
            format!("refused: {status} {leads} the page of a limit")
        }
        _ => words(came),
    };
    if !is_page && report.status.is_some_and(no_rules) && answered {
        return After::Over(Some(words));
    }
    let mut shared = engine.lock();
    let lanes = &mut shared.lanes;
    let now = engine.limits.now();
    let verdict = lanes.failed(lane, pending, report, directions, &words, now);
    // An error answer to a robots.txt that is no refusal has its own schedule (see `robots`).
    if !is_page && report.signal != Signal::RateLimited && answered {
        return After::Over(Some(words));
    }
    let budgets = budgets(policy);
    let mut accounts = lanes.accounts(lane, &budgets);
    let accounts = match policy.refusals {
        // The scraper's transport has no budget, unless the operator sets one.
        Refusals::Fail if policy.budget.is_none() => &mut [],
        _ => &mut accounts[..],
    };
    let mut attempt = pending.attempt.as_resent(true, report);
    if pending.may_repeat() {
        // The policy names the methods that may be sent twice, and this request may be as well.
        attempt.method = Method::GET;
    }
    let next = policy.decide(&attempt, report, verdict, accounts, &mut engine.rng(), now);
    let after = match next {
        Next::GiveUp(GiveUpReason::Host(why)) => {
            After::Over(Some(lanes.lane(lane).why_given_up(why)))
        }
        other => decided(other, &words, directions.url_fault),
    };
    pending.trouble = Some(words.into());
    after
}

fn decided(next: Next, words: &str, url_fault: bool) -> After {
    match next {
        Next::Retry { after, .. } => After::Again(after),
        // The same answer's hold sets the whole lane aside, and this request with it.
        Next::GiveUp(GiveUpReason::Parked(_)) if !url_fault => After::Again(Duration::ZERO),
        Next::GiveUp(GiveUpReason::Permanent(_) | GiveUpReason::Status(_)) => {
            After::Over(Some(words.to_owned()))
        }
        Next::GiveUp(why) => After::Over(Some(format!("{words} ({why})"))),
        Next::Done => After::Over(None),
    }
}

pub(super) fn status_words(answer: &Answer) -> String {
    let reason = answer.status.canonical_reason().unwrap_or("");
    format!("{} {reason}", answer.status.as_u16())
        .trim_end()
        .to_owned()
}

pub(super) fn words(came: &Came) -> String {
    match came {
        Came::Answer(answer) => status_words(answer),
        Came::Failed(lost) => format!("{}: {}", lost.failure, lost.words),
    }
}
