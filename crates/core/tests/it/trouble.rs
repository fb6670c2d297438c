//! Trouble of a host that is no limit: outages and random failures. What was learned of the limit
//! stays.
//!
//! A crawler that always has a page to fetch drives a [`Host`] in virtual time, against a hidden
//! token bucket that answers 429.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use politely_core::config::Config;
use politely_core::gate::LeaseId;
use politely_core::host::{AcquireRequest, Decision, Host};
use politely_core::signal::{Failure, Outcome, Report, Resource, WallClock, classify};
use politely_core::{Rng, Timestamp};
use proptest::prelude::*;

const ROUND_TRIP: Duration = Duration::from_millis(50);
/// The time for which a crawler waits for an answer.
const TIME_OUT: Duration = Duration::from_secs(5);
const BEGIN: Timestamp = Timestamp::from_micros(1_795_000_000_000_000);

/// An answer that a limit of requests does not give.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    Status(u16),
    Failed(Failure),
}

impl Fault {
    const ALL: [Self; 6] = [
        Self::Status(500),
        Self::Status(502),
        Self::Status(503),
        Self::Status(504),
        Self::Failed(Failure::Reset),
        Self::Failed(Failure::Timeout),
    ];
}

fn any_fault() -> impl Strategy<Value = Fault> {
    proptest::sample::select(&Fault::ALL[..])
}

/// A request under way: when its answer comes, its number, and what the answer is.
type UnderWay = (Reverse<(Timestamp, u64)>, LeaseId, Answer);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Answer {
    Served,
    Refused,
    Faulty,
}

/// A crawler and its host.
#[derive(Clone)]
struct Crawl {
    host: Host,
    config: Config,
    rng: Rng,
    now: Timestamp,
    /// The bucket of the limit: requests per second, burst, tokens, and the time of the tokens.
    bucket: (f64, f64, f64, Timestamp),
    /// The answer to a request above the limit.
    refusal: Fault,
    under_way: BinaryHeap<UnderWay>,
    requests: u64,
    served: u64,
}

impl Crawl {
    fn new(rate: f64, burst: f64, seed: u64) -> Self {
        Self::with(Config::api(), rate, burst, seed)
    }

    fn with(config: Config, rate: f64, burst: f64, seed: u64) -> Self {
        Self {
            host: Host::new(&config, BEGIN),
            config,
            rng: Rng::new(seed),
            now: BEGIN,
            bucket: (rate, burst, burst, BEGIN),
            refusal: Fault::Status(429),
            under_way: BinaryHeap::new(),
            requests: 0,
            served: 0,
        }
    }

    /// Fetches until `pages` are served, and returns when that was.
    fn fetch(&mut self, pages: u64, fault: Fault) -> Timestamp {
        let most = Duration::from_mins(10);
        let end = self.now + most;
        while self.served < pages && self.now < end {
            self.go_on(most, true, fault, |_| false);
        }
        self.now
    }

    fn is_admitted(&mut self, at: Timestamp) -> bool {
        let (rate, burst, tokens, since) = &mut self.bucket;
        *tokens = (*tokens + at.since(*since).as_secs_f64() * *rate).min(*burst);
        *since = at.max(*since);
        let is_admitted = *tokens >= 1.0;
        *tokens -= f64::from(u8::from(is_admitted));
        is_admitted
    }

    /// Goes on for `length`, or until a request is served if `until_served`. `is_faulty` tells
    /// which requests fail with `fault`.
    fn go_on(
        &mut self,
        length: Duration,
        until_served: bool,
        fault: Fault,
        mut is_faulty: impl FnMut(&mut Rng) -> bool,
    ) {
        let end = self.now + length;
        loop {
            let next = match self
                .host
                .request(self.now, AcquireRequest::default(), &self.config)
            {
                Decision::Granted(grant) => {
                    // A request that fails counts towards the limit too.
                    let is_admitted = self.is_admitted(grant.start);
                    let (answer, takes) = if is_faulty(&mut self.rng) {
                        let is_silent = fault == Fault::Failed(Failure::Timeout);
                        let takes = if is_silent { TIME_OUT } else { ROUND_TRIP };
                        (Answer::Faulty, takes)
                    } else if is_admitted {
                        (Answer::Served, ROUND_TRIP)
                    } else {
                        (Answer::Refused, ROUND_TRIP)
                    };
                    self.requests += 1;
                    let comes = Reverse((grant.start + takes, self.requests));
                    self.under_way.push((comes, grant.lease, answer));
                    continue;
                }
                Decision::Wait(wait) => wait.at,
            };
            let comes = self.under_way.peek().map(|(Reverse((at, _)), ..)| *at);
            let first = next.min(comes.unwrap_or(Timestamp::NEVER));
            if first > end {
                self.now = end;
                return;
            }
            self.now = first.max(self.now);
            if comes.is_some_and(|at| at <= self.now) {
                let Some((Reverse((_, number)), lease, answer)) = self.under_way.pop() else {
                    return;
                };
                let fault = if answer == Answer::Refused {
                    self.refusal
                } else {
                    fault
                };
                let report = report(answer, fault, number);
                self.host
                    .report(self.now, lease, &report, &self.config, &mut self.rng);
                self.served += u64::from(answer == Answer::Served);
                if until_served && answer == Answer::Served {
                    return;
                }
            }
        }
    }

    fn ceiling(&self) -> Option<u64> {
        let explained = self.host.explain(self.now, &self.config);
        explained.law.ceiling.map(f64::to_bits)
    }

    /// Returns the median of the rate over `length`, from one value a second.
    fn rate(&mut self, length: Duration, fault: Fault, share: f64) -> f64 {
        let mut rates: Vec<_> = (0..length.as_secs())
            .map(|_| {
                let second = Duration::from_secs(1);
                self.go_on(second, false, fault, |rng| rng.unit() < share);
                self.host.explain(self.now, &self.config).rate
            })
            .collect();
        rates.sort_unstable_by(f64::total_cmp);
        rates[rates.len() / 2]
    }
}

/// Returns the report of an answer, as the library classifies it. Each request is for a page of its
/// own.
fn report(answer: Answer, fault: Fault, number: u64) -> Report {
    let headers = HeaderMap::new();
    let status = |status: u16| Outcome::Answered {
        status: StatusCode::from_u16(status).expect("a status"),
        headers: &headers,
        body_start: b"",
    };
    let outcome = match (answer, fault) {
        (Answer::Served, _) => status(200),
        (_, Fault::Status(code)) => status(code),
        (_, Fault::Failed(failure)) => Outcome::Failed(failure),
    };
    let latency = if answer == Answer::Faulty && fault == Fault::Failed(Failure::Timeout) {
        TIME_OUT
    } else {
        ROUND_TRIP
    };
    let clock = WallClock::from_unix_secs(1_795_000_000);
    let mut report = classify(&outcome, clock, latency, 1_000);
    report.resource = Some(Resource::of(&format!("/{number}")));
    report
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn an_outage_leaves_the_learned_ceiling_equal_to_the_byte(
        rate in 1.0_f64..40.0,
        burst in 1.0_f64..20.0,
        fault in any_fault(),
        learned_s in 200_u64..900,
        outage_ms in 3_000_u64..600_000,
        seed: u64,
    ) {
        let mut crawl = Crawl::new(rate, burst, seed);
        crawl.go_on(Duration::from_secs(learned_s), false, fault, |_| false);
        // The outage begins in a quiet moment: a refusal of the limit may change the ceiling.
        crawl.go_on(Duration::from_mins(1), true, fault, |_| false);
        let before = crawl.ceiling();
        prop_assert!(before.is_some());
        // The next request that is served may end a probe, which raises the ceiling.
        let mut undisturbed = crawl.clone();
        undisturbed.go_on(Duration::from_mins(1), true, fault, |_| false);
        prop_assume!(undisturbed.ceiling() == before);
        crawl.go_on(Duration::from_millis(outage_ms), false, fault, |_| true);
        // The host serves again: the first answers are those of the outage.
        crawl.go_on(Duration::from_mins(20), true, fault, |_| false);
        prop_assert_eq!(crawl.ceiling().map(f64::from_bits), before.map(f64::from_bits));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Noise of at most 5 % costs at most 2 % of the rate, if the limit answers in another way. A
    /// 503 may be a limit's answer, so for 503s this holds up to 1 %.
    #[test]
    fn noise_leaves_the_rate_alone(
        rate in 1.0_f64..40.0,
        burst in 1.0_f64..20.0,
        fault in any_fault(),
        share in 0.002_f64..0.05,
        seed: u64,
    ) {
        let share = if fault == Fault::Status(503) { share * 0.2 } else { share };
        let learning = Duration::from_mins(10);
        let measured = Duration::from_mins(20);
        let mut alone = Crawl::new(rate, burst, seed);
        alone.go_on(learning, false, fault, |_| false);
        let mut beside = Crawl::new(rate, burst, seed);
        beside.go_on(learning, false, fault, |_| false);
        let kept = beside.rate(measured, fault, share) / alone.rate(measured, fault, 0.0);
        prop_assert!((0.98..=1.1).contains(&kept), "{kept} of the rate is left");
        let told = beside.host.explain(beside.now, &beside.config).law.noise;
        prop_assert!(told.is_none_or(|told| told < 4.0 * share), "{told:?} of {share}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// A crawl of 45 pages meets an outage among its first requests. It goes on afterwards as if
    /// nothing had happened; what it loses is the outage and the wait for the next canary. In a
    /// shorter outage no canary is refused, and a lone 503 may be a limit's answer.
    #[test]
    fn an_outage_at_the_start_costs_little_more_than_its_length(
        fault in any_fault(),
        from_ms in 2_000_u64..7_000,
        length_ms in 3_000_u64..20_000,
        seed: u64,
    ) {
        let limited = || Crawl::with(Config::crawler(), 5.0, 5.0, seed);
        let alone = limited().fetch(45, fault).since(BEGIN);
        let mut crawl = limited();
        crawl.go_on(Duration::from_millis(from_ms), false, fault, |_| false);
        crawl.go_on(Duration::from_millis(length_ms), false, fault, |_| true);
        let time = crawl.fetch(45, fault).since(BEGIN);
        let silence = if fault == Fault::Failed(Failure::Timeout) { TIME_OUT } else { Duration::ZERO };
        let most = alone + silence + Duration::from_millis(3 * length_ms) + Duration::from_secs(5);
        prop_assert!(time <= most, "{time:?}, {alone:?} without the outage");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// A limit that its gateway answers for looks like trouble, or like bad pages, at each refusal.
    /// That fewer requests end it tells them apart. Less than a quarter of all answers begins no
    /// trial of fewer requests.
    #[test]
    fn a_limit_that_answers_as_trouble_does_is_kept(
        rate in 1.0_f64..40.0,
        burst in 1.0_f64..20.0,
        refusal in proptest::sample::select(vec![
            Fault::Status(502),
            Fault::Status(504),
            Fault::Status(521),
            Fault::Failed(Failure::Reset),
        ]),
        seed: u64,
    ) {
        let mut crawl = Crawl { refusal, ..Crawl::new(rate, burst, seed) };
        crawl.go_on(Duration::from_mins(10), false, refusal, |_| false);
        let (requests, served) = (crawl.requests, crawl.served);
        crawl.go_on(Duration::from_mins(20), false, refusal, |_| false);
        let (requests, served) = (crawl.requests - requests, crawl.served - served);
        let used = served as f64 / (rate * 1_200.0);
        let refused = 1.0 - served as f64 / requests as f64;
        prop_assert!(used >= 0.8 && refused <= 0.2, "{used} used, {refused} refused");
    }
}
