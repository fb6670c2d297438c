//! The shortest time in which a number of requests can all be served by an all-knowing client.
//!
//! The search sends each request at the first instant at which the limit accepts it. That is the
//! optimum, because a later request never leaves room for more. Full buckets and queues gain
//! nothing while they wait. A slot of a fixed or sliding window that is taken later returns later.
//! With weighted windows, one request less in the former window makes room for less than one in the
//! next.
//!
//! Two cases are left out. nginx's bucket counts in milliseconds and thousandths of a request; a
//! client that sends where less is cut off is faster, by at most a millisecond and a thousandth of
//! the whole. Where a faster limit follows a bucket that delays, a client that waits for it may be
//! served before a client that was accepted.
//!
//! A shared limit is used before other clients take any of it. The simulator computes what is left
//! without taking anything from them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use politely_core::Timestamp;

use super::{Limit, Verdict};

/// Returns the time from `from` until a `fresh` limit has served the last of `pages` requests, if
/// each takes `latency`.
pub fn best_time(fresh: &Limit, from: Timestamp, pages: u64, latency: Duration) -> Duration {
    let mut limit = fresh.clone();
    let mut departures = BinaryHeap::new();
    let mut now = from;
    let mut served = from;
    let mut left = pages;
    while left > 0 {
        while departures.peek().is_some_and(|&Reverse(at)| at <= now) {
            departures.pop();
            // Nothing is queued: a request that would queue waits for the slot below instead.
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
                // A limit without a free slot has a request running.
                let Some(&Reverse(next)) = departures.peek() else {
                    return Duration::MAX;
                };
                now = now.max(next);
            }
        }
    }
    served.since(from)
}
