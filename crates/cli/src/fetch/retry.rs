//! Decides whether a request that was refused or failed is sent again, and when.
//!
//! A refusal or failure of the host costs the page none of its attempts. The page goes behind the
//! others of its host and waits for the host's hold. A failure of the page's own counts, see
//! [`super::lanes::outage`].

use std::time::Duration;

use politely::core::retry::{Attempt, GiveUpReason, Next, Policy, Refusals};
use politely::core::signal::{Failure, Report, Resource, Signal};

use super::engine::Engine;
use super::lanes::LaneId;
use super::lanes::outage::{Company, Failed, Verdict};
use super::lanes::pending::{Pending, Purpose};
use super::transport::client::{Answer, Came};
use super::worker::After;
use crate::config::{RetryName, Settings};

/// The number of failures after which the delays of a page that alone is at fault stop growing.
const OWN_DELAYS: u32 = 2;

/// Returns the retry policy of `settings`.
pub(super) fn policy(settings: &Settings) -> Policy {
    let mut policy = match settings.retry {
        RetryName::Crawler => Policy::crawler(),
        RetryName::JobScraper => Policy::job_scraper(),
    };
    if let Some(retries) = settings.retries {
        policy.attempts_max = retries + 1;
    }
    policy
}

/// Returns whether `report` shows that the host works. An answer that is not retried shows it.
pub(super) fn is_served(policy: &Policy, report: &Report, purpose: Purpose) -> bool {
    match (report.signal, report.status, report.failure) {
        (Signal::Ok, ..) => true,
        (_, Some(status), None) if purpose != Purpose::Page => no_rules(status),
        (Signal::UrlError, Some(status), None) => {
            !policy.statuses.iter().any(|range| range.contains(&status))
        }
        _ => false,
    }
}

/// Returns whether this status of a robots.txt means that there are no rules (RFC 9309, 2.3.1.3).
fn no_rules(status: u16) -> bool {
    (400..500).contains(&status) && status != 429
}

/// Decides what follows for `pending`, whose request ended in `report`. `own` means that the
/// failure is the URL's.
pub(super) fn after_failure(
    engine: &Engine,
    lane: LaneId,
    pending: &mut Pending,
    came: &Came,
    report: &Report,
    own: bool,
) -> After {
    let refused = report.signal == Signal::RateLimited;
    let answered = matches!(came, Came::Answer(_));
    let is_page = pending.purpose == Purpose::Page;
    let words = words(came);
    if !is_page && report.status.is_some_and(no_rules) && answered {
        return After::Over(Some(words));
    }
    let policy = &engine.policy;
    let is_crawler = engine.settings.retry == RetryName::Crawler;
    let by_host = refused && !own && is_crawler;
    let mut shared = engine.lock();
    let lanes = &mut shared.lanes;
    let now = engine.limits.now();
    let verdict = if is_served(policy, report, pending.purpose) || report.signal == Signal::Blocked
    {
        Verdict::Uncharged
    } else {
        let failed = Failed {
            resource: report.resource.unwrap_or(Resource::of("")),
            is_refusal: by_host || !is_crawler,
            is_plain: report.signal == Signal::UrlError,
            // A resolver that fails says nothing about the host.
            is_silence: !answered && !matches!(report.failure, Some(Failure::Resolver)),
            asked_wait: report.retry_after.filter(|_| !own),
            company: Company::Tried,
            words: &words,
        };
        lanes.failed(lane, pending, failed, now)
    };
    // An error answer to a robots.txt that is no refusal has its own schedule (see `robots`).
    if !is_page && !refused && answered {
        return After::Over(Some(words));
    }
    if let Verdict::GiveUp(why) = verdict {
        return After::Over(Some(why));
    }
    if !is_crawler {
        let next = policy.decide(&pending.attempt, report, &mut [], &mut engine.rng(), now);
        return decided(next, &words, own);
    }
    if by_host {
        let next = policy.decide(&pending.attempt, report, &mut [], &mut engine.rng(), now);
        return match next {
            // While the host serves no request, only time ends the wait.
            Next::GiveUp(GiveUpReason::Refused(_)) if lanes.lane(lane).health.is_down() => {
                After::Again(Duration::ZERO)
            }
            other => decided(other, &words, own),
        };
    }
    let policy = Policy {
        refusals: Refusals::Fail,
        ..policy.clone()
    };
    let others_served = lanes.lane(lane).health.has_served();
    let mut accounts = lanes.accounts(lane);
    let (number, accounts, not_before) = match verdict {
        Verdict::Charged(not_before) => {
            let counted = pending.own_failures;
            // The page is at fault and not its host, so long delays would only lengthen the run.
            let number = if others_served && counted < policy.attempts_max {
                counted.min(OWN_DELAYS)
            } else {
                counted
            };
            (number, &mut accounts[..], not_before)
        }
        Verdict::Uncharged | Verdict::GiveUp(_) => {
            let times = pending.failed_in.map_or(0, |(_, times)| times);
            let number = pending.own_failures.saturating_add(times);
            // Only the delay grows.
            (number.min(policy.attempts_max - 1), &mut [][..], now)
        }
    };
    let attempt = Attempt {
        number: number.max(1),
        ..Attempt::first(pending.attempt.method.clone())
    };
    let next = policy.decide(&attempt, report, accounts, &mut engine.rng(), now);
    let after = match next {
        Next::GiveUp(GiveUpReason::Attempts(_)) if not_before > now && policy.attempts_max > 1 => {
            After::Again(not_before.since(now))
        }
        other => decided(other, &words, own),
    };
    pending.trouble = Some(words.into());
    after
}

fn decided(next: Next, words: &str, own: bool) -> After {
    match next {
        Next::Retry { after, .. } => After::Again(after),
        // The same answer's hold sets the whole lane aside, and this request with it.
        Next::GiveUp(GiveUpReason::Parked(_)) if !own => After::Again(Duration::ZERO),
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
        Came::Failed(lost) => format!("{}: {}", failure_word(lost.failure), lost.words),
    }
}

fn failure_word(failure: Failure) -> &'static str {
    match failure {
        Failure::NoSuchHost => "no such host",
        Failure::Resolver => "name not resolved",
        Failure::Connect => "no connection",
        Failure::Tls => "TLS",
        Failure::Timeout => "time-out",
        Failure::Reset => "connection broken",
        Failure::Malformed => "malformed answer",
    }
}
