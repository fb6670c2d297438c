//! Any status and any error text. Nothing panics, letter case changes no signal, and only the
//! beginning of a long body counts.
#![no_main]

use std::time::Duration;

use http::{HeaderMap, StatusCode};
use libfuzzer_sys::fuzz_target;
use politely_core::signal::{BODY_SCANNED, Outcome, Signal, WallClock, classify};

fn signal(status: StatusCode, body_start: &[u8]) -> Signal {
    let outcome = Outcome::Answered {
        status,
        headers: &HeaderMap::new(),
        body_start,
    };
    let clock = WallClock::from_unix_secs(1_795_171_477);
    classify(&outcome, clock, Duration::ZERO, 0).signal
}

fuzz_target!(|input: (u16, &[u8])| {
    let (status, body) = input;
    let Ok(status) = StatusCode::from_u16(100 + status % 900) else {
        return;
    };
    let meaning = signal(status, body);
    assert_eq!(meaning, signal(status, &body.to_ascii_uppercase()));
    assert_eq!(meaning, signal(status, &body.to_ascii_lowercase()));
    if status != StatusCode::OK && body.len() >= BODY_SCANNED {
        assert_eq!(meaning, signal(status, &body[..BODY_SCANNED]));
    }
    // A page that is gone states no limit.
    if matches!(status.as_u16(), 404 | 410) {
        assert_eq!(meaning, Signal::Ok);
    }
});
