//! Reads the quotas in a response's headers.
//!
//! A response may carry several quotas in several dialects:
//!
//! - draft-ietf-httpapi-ratelimit-headers-08 to -10: `RateLimit: "default";r=50;t=30` with
//!   `RateLimit-Policy: "default";q=100;w=60`
//! - draft -07: `RateLimit: limit=100, remaining=50, reset=30` with `RateLimit-Policy: 100;w=60`
//! - drafts to -06, GitLab: `RateLimit-Limit: 100`, `-Remaining`, `-Reset`, GitLab's `-Observed`
//!   and `-ResetTime`
//! - GitHub and many others: `X-RateLimit-Limit`, `-Remaining`, `-Reset`, `-Used`; Envoy's limit
//!   `10, 10;w=1`
//! - X, Zendesk: `X-Rate-Limit-Limit`, `-Remaining`, `-Reset`; `X-App-Limit-24hour-*`;
//!   `X-Rate-Limit: 700`
//! - `OpenAI`, Azure, Groq: `x-ratelimit-{limit,remaining,reset}-{requests,tokens}`
//! - Anthropic:
//!   `anthropic-ratelimit-{requests,tokens,input-tokens,output-tokens}-{limit,remaining,reset}`
//! - Discord: `X-RateLimit-Reset-After: 1.5` beside `X-RateLimit-Reset`
//! - `HubSpot`: `X-HubSpot-RateLimit-Daily`, `-Daily-Remaining`, `-Secondly`, `-Max`,
//!   `-Interval-Milliseconds`
//! - Kong: `X-RateLimit-Limit-Minute`, `X-RateLimit-Remaining-Minute` and the like
//! - AWS: `x-amzn-RateLimit-Limit: 0.5`, requests per second
//! - Shopify: `X-Shopify-Shop-Api-Call-Limit: 39/40`
//!
//! `structured.rs` reads the first two, and `named.rs` reads all others by the words in their
//! names. The same rules hold for all of them:
//!
//! * Malformed input is ignored, that item or field alone; nothing here is an error. A limit of
//!   zero is ignored too.
//! * Several quotas are kept, up to [`QUOTAS_MAX`](super::QUOTAS_MAX), the tightest first. Spent
//!   quotas come first, the one with the longest reset before the others. Quotas of requests come
//!   before others. The rest are ordered by the rate that a quota still sustains. That is the
//!   remaining number per second until its reset, but at most its limit per window. (`r=10000;t=10`
//!   of `q=10000;w=1000` is 10/s, not 1000/s: the draft warns of it.) A quota that names no time is
//!   the loosest. Of several, the one with the fewest left comes first.
//! * A cached response (Age over 0) describes the past, so it is ignored.
//! * Each quota has a unit: requests, tokens, bytes, points or requests at once. Only quotas of
//!   requests pace.
//! * Partition keys (`pk`) are ignored: a response names its own partition first.
//! * Numbers over [`COUNT_MAX`] count as that. A window or reset over [`SPAN_MAX`] counts as
//!   absent.
//! * Of one field in several lines, or with several numbers, the smallest remaining number and the
//!   longest reset count. A negative remaining number is zero if there is a reset.
//! * A reset without any number is the wait of a refusal that states nothing else. So is the window
//!   of a spent quota without a reset, up to a minute.
//! * Retry-After wins over a reset: see [`super::Report::retry_after`].
//!
//! No header names the unit of a reset; `../span.rs` says how it is guessed.

mod named;
mod structured;

use std::time::Duration;

use http::HeaderMap;
use http::header::AGE;

use super::clock::WallClock;
use super::span::{digits, from_now};
use super::{Quota, Quotas};

/// The largest limit or remaining number that is kept. 10^12 requests is no limit to a crawler.
pub const COUNT_MAX: u64 = 1_000_000_000_000;

/// The longest window or reset that is kept: a year, the longest quota on sale.
pub const SPAN_MAX: Duration = Duration::from_hours(366 * 24);

/// Quotas that are read in one field. The draft's own examples have two.
const ITEMS_MAX: usize = 16;

/// Returns the quotas that a response names, the tightest first.
///
/// Without limit headers this is one pass over the header names and allocates nothing.
pub fn quotas(headers: &HeaderMap, clock: WallClock) -> Quotas {
    let possible = |quota: &Quota| quota.limit != Some(0);
    let found = all(headers, clock).into_iter();
    found.filter(possible).collect()
}

/// Returns the last reset that a response names of quotas without any number.
pub(super) fn bare_reset(headers: &HeaderMap, clock: WallClock) -> Option<Duration> {
    let is_bare = |quota: &Quota| quota.limit.or(quota.remaining).is_none();
    let found = all(headers, clock).into_iter();
    let resets = found.filter(is_bare).filter_map(|quota| quota.reset);
    resets.max()
}

fn all(headers: &HeaderMap, clock: WallClock) -> Vec<Quota> {
    let mut is_structured = false;
    let mut is_named = false;
    for name in headers.keys() {
        match name.as_str() {
            "ratelimit" | "ratelimit-policy" => is_structured = true,
            name => is_named |= named::speaks_of_limits(name),
        }
    }
    let mut found = Vec::new();
    if !(is_structured || is_named) || is_cached(headers) {
        return found;
    }
    if is_structured {
        structured::quotas(headers, |quota| found.push(quota));
    }
    if is_named {
        named::quotas(headers, clock, |quota| found.push(quota));
    }
    found
}

fn is_cached(headers: &HeaderMap) -> bool {
    let age = headers.get(AGE).and_then(|value| value.to_str().ok());
    age.and_then(|text| digits(text.trim()))
        .is_some_and(|age| age > 0)
}

/// Returns the time until a reset, if it is within the bounds.
fn reset(text: &str, now: impl FnOnce() -> WallClock) -> Option<Duration> {
    from_now(text, now).filter(|span| *span <= SPAN_MAX)
}

#[cfg(test)]
mod tests;
