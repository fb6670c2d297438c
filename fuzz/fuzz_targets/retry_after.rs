//! Any Retry-After fields, one a line, at any time: no panic, and no wait of zero or over a day.
#![no_main]

use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderValue};
use libfuzzer_sys::fuzz_target;
use politely_core::signal::{WAIT_MAX, WallClock, retry_after};

fuzz_target!(|input: &[u8]| {
    let Some((time, fields)) = input.split_first_chunk::<8>() else {
        return;
    };
    let clock = WallClock::from_unix_secs(u64::from_le_bytes(*time));
    let mut headers = HeaderMap::new();
    for field in fields.split(|byte| *byte == b'\n') {
        if let Ok(value) = HeaderValue::from_bytes(field) {
            headers.append(RETRY_AFTER, value);
        }
    }
    if let Some(wait) = retry_after(&headers, clock) {
        assert!(!wait.is_zero() && wait <= WAIT_MAX, "{wait:?}");
    }
});
