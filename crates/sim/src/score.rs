//! The score of a run against the exact offline optimum.

use politely_core::Timestamp;
use politely_target::model::LimitSpec;
use serde::Serialize;

use crate::optimum;
use crate::run::phase;
use crate::scenario::{Demand, Scenario};
use crate::trace::{Fate, Trace};

/// The span over which goodput is compared with the optimum's, for the time to 90 %.
const T90_WINDOW_S: f64 = 10.0;
/// When the steady part of a run begins: after the cold start.
pub const STEADY_FROM_S: f64 = 300.0;

/// One run's figures. Shares are of 1, times in seconds unless the name says otherwise.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Score {
    /// The scenario's name.
    pub scenario: String,
    /// The law's name.
    pub law: String,
    /// The run's seed.
    pub seed: u64,
    /// Accepted over the offline optimum; for a run of pages, the best possible time over the time
    /// taken.
    pub utilisation: f64,
    /// Refused (by limit, noise, outage or block page) over all requests. A request of a bad page
    /// counts as accepted.
    pub refused_share: f64,
    /// Most refusals in any 60 s.
    pub refused_worst_minute: u64,
    /// Time until goodput over ten seconds first reached 90 % of the optimum's; `None`: never.
    pub t90_s: Option<f64>,
    /// Most requests sent in any second over the most that the best client had accepted in any
    /// second.
    pub overshoot_1s: f64,
    /// Median latency of served requests.
    pub latency_p50_ms: f64,
    /// Its 95th percentile.
    pub latency_p95_ms: f64,
    /// Requests served.
    pub accepted: u64,
    /// Requests refused.
    pub refused: u64,
    /// Jain's index over the workers' served requests.
    pub jain: f64,
    /// Utilisation after the first five minutes; `None` if the run is shorter.
    pub steady_utilisation: Option<f64>,
    /// Refused share after the first five minutes.
    pub steady_refused_share: Option<f64>,
    /// As `overshoot_1s`, over five seconds.
    pub overshoot_5s: f64,
    /// Median latency over the latency of a single request.
    pub latency_inflation: f64,
    /// Requests sent into an outage.
    pub into_outage: u64,
    /// Requests sent during a Retry-After that the client knew.
    pub into_hold: u64,
    /// Requests that met the block page.
    pub blocked: u64,
    /// Requests per page served.
    pub attempts_per_page: f64,
    /// The length of the run.
    pub time_s: f64,
    /// Time from an outage's end or a new limit until goodput over ten seconds was 90 % of the
    /// optimum's: the longest of them, at most until the next; `None`: there is none.
    pub recovery_s: Option<f64>,
    /// The scenario's family, if it has one.
    pub family: Option<String>,
}

/// Scores a run.
pub fn score(scenario: &Scenario, law: &str, seed: u64, trace: &Trace) -> Score {
    let best = optimum::accepted(scenario, phase(seed));
    let mut served: Vec<Timestamp> = Vec::new();
    let (mut refused, mut sent, mut latencies) = (Vec::new(), Vec::new(), Vec::new());
    let mut shares = vec![0_u64; scenario.workers as usize];
    let (mut down, mut blocked, mut in_hold) = (0, 0, 0);
    for request in &trace.requests {
        sent.push(request.sent);
        in_hold += u64::from(request.in_hold);
        match request.fate {
            Fate::Served => {
                served.push(request.sent);
                latencies.push(request.latency);
                shares[request.worker as usize] += 1;
            }
            Fate::Down => down += 1,
            Fate::Blocked => blocked += 1,
            // A client cannot tell noise from a refusal, and loses as much.
            Fate::Refused | Fate::Noise => {}
            // The host did its work, and the client its own.
            Fate::Bad => served.push(request.sent),
        }
        if !matches!(request.fate, Fate::Served | Fate::Bad) {
            refused.push(request.sent);
        }
    }
    for times in [&mut served, &mut refused, &mut sent] {
        times.sort_unstable();
    }
    latencies.sort_unstable();
    let quantile = |q: f64| {
        let at = ((latencies.len() as f64 * q) as usize).min(latencies.len().saturating_sub(1));
        latencies.get(at).map_or(0.0, |x| x.as_secs_f64() * 1e3)
    };
    let steady_from = Timestamp::from_secs_f64(STEADY_FROM_S);
    let after = |times: &[Timestamp]| times.len() - times.partition_point(|t| *t < steady_from);
    let steady = trace.end > steady_from && after(&best) > 0;
    let utilisation = match scenario.demand {
        Demand::Greedy { .. } => ratio(served.len(), best.len()),
        Demand::Pages { count, .. } if served.len() as u32 >= count => {
            let round = scenario.service.mean_ms + scenario.rtt_ms;
            let best_s = best.last().map_or(0.0, |t| t.as_secs_f64()) + round / 1e3;
            (best_s / trace.end.as_secs_f64()).min(1.0)
        }
        Demand::Pages { count, .. } => ratio(served.len(), count as usize),
    };
    let unhurried = scenario.service.mean_ms + scenario.rtt_ms;
    let sum: u64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|&x| x as f64 * x as f64).sum();
    Score {
        scenario: scenario.name.clone(),
        family: scenario.family.clone(),
        law: law.to_owned(),
        seed,
        utilisation,
        refused_share: ratio(refused.len(), sent.len()),
        refused_worst_minute: most_within(&refused, 60.0),
        t90_s: reached(&served, &best, 0.0, trace.end.as_secs_f64()),
        overshoot_1s: most_within(&sent, 1.0) as f64 / most_within(&best, 1.0).max(1) as f64,
        latency_p50_ms: quantile(0.5),
        latency_p95_ms: quantile(0.95),
        accepted: served.len() as u64,
        refused: refused.len() as u64,
        jain: if squares > 0.0 {
            (sum as f64).powi(2) / (shares.len() as f64 * squares)
        } else {
            1.0
        },
        steady_utilisation: steady.then(|| ratio(after(&served), after(&best))),
        steady_refused_share: steady.then(|| ratio(after(&refused), after(&sent))),
        overshoot_5s: most_within(&sent, 5.0) as f64 / most_within(&best, 5.0).max(1) as f64,
        latency_inflation: if unhurried > 0.0 {
            quantile(0.5) / unhurried
        } else {
            1.0
        },
        into_outage: down,
        into_hold: in_hold,
        blocked,
        attempts_per_page: ratio(sent.len(), served.len()),
        time_s: trace.end.as_secs_f64(),
        recovery_s: recovery(scenario, &served, &best, trace.end.as_secs_f64()),
    }
}

fn ratio(part: usize, whole: usize) -> f64 {
    if whole == 0 {
        return 0.0;
    }
    part as f64 / whole as f64
}

/// Returns the most of `times` (in order) within any `secs` seconds.
fn most_within(times: &[Timestamp], secs: f64) -> u64 {
    let width = (secs * 1e6) as u64;
    let (mut first, mut most) = (0, 0);
    for (last, at) in times.iter().enumerate() {
        while at.micros_since(times[first]) >= width {
            first += 1;
        }
        most = most.max(last + 1 - first);
    }
    most as u64
}

/// Returns the longest time of a recovery.
fn recovery(
    scenario: &Scenario,
    served: &[Timestamp],
    best: &[Timestamp],
    end: f64,
) -> Option<f64> {
    let outages = scenario
        .faults
        .iter()
        .filter_map(|fault| Some(fault.outage()?.1));
    let steps = match &scenario.limit {
        LimitSpec::Steps { at } => at.iter().map(|(from, _)| *from).collect(),
        _ => Vec::new(),
    };
    let mut changes: Vec<f64> = (outages.chain(steps))
        .filter(|at| *at > 0.0 && *at < end)
        .collect();
    changes.sort_unstable_by(f64::total_cmp);
    let nexts = changes.iter().skip(1).copied().chain([end]);
    (changes.iter().zip(nexts))
        .map(|(&from, to)| reached(served, best, from, to).unwrap_or(to - from))
        .max_by(f64::total_cmp)
}

/// Returns the seconds from `from` until ten seconds of goodput were 90 % of the optimum's, if
/// before `to`.
fn reached(served: &[Timestamp], best: &[Timestamp], from: f64, to: f64) -> Option<f64> {
    let count = |times: &[Timestamp], from: f64, to: f64| {
        times.partition_point(|t| t.as_secs_f64() < to)
            - times.partition_point(|t| t.as_secs_f64() < from)
    };
    // The optimum spends a window's quota at once, so a client is compared with its average.
    let average = count(best, from, to) as f64 / (to - from) * T90_WINDOW_S;
    let last = (to - from - T90_WINDOW_S).floor();
    (0..=last as u32)
        .map(f64::from)
        .find(|after| {
            let (begins, ends) = (from + after, from + after + T90_WINDOW_S);
            let (got, most) = (count(served, begins, ends), count(best, begins, ends));
            last >= 0.0 && got as f64 >= 0.9 * (most as f64).min(average)
        })
        .map(|after| after + T90_WINDOW_S)
}

#[cfg(test)]
mod tests {
    use super::*;
    use politely_target::model::FaultSpec;

    /// One request a second, but none between `from` and `to`.
    fn pause(from: u32, to: u32) -> Vec<Timestamp> {
        (0..1_000)
            .filter(|second| !(from..to).contains(second))
            .map(|second| Timestamp::from_secs_f64(f64::from(second)))
            .collect()
    }

    #[test]
    fn who_comes_back_late_has_reached_it_ten_seconds_later() {
        let best = pause(0, 0);
        assert_eq!(reached(&pause(0, 0), &best, 300.0, 600.0), Some(10.0));
        // Nine of ten are enough.
        assert_eq!(reached(&pause(300, 321), &best, 300.0, 600.0), Some(30.0));
        assert_eq!(reached(&pause(300, 600), &best, 300.0, 600.0), None);
    }

    #[test]
    fn recovery_is_the_longest_and_there_is_none_where_nothing_changes() {
        let mut scenario = crate::suite().swap_remove(0);
        let best = pause(0, 0);
        assert_eq!(recovery(&scenario, &best, &best, 1_000.0), None);
        let outage = FaultSpec::Outage {
            from_s: 200.0,
            to_s: 300.0,
            status: 503,
        };
        scenario.faults.push(outage);
        let late = recovery(&scenario, &pause(200, 321), &best, 1_000.0);
        assert_eq!(late, Some(30.0));
        let never = recovery(&scenario, &pause(200, 1_000), &best, 1_000.0);
        assert_eq!(never, Some(700.0));
    }
}
