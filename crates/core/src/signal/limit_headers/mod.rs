//! What does the server say is left of its limits?
//!
//! Three generations of headers say it, and a response may carry several:
//!
//! | dialect | example |
//! | --- | --- |
//! | draft-ietf-httpapi-ratelimit-headers-08 to -10 | `RateLimit: "default";r=50;t=30` with `RateLimit-Policy: "default";q=100;w=60` |
//! | draft -07 | `RateLimit: limit=100, remaining=50, reset=30` with `RateLimit-Policy: 100;w=60` |
//! | drafts to -06, GitLab | `RateLimit-Limit: 100`, `-Remaining`, `-Reset`, GitLab's `-Observed` |
//! | GitHub and many | `X-RateLimit-Limit`, `-Remaining`, `-Reset`, `-Used`; Envoy's limit `10, 10;w=1` |
//! | X | `X-Rate-Limit-Limit`, `-Remaining`, `-Reset` |
//!
//! The same rules hold for all of them:
//!
//! * What is malformed is ignored, that item or field alone; nothing here is an error.
//! * Several quotas: the tightest is reported. Tight is the rate a quota still sustains: what is left per second until
//!   its reset, but not more than its limit per window (`r=10000;t=10` of `q=10000;w=1000` is 10/s, not 1000/s: the
//!   draft warns of it). An exhausted quota is the tightest of all, the longest first. A quota that names no time is
//!   the loosest, fewest left first.
//! * A cached response (Age over 0) speaks of the past and says nothing.
//! * Quotas of bytes or of concurrent requests (`qu`) are no quotas of requests and are left out.
//! * Partition keys (`pk`) are ignored: the response's own partition is the one it names first.
//! * Numbers over [`COUNT_MAX`] count as that; a window or reset over [`SPAN_MAX`] is as good as none.
//! * Retry-After wins over a reset: see [`super::Report::retry_after`].
//!
//! A reset's unit is nowhere told; `reset.rs` says how it is guessed.

mod reset;
mod split;
mod structured;

use std::cmp::Ordering;
use std::time::Duration;

use http::HeaderMap;
use http::header::AGE;

use super::Quota;
use super::clock::WallClock;
use super::retry_after::digits;

/// The largest limit or rest believed: 10^12 requests is no limit to a crawler.
pub const COUNT_MAX: u64 = 1_000_000_000_000;

/// The longest window or reset believed: a year, the longest quota anyone sells.
pub const SPAN_MAX: Duration = Duration::from_hours(366 * 24);

/// Quotas looked at in one field; the draft's own examples have two.
const ITEMS_MAX: usize = 16;

/// The tightest quota a response names, if it names one.
///
/// Without limit headers this is one pass over the header names and allocates nothing.
pub fn quota(headers: &HeaderMap, clock: WallClock) -> Option<Quota> {
    let seen = Seen::of(headers);
    if !seen.any() || is_cached(headers) {
        return None;
    }
    let now = || clock.just_after(headers);
    let mut tightest = None;
    if seen.structured {
        structured::quotas(headers, |quota| keep_tighter(&mut tightest, quota));
    }
    for (names, _) in split::DIALECTS
        .iter()
        .zip(seen.split)
        .filter(|(_, seen)| *seen)
    {
        keep_tighter(&mut tightest, split::quota(headers, names, now));
    }
    tightest
}

/// Which dialects' names occur.
#[derive(Default)]
struct Seen {
    structured: bool,
    /// By place in [`split::DIALECTS`].
    split: [bool; 3],
}

impl Seen {
    fn of(headers: &HeaderMap) -> Self {
        let mut seen = Self::default();
        for name in headers.keys() {
            let name = name.as_str();
            // Nearly every name is passed over by its first byte.
            if !matches!(name.as_bytes().first(), Some(b'r' | b'x')) {
                continue;
            }
            if matches!(name, "ratelimit" | "ratelimit-policy") {
                seen.structured = true;
            } else if let Some(dialect) = split::DIALECTS.iter().position(|names| names.own(name)) {
                seen.split[dialect] = true;
            }
        }
        seen
    }

    fn any(&self) -> bool {
        self.structured || self.split.contains(&true)
    }
}

fn is_cached(headers: &HeaderMap) -> bool {
    let age = headers.get(AGE).and_then(|value| value.to_str().ok());
    age.and_then(|text| digits(text.trim()))
        .is_some_and(|age| age > 0)
}

fn keep_tighter(tightest: &mut Option<Quota>, quota: Quota) {
    if quota.limit.is_none() && quota.remaining.is_none() {
        return;
    }
    if tightest.is_none_or(|kept| tighter(&quota, &kept).is_lt()) {
        *tightest = Some(quota);
    }
}

/// The tighter of two is the lesser.
fn tighter(a: &Quota, b: &Quota) -> Ordering {
    let left = |quota: &Quota| quota.remaining.unwrap_or(u64::MAX);
    sustained(a)
        .total_cmp(&sustained(b))
        .then_with(|| b.reset.cmp(&a.reset))
        .then_with(|| left(a).cmp(&left(b)))
}

/// Requests per second a quota still allows; infinite if it names no time.
fn sustained(quota: &Quota) -> f64 {
    if quota.remaining == Some(0) {
        return 0.0;
    }
    let per_second = |count: Option<u64>, span: Option<Duration>| match (count, span) {
        (Some(count), Some(span)) if !span.is_zero() => count as f64 / span.as_secs_f64(),
        _ => f64::INFINITY,
    };
    per_second(quota.remaining, quota.reset).min(per_second(quota.limit, quota.window))
}

#[cfg(test)]
mod tests;
