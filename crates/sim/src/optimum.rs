//! What an all-knowing client would get: the exact offline optimum.
//!
//! It sends each request at the first instant at which the host accepts it, which no client can beat for any
//! limit here (see [`politely_target::best_time`]). Slots are held for the mean service time. Noise is not
//! the client's fault and not deducted.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use politely_core::Timestamp;
use politely_target::model::{FaultSpec, Limit, LimitSpec, Verdict};

use crate::scenario::{Demand, Scenario};

/// The limit as the best client meets it: whoever wants no block stays below its rate too.
fn limit(scenario: &Scenario, phase: Duration) -> Limit {
    let mut of = vec![scenario.limit.clone()];
    for fault in &scenario.faults {
        if let FaultSpec::Block { above_rps, .. } = fault {
            of.push(LimitSpec::SlidingLog {
                count: *above_rps as u32,
                window_s: 1.0,
            });
        }
    }
    let spec = if of.len() == 1 {
        of.remove(0)
    } else {
        LimitSpec::All { of }
    };
    let mut limit = spec.build().expect("the scenario was validated");
    limit.shift(phase);
    limit
}

/// When the best client's requests are accepted, until the run's end or its last page.
pub(crate) fn accepted(scenario: &Scenario, phase: Duration) -> Vec<Timestamp> {
    let end = Timestamp::from_secs_f64(scenario.duration_s);
    let mut limit = limit(scenario, phase);
    let outages: Vec<(Timestamp, Timestamp)> = (scenario.faults.iter())
        .filter_map(|fault| match fault {
            FaultSpec::Outage { from_s, to_s, .. } => Some((
                Timestamp::from_secs_f64(*from_s),
                Timestamp::from_secs_f64(*to_s),
            )),
            _ => None,
        })
        .collect();
    let slots = limit.has_slots();
    let service = scenario.service.mean();
    // Without a limit, what the connections carry.
    let round = service + Duration::from_micros((scenario.rtt_ms * 1e3) as u64);
    let connections = scenario.demand.connections() as usize;
    let pages = match scenario.demand {
        Demand::Greedy { .. } => usize::MAX,
        Demand::Pages { count, .. } => count as usize,
    };
    let (mut times, mut now) = (Vec::new(), Timestamp::from_micros(1));
    let mut departures: BinaryHeap<Reverse<Timestamp>> = BinaryHeap::new();
    let mut under_way: BinaryHeap<Reverse<Timestamp>> = BinaryHeap::new();
    while times.len() < pages {
        if let Some(&(_, to)) = outages.iter().find(|(from, to)| *from <= now && now < *to) {
            now = to;
        }
        while slots && departures.peek().is_some_and(|&Reverse(at)| at <= now) {
            departures.pop();
            let _ = limit.depart(now);
        }
        while under_way.peek().is_some_and(|&Reverse(at)| at <= now) {
            under_way.pop();
        }
        if under_way.len() >= connections {
            now = under_way.peek().map_or(now, |&Reverse(at)| at);
            continue;
        }
        if now > end {
            break;
        }
        match limit.check(now) {
            Verdict::Serve { after } => {
                let _ = limit.arrive(now);
                if slots {
                    departures.push(Reverse(now + after + service));
                }
                under_way.push(Reverse(now + after + round));
                times.push(now);
            }
            Verdict::Refuse {
                retry_after: Some(wait),
            } => now = now + wait.max(Duration::from_micros(1)),
            Verdict::Queue { .. } | Verdict::Refuse { retry_after: None } => {
                let Some(&Reverse(next)) = departures.peek() else {
                    break;
                };
                now = now.max(next);
            }
        }
    }
    times
}
