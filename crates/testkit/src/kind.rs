//! The kinds of limits of the hosts, and the least time that each allows.

use std::time::Duration;

/// The limit with which a host is configured. The numbers repeat the configuration in
/// `tests/servers/`, and the self-tests compare both.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// nginx `limit_req`: one request per `1 / per_second` seconds, and `burst` more at once.
    Leaky {
        /// Requests per second.
        per_second: u32,
        /// Requests beyond the rate that are accepted at once.
        burst: u32,
    },
    /// nginx `limit_req` without `nodelay`: the server delays the requests of a burst.
    LeakyQueue {
        /// Requests per second.
        per_second: u32,
        /// Requests beyond the rate that are accepted at once.
        burst: u32,
    },
    /// nginx `limit_conn`: at most `cap` requests in flight, each of which takes `latency_ms`.
    InFlight {
        /// Requests in flight.
        cap: u32,
        /// Time of each answer, in milliseconds.
        latency_ms: u32,
    },
    /// At most `requests` in a window that starts with a request and ends `window_ms` later.
    FixedWindow {
        /// Requests per window.
        requests: u32,
        /// Length of the window, in milliseconds.
        window_ms: u32,
    },
    /// At most `requests` in any window.
    MovingWindow {
        /// Requests per window.
        requests: u32,
        /// Length of the window, in milliseconds.
        window_ms: u32,
    },
    /// The count of the current window, plus the part of the last window's count that still
    /// overlaps. The windows begin at multiples of `window_ms` on the wall clock.
    SlidingCounter {
        /// Requests per window.
        requests: u32,
        /// Length of the window, in milliseconds.
        window_ms: u32,
    },
    /// No limit, but each `every`-th answer is a 500.
    Noisy {
        /// Each answer of this number fails.
        every: u32,
    },
    /// No limit up to `per_second` requests in any second. Beyond it, a challenge page for
    /// `for_ms`.
    Blocks {
        /// Requests per second.
        per_second: u32,
        /// Length of the block, in milliseconds.
        for_ms: u32,
    },
    /// No limit.
    Open,
}

impl Kind {
    /// Returns the largest number of requests in flight, if the host limits it.
    pub fn in_flight_cap(self) -> Option<u32> {
        match self {
            Self::InFlight { cap, .. } => Some(cap),
            _ => None,
        }
    }

    /// Returns the rate that the limit allows in the long run, in requests per second, or `None`
    /// without a limit.
    pub fn per_second(self) -> Option<f64> {
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

    /// Returns the least time from the first request to the last answer if only the limit takes
    /// time.
    ///
    /// No client is faster. A client that knows the limit needs this time and its own jitter.
    pub fn best_time(self, requests: u32) -> Duration {
        let after_the_first = requests.saturating_sub(1);
        let millis = match self {
            Self::Leaky { per_second, burst } => {
                after_the_first.saturating_sub(burst) * 1000 / per_second
            }
            // The server delays the last request for as long as the client would have to wait.
            Self::LeakyQueue { per_second, .. } => after_the_first * 1000 / per_second,
            Self::InFlight { cap, latency_ms } => requests.div_ceil(cap) * latency_ms,
            // The requests of the first window leave at once, and those of each further window one
            // window later.
            Self::FixedWindow {
                requests: limit,
                window_ms,
            }
            | Self::MovingWindow {
                requests: limit,
                window_ms,
            } => after_the_first / limit * window_ms,
            // The best case is a full count at the end of one window. From then on the overlap
            // frees places evenly, the first one at once.
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
