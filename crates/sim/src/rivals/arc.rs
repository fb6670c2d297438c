//! Vector's adaptive request concurrency (vectordotdev/vector `src/sinks/util/adaptive_concurrency/controller.rs`,
//! `retries.rs` and `stats/mod.rs` at c3445d4, 2026-08-21).
//!
//! A limit of requests in flight, 1 at first, at most 200. Once per past mean round trip: if the limit was
//! reached without back pressure and the mean round trip since is at most the past one, one more; else after back
//! pressure, or if it is 2.5 standard deviations above the past mean, nine tenths, rounded down. The past is an
//! average with weight 0.4.
//!
//! As shipped, the limiter stands *around* the retries: a refused request keeps its permit while it sleeps
//! (Fibonacci from 1 s to 30 s, full jitter) and is tried again until it succeeds. So its round trip contains the
//! sleeps, and that, not the refusal, is the back pressure. A branch (05b56b7, not in that snapshot) reports each
//! attempt, and the stack for sinks with several endpoints has the limiter inside the retries, where sleepers
//! hold no permit; these are not simulated.

use std::time::Duration;

use politely_core::{Rng, Timestamp};

use super::pace::{Sleepers, secs};
use crate::client::{Answer, Client, Reply};

const MAX: u32 = 200;
const DECREASE: f64 = 0.9;
const ALPHA: f64 = 0.4;
const DEVIATIONS: f64 = 2.5;
/// Seconds.
const BACKOFF_MAX_S: f64 = 30.0;

/// Mean and variance of the past, exponentially weighted; seconds.
#[derive(Clone, Copy, Debug)]
struct Past {
    mean: f64,
    variance: f64,
}

impl Past {
    fn update(&mut self, point: f64) {
        let difference = point - self.mean;
        let increment = ALPHA * difference;
        self.mean += increment;
        self.variance = (1.0 - ALPHA) * (self.variance + difference * increment);
    }
}

#[derive(Debug)]
pub(super) struct Arc {
    limit: u32,
    /// Permits held: requests in flight and asleep.
    held: u32,
    reached: bool,
    past: Option<Past>,
    /// Mean round trip since the last decision, seconds, over how many.
    current: (f64, u32),
    next_update: Timestamp,
    /// By when their first attempt left, which is their ticket.
    sleepers: Sleepers,
    jitter: bool,
}

impl Arc {
    pub(super) fn new() -> Self {
        Self {
            limit: 1,
            held: 0,
            reached: false,
            past: None,
            current: (0.0, 0),
            next_update: Timestamp::ZERO,
            sleepers: Sleepers::default(),
            jitter: true,
        }
    }

    /// A request is done with, after all its attempts; `rtt` in seconds if it was served.
    fn done(&mut self, now: Timestamp, rtt: Option<f64>) {
        self.held -= 1;
        if let Some(rtt) = rtt {
            let (mean, count) = &mut self.current;
            *count += 1;
            *mean += (rtt - *mean) / f64::from(*count);
        }
        let current = (self.current.1 > 0).then_some(self.current.0);
        let Some(mut past) = self.past else {
            if let Some(mean) = current {
                let variance = 0.0;
                self.past = Some(Past { mean, variance });
                self.next_update = now + secs(mean);
            }
            return;
        };
        if now < self.next_update {
            return;
        }
        let threshold = past.mean + DEVIATIONS * past.variance.sqrt();
        if self.limit < MAX && self.reached && current.is_some_and(|rtt| rtt <= past.mean) {
            self.limit += 1;
        } else if self.limit > 1 && current.is_some_and(|rtt| rtt >= threshold) {
            self.limit = ((f64::from(self.limit) * DECREASE) as u32).max(1);
        }
        if let Some(rtt) = current {
            past.update(rtt);
        }
        self.past = Some(past);
        self.next_update = now + secs(past.mean);
        self.current = (0.0, 0);
        self.reached = false;
    }
}

/// The `n`th sleep, in seconds, from the first on: 1, 2, 3, 5, 8 and so on.
fn fibonacci(n: u32) -> f64 {
    let (mut last, mut this) = (0.0, 1.0);
    for _ in 0..n {
        (last, this) = (this, BACKOFF_MAX_S.min(last + this));
    }
    this
}

impl Client for Arc {
    fn ask(&mut self, now: Timestamp) -> Answer {
        if let Some(first_sent) = self.sleepers.wake(now) {
            return Answer::Go(first_sent);
        }
        if self.held >= self.limit {
            return Answer::AfterReply;
        }
        self.held += 1;
        self.reached |= self.held >= self.limit;
        Answer::Go(now.as_micros())
    }

    fn hear(&mut self, now: Timestamp, reply: &Reply, _rng: &mut Rng) {
        let first_sent = Timestamp::from_micros(reply.ticket);
        if reply.ok() {
            self.done(now, Some(now.since(first_sent).as_secs_f64()));
        } else if !retriable(reply) {
            self.done(now, None);
        }
    }

    fn backoff(&mut self, reply: &Reply, rng: &mut Rng) -> Duration {
        if !retriable(reply) {
            return Duration::ZERO;
        }
        let mut sleep = fibonacci(reply.attempt);
        if self.jitter {
            // Whole milliseconds, from one to all.
            sleep = ((rng.unit() * sleep * 1e3).floor() + 1.0) / 1e3;
        }
        let sleep = secs(sleep);
        let now = reply.sent + reply.latency;
        self.sleepers.sleep(now + sleep, reply.ticket);
        sleep
    }
}

const fn retriable(reply: &Reply) -> bool {
    reply.status == 429 || reply.status >= 500
}

#[cfg(test)]
mod tests {
    use super::super::testing::near;
    use super::*;

    #[test]
    fn sleeps_are_fibonaccis() {
        let sleeps: Vec<f64> = (1..10).map(fibonacci).collect();
        assert_eq!(sleeps, [1.0, 2.0, 3.0, 5.0, 8.0, 13.0, 21.0, 30.0, 30.0]);
    }

    #[test]
    fn one_more_per_round_trip_at_the_mean_nine_tenths_when_slow() {
        let mut arc = Arc::new();
        let mut step = |limit: u32, s: f64, rtt: f64| {
            (arc.limit, arc.held, arc.reached) = (limit, 1, true);
            arc.done(Timestamp::from_secs_f64(s), Some(rtt));
            (arc.limit, arc.past.unwrap())
        };
        // The first measures, the next within a mean round trip only counts.
        assert_eq!(step(1, 0.0, 0.1).0, 1);
        assert_eq!(step(1, 0.05, 0.1).0, 1);
        assert_eq!(step(1, 0.1, 0.1).0, 2);
        // Any slower: with no variance yet that is beyond 2.5 deviations.
        let (limit, past) = step(19, 0.2, 0.2);
        assert_eq!(limit, 17);
        near(past.mean, 0.14);
        near(past.variance, 0.6 * 0.1 * 0.04);
        // 0.14 + 2.5 x 0.049 = 0.262: neither faster nor slow enough.
        assert_eq!(step(17, 0.4, 0.25).0, 17);
        assert_eq!(step(1, 0.9, 9.0).0, 1);
    }

    /// Upstream's `test_arc` sink: 100 ms constant, a deferral too, counting every request that arrives.
    struct Upstream {
        requests: usize,
        in_flight_max: usize,
        rate_max: usize,
    }

    /// Time-weighted means as upstream takes them, and the share deferred.
    struct Stats {
        in_flight: f64,
        rate: f64,
        limit_max: u32,
    }

    impl Upstream {
        fn run(&self) -> Stats {
            const DELAY_US: u64 = 100_000;
            let mut arc = Arc::new();
            // Upstream's tests switch jitter off.
            arc.jitter = false;
            let mut rng = Rng::new(0);
            let mut events = std::collections::BTreeMap::new();
            let mut seq = 0_u64;
            let (mut recent, mut in_flight, mut served) =
                (std::collections::VecDeque::new(), 0_usize, 0_usize);
            let (mut sum_in_flight, mut sum_rate, mut last, mut limit_max) = (0.0, 0.0, 0_u64, 0);
            let mut waking: std::collections::VecDeque<u32> = std::collections::VecDeque::new();
            let mut now = 1_u64;
            while served < self.requests {
                // As many as may go, sleepers first.
                while let Answer::Go(ticket) = arc.ask(Timestamp::from_micros(now)) {
                    let attempt = waking.pop_front().unwrap_or(0) + 1;
                    while recent.front().is_some_and(|&at| at + 1_000_000 <= now) {
                        recent.pop_front();
                    }
                    recent.push_back(now);
                    sum_rate += (now - last) as f64 * recent.len() as f64;
                    sum_in_flight += (now - last) as f64 * in_flight as f64;
                    last = now;
                    in_flight += 1;
                    let ok = in_flight <= self.in_flight_max && recent.len() <= self.rate_max;
                    seq += 1;
                    events.insert((now + DELAY_US, seq), Some((ticket, attempt, ok, now)));
                }
                let ((at, _), event) = events.pop_first().unwrap();
                now = at;
                let Some((ticket, attempt, ok, sent)) = event else {
                    continue;
                };
                while recent.front().is_some_and(|&at| at + 1_000_000 <= now) {
                    recent.pop_front();
                }
                sum_rate += (now - last) as f64 * recent.len() as f64;
                sum_in_flight += (now - last) as f64 * in_flight as f64;
                last = now;
                in_flight -= 1;
                served += usize::from(ok);
                let mut reply = super::super::testing::refused(if ok { 200 } else { 429 });
                reply.ticket = ticket;
                reply.attempt = attempt;
                reply.sent = Timestamp::from_micros(sent);
                reply.latency = Duration::from_micros(DELAY_US);
                arc.hear(Timestamp::from_micros(now), &reply, &mut rng);
                limit_max = limit_max.max(arc.limit);
                if !ok {
                    let sleep = arc.backoff(&reply, &mut rng);
                    seq += 1;
                    // Sleeps are whole seconds and equal attempts wake in order.
                    waking.push_back(attempt);
                    events.insert((now + sleep.as_micros() as u64, seq), None);
                }
            }
            Stats {
                in_flight: sum_in_flight / last as f64,
                rate: sum_rate / last as f64,
                limit_max,
            }
        }
    }

    /// `tests/data/adaptive-concurrency/defers-at-high-rate.yaml`.
    #[test]
    fn vectors_own_band_for_a_limited_rate() {
        let stats = Upstream {
            requests: 1000,
            in_flight_max: usize::MAX,
            rate_max: 100,
        }
        .run();
        println!("in flight {:.2}, rate {:.1}, limit max {}", stats.in_flight, stats.rate, stats.limit_max);
        assert!((6.0..=9.0).contains(&stats.in_flight), "{}", stats.in_flight);
        assert!((31.0..=75.0).contains(&stats.rate), "{}", stats.rate);
        assert!((16..=24).contains(&stats.limit_max), "{}", stats.limit_max);
    }

    /// `tests/data/adaptive-concurrency/defers-at-high-concurrency.yaml`.
    #[test]
    fn vectors_own_band_for_limited_concurrency() {
        let stats = Upstream {
            requests: 500,
            in_flight_max: 5,
            rate_max: usize::MAX,
        }
        .run();
        println!("in flight {:.2}, rate {:.1}, limit max {}", stats.in_flight, stats.rate, stats.limit_max);
        assert!((2.2..=5.0).contains(&stats.in_flight), "{}", stats.in_flight);
        assert!((20.0..=44.0).contains(&stats.rate), "{}", stats.rate);
        assert!((6..=41).contains(&stats.limit_max), "{}", stats.limit_max);
    }
}
