//! The headers of a host as a client reads them: in whole seconds.

use std::time::Duration;

use politely_core::signal::Quota;
use politely_target::{Headers, RetryAfter};

/// Returns the Retry-After that a refused client reads: whole seconds, rounded up; one if the limit
/// cannot know.
pub(crate) fn said(form: RetryAfter, exact: Option<Duration>) -> Option<Duration> {
    let seconds = exact.map_or(1, |exact| {
        exact.as_micros().div_ceil(1_000_000).max(1) as u64
    });
    match form {
        RetryAfter::None => None,
        RetryAfter::Seconds | RetryAfter::Date => Some(Duration::from_secs(seconds)),
        RetryAfter::Absurd => Some(RetryAfter::ABSURD),
    }
}

/// Returns the quota that a client reads from headers: windows and resets in whole seconds, rounded
/// up.
pub(crate) fn announced(headers: Headers, quota: politely_target::Quota) -> Quota {
    let quota = headers.claim(quota);
    let whole = |span: Duration| Duration::from_secs(span.as_micros().div_ceil(1_000_000) as u64);
    let timed = !quota.window.is_zero();
    Quota {
        limit: timed.then_some(quota.limit),
        window: timed.then(|| whole(quota.window)),
        remaining: timed.then_some(quota.remaining),
        reset: timed.then(|| whole(quota.reset)),
        ..Quota::default()
    }
}
