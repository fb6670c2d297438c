//! What does the server say is left of its limits?
//!
//! A response may carry several quotas in several dialects:
//!
//! | dialect | example |
//! | --- | --- |
//! | draft-ietf-httpapi-ratelimit-headers-08 to -10 | `RateLimit: "default";r=50;t=30` with `RateLimit-Policy: "default";q=100;w=60` |
//! | draft -07 | `RateLimit: limit=100, remaining=50, reset=30` with `RateLimit-Policy: 100;w=60` |
//! | drafts to -06, GitLab | `RateLimit-Limit: 100`, `-Remaining`, `-Reset`, GitLab's `-Observed` and `-ResetTime` |
//! | GitHub and many | `X-RateLimit-Limit`, `-Remaining`, `-Reset`, `-Used`; Envoy's limit `10, 10;w=1` |
//! | X, Zendesk | `X-Rate-Limit-Limit`, `-Remaining`, `-Reset`; `X-App-Limit-24hour-*`; `X-Rate-Limit: 700` |
//! | `OpenAI`, Azure, Groq | `x-ratelimit-{limit,remaining,reset}-{requests,tokens}` |
//! | Anthropic | `anthropic-ratelimit-{requests,tokens,input-tokens,output-tokens}-{limit,remaining,reset}` |
//! | Discord | `X-RateLimit-Reset-After: 1.5` beside `X-RateLimit-Reset` |
//! | `HubSpot` | `X-HubSpot-RateLimit-Daily`, `-Daily-Remaining`, `-Secondly`, `-Max`, `-Interval-Milliseconds` |
//! | Kong | `X-RateLimit-Limit-Minute`, `X-RateLimit-Remaining-Minute` and the like |
//! | AWS | `x-amzn-RateLimit-Limit: 0.5`, requests per second |
//! | Shopify | `X-Shopify-Shop-Api-Call-Limit: 39/40` |
//!
//! `structured.rs` reads the first two, `named.rs` all others, by the words that their names are made of.
//! The same rules hold for all of them:
//!
//! * What is malformed is ignored, that item or field alone; nothing here is an error. So is a limit of zero.
//! * Several quotas are kept, up to [`QUOTAS_MAX`](super::QUOTAS_MAX), the tightest first. A spent quota is
//!   the tightest of all, the longest first; quotas of requests go before others. Tight is the rate a quota
//!   still sustains: what is left per second until its reset, but not more than its limit per window
//!   (`r=10000;t=10` of `q=10000;w=1000` is 10/s, not 1000/s: the draft warns of it). A quota that names no
//!   time is the loosest, fewest left first.
//! * A cached response (Age over 0) speaks of the past and says nothing.
//! * Each quota has a unit: requests, tokens, bytes, points or requests at once. Only quotas of requests pace.
//! * Partition keys (`pk`) are ignored: the response's own partition is the one it names first.
//! * Numbers over [`COUNT_MAX`] count as that; a window or reset over [`SPAN_MAX`] is as good as none.
//! * One field in several lines: the least that is left, the longest reset.
//! * Retry-After wins over a reset: see [`super::Report::retry_after`].
//!
//! A reset's unit is nowhere told; `../span.rs` says how it is guessed.

mod named;
mod structured;

use std::time::Duration;

use http::HeaderMap;
use http::header::AGE;

use super::clock::WallClock;
use super::span::{digits, from_now};
use super::{Quota, Quotas};

/// The largest limit or rest believed: 10^12 requests is no limit to a crawler.
pub const COUNT_MAX: u64 = 1_000_000_000_000;

/// The longest window or reset believed: a year, the longest quota anyone sells.
pub const SPAN_MAX: Duration = Duration::from_hours(366 * 24);

/// Quotas looked at in one field; the draft's own examples have two.
const ITEMS_MAX: usize = 16;

/// The quotas that a response names, the tightest first.
///
/// Without limit headers this is one pass over the header names and allocates nothing.
pub fn quotas(headers: &HeaderMap, clock: WallClock) -> Quotas {
    let mut is_structured = false;
    let mut is_named = false;
    for name in headers.keys() {
        match name.as_str() {
            "ratelimit" | "ratelimit-policy" => is_structured = true,
            name => is_named |= named::speaks_of_limits(name),
        }
    }
    if !(is_structured || is_named) || is_cached(headers) {
        return Quotas::NONE;
    }
    let mut found = Vec::new();
    if is_structured {
        structured::quotas(headers, |quota| found.push(quota));
    }
    if is_named {
        named::quotas(headers, clock, |quota| found.push(quota));
    }
    let possible = |quota: &Quota| quota.limit != Some(0);
    found.into_iter().filter(possible).collect()
}

fn is_cached(headers: &HeaderMap) -> bool {
    let age = headers.get(AGE).and_then(|value| value.to_str().ok());
    age.and_then(|text| digits(text.trim()))
        .is_some_and(|age| age > 0)
}

/// The time until a reset, if it is one that anybody means.
fn reset(text: &str, now: impl FnOnce() -> WallClock) -> Option<Duration> {
    from_now(text, now).filter(|span| *span <= SPAN_MAX)
}

#[cfg(test)]
mod tests;
