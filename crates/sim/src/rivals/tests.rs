//! Replies for tests.

use std::time::Duration;

use politely_core::Timestamp;

use crate::client::Reply;

/// `status` after 100 ms, for a first attempt.
pub(super) fn refused(status: u16) -> Reply {
    Reply {
        failure: None,
        ticket: 0,
        sent: Timestamp::ZERO,
        latency: Duration::from_millis(100),
        status,
        retry_after: None,
        quota: None,
        attempt: 1,
        page: None,
    }
}

pub(super) fn served() -> Reply {
    refused(200)
}

/// Equal but for rounding.
#[track_caller]
pub(super) fn near(got: f64, expected: f64) {
    assert!(
        (got - expected).abs() <= 1e-9 * expected.abs().max(1.0),
        "{got}, not {expected}"
    );
}
