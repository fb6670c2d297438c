//! Classifies any response: a status, header lines `name:value`, an empty line and a body. Nothing
//! panics, and the result is within its bounds.
#![no_main]

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use libfuzzer_sys::fuzz_target;
use politely_core::signal::{Outcome, Signal, WAIT_MAX, WallClock, classify};

fuzz_target!(|input: &[u8]| {
    let Some((status, rest)) = input.split_first_chunk::<2>() else {
        return;
    };
    let Ok(status) = StatusCode::from_u16(100 + u16::from_le_bytes(*status) % 900) else {
        return;
    };
    let mut headers = HeaderMap::new();
    let mut body_start = rest;
    while let Some(end) = body_start.iter().position(|byte| *byte == b'\n') {
        let line = &body_start[..end];
        body_start = &body_start[end + 1..];
        let Some(colon) = line.iter().position(|byte| *byte == b':') else {
            break;
        };
        let name = HeaderName::from_bytes(&line[..colon]);
        let value = HeaderValue::from_bytes(&line[colon + 1..]);
        if let (Ok(name), Ok(value)) = (name, value) {
            headers.append(name, value);
        }
    }
    let outcome = Outcome::Answered {
        status,
        headers: &headers,
        body_start,
    };
    let clock = WallClock::from_unix_secs(1_795_171_477);
    let report = classify(&outcome, clock, Duration::ZERO, 0);
    assert_eq!(report.status, Some(status.as_u16()));
    assert!(
        report
            .retry_after
            .is_none_or(|wait| !wait.is_zero() && wait <= WAIT_MAX)
    );
    assert!(
        report
            .target_after
            .is_none_or(|wait| !wait.is_zero() && wait <= WAIT_MAX)
    );
    assert!(status != StatusCode::OK || matches!(report.signal, Signal::Ok | Signal::Blocked));
    assert!(
        status != StatusCode::TOO_MANY_REQUESTS
            || matches!(report.signal, Signal::RateLimited | Signal::Blocked)
    );
});
