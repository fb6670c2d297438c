//! A greedy crawler against hosts with known limits, in virtual time: the state machine that the library
//! runs, over the limit models that the target serves. No page is lost, refusals are few, and the slowest
//! host sets the time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use politely_core::config::Config;
use politely_core::host::{Ask, Decision, Host};
use politely_core::signal::{Report, Signal};
use politely_core::{Rng, Timestamp};
use politely_target::model::{Limit, LimitSpec, best_time};

const PAGES: u32 = 150;
const ROUND_TRIP: Duration = Duration::from_millis(4);
const SERVICE: Duration = Duration::from_millis(20);
/// A run this long is stopped: it has failed.
const TOO_LONG: Timestamp = Timestamp::from_micros(2_000_000_000);

/// What the host says with a refusal.
#[derive(Clone, Copy)]
struct Says {
    status: u16,
    retry_after: bool,
}

#[derive(Debug, Default)]
struct Outcome {
    pages: u32,
    requests: u32,
    refused: u32,
    peak_in_flight: u32,
    time: Duration,
    best: Duration,
}

fn crawl(limit: &serde_json::Value, says: Says, config: &Config, seed: u64) -> Outcome {
    let spec: LimitSpec = serde_json::from_value(limit.clone()).unwrap();
    let mut limit: Limit = spec.build().unwrap();
    let best = best_time(
        &limit,
        Timestamp::from_micros(1),
        u64::from(PAGES),
        SERVICE + ROUND_TRIP,
    );
    let mut rng = Rng::new(seed);
    let mut host = Host::new(config, Timestamp::from_micros(1));
    // Completions: when, lease, report. One server-side list of arrivals would reorder; a round trip of
    // constant length does not.
    let mut under_way = BinaryHeap::new();
    let mut reports = Vec::new();
    let (mut now, mut left) = (Timestamp::from_micros(1), PAGES);
    let mut outcome = Outcome {
        best,
        ..Outcome::default()
    };
    while outcome.pages < PAGES && now < TOO_LONG {
        let mut next = Timestamp::NEVER;
        while left > 0 {
            match host.request(now, Ask::default(), config) {
                Decision::Wait(wait) => {
                    next = wait.at;
                    break;
                }
                Decision::Granted(grant) => {
                    left -= 1;
                    outcome.requests += 1;
                    let accepted = limit.arrive(now).accepted();
                    let latency = if accepted {
                        SERVICE + ROUND_TRIP
                    } else {
                        ROUND_TRIP
                    };
                    under_way.push((Reverse(now + latency), Reverse(reports.len())));
                    reports.push((grant.lease, accepted, now));
                    outcome.peak_in_flight = outcome.peak_in_flight.max(under_way.len() as u32);
                }
            }
        }
        let done = under_way
            .peek()
            .map_or(Timestamp::NEVER, |(Reverse(at), _)| *at);
        // Timers are a little late, as real ones are.
        now = done
            .min(next + Duration::from_micros((rng.unit() * 1_500.0) as u64))
            .max(now);
        while under_way.peek().is_some_and(|(Reverse(at), _)| *at <= now) {
            let (_, Reverse(index)) = under_way.pop().unwrap();
            let (lease, accepted, sent) = reports[index];
            let signal = match (accepted, says.status) {
                (true, _) => Signal::Ok,
                (false, 503) => Signal::Overloaded,
                (false, _) => Signal::RateLimited,
            };
            let mut report = Report {
                latency: now.since(sent),
                status: Some(if accepted { 200 } else { says.status }),
                ..Report::of(signal)
            };
            if accepted {
                limit.depart(now);
                outcome.pages += 1;
            } else {
                outcome.refused += 1;
                left += 1;
                if says.retry_after
                    && let politely_target::model::Verdict::Refuse {
                        retry_after: Some(after),
                    } = limit.check(now)
                {
                    report.retry_after = Some(Duration::from_secs(after.as_secs() + 1));
                }
            }
            host.report(now, lease, &report, config, &mut rng);
        }
    }
    outcome.time = now.since(Timestamp::from_micros(1));
    outcome
}

#[test]
fn sixteen_hosts() {
    let limits = serde_json::json!([
        {"kind":"token_bucket","rate":2.0,"burst":1},
        {"kind":"token_bucket","rate":2.0,"burst":10},
        {"kind":"token_bucket","rate":5.0,"burst":5},
        {"kind":"token_bucket","rate":10.0,"burst":1},
        {"kind":"token_bucket","rate":10.0,"burst":20},
        {"kind":"leaky","rate":2.0,"queue":0},
        {"kind":"leaky","rate":2.0,"queue":5},
        {"kind":"leaky","rate":5.0,"queue":10},
        {"kind":"fixed_window","count":20,"window_s":10.0,"aligned":true},
        {"kind":"fixed_window","count":30,"window_s":10.0,"aligned":false},
        {"kind":"fixed_window","count":5,"window_s":1.0,"aligned":false},
        {"kind":"fixed_window","count":120,"window_s":60.0,"aligned":false},
        {"kind":"sliding_log","count":20,"window_s":10.0},
        {"kind":"sliding_counter","count":20,"window_s":10.0},
        {"kind":"concurrency_reject","slots":4},
        {"kind":"none"},
    ]);
    let (mut requests, mut refused) = (0, 0);
    for (name, config) in [("crawler", Config::crawler()), ("api", Config::api())] {
        for status in [429, 503] {
            for retry_after in [false, true] {
                println!("== {name} {status} retry_after={retry_after}");
                let (mut slowest, mut best) = (Duration::ZERO, Duration::ZERO);
                let (mut req, mut refu) = (0, 0);
                for limit in limits.as_array().unwrap() {
                    let mut o = crawl(
                        limit,
                        Says {
                            status,
                            retry_after,
                        },
                        &config,
                        1,
                    );
                    println!(
                        "{:60} time {:6.1} best {:6.1} refused {:4} peak {} pages {}",
                        limit.to_string(),
                        o.time.as_secs_f64(),
                        o.best.as_secs_f64(),
                        o.refused,
                        o.peak_in_flight,
                        o.pages
                    );
                    assert_eq!(o.pages, PAGES);
                    slowest = slowest.max(o.time);
                    best = best.max(o.best);
                    req += o.requests;
                    refu += o.refused;
                    o.requests = 0;
                }
                println!(
                    "-- total {:.1} vs {:.1} = {:.2}; refused {:.2} %",
                    slowest.as_secs_f64(),
                    best.as_secs_f64(),
                    slowest.as_secs_f64() / best.as_secs_f64(),
                    100.0 * f64::from(refu) / f64::from(req)
                );
                requests += req;
                refused += refu;
            }
        }
    }
    println!("all: {refused} of {requests}");
}
