//! Finds the number of requests in flight that keeps the host busy without a queue.
//!
//! A host that delays requests instead of refusing them shows its limit in the latency. The cap in
//! flight grows while it holds requests back and no queue is seen. It shrinks when a queue is seen.
//!
//! The length of the queue follows from TCP Vegas (Brakmo and Peterson 1994): requests in flight x
//! (1 - unloaded latency / present latency). Both latencies are a low quantile, because a queue
//! slows the fast requests too, and noise only the slow ones.
//!
//! A host may become slower for good. What looks like a queue is none if fewer requests in flight
//! do not lower the latency. So the cap is eased off from time to time, and the unloaded latency is
//! measured again, as Netflix's `GradientLimit` and Envoy's gradient controller do.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The first cap, in requests in flight.
pub(super) const START: f32 = 2.0;
/// The quantile of the latency that is tracked.
const QUANTILE: f32 = 0.3;
/// Least number of latencies between two evaluations.
const LOOK: u16 = 40;
/// Step of the quantile tracker, in octaves (factors of two).
const STEP: f32 = 0.03;
/// Number of consecutive latencies above the quantile from which on its steps grow. One of a
/// hundred runs is as long by chance. Steps downwards are larger, and do not grow.
const RUN: u8 = 12;

/// Share of a difference by which the unloaded latency follows at each evaluation. It follows
/// slowly, because the least of many noisy values is too low.
const UNLOADED: f32 = 0.1;

/// A shorter latency counts as this, in microseconds. A timer of a millisecond wakes several
/// requests at once, and a busy machine delays them further. At a host that answers within a
/// millisecond that looks like a queue.
const LATENCY_MIN_US: f32 = 5_000.0;

/// The most requests in flight that are counted, and the bound of a plausible cap.
const CAP_MAX: f32 = 10_000.0;

/// Number of latencies until the quantile has settled.
const SETTLING: f32 = 24.0;
/// Change of the latency in octaves, from one evaluation to the next. A real queue changes by more
/// than this when fewer requests are in flight.
const DRAINS: f32 = 0.04;
/// Share of a difference by which the unloaded latency follows if the supposed queue was none.
const MISTAKEN: f32 = 0.2;
/// Number of evaluations without a queue and without growth until the cap is eased off.
const PATIENCE: u8 = 4;
/// Share of the cap that remains while it is eased off.
const EASED: f32 = 0.75;

/// The cap in flight that the latency allows.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Queue {
    /// Requests in flight.
    cap: f32,
    /// The low quantile of the latency, as the base-2 logarithm of its microseconds.
    low: f32,
    /// The same quantile without a queue.
    unloaded: f32,
    /// Number of latencies since the last evaluation.
    seen: u16,
    /// The most requests in flight since the last evaluation.
    most: u16,
    /// The low quantile when a queue was last seen.
    before: f32,
    /// Number of latencies so far.
    total: u16,
    /// Why the cap was lowered at the last evaluation.
    eased: Eased,
    /// Whether a request was sent at the cap since the last evaluation.
    held_back: bool,
    /// Consecutive latencies above the quantile.
    run: u8,
    /// Evaluations without a queue and without growth.
    stalled: u8,
}

/// Why the cap was lowered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Eased {
    Not,
    /// A queue was seen.
    Queue,
    /// To see whether the latency falls with it.
    Trial,
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
            eased: Eased::Not,
            held_back: false,
            run: 0,
            stalled: 0,
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

    /// Records the latency of a served request that was sent with `beside` others in flight.
    /// `eager` is true until the first refusal, and lets the cap grow faster. Returns whether two
    /// consecutive evaluations have seen a queue.
    pub(super) fn served(&mut self, latency: Duration, beside: u16, eager: bool) -> bool {
        let x = libm::log2f((latency.as_micros() as u64 as f32).clamp(LATENCY_MIN_US, 1e12));
        if self.unloaded == 0.0 {
            (self.low, self.unloaded) = (x, x);
        }
        self.track(x);
        self.seen = self.seen.saturating_add(1);
        self.most = self.most.max(beside.saturating_add(1)).min(CAP_MAX as u16);
        self.held_back |= f32::from(beside) + 1.0 >= self.cap.floor();
        let look = if eager { LOOK / 3 } else { LOOK };
        if self.seen < look.max(self.most.saturating_mul(if eager { 1 } else { 2 })) {
            return false;
        }
        let drift = self.low - self.unloaded;
        let under_way = f32::from(self.most);
        let has_not_drained = libm::fabsf(self.before - self.low) < DRAINS;
        // The unloaded latency shows only while very few requests are in flight.
        if self.most <= 3 && f32::from(self.total) < 2.0 * SETTLING {
            self.unloaded = self.low;
        } else if drift > 0.0 && self.eased != Eased::Not && has_not_drained {
            // Fewer requests in flight did not lower the latency, so it is not due to a queue.
            self.unloaded += drift * MISTAKEN;
        } else if drift < 0.0 || self.most <= 2 {
            self.unloaded += drift * UNLOADED;
        }
        if self.eased == Eased::Trial && has_not_drained {
            self.cap = (self.cap / EASED).min(CAP_MAX);
        }
        let queued = under_way * (1.0 - libm::exp2f(self.unloaded - self.low));
        let queue = queued > 0.8 + 0.2 * under_way;
        let again = queue && self.eased == Eased::Queue;
        self.eased = Eased::Not;
        if queue {
            (self.eased, self.before) = (Eased::Queue, self.low);
            self.cap = (self.cap.min(under_way) - ((queued - 1.0) / 2.0).max(1.0)).max(1.0);
        } else if self.held_back && queued < 0.25 + 0.15 * under_way {
            let more = if eager {
                (self.cap * 0.5).max(1.0)
            } else {
                1.0
            };
            self.cap = (self.cap + more).min(CAP_MAX);
        } else if self.held_back {
            self.stalled = self.stalled.saturating_add(1);
            if self.stalled >= PATIENCE {
                self.stalled = 0;
                (self.eased, self.before) = (Eased::Trial, self.low);
                self.cap = (self.cap * EASED).max(1.0);
            }
        }
        (self.seen, self.most, self.held_back) = (0, 0, false);
        again
    }

    /// Moves the low quantile towards the latency `x`.
    fn track(&mut self, x: f32) {
        self.total = self.total.saturating_add(1);
        let is_above = x > self.low;
        self.run = self.run.saturating_add(1) * u8::from(is_above);
        // The steps are large at first, because the first latency may be far from the quantile.
        // They grow while all latencies are above, because the latency has changed.
        let beyond = f32::from(self.run.saturating_sub(RUN));
        let step = STEP * (1.0 + SETTLING / f32::from(self.total) + beyond);
        let share = if is_above { QUANTILE } else { QUANTILE - 1.0 };
        self.low += step * share;
        if beyond > 0.0 {
            self.low = self.low.min(x);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    const UNLOADED_S: f64 = 0.2;

    /// Feeds `requests` served requests of a host that serves `slots` at once and delays the rest.
    /// As many are in flight as the cap allows. Latencies vary by up to the factor `noise` in both
    /// directions.
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
    fn the_cap_grows_while_it_holds_requests_back_and_there_is_no_queue() {
        let mut queue = Queue::default();
        worked(&mut queue, 5_000, 1e9, 1.0);
        assert!(queue.cap() >= 30, "{queue:?}");
        assert!(queue.plausible());
    }

    #[test]
    fn four_slots_are_kept_busy_without_a_long_queue() {
        let mut queue = Queue::default();
        worked(&mut queue, 20_000, 4.0, 1.0);
        assert!((4..=6).contains(&queue.cap()), "{queue:?}");
    }

    #[test]
    fn a_queue_lowers_the_cap() {
        let mut queue = Queue::default();
        worked(&mut queue, 5_000, 1e9, 1.0);
        worked(&mut queue, 5_000, 4.0, 1.0);
        assert!(queue.cap() <= 8, "{queue:?}");
    }

    /// Feeds an hour of a host that serves any number at once, `latency_s` each. The demand is
    /// 30/s. Returns the rate of the second half, in requests per second.
    fn hour(queue: &mut Queue, latency_s: f64, noise: f64) -> f64 {
        const DEMAND: f64 = 30.0;
        let mut rng = Rng::new(7);
        let (mut now_s, mut later) = (0.0, 0.0);
        while now_s < 3_600.0 {
            let in_flight = f64::from(queue.cap()).min((DEMAND * latency_s).ceil());
            let latency = latency_s * rng.between(1.0 / noise, noise);
            queue.served(
                Duration::from_secs_f64(latency),
                in_flight as u16 - 1,
                false,
            );
            now_s += (latency_s / in_flight).max(1.0 / DEMAND);
            later += f64::from(u8::from(now_s > 1_800.0));
        }
        later / 1_800.0
    }

    /// Regression: eight times the latency for good left one request in flight for as long as it
    /// was watched.
    #[test]
    fn a_host_that_becomes_slower_for_good_gets_as_many_requests_as_before() {
        for (factor, noise) in [2.0, 3.0, 8.0, 16.0]
            .into_iter()
            .flat_map(|x| [(x, 1.0), (x, 1.3)])
        {
            let mut queue = Queue::default();
            for latency_s in [0.06, 0.06 * factor, 0.06] {
                let rate = hour(&mut queue, latency_s, noise);
                assert!(
                    rate >= 27.0,
                    "x{factor}, noise {noise}: {rate}/s at {latency_s} s"
                );
            }
        }
    }

    #[test]
    fn noise_in_latency_does_not_stop_the_growth() {
        let mut queue = Queue::default();
        worked(&mut queue, 5_000, 1e9, 3.0);
        assert!(queue.cap() >= 15, "{queue:?}");
    }

    #[test]
    fn the_cap_does_not_grow_while_the_demand_is_below_it() {
        let mut queue = Queue::default();
        (0..5_000).for_each(|_| {
            queue.served(Duration::from_millis(200), 0, false);
        });
        assert_eq!(queue.cap(), START as u32);
    }

    #[test]
    fn before_the_first_refusal_the_cap_grows_by_halves() {
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
    fn the_state_stays_plausible_at_any_latency() {
        for latency in [Duration::ZERO, Duration::MAX] {
            let mut queue = Queue::default();
            (0..1_000).for_each(|_| {
                queue.served(latency, u16::MAX, true);
            });
            assert!(queue.plausible() && queue.cap() >= 1, "{queue:?}");
        }
    }
}
