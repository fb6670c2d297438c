//! The shortest time in which a number of requests can all be served: what an all-knowing client needs.
//!
//! Found by sending each request at the first instant at which the limit accepts it. That is the optimum,
//! because a request sent later never leaves room for more: buckets and queues that are full gain nothing
//! while they wait; a fixed or sliding window's slot that is taken later comes back later; with weighted
//! windows, one request less in the former window makes room for less than one in the next.
//!
//! Two cases are left out. nginx's bucket counts in milliseconds and thousandths of a request, and who sends
//! where less is cut off is faster, by at most a millisecond and a thousandth of the whole. And where a
//! faster limit follows a bucket that delays, who waits for it may be served before who was accepted.
//!
//! Of a limit that is shared it takes whatever it can get before others do; what it could get without taking
//! anything from them is the simulator's question.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use politely_core::Timestamp;

use super::{Limit, Verdict};

/// The time from `from` until the last of `pages` requests is served, by a `fresh` limit, if each takes
/// `latency` to serve.
pub fn best_time(fresh: &Limit, from: Timestamp, pages: u64, latency: Duration) -> Duration {
    let mut limit = fresh.clone();
    let mut departures = BinaryHeap::new();
    let mut now = from;
    let mut served = from;
    let mut left = pages;
    while left > 0 {
        while departures.peek().is_some_and(|&Reverse(at)| at <= now) {
            departures.pop();
            // Nothing is queued: whoever would queue waits for the slot below instead.
            let _ = limit.depart(now);
        }
        match limit.check(now) {
            verdict @ Verdict::Serve { after } => {
                limit.take(now, verdict);
                let done = now + after + latency;
                if limit.has_slots() {
                    departures.push(Reverse(done));
                }
                served = served.max(done);
                left -= 1;
            }
            Verdict::Refuse {
                retry_after: Some(wait),
            } => now = now + wait.max(Duration::from_micros(1)),
            Verdict::Queue { .. } | Verdict::Refuse { retry_after: None } => {
                // A limit with no slot free has somebody in it.
                let Some(&Reverse(next)) = departures.peek() else {
                    return Duration::MAX;
                };
                now = now.max(next);
            }
        }
    }
    served.since(from)
}
