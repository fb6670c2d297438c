//! A server that counts strictly, and requests that are delayed on their way to it.

use std::collections::VecDeque;
use std::time::Duration;

use proptest::prelude::*;

use super::rolling::Rolling;
use crate::{Rng, Timestamp};

/// The time of a run. The bars of use hold for it.
const RUN: Duration = Duration::from_secs(80);

/// Requests that leave within this time of one another are one burst.
const BETWEEN_BURSTS: Duration = Duration::from_millis(10);
/// The most by which a single request is late.
const JITTER_MS: f64 = 25.0;

/// How requests reach the server: one after the other. Each burst has a pace of its own.
struct Way {
    rng: Rng,
    /// The time that the way is busy with one request, in milliseconds: from and to.
    each_ms: (f64, f64),
    /// The present burst's time.
    each: Duration,
    /// When the way is free again.
    free: Timestamp,
}

impl Way {
    fn arrival(&mut self, left: Timestamp) -> Timestamp {
        if left.since(self.free) > BETWEEN_BURSTS {
            let (from, to) = self.each_ms;
            self.each = ms(self.rng.between(from, to));
        }
        self.free = self.free.max(left) + self.each;
        self.free + ms(self.rng.between(0.0, JITTER_MS))
    }
}

fn ms(ms: f64) -> Duration {
    Duration::from_secs_f64(ms / 1e3)
}

/// Returns the refused and the used shares when there is always a request to send.
fn saturate(quantity: u64, window: Duration, each_ms: (f64, f64), seed: u64) -> (f64, f64) {
    let begin = Timestamp::ZERO + Duration::from_hours(1);
    let mut way = Way {
        rng: Rng::new(seed),
        each_ms,
        each: Duration::ZERO,
        free: begin,
    };
    let (mut log, mut now, mut arrivals) = (Rolling::default(), begin, Vec::new());
    loop {
        let start = log.next_start(now, 1, quantity, window);
        if start >= begin + RUN {
            break;
        }
        // A timer is up to a millisecond late.
        if start > now {
            now = start + ms(way.rng.unit());
            continue;
        }
        log.charge(now, now, 1, quantity, window);
        arrivals.push(way.arrival(now));
    }
    arrivals.sort_unstable();
    let (mut served, mut inside, mut refused) = (0_u64, VecDeque::new(), 0_u64);
    for at in arrivals {
        while inside
            .front()
            .is_some_and(|first| at.since(*first) >= window)
        {
            inside.pop_front();
        }
        if inside.len() as u64 >= quantity {
            refused += 1;
            continue;
        }
        inside.push_back(at);
        served += 1;
    }
    let capacity = quantity as f64 * RUN.as_secs_f64() / window.as_secs_f64();
    (
        refused as f64 / (served + refused) as f64,
        served as f64 / capacity,
    )
}

#[test]
fn a_burst_that_spreads_on_its_way_is_not_refused_and_the_limit_is_used() {
    for (quantity, secs, each_ms) in [
        (5, 1, (4.0, 9.0)),
        (20, 1, (1.0, 2.25)),
        (60, 1, (0.3, 0.75)),
        (100, 5, (1.0, 2.25)),
        (100, 10, (1.0, 2.25)),
    ] {
        let window = Duration::from_secs(secs);
        let runs = (1..=5).map(|seed| saturate(quantity, window, each_ms, seed));
        let (refused, used) = runs.fold((0.0, 1.0), |(refused, used), run| {
            (f64::max(refused, run.0), f64::min(used, run.1))
        });
        assert!(refused <= 0.001, "{quantity}/{secs} s: {refused} refused");
        assert!(used >= 0.96, "{quantity}/{secs} s: {used} used");
    }
}

/// A use below the limit waits for nothing, also in bursts.
#[test]
fn a_burst_below_the_limit_leaves_at_once() {
    let (mut log, window) = (Rolling::default(), Duration::from_secs(1));
    for burst in 1..100 {
        let now = Timestamp::ZERO + Duration::from_millis(1_100) * burst;
        for place in 0..10 {
            assert_eq!(log.next_start(now, 1, 20, window), now, "{burst} {place}");
            log.charge(now, now, 1, 20, window);
        }
    }
}

/// Requests of a large cost are as many as without an even use.
#[test]
fn large_costs_are_granted_as_often_as_the_window_allows() {
    let (mut log, window) = (Rolling::default(), Duration::from_secs(1));
    let (mut now, mut granted) = (Timestamp::ZERO + window, 0);
    while now < Timestamp::ZERO + RUN {
        now = log.next_start(now, 500, 1_000, window);
        log.charge(now, now, 500, 1_000, window);
        granted += 1;
    }
    assert!(granted >= 2 * RUN.as_secs() * 96 / 100, "{granted}");
}

proptest! {
    /// P10 in a short window, whose quantity is freed evenly.
    #[test]
    fn no_short_window_has_more_than_its_quantity(
        quantity in 1_u64..40,
        steps in proptest::collection::vec((0_u64..150, 1_u64..6, 0_u64..4, 0_u64..30), 1..400),
    ) {
        let window = Duration::from_secs(1);
        let (mut log, mut now) = (Rolling::default(), Timestamp::ZERO + window);
        let (mut left, mut open) = (Vec::new(), Vec::new());
        for (pause_ms, cost, what, ahead_ms) in steps {
            now = now + Duration::from_millis(pause_ms);
            if what == 3 && !open.is_empty() {
                let (at, cost) = open.remove(pause_ms as usize % open.len());
                log.put_back(at, cost, window);
                continue;
            }
            if log.next_start(now, cost, quantity, window) > now {
                continue;
            }
            let at = now + Duration::from_millis(ahead_ms);
            log.charge(now, at, cost, quantity, window);
            if what == 2 {
                open.push((at, cost));
            } else {
                left.extend(std::iter::repeat_n(at, cost as usize));
            }
        }
        left.sort_unstable();
        for (place, first) in left.iter().enumerate() {
            let inside = left[place..].iter().take_while(|at| at.since(*first) < window);
            prop_assert!(inside.count() as u64 <= quantity);
        }
    }
}
