//! What limits a host, and the least time it allows.

use std::time::Duration;

/// The limit a host was configured with. The numbers repeat what `tests/servers/` says; the
/// self-tests compare both.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    /// nginx `limit_req`: one request per `1 / per_second`, and `burst` more at once.
    Leaky {
        per_second: u32,
        burst: u32,
    },
    /// nginx `limit_req` without `nodelay`: the burst waits at the server instead of leaving at
    /// once.
    LeakyQueue {
        per_second: u32,
        burst: u32,
    },
    /// nginx `limit_conn`: so many at a time, each taking `latency_ms`.
    InFlight {
        cap: u32,
        latency_ms: u32,
    },
    /// A count that starts with the first request and is forgotten `window_ms` later.
    FixedWindow {
        requests: u32,
        window_ms: u32,
    },
    /// At most `requests` in any window.
    MovingWindow {
        requests: u32,
        window_ms: u32,
    },
    /// The current window's count plus what still overlaps of the last one's; windows are cut by
    /// the wall clock.
    SlidingCounter {
        requests: u32,
        window_ms: u32,
    },
    /// No limit, but every `every`-th answer is a 500.
    Noisy {
        every: u32,
    },
    /// No limit up to `per_second` requests in any second; above, a challenge page for `for_ms`.
    Blocks {
        per_second: u32,
        for_ms: u32,
    },
    Open,
}

impl Kind {
    pub(crate) fn in_flight_cap(self) -> Option<u32> {
        match self {
            Self::InFlight { cap, .. } => Some(cap),
            _ => None,
        }
    }

    /// What it allows in the long run, requests per second; none if that is as much as anybody
    /// likes.
    pub(crate) fn per_second(self) -> Option<f64> {
        match self {
            Self::Leaky { per_second, .. }
            | Self::LeakyQueue { per_second, .. }
            | Self::Blocks { per_second, .. } => Some(f64::from(per_second)),
            Self::InFlight { cap, latency_ms } => {
                Some(f64::from(cap * 1000) / f64::from(latency_ms))
            }
            Self::FixedWindow {
                requests,
                window_ms,
            }
            | Self::MovingWindow {
                requests,
                window_ms,
            }
            | Self::SlidingCounter {
                requests,
                window_ms,
            } => Some(f64::from(requests * 1000) / f64::from(window_ms)),
            Self::Noisy { .. } | Self::Open => None,
        }
    }

    /// The least time from the first request to the last answer, if nothing but the limit takes
    /// time. A lower bound: nobody is faster, and a client that knows the limit comes as close as
    /// its jitter allows.
    pub(crate) fn best_time(self, requests: u32) -> Duration {
        let after_the_first = requests.saturating_sub(1);
        let millis = match self {
            Self::Leaky { per_second, burst } => {
                after_the_first.saturating_sub(burst) * 1000 / per_second
            }
            // The last one waits at the server for as long as it would have waited at the client.
            Self::LeakyQueue { per_second, .. } => after_the_first * 1000 / per_second,
            Self::InFlight { cap, latency_ms } => requests.div_ceil(cap) * latency_ms,
            // The first window's worth at once, and each further one a window later.
            Self::FixedWindow {
                requests: limit,
                window_ms,
            }
            | Self::MovingWindow {
                requests: limit,
                window_ms,
            } => after_the_first / limit * window_ms,
            // A full count at the end of one window; from then on the overlap frees places evenly,
            // the first at once.
            Self::SlidingCounter {
                requests: limit,
                window_ms,
            } => after_the_first.saturating_sub(limit) * window_ms / limit,
            Self::Blocks { per_second, .. } => after_the_first / per_second * 1000,
            Self::Noisy { .. } | Self::Open => 0,
        };
        Duration::from_millis(millis.into())
    }
}
