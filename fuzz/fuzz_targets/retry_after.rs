//! Reads any Retry-After fields, one per line, at any time. Nothing panics, and no wait is zero or
//! longer than a day. Letter case and blanks around a field change nothing.
#![no_main]

use http::header::{HeaderName, RETRY_AFTER};
use http::{HeaderMap, HeaderValue};
use libfuzzer_sys::fuzz_target;
use politely_core::signal::{WAIT_MAX, WallClock, retry_after};

fuzz_target!(|input: &[u8]| {
    let Some((time, fields)) = input.split_first_chunk::<8>() else {
        return;
    };
    let clock = WallClock::from_unix_secs(u64::from_le_bytes(*time));
    const NAMES: [HeaderName; 2] = [RETRY_AFTER, HeaderName::from_static("retry-after-ms")];
    let (mut headers, mut varied) = (HeaderMap::new(), HeaderMap::new());
    for (line, field) in fields.split(|byte| *byte == b'\n').enumerate() {
        let name = &NAMES[usize::from(line % 4 == 3)];
        let other = [b"  ", &*field.to_ascii_uppercase(), b"\t"].concat();
        if let (Ok(value), Ok(other)) = (
            HeaderValue::from_bytes(field),
            HeaderValue::from_bytes(&other),
        ) {
            headers.append(name, value);
            varied.append(name, other);
        }
    }
    assert_eq!(retry_after(&headers, clock), retry_after(&varied, clock));
    if let Some(wait) = retry_after(&headers, clock) {
        assert!(!wait.is_zero() && wait <= WAIT_MAX, "{wait:?}");
    }
});
