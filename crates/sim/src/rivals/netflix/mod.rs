//! Netflix concurrency-limits (`concurrency-limits-core` at 78a74b9, 2026-01-12): limits of
//! requests in flight.
//!
//! `WindowedLimit` feeds each law: windows of a second with the mean round trip, the most in
//! flight, and whether anything was dropped. A window with fewer than ten answers is ignored.
//! Refused answers count as drops, and their (short) round trips count too. None of these laws goes
//! below one in flight, which is `1/latency` requests per second.
//!
//! The library's defaults begin at 20 and keep AIMD and Gradient2 from going below 20. Here all
//! begin at 4 and may go down to 1: with 20 they are refused far more.

mod aimd;
mod gradient2;
mod vegas;

use std::time::Duration;

use politely_core::{Rng, Timestamp};

pub(super) use aimd::Aimd;
pub(super) use gradient2::Gradient2;
pub(super) use vegas::Vegas;

use crate::client::{Answer, Client, Reply};

/// Requests in flight.
const START: f64 = 4.0;
const WINDOW: Duration = Duration::from_secs(1);
const ANSWERS_MIN: u32 = 10;

/// The figures of a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sample {
    /// Mean round trip, seconds.
    rtt: f64,
    /// The most requests in flight when one left, itself included.
    in_flight: u32,
    dropped: bool,
}

/// A law for the limit.
pub(super) trait Law {
    /// Updates the limit after a window.
    fn update(&mut self, sample: Sample, rng: &mut Rng);

    /// Returns the most requests in flight.
    fn limit(&self) -> u32;
}

#[derive(Clone, Copy, Debug, Default)]
struct Window {
    sum: f64,
    count: u32,
    in_flight: u32,
    dropped: bool,
}

/// A law behind `WindowedLimit` and a limiter that waits.
#[derive(Debug)]
pub(super) struct Windowed<L> {
    law: L,
    in_flight: u32,
    window: Window,
    ends: Timestamp,
}

impl<L: Law> Windowed<L> {
    pub(super) fn new(law: L) -> Self {
        Self {
            law,
            in_flight: 0,
            window: Window::default(),
            ends: Timestamp::ZERO,
        }
    }
}

impl<L: Law> Client for Windowed<L> {
    fn ask(&mut self, _now: Timestamp) -> Answer {
        if self.in_flight >= self.law.limit() {
            return Answer::AfterReply;
        }
        self.in_flight += 1;
        Answer::Go(u64::from(self.in_flight))
    }

    fn hear(&mut self, now: Timestamp, reply: &Reply, rng: &mut Rng) {
        self.in_flight -= 1;
        let window = &mut self.window;
        window.sum += reply.latency.as_secs_f64();
        window.count += 1;
        window.in_flight = window.in_flight.max(reply.ticket as u32);
        window.dropped |= !reply.ok();
        if now <= self.ends {
            return;
        }
        self.ends = now + WINDOW;
        let window = std::mem::take(window);
        if window.count >= ANSWERS_MIN {
            let sample = Sample {
                rtt: window.sum / f64::from(window.count),
                in_flight: window.in_flight,
                dropped: window.dropped,
            };
            self.law.update(sample, rng);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{near, refused, served};
    use super::*;

    #[derive(Default)]
    struct Kept(Vec<Sample>);

    impl Law for Kept {
        fn update(&mut self, sample: Sample, _rng: &mut Rng) {
            self.0.push(sample);
        }

        fn limit(&self) -> u32 {
            20
        }
    }

    #[test]
    fn windows_last_a_second_and_need_ten_answers() {
        let mut windowed = Windowed::new(Kept::default());
        let mut answer = |ms: u64, mut reply: Reply, in_flight: u64| {
            windowed.in_flight = 1;
            reply.ticket = in_flight;
            windowed.hear(Timestamp::from_micros(ms * 1000), &reply, &mut Rng::new(0));
            windowed.law.0.clone()
        };
        let mut slow = served();
        slow.latency = Duration::from_millis(200);
        let mut fast = refused(429);
        fast.latency = Duration::from_millis(100);
        // The first answer of all ends a window of one: nothing.
        assert!(answer(10, slow, 7).is_empty());
        for ms in 0..9 {
            assert!(answer(100 + ms, slow, 3).is_empty());
        }
        let samples = answer(1011, fast, 2);
        assert_eq!(samples.len(), 1);
        near(samples[0].rtt, 0.19);
        assert_eq!((samples[0].in_flight, samples[0].dropped), (3, true));
        // Nine are too few, and forgotten.
        for ms in 0..9 {
            answer(1100 + ms * 200, slow, 1);
        }
        assert_eq!(answer(3000, slow, 1).len(), 1);
    }
}
