//! Reads any limit headers, one per line; the first byte of a line selects the header's name.
//! Nothing panics, and every number is within its bounds.
#![no_main]

use http::{HeaderMap, HeaderName, HeaderValue};
use libfuzzer_sys::fuzz_target;
use politely_core::signal::{COUNT_MAX, QUOTAS_MAX, SPAN_MAX, WallClock, quotas};

const NAMES: [&str; 27] = [
    "ratelimit-resettime",
    "x-ratelimit-limit-tokens",
    "x-ratelimit-remaining-tokens",
    "x-ratelimit-reset-tokens",
    "x-ratelimit-limit-minute",
    "x-ratelimit-reset-after",
    "anthropic-ratelimit-requests-reset",
    "x-hubspot-ratelimit-interval-milliseconds",
    "x-amzn-ratelimit-limit",
    "x-app-limit-24hour-limit",
    "x-shopify-shop-api-call-limit",
    "ratelimit",
    "ratelimit-policy",
    "ratelimit-limit",
    "ratelimit-remaining",
    "ratelimit-reset",
    "ratelimit-observed",
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-used",
    "x-ratelimit-reset",
    "x-rate-limit-limit",
    "x-rate-limit-remaining",
    "x-rate-limit-used",
    "x-rate-limit-reset",
    "age",
    "date",
];

fuzz_target!(|input: &[u8]| {
    let Some((time, fields)) = input.split_first_chunk::<8>() else {
        return;
    };
    let clock = WallClock::from_unix_secs(u64::from_le_bytes(*time));
    let mut headers = HeaderMap::new();
    for field in fields.split(|byte| *byte == b'\n') {
        let Some((name, value)) = field.split_first() else {
            continue;
        };
        if let Ok(value) = HeaderValue::from_bytes(value) {
            let name = NAMES[usize::from(*name) % NAMES.len()];
            headers.append(HeaderName::from_static(name), value);
        }
    }
    let found = quotas(&headers, clock);
    assert!(found.len() <= QUOTAS_MAX);
    for quota in found.iter() {
        assert!(quota.limit.is_some() || quota.remaining.is_some());
        assert!(
            quota
                .limit
                .is_none_or(|limit| (1..=COUNT_MAX).contains(&limit))
        );
        assert!(
            quota
                .remaining
                .is_none_or(|remaining| remaining <= COUNT_MAX)
        );
        assert!(quota.reset.is_none_or(|reset| reset <= SPAN_MAX));
        assert!(
            quota
                .window
                .is_none_or(|window| !window.is_zero() && window <= SPAN_MAX)
        );
    }
});
