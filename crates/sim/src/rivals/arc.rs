//! Vector's adaptive request concurrency (vectordotdev/vector
//! `src/sinks/util/adaptive_concurrency/controller.rs`, `retries.rs` and `stats/mod.rs` at c3445d4,
//! 2026-08-21).
//!
//! The law is a limit on requests in flight, 1 at first, at most 200. It changes once per past mean
//! round trip. If the limit was reached without back pressure, and the mean round trip since is at
//! most the past one, it grows by one. After back pressure, or if the mean is 2.5 standard
//! deviations above the past one, it shrinks to nine tenths, rounded down. The past is an average
//! with weight 0.4.
//!
//! A refused request sleeps (Fibonacci from 1 s to 30 s, full jitter) and is retried until it
//! succeeds. The place of the limiter makes two laws:
//!
//! - [`Stack::Around`] the retries, in sinks with one endpoint, which Vector's own tests measure.
//!   The request keeps its permit while it sleeps, and its round trip contains the sleeps. That,
//!   not the refusal, is the back pressure.
//! - [`Stack::Inside`] the retries, in sinks with several endpoints. Each attempt takes a permit.
//!   It has a round trip if it was served, and is back pressure if not.
//!
//! A branch (05b56b7, not in that snapshot) reports attempts to a limiter around them; it is not
//! simulated.

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

/// The place of the limiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stack {
    Around,
    Inside,
}

#[derive(Debug)]
pub(super) struct Arc {
    stack: Stack,
    limit: u32,
    /// Permits in use: requests in flight and, if the limiter is around the retries, sleeping ones.
    held: u32,
    reached: bool,
    back_pressure: bool,
    past: Option<Past>,
    /// Mean round trip since the last decision in seconds, and its number of samples.
    current: (f64, u32),
    next_update: Timestamp,
    /// Sleeping requests with a permit, by their ticket: when their first attempt left.
    sleepers: Sleepers,
    jitter: bool,
}

impl Arc {
    pub(super) fn new(stack: Stack) -> Self {
        Self {
            stack,
            limit: 1,
            held: 0,
            reached: false,
            back_pressure: false,
            past: None,
            current: (0.0, 0),
            next_update: Timestamp::ZERO,
            sleepers: Sleepers::default(),
            jitter: true,
        }
    }

    /// Returns a permit; `rtt` is in seconds if the request was served.
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
        let fast = current.is_some_and(|rtt| rtt <= past.mean);
        let slow = current.is_some_and(|rtt| rtt >= threshold);
        if self.limit < MAX && self.reached && !self.back_pressure && fast {
            self.limit += 1;
        } else if self.limit > 1 && (self.back_pressure || slow) {
            self.limit = ((f64::from(self.limit) * DECREASE) as u32).max(1);
        }
        if let Some(rtt) = current {
            past.update(rtt);
        }
        self.past = Some(past);
        self.next_update = now + secs(past.mean);
        self.current = (0.0, 0);
        self.reached = false;
        self.back_pressure = false;
    }
}

/// Returns sleep number `n` in seconds: 1, 2, 3, 5, 8 and so on.
fn fibonacci(n: u32) -> f64 {
    let (mut last, mut this) = (0.0, 1.0);
    for _ in 0..n {
        (last, this) = (this, BACKOFF_MAX_S.min(last + this));
    }
    this
}

impl Client for Arc {
    fn ask(&mut self, now: Timestamp) -> Answer {
        if self.stack == Stack::Around
            && let Some(first_sent) = self.sleepers.wake(now)
        {
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
        let started = Timestamp::from_micros(reply.ticket);
        if reply.ok() {
            self.done(now, Some(now.since(started).as_secs_f64()));
        } else if !retriable(reply) {
            self.done(now, None);
        } else if self.stack == Stack::Inside {
            self.back_pressure = true;
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
        if self.stack == Stack::Around {
            let now = reply.sent + reply.latency;
            self.sleepers.sleep(now + sleep, reply.ticket);
        }
        sleep
    }
}

const fn retriable(reply: &Reply) -> bool {
    reply.status == 429 || reply.status >= 500
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, VecDeque};

    use super::super::tests::{near, refused};
    use super::*;
    use crate::trace::Fate;
    use crate::{Scenario, run};

    #[test]
    fn sleeps_are_fibonaccis() {
        let sleeps: Vec<f64> = (1..10).map(fibonacci).collect();
        assert_eq!(sleeps, [1.0, 2.0, 3.0, 5.0, 8.0, 13.0, 21.0, 30.0, 30.0]);
    }

    #[test]
    fn one_more_per_round_trip_at_the_mean_nine_tenths_when_slow() {
        let mut arc = Arc::new(Stack::Around);
        let mut step = |limit: u32, s: f64, rtt: f64| {
            (arc.limit, arc.held, arc.reached) = (limit, 1, true);
            arc.done(Timestamp::from_secs_f64(s), Some(rtt));
            (arc.limit, arc.past.unwrap())
        };
        // The first request measures; the next within a mean round trip only counts.
        assert_eq!(step(1, 0.0, 0.1).0, 1);
        assert_eq!(step(1, 0.05, 0.1).0, 1);
        assert_eq!(step(1, 0.1, 0.1).0, 2);
        // Any slower round trip is beyond 2.5 deviations while there is no variance yet.
        let (limit, past) = step(19, 0.2, 0.2);
        assert_eq!(limit, 17);
        near(past.mean, 0.14);
        near(past.variance, 0.6 * 0.1 * 0.04);
        // 0.14 + 2.5 x 0.049 = 0.262: neither faster nor slow enough.
        assert_eq!(step(17, 0.4, 0.25).0, 17);
        assert_eq!(step(1, 0.9, 9.0).0, 1);
    }

    /// An attempt and its event: `None` wakes it, `Some` answers its ticket, served or not.
    type Event = (u32, Option<(u64, bool)>);

    /// The sink of Vector's `test_arc`: 100 ms for an answer, a deferral included, counting every
    /// arriving request.
    ///
    /// Everything there happens at whole tenths of a second, in an order that its runtime does not
    /// promise. Here the order is drawn.
    struct Upstream {
        requests: u32,
        in_flight_max: usize,
        rate_max: usize,
        arc: Arc,
        rng: Rng,
        now: u64,
        /// The events by time, in drawn order.
        events: BTreeMap<(u64, u64), Event>,
        /// Requests of the last second.
        recent: VecDeque<u64>,
        in_flight: usize,
        served: u32,
        last: u64,
        sums: (f64, f64),
    }

    impl Upstream {
        /// Returns the mean in flight and the mean rate, weighted with time as in Vector's
        /// histograms, over 50 orders.
        fn means(requests: u32, in_flight_max: usize, rate_max: usize) -> (f64, f64) {
            let runs = (0..50).map(|seed| {
                let mut arc = Arc::new(Stack::Around);
                // Upstream's tests switch jitter off.
                arc.jitter = false;
                Self {
                    requests,
                    in_flight_max,
                    rate_max,
                    arc,
                    rng: Rng::new(seed),
                    now: 0,
                    events: BTreeMap::new(),
                    recent: VecDeque::new(),
                    in_flight: 0,
                    served: 0,
                    last: 0,
                    sums: (0.0, 0.0),
                }
                .run()
            });
            let sum = runs.fold((0.0, 0.0), |sum, run| (sum.0 + run.0, sum.1 + run.1));
            (sum.0 / 50.0, sum.1 / 50.0)
        }

        fn count(&mut self, started: bool) {
            let now = self.now;
            while (self.recent.front()).is_some_and(|&at| at + 1_000_000 <= now) {
                self.recent.pop_front();
            }
            if started {
                self.recent.push_back(now);
            }
            let elapsed = (now - self.last) as f64;
            self.sums.0 += elapsed * self.in_flight as f64;
            self.sums.1 += elapsed * self.recent.len() as f64;
            self.last = now;
        }

        fn at(&mut self, after: u64, attempt: u32, answer: Option<(u64, bool)>) {
            let order = self.rng.next_u64();
            self.events
                .insert((self.now + after, order), (attempt, answer));
        }

        /// Sends one request if the law lets it.
        fn send(&mut self, attempt: u32) -> bool {
            let Answer::Go(ticket) = self.arc.ask(Timestamp::from_micros(self.now)) else {
                return false;
            };
            self.count(true);
            self.in_flight += 1;
            let ok = self.in_flight <= self.in_flight_max && self.recent.len() <= self.rate_max;
            self.at(100_000, attempt, Some((ticket, ok)));
            true
        }

        fn answer(&mut self, attempt: u32, ticket: u64, ok: bool) {
            self.count(false);
            self.in_flight -= 1;
            self.served += u32::from(ok);
            let mut reply = refused(if ok { 200 } else { 429 });
            (reply.ticket, reply.attempt) = (ticket, attempt);
            reply.sent = Timestamp::from_micros(self.now - 100_000);
            let now = Timestamp::from_micros(self.now);
            self.arc.hear(now, &reply, &mut self.rng);
            if !ok {
                let sleep = self.arc.backoff(&reply, &mut self.rng).as_micros() as u64;
                self.at(sleep, attempt, None);
            }
        }

        fn run(mut self) -> (f64, f64) {
            while self.served < self.requests {
                // New requests follow after all other events of this instant.
                while self.send(1) {}
                self.now = self.events.first_key_value().unwrap().0.0;
                while let Some(event) = self.events.first_entry()
                    && event.key().0 == self.now
                {
                    match event.remove() {
                        (attempt, Some((ticket, ok))) => self.answer(attempt, ticket, ok),
                        (attempt, None) => assert!(self.send(attempt + 1)),
                    }
                }
            }
            (
                self.sums.0 / self.last as f64,
                self.sums.1 / self.last as f64,
            )
        }
    }

    /// `tests/data/adaptive-concurrency/defers-at-high-rate.yaml`, `stats`.
    #[test]
    fn vectors_own_band_for_a_limited_rate() {
        let (in_flight, rate) = Upstream::means(1000, usize::MAX, 100);
        assert!((6.0..=9.0).contains(&in_flight), "{in_flight}");
        assert!((31.0..=75.0).contains(&rate), "{rate}");
    }

    /// `tests/data/adaptive-concurrency/defers-at-high-concurrency.yaml`, `stats`.
    #[test]
    fn vectors_own_band_for_limited_concurrency() {
        let (in_flight, rate) = Upstream::means(500, 5, usize::MAX);
        assert!((2.2..=5.0).contains(&in_flight), "{in_flight}");
        assert!((20.0..=44.0).contains(&rate), "{rate}");
    }

    #[test]
    fn inside_the_retries_a_refusal_is_back_pressure_and_frees_its_permit() {
        let mut arc = Arc::new(Stack::Inside);
        arc.past = Some(Past {
            mean: 0.1,
            variance: 0.0,
        });
        (arc.limit, arc.held) = (10, 10);
        let now = Timestamp::from_secs_f64(1.0);
        arc.hear(now, &refused(429), &mut Rng::new(0));
        assert_eq!((arc.limit, arc.held), (9, 9));
    }

    /// Nearly the same hosts through our event loop. There refusals do not count towards the limit,
    /// so more than Vector's 75/s is accepted where the rate is limited. Refusals also do not take
    /// 100 ms where slots are.
    #[test]
    fn the_bands_in_our_event_loop() {
        let around = |_| -> Box<dyn Client> {
            let mut arc = Arc::new(Stack::Around);
            arc.jitter = false;
            Box::new(arc)
        };
        for (json, accepted, in_flight) in [
            (
                r#"{"name":"defers-at-high-rate","duration_s":1000,
                "demand":{"kind":"pages","count":1000,"connections":250},"rtt_ms":100,
                "limit":{"kind":"sliding_log","count":100,"window_s":1}}"#,
                31.0..=85.0,
                6.0..=9.5,
            ),
            (
                r#"{"name":"defers-at-high-concurrency","duration_s":1000,
                "demand":{"kind":"pages","count":500,"connections":250},"rtt_ms":0,
                "service":{"mean_ms":100},"limit":{"kind":"concurrency_reject","slots":5}}"#,
                20.0..=44.0,
                2.2..=5.0,
            ),
        ] {
            let scenario = Scenario::read(&format!("[{json}]")).unwrap().remove(0);
            for seed in 0..5 {
                let trace = run(&scenario, seed, false, around);
                let time = trace.end.as_secs_f64();
                let served = (trace.requests.iter())
                    .filter(|request| request.fate == Fate::Served)
                    .count();
                let busy: f64 = (trace.requests.iter())
                    .map(|request| request.latency.as_secs_f64())
                    .sum();
                assert!(
                    accepted.contains(&(served as f64 / time)),
                    "{served} in {time}"
                );
                assert!(in_flight.contains(&(busy / time)), "{busy} in {time}");
            }
        }
    }
}
