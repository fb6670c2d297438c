//! The results of a law over a set of runs: the middle, the tail and the worst run, never a mean.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::score::Score;

/// The least share of the limit that a good run uses after its cold start.
pub const GOOD_UTILISATION: f64 = 0.95;
/// The largest share of refused requests of a good run after its cold start.
pub const GOOD_REFUSED_SHARE: f64 = 0.005;

/// One figure over many runs. Whether low or high is bad depends on the figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The best tenth begins here.
    pub good_tail: f64,
    /// Half of the runs are better.
    pub median: f64,
    /// The worst tenth begins here.
    pub bad_tail: f64,
    /// The worst run.
    pub worst: f64,
}

/// One law over a set of runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The law's name.
    pub law: String,
    /// The number of runs. Several seeds of a scenario are several runs.
    pub runs: usize,
    /// Utilisation; low is bad.
    pub utilisation: Spread,
    /// Refused share; high is bad.
    pub refused_share: Spread,
    /// The share of runs with [`GOOD_UTILISATION`] and [`GOOD_REFUSED_SHARE`] after their cold
    /// start; `None` if all runs were shorter.
    pub good_share: Option<f64>,
    /// The 95th percentile of each run's refusals in its worst minute.
    pub refused_worst_minute_p95: f64,
}

/// One law over the runs of one family.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FamilySummary {
    /// The family's name.
    pub family: String,
    /// The law over the family's runs.
    pub summary: Summary,
    /// Requests sent into an outage; many are bad.
    pub into_outage: Spread,
    /// Seconds until goodput first was 90 % of the optimum's; infinite if never.
    pub t90_s: Spread,
}

/// Summarises each law over each family, in the order in which the families and the laws first
/// appear. Runs of no family are left out.
pub fn by_family(scores: &[Score]) -> Vec<FamilySummary> {
    let mut order: Vec<(&str, &str)> = Vec::new();
    let mut of: BTreeMap<(&str, &str), Vec<&Score>> = BTreeMap::new();
    for score in scores {
        let Some(family) = &score.family else {
            continue;
        };
        let key = (family.as_str(), score.law.as_str());
        let runs = of.entry(key).or_default();
        if runs.is_empty() {
            order.push(key);
        }
        runs.push(score);
    }
    order
        .iter()
        .map(|key| {
            let runs = &of[key];
            let figure = |of: fn(&Score) -> f64| runs.iter().map(|run| of(run)).collect::<Vec<_>>();
            FamilySummary {
                family: key.0.to_owned(),
                summary: one(key.1, runs),
                into_outage: high_is_bad(&figure(|run| run.into_outage as f64)),
                t90_s: high_is_bad(&figure(|run| run.t90_s.unwrap_or(f64::INFINITY))),
            }
        })
        .collect()
}

fn high_is_bad(values: &[f64]) -> Spread {
    Spread {
        good_tail: quantile(values, 0.1),
        median: quantile(values, 0.5),
        bad_tail: quantile(values, 0.9),
        worst: quantile(values, 1.0),
    }
}

/// Summarises each law over its runs, in the order in which the laws first appear.
pub fn summarise(scores: &[Score]) -> Vec<Summary> {
    let mut order: Vec<&str> = Vec::new();
    let mut of: BTreeMap<&str, Vec<&Score>> = BTreeMap::new();
    for score in scores {
        let runs = of.entry(&score.law).or_default();
        if runs.is_empty() {
            order.push(&score.law);
        }
        runs.push(score);
    }
    order.iter().map(|law| one(law, &of[law])).collect()
}

fn one(law: &str, runs: &[&Score]) -> Summary {
    let figure = |of: fn(&Score) -> f64| runs.iter().map(|run| of(run)).collect::<Vec<_>>();
    let steady: Vec<bool> = runs
        .iter()
        .filter_map(|run| {
            let refused_share = run.steady_refused_share?;
            let used = run.steady_utilisation? >= GOOD_UTILISATION;
            Some(used && refused_share <= GOOD_REFUSED_SHARE)
        })
        .collect();
    let good = steady.iter().filter(|good| **good).count();
    let utilisation = figure(|run| run.utilisation);
    let refused_share = figure(|run| run.refused_share);
    Summary {
        law: law.to_owned(),
        runs: runs.len(),
        utilisation: Spread {
            good_tail: quantile(&utilisation, 0.9),
            median: quantile(&utilisation, 0.5),
            bad_tail: quantile(&utilisation, 0.1),
            worst: quantile(&utilisation, 0.0),
        },
        refused_share: high_is_bad(&refused_share),
        good_share: (!steady.is_empty()).then(|| good as f64 / steady.len() as f64),
        refused_worst_minute_p95: quantile(&figure(|run| run.refused_worst_minute as f64), 0.95),
    }
}

/// Returns the `q`-quantile, interpolated linearly (Hyndman and Fan's type 7, as in R and `NumPy`);
/// zero for an empty slice.
pub fn quantile(values: &[f64], q: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else {
        return 0.0;
    };
    let at = last as f64 * q.clamp(0.0, 1.0);
    let (low, high) = (sorted[at as usize], sorted[(at as usize + 1).min(last)]);
    // Avoids a difference of infinities: "never" is one.
    if low.total_cmp(&high).is_eq() || at.fract() == 0.0 {
        return low;
    }
    low + (high - low) * at.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(law: &str, utilisation: f64, refused_share: f64, steady: Option<(f64, f64)>) -> Score {
        Score {
            scenario: "one".to_owned(),
            family: None,
            law: law.to_owned(),
            seed: 1,
            utilisation,
            refused_share,
            refused_worst_minute: 7,
            t90_s: None,
            overshoot_1s: 1.0,
            latency_p50_ms: 50.0,
            latency_p95_ms: 60.0,
            accepted: 100,
            refused: 1,
            jain: 1.0,
            steady_utilisation: steady.map(|(used, _)| used),
            steady_refused_share: steady.map(|(_, refused)| refused),
            overshoot_5s: 1.0,
            latency_inflation: 1.0,
            into_outage: 0,
            into_hold: 0,
            blocked: 0,
            attempts_per_page: 1.0,
            time_s: 900.0,
            recovery_s: None,
        }
    }

    #[test]
    fn quantiles_are_those_of_numpy() {
        let values = [3.0, 1.0, 4.0, 2.0];
        for (q, expected) in [(0.0, 1.0), (0.1, 1.3), (0.5, 2.5), (0.9, 3.7), (1.0, 4.0)] {
            assert!((quantile(&values, q) - expected).abs() < 1e-12, "{q}");
        }
        assert_eq!(quantile(&[], 0.5).to_bits(), 0.0_f64.to_bits());
    }

    #[test]
    fn never_is_a_time_like_others() {
        let values = [10.0, f64::INFINITY, f64::INFINITY];
        assert!(quantile(&values, 0.5).is_infinite());
        assert!(quantile(&values, 1.0).is_infinite());
        assert!((quantile(&values, 0.0) - 10.0).abs() < 1e-12);
    }

    #[test]
    fn bad_is_low_use_and_many_refusals() {
        let runs: Vec<Score> = (0..=10)
            .map(|i| run("aimd", f64::from(i) / 10.0, f64::from(i) / 100.0, None))
            .collect();
        let [summary] = &summarise(&runs)[..] else {
            panic!("one law");
        };
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{a} {b}");
        near(summary.utilisation.worst, 0.0);
        near(summary.utilisation.bad_tail, 0.1);
        near(summary.utilisation.good_tail, 0.9);
        near(summary.refused_share.median, 0.05);
        near(summary.refused_share.bad_tail, 0.09);
        near(summary.refused_share.worst, 0.1);
        near(summary.refused_worst_minute_p95, 7.0);
        assert_eq!((summary.runs, summary.good_share), (11, None));
    }

    #[test]
    fn families_are_summarised_apart_and_runs_without_one_are_left_out() {
        let of = |family: &str, asked, t90_s| Score {
            family: Some(family.to_owned()),
            into_outage: asked,
            t90_s,
            ..run("aimd", 0.5, 0.1, None)
        };
        let runs = [
            of("fast", 0, Some(10.0)),
            of("outages", 9, Some(20.0)),
            of("outages", 11, None),
            run("aimd", 1.0, 0.0, None),
        ];
        let found = by_family(&runs);
        let found: Vec<_> = (found.iter())
            .map(|one| {
                (
                    one.family.as_str(),
                    one.summary.runs,
                    one.into_outage.median,
                )
            })
            .collect();
        assert_eq!(found, [("fast", 1, 0.0), ("outages", 2, 10.0)]);
        assert!(by_family(&runs)[1].t90_s.worst.is_infinite());
    }

    #[test]
    fn good_is_both_and_only_of_runs_that_got_steady() {
        let runs = [
            run("aimd", 0.5, 0.5, Some((0.95, 0.005))),
            run("aimd", 1.0, 0.0, Some((0.949, 0.0))),
            run("aimd", 1.0, 0.0, Some((1.0, 0.006))),
            run("aimd", 1.0, 0.0, None),
            run("fixed", 1.0, 0.0, Some((1.0, 0.0))),
        ];
        let summaries = summarise(&runs);
        let good: Vec<_> = (summaries.iter())
            .map(|one| (one.law.as_str(), one.good_share))
            .collect();
        assert_eq!(good, [("aimd", Some(1.0 / 3.0)), ("fixed", Some(1.0))]);
    }
}
