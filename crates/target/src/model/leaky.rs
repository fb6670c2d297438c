//! nginx's `limit_req`: a leaky bucket that delays requests above the rate and refuses those above
//! the queue.
//!
//! The arithmetic is nginx's own (`ngx_http_limit_req_module.c`): time in whole milliseconds, the
//! rate and the *excess* (how far ahead of the rate its client is) in thousandths of a request,
//! products cut off. A request has `excess = former - rate x elapsed + 1`, not below 0. Above
//! `burst` it is refused; otherwise it is delayed by `excess / rate` unless `nodelay` is set. The
//! very first request has no excess, so `burst + 1` requests fit into an instant.

use std::time::Duration;

use politely_core::Timestamp;

use super::{Quota, Verdict, steps_to_reach};

/// A request, in nginx's unit of excess.
const REQUEST: u64 = 1000;

/// `limit_req zone=… rate=R burst=QUEUE [nodelay]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Leaky {
    /// Thousandths of a request per second.
    rate: u64,
    /// Thousandths of a request.
    burst: u64,
    nodelay: bool,
    excess: u64,
    /// Milliseconds; `None` before the first request.
    last: Option<u64>,
}

const fn millis(at: Timestamp) -> u64 {
    at.as_micros() / 1000
}

impl Leaky {
    /// Creates the limit. `rate_milli`: requests per second, times a thousand, at least 1. `queue`:
    /// nginx's `burst`.
    pub(super) const fn new(rate_milli: u64, queue: u32, nodelay: bool) -> Self {
        Self {
            rate: rate_milli,
            burst: queue as u64 * REQUEST,
            nodelay,
            excess: 0,
            last: None,
        }
    }

    /// Returns the excess of a request at `now`.
    const fn excess_at(&self, now: Timestamp) -> u64 {
        match self.last {
            None => 0,
            Some(last) => {
                let leaked = self.rate.saturating_mul(millis(now).saturating_sub(last)) / 1000;
                (self.excess + REQUEST).saturating_sub(leaked)
            }
        }
    }

    pub(super) fn check(&self, now: Timestamp) -> Verdict {
        let excess = self.excess_at(now);
        if excess > self.burst {
            // `rate x ms / 1000`, cut off, must reach the excess above the queue.
            let last = self.last.unwrap_or(0);
            let needed = (self.excess + REQUEST - self.burst) * 1000;
            let opens = Timestamp::from_micros((last + steps_to_reach(needed, self.rate)) * 1000);
            return Verdict::refuse_until(now, opens);
        }
        let delay_ms = if self.nodelay {
            0
        } else {
            excess * 1000 / self.rate
        };
        Verdict::Serve {
            after: Duration::from_millis(delay_ms),
        }
    }

    pub(super) const fn take(&mut self, now: Timestamp) {
        self.excess = self.excess_at(now);
        self.last = Some(millis(now));
    }

    pub(super) fn quota(&self, now: Timestamp) -> Quota {
        let size = self.burst + REQUEST;
        // Above the queue by at most one request, the one that this request would be.
        let excess = self.excess_at(now);
        // Whole requests and seconds, long enough to express the rate within 5 %.
        let window_ms =
            steps_to_reach(size.max(20 * REQUEST) * 1000, self.rate).next_multiple_of(1000);
        Quota {
            limit: (self.rate * window_ms / 1000).max(size) / REQUEST,
            remaining: if excess > self.burst {
                0
            } else {
                (self.burst - excess) / REQUEST + 1
            },
            reset: Duration::from_millis(steps_to_reach(excess * 1000, self.rate)),
            window: Duration::from_millis(window_ms),
        }
    }
}
