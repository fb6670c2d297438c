//! How many at once: as many as keep the host busy, and no queue.
//!
//! A host that lets requests wait instead of refusing them shows its limit in the latency. The
//! number under way grows while it is what holds requests back and no queue is seen, and shrinks
//! when one is (TCP Vegas, Brakmo and Peterson 1994: under way x (1 - unloaded / present latency)
//! is what stands in the queue). It looks at a low quantile: queueing moves the fast requests too,
//! noise only the slow ones.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What is allowed at first.
pub(super) const START: f32 = 2.0;
/// The quantile looked at.
const QUANTILE: f32 = 0.3;
/// Latencies per look, at least.
const LOOK: u16 = 40;
/// The quantile tracker's step, in octaves.
const STEP: f32 = 0.03;

/// How fast the unloaded latency follows: slowly, since the least of many noisy looks is too low.
const UNLOADED: f32 = 0.1;

/// More than any host is asked to do at once.
const CAP_MAX: f32 = 10_000.0;

/// Latencies until the quantile has settled.
const SETTLING: f32 = 24.0;
/// A queue that is given less to do does not stay as it was, to within this, octaves.
const DRAINS: f32 = 0.04;
/// How fast what was taken for a queue becomes the normal.
const MISTAKEN: f32 = 0.2;

/// The in-flight cap that latency allows.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Queue {
    cap: f32,
    /// The low quantile, in octaves of a microsecond.
    low: f32,
    /// What it is without a queue.
    unloaded: f32,
    seen: u16,
    /// Most under way since the last look.
    most: u16,
    /// What it was when a queue was last seen.
    before: f32,
    /// Latencies so far.
    total: u16,
    /// A queue was seen at the last look.
    grew: bool,
    /// The cap was what held a request back.
    held_back: bool,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            cap: START,
            low: 0.0,
            unloaded: 0.0,
            seen: 0,
            most: 0,
            before: 0.0,
            total: 0,
            grew: false,
            held_back: false,
        }
    }
}

impl Queue {
    pub(super) fn cap(&self) -> u32 {
        self.cap as u32
    }

    pub(super) fn plausible(&self) -> bool {
        let octaves = [self.low, self.unloaded, self.before];
        (1.0..=CAP_MAX).contains(&self.cap) && octaves.iter().all(|x| (-1.0..=64.0).contains(x))
    }

    /// A request was served that left beside `beside` others. `eager`: nothing was refused so far.
    /// Says whether a queue was seen twice in a row.
    pub(super) fn served(&mut self, latency: Duration, beside: u16, eager: bool) -> bool {
        let x = libm::log2f((latency.as_micros() as u64 as f32).clamp(1.0, 1e12));
        if self.unloaded == 0.0 {
            (self.low, self.unloaded) = (x, x);
        }
        self.total = self.total.saturating_add(1);
        // The first of them may be far off.
        let step = STEP * (1.0 + SETTLING / f32::from(self.total));
        self.low += step
            * if x > self.low {
                QUANTILE
            } else {
                QUANTILE - 1.0
            };
        self.seen = self.seen.saturating_add(1);
        self.most = self.most.max(beside.saturating_add(1)).min(CAP_MAX as u16);
        self.held_back |= f32::from(beside) + 1.0 >= self.cap.floor();
        let look = if eager { LOOK / 3 } else { LOOK };
        if self.seen < look.max(self.most.saturating_mul(if eager { 1 } else { 2 })) {
            return false;
        }
        let drift = self.low - self.unloaded;
        let under_way = f32::from(self.most);
        // What is unloaded can only be seen with next to nothing under way.
        if self.most <= 3 && f32::from(self.total) < 2.0 * SETTLING {
            self.unloaded = self.low;
        } else if drift < 0.0 || self.most <= 2 {
            self.unloaded += drift * UNLOADED;
        } else if self.grew && libm::fabsf(self.low - self.before) < DRAINS {
            // Fewer under way did not make it faster: no queue, but how it is.
            self.unloaded += drift * MISTAKEN;
        }
        let queued = under_way * (1.0 - libm::exp2f(self.unloaded - self.low));
        let queue = queued > 0.8 + 0.2 * under_way;
        if queue {
            self.before = self.low;
            self.cap = (self.cap.min(under_way) - ((queued - 1.0) / 2.0).max(1.0)).max(1.0);
        } else if self.held_back && queued < 0.25 + 0.15 * under_way {
            self.cap += if eager {
                (self.cap * 0.5).max(1.0)
            } else {
                1.0
            };
        }
        (self.seen, self.most, self.held_back) = (0, 0, false);
        let again = queue && self.grew;
        self.grew = queue;
        again
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    const UNLOADED_S: f64 = 0.2;

    /// `requests` on a host that serves `slots` at once and lets the rest wait, as many under way
    /// as allowed; latencies vary by the factor `noise` either way.
    fn worked(queue: &mut Queue, requests: u32, slots: f64, noise: f64) {
        let mut rng = Rng::new(5);
        for _ in 0..requests {
            let cap = queue.cap();
            let wait = (f64::from(cap) / slots).max(1.0);
            let off = rng.between(1.0 / noise, noise);
            let latency = Duration::from_secs_f64(UNLOADED_S * wait * off);
            queue.served(latency, cap as u16 - 1, false);
        }
    }

    #[test]
    fn without_a_queue_it_grows_while_held_back() {
        let mut queue = Queue::default();
        worked(&mut queue, 5_000, 1e9, 1.0);
        assert!(queue.cap() >= 30, "{queue:?}");
        assert!(queue.plausible());
    }

    #[test]
    fn four_slots_are_kept_busy_and_hardly_anything_waits() {
        let mut queue = Queue::default();
        worked(&mut queue, 20_000, 4.0, 1.0);
        assert!((4..=6).contains(&queue.cap()), "{queue:?}");
    }

    #[test]
    fn with_a_queue_it_shrinks() {
        let mut queue = Queue::default();
        worked(&mut queue, 5_000, 1e9, 1.0);
        worked(&mut queue, 5_000, 4.0, 1.0);
        assert!(queue.cap() <= 8, "{queue:?}");
    }

    #[test]
    fn noise_in_latency_does_not_freeze_it() {
        let mut queue = Queue::default();
        worked(&mut queue, 5_000, 1e9, 3.0);
        assert!(queue.cap() >= 15, "{queue:?}");
    }

    #[test]
    fn what_the_demand_does_not_use_is_not_raised() {
        let mut queue = Queue::default();
        (0..5_000).for_each(|_| {
            queue.served(Duration::from_millis(200), 0, false);
        });
        assert_eq!(queue.cap(), START as u32);
    }

    #[test]
    fn before_the_first_refusal_it_grows_by_halves() {
        let cap = |eager| {
            let mut queue = Queue::default();
            (0..200).for_each(|_| {
                queue.served(Duration::from_millis(200), queue.cap() as u16 - 1, eager);
            });
            queue.cap()
        };
        assert!(cap(true) >= 3 * cap(false), "{} {}", cap(true), cap(false));
    }

    #[test]
    fn no_latency_makes_it_implausible() {
        for latency in [Duration::ZERO, Duration::MAX] {
            let mut queue = Queue::default();
            (0..1_000).for_each(|_| {
                queue.served(latency, u16::MAX, true);
            });
            assert!(queue.plausible() && queue.cap() >= 1, "{queue:?}");
        }
    }
}
