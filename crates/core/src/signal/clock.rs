//! The wall clock, and the server's clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::HeaderMap;
use http::header::DATE;

/// The caller's wall clock when a response came, in whole seconds since 1970.
///
/// It is needed only because servers send dates. If a response has a Date, the server's clock is
/// used instead, and an error of this clock does no harm. Fractions are dropped, which makes waits
/// up to a second longer, never shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WallClock {
    unix_secs: u64,
}

impl WallClock {
    /// Returns the time `secs` seconds after 1970-01-01T00:00:00Z.
    pub const fn from_unix_secs(secs: u64) -> Self {
        Self { unix_secs: secs }
    }

    /// Returns the seconds after 1970-01-01T00:00:00Z.
    pub const fn as_unix_secs(self) -> u64 {
        self.unix_secs
    }

    /// Returns the server's time: its Date if that is readable, else this clock.
    pub(in crate::signal) fn at_server(self, headers: &HeaderMap) -> Self {
        headers
            .get(DATE)
            .and_then(|value| value.to_str().ok())
            .and_then(|text| httpdate::parse_http_date(text.trim()).ok())
            .map_or(self, Self::from)
    }

    /// Returns the server's time for a span that may be too short but must not be too long.
    ///
    /// This clock counts if it shows the second after the server's Date. A Date is as old as its
    /// response, and both are truncated to seconds.
    pub(in crate::signal) fn just_after(self, headers: &HeaderMap) -> Self {
        let server = self.at_server(headers);
        if self.unix_secs == server.unix_secs + 1 {
            self
        } else {
            server
        }
    }

    /// Returns the time from now until `then`, or zero if that has passed.
    pub(in crate::signal) fn until(self, then: Self) -> Duration {
        Duration::from_secs(then.unix_secs.saturating_sub(self.unix_secs))
    }
}

impl From<SystemTime> for WallClock {
    /// Converts a time. Times before 1970 become 1970.
    fn from(time: SystemTime) -> Self {
        Self::from_unix_secs(
            time.duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_secs()),
        )
    }
}
