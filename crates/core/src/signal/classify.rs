//! Maps outcomes to signals.
//!
//! The first row that fits decides. `docs/reference/what-counts-as-what.md` says more, and a test
//! compares the two:
//!
//! | outcome | signal |
//! | --- | --- |
//! | challenge or block page (`block.rs`) | Blocked |
//! | 1xx, 2xx, 3xx | the soft-block hook's answer, else Ok |
//! | 404, 410 | the same: the host answered well, the page is gone |
//! | any other 4xx or 5xx that states an account without credit (`limit_text.rs`) | `UrlError` |
//! | 420, 429, 430, 508, 509, 999 | `RateLimited` |
//! | any other 4xx or 5xx with a Retry-After that asks for a wait | `RateLimited` |
//! | 403, 503 with a spent quota (GitHub) | `RateLimited` |
//! | any other 4xx or 5xx whose body states a limit in words (`limit_text.rs`) | `RateLimited` |
//! | 502, 503, 504, 520 to 524, 529 | Overloaded |
//! | any other | `UrlError` |
//! | no answer in time, connection broken | Overloaded |
//! | name, connection or TLS failed | Unreachable |
//! | not HTTP | `UrlError` |
//!
//! A plain 401, 403 or 406 says nothing about rates: a host full of private pages is not slow.
//! Neither does a plain 500: a host with errors is not an overloaded host. A spent quota counts
//! only where a limit is the likely reason: the last request that a quota allows may well be
//! answered 422.
//!
//! 420 is the status of Twitter's first limiter, 430 is Shopify's, and 999 is `LinkedIn`'s. 508 and
//! 509 are those of shared hosts (`CloudLinux`, cPanel) whose resources are used up.
//!
//! A wait is reported for every status from 400 on. The Retry-After of a redirect is for its target
//! ([`Report::target_after`]). Without a Retry-After, a spent quota's reset is the wait of a
//! limited server. With one, the Retry-After wins.
//!
//! No wait restores an account without credit. So its answer names no wait, and its request is not
//! sent again unless the server says so. Other accounts of the host go on.
//!
//! There is one exception for a Retry-After. Flask-Limiter sends its window's end as Retry-After
//! with every answer. So the quota of a response may have some left, and its reset may be within
//! two seconds of the Retry-After. Then the Retry-After asks for a wait only on 503 and those
//! statuses. GitHub's secondary limit names another time than its quota's reset, and is a refusal.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, StatusCode};

use super::block::block_page;
use super::clock::WallClock;
use super::limit_headers::{bare_reset, quotas};
use super::limit_text::{Stated, stated};
use super::retry_after::{WAIT_MAX, retry_after};
use super::{Failure, Outcome, Quota, Quotas, Report, Scope, Signal, Unit};

/// Returns the meaning of one outcome, by the table above.
///
/// `latency` is the time from sending to the response's head, and `bytes` counts the bytes
/// received. A plain 200 costs one pass over its header names and no allocation.
pub fn classify(outcome: &Outcome<'_>, clock: WallClock, latency: Duration, bytes: u64) -> Report {
    Classifier::default().classify(outcome, clock, latency, bytes)
}

type SoftBlock = dyn Fn(&Outcome<'_>) -> Option<Signal> + Send + Sync;

/// [`classify`] with a user's hook for refusals that look like good answers.
#[derive(Clone, Default)]
pub struct Classifier {
    soft_block: Option<Arc<SoftBlock>>,
}

impl Classifier {
    /// Calls `hook` for every answer that the table maps to Ok. If it returns `None`, the answer
    /// stays Ok.
    ///
    /// A 200 may say "try again later" in words that only the site's user knows. The hook runs on
    /// the worker's path for each page, so it should read little.
    #[must_use]
    pub fn with_soft_block(
        hook: impl Fn(&Outcome<'_>) -> Option<Signal> + Send + Sync + 'static,
    ) -> Self {
        Self {
            soft_block: Some(Arc::new(hook)),
        }
    }

    /// Returns whether a hook reads the bodies of good answers.
    pub const fn reads_bodies(&self) -> bool {
        self.soft_block.is_some()
    }

    /// Classifies an outcome and calls the hook; otherwise this is the function [`classify`].
    pub fn classify(
        &self,
        outcome: &Outcome<'_>,
        clock: WallClock,
        latency: Duration,
        bytes: u64,
    ) -> Report {
        match *outcome {
            Outcome::Failed(failure) => Report {
                failure: Some(failure),
                latency,
                bytes,
                ..Report::of(of_failure(failure))
            },
            Outcome::Answered {
                status,
                headers,
                body_start,
            } => {
                let quotas = quotas(headers, clock);
                let is_named = !quotas.is_empty() || means_limit(status);
                let scope = is_named.then(|| Scope::of(headers)).flatten();
                let told = if status.as_u16() < 300 {
                    None
                } else {
                    retry_after(headers, clock)
                };
                let asked = told.filter(|wait| asks_for_wait(status, *wait, &quotas));
                let said = stated(status, body_start);
                let mut signal = of_answer(status, headers, body_start, said, asked, &quotas);
                let is_spent = signal == Signal::UrlError && said == Some(Stated::SpentAccount);
                if signal == Signal::Ok
                    && let Some(hook) = &self.soft_block
                {
                    signal = hook(outcome).unwrap_or(Signal::Ok);
                }
                let told = || told.or_else(|| retry_after(headers, clock));
                let redirects = status.is_redirection();
                let retry_after = match signal {
                    Signal::Ok | Signal::UrlError => asked.filter(|_| !redirects && !is_spent),
                    Signal::RateLimited => told()
                        .or_else(|| until_reset(&quotas))
                        .or_else(|| until_bare_reset(headers, clock, &quotas)),
                    _ => told(),
                };
                Report {
                    status: Some(status.as_u16()),
                    latency,
                    bytes,
                    retry_after,
                    target_after: asked.filter(|_| redirects && signal == Signal::Ok),
                    may_retry: (status.as_u16() >= 400)
                        .then(|| may_retry(headers))
                        .flatten()
                        .or(is_spent.then_some(false)),
                    quotas,
                    scope,
                    ..Report::of(signal)
                }
            }
        }
    }
}

impl fmt::Debug for Classifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Classifier")
            .field("soft_block", &self.soft_block.is_some())
            .finish()
    }
}

/// Returns whether the server said that the request may be sent again.
fn may_retry(headers: &HeaderMap) -> Option<bool> {
    match headers.get("x-should-retry")?.as_bytes() {
        b"true" => Some(true),
        b"false" => Some(false),
        _ => None,
    }
}

/// Returns whether a status means a limit by itself.
const fn means_limit(status: StatusCode) -> bool {
    matches!(status.as_u16(), 420 | 429 | 430 | 508 | 509 | 999)
}

/// The longest window that a refusal waits for if its spent quota names no reset. Longer ones are
/// full again much earlier, or in parts.
const WINDOW_WAIT_MAX: Duration = Duration::from_mins(1);

/// The largest difference between two statements of one window's end. Both are rounded to seconds,
/// and the Date may be older.
const WINDOW_END: Duration = Duration::from_secs(2);

/// Returns whether a Retry-After asks for a wait, and is not only the end of a window with some
/// quota left.
fn asks_for_wait(status: StatusCode, wait: Duration, quotas: &Quotas) -> bool {
    let is_window_end = || {
        let some_left = quotas.iter().all(|quota| !quota.is_spent())
            && quotas.iter().any(|quota| quota.remaining.is_some());
        let same = |reset: Duration| reset.abs_diff(wait) <= WINDOW_END;
        some_left && quotas.iter().filter_map(|quota| quota.reset).any(same)
    };
    status.as_u16() >= 300
        && (means_limit(status) || status == StatusCode::SERVICE_UNAVAILABLE || !is_window_end())
}

fn of_answer(
    status: StatusCode,
    headers: &HeaderMap,
    body_start: &[u8],
    said: Option<Stated>,
    asked: Option<Duration>,
    quotas: &Quotas,
) -> Signal {
    if block_page(status, headers, body_start).is_some() {
        return Signal::Blocked;
    }
    match status.as_u16() {
        ..400 | 404 | 410 => Signal::Ok,
        _ if said == Some(Stated::SpentAccount) => Signal::UrlError,
        _ if means_limit(status) || asked.is_some() => Signal::RateLimited,
        403 | 503 if quotas.iter().any(Quota::is_spent) => Signal::RateLimited,
        _ if said.is_some() => Signal::RateLimited,
        // 520 to 524: Cloudflare gets no sound answer from the server behind it. 529: overloaded.
        502..=504 | 520..=524 | 529 => Signal::Overloaded,
        _ => Signal::UrlError,
    }
}

const fn of_failure(failure: Failure) -> Signal {
    match failure {
        Failure::NoSuchHost | Failure::Resolver | Failure::Connect | Failure::Tls => {
            Signal::Unreachable
        }
        // A server that breaks connections lacks resources as often as one that does not answer.
        Failure::Timeout | Failure::Reset | Failure::CutOff => Signal::Overloaded,
        Failure::Malformed => Signal::UrlError,
    }
}

/// Returns the wait that a refusal's quotas stand for, bounded as Retry-After is.
///
/// It lasts until the last spent quota resets. If no quota names what is left, it lasts until the
/// last reset.
fn until_reset(quotas: &Quotas) -> Option<Duration> {
    let unsaid = || {
        let told = quotas.iter().any(|quota| quota.remaining.is_some());
        let resets = quotas
            .iter()
            .filter(|quota| quota.unit != Unit::Concurrency);
        resets
            .filter_map(|quota| quota.reset)
            .max()
            .filter(|_| !told)
    };
    let of_window = || {
        let spent = quotas.iter().filter(|quota| quota.is_spent());
        let windows = spent.filter_map(|quota| quota.window);
        windows.filter(|window| *window <= WINDOW_WAIT_MAX).max()
    };
    let reset = quotas.spent_until().or_else(unsaid).or_else(of_window)?;
    (!reset.is_zero()).then(|| reset.min(WAIT_MAX))
}

/// Returns the wait of a refusal that names a reset and no number.
fn until_bare_reset(headers: &HeaderMap, clock: WallClock, quotas: &Quotas) -> Option<Duration> {
    let is_told = quotas.iter().any(|quota| quota.remaining.is_some());
    let reset = bare_reset(headers, clock).filter(|_| !is_told)?;
    (!reset.is_zero()).then(|| reset.min(WAIT_MAX))
}

#[cfg(test)]
#[path = "classify_tests.rs"]
mod tests;
