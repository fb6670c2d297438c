//! The results as tables for people.

use std::fmt::Write as _;

use politely_sim::summary::{FamilySummary, Summary, quantile};
use politely_sim::{Scenario, Score};

use super::laws::Contender;

/// A measure of how bad a run is; higher is worse.
type Badness = fn(&Score) -> f64;

/// The widths of the columns of names.
#[derive(Clone, Copy)]
pub(super) struct Widths {
    scenario: usize,
    law: usize,
}

impl Widths {
    pub(super) fn of(scenarios: &[Scenario], laws: &[Contender]) -> Self {
        let longest = |lengths: &mut dyn Iterator<Item = usize>| lengths.max().unwrap_or(0).max(8);
        Self {
            scenario: longest(&mut scenarios.iter().map(|one| one.name.chars().count())),
            law: longest(&mut laws.iter().map(|one| one.name.chars().count())),
        }
    }

    pub(super) fn head(self) -> String {
        let Self { scenario, law } = self;
        format!(
            "{:<scenario$}  {:<law$}  {:>7} {:>9} {:>9} {:>8} {:>10} {:>9} {:>8} {:>8}",
            "scenario",
            "law",
            "used %",
            "refused %",
            "worst min",
            "t90 s",
            "recovery s",
            "overshoot",
            "p50 ms",
            "p95 ms",
        )
    }

    /// Returns the row of one scenario under one law: the median over its seeds.
    pub(super) fn row(self, seeds: &[Score]) -> String {
        let Self { scenario, law } = self;
        let middle =
            |of: fn(&Score) -> f64| quantile(&seeds.iter().map(of).collect::<Vec<_>>(), 0.5);
        let first = &seeds[0];
        let t90_s = middle(|run| run.t90_s.unwrap_or(f64::INFINITY));
        let t90 = if t90_s.is_finite() {
            format!("{t90_s:.0}")
        } else {
            "never".to_owned()
        };
        let recovery = if first.recovery_s.is_some() {
            format!(
                "{:.0}",
                middle(|run| run.recovery_s.unwrap_or(f64::INFINITY))
            )
        } else {
            "-".to_owned()
        };
        format!(
            "{:<scenario$}  {:<law$}  {:>7.2} {:>9.3} {:>9.0} {t90:>8} {recovery:>10} {:>9.2} {:>8.0} {:>8.0}",
            first.scenario,
            first.law,
            middle(|run| run.utilisation) * 100.0,
            middle(|run| run.refused_share) * 100.0,
            middle(|run| run.refused_worst_minute as f64),
            middle(|run| run.overshoot_1s),
            middle(|run| run.latency_p50_ms),
            middle(|run| run.latency_p95_ms),
        )
    }

    /// Returns the table of all laws over the whole set.
    pub(super) fn summary(self, summaries: &[Summary]) -> String {
        let law = self.law;
        let mut text = format!(
            "{:<law$}  {:>6}  {:>7} {:>7} {:>7}  {:>9} {:>9} {:>9}  {:>7} {:>13}\n",
            "law",
            "runs",
            "used %",
            "p10",
            "worst",
            "refused %",
            "p90",
            "worst",
            "good %",
            "worst min p95",
        );
        for one in summaries {
            let (used, refused) = (one.utilisation, one.refused_share);
            let good = one
                .good_share
                .map_or_else(|| "-".to_owned(), |good| format!("{:.1}", good * 100.0));
            let _ = writeln!(
                text,
                "{:<law$}  {:>6}  {:>7.2} {:>7.2} {:>7.2}  {:>9.3} {:>9.3} {:>9.3}  {good:>7} {:>13.1}",
                one.law,
                one.runs,
                used.median * 100.0,
                used.bad_tail * 100.0,
                used.worst * 100.0,
                refused.median * 100.0,
                refused.bad_tail * 100.0,
                refused.worst * 100.0,
                one.refused_worst_minute_p95,
            );
        }
        text
    }

    /// Returns the table of all laws over each family; empty without families.
    pub(super) fn families(self, families: &[FamilySummary]) -> String {
        if families.is_empty() {
            return String::new();
        }
        let law = self.law;
        let mut text = format!(
            "\n{:<12}  {:<law$}  {:>6}  {:>7} {:>7}  {:>9} {:>9}  {:>11} {:>7}  {:>7}\n",
            "family",
            "law",
            "runs",
            "used %",
            "p10",
            "refused %",
            "p90",
            "into outage",
            "p90",
            "t90 s",
        );
        for one in families {
            let (used, refused) = (one.summary.utilisation, one.summary.refused_share);
            let t90_s = one.t90_s.median;
            let t90 = if t90_s.is_finite() {
                format!("{t90_s:.0}")
            } else {
                "never".to_owned()
            };
            let _ = writeln!(
                text,
                "{:<12}  {:<law$}  {:>6}  {:>7.2} {:>7.2}  {:>9.3} {:>9.3}  {:>11.0} {:>7.0}  {t90:>7}",
                one.family,
                one.summary.law,
                one.summary.runs,
                used.median * 100.0,
                used.bad_tail * 100.0,
                refused.median * 100.0,
                refused.bad_tail * 100.0,
                one.into_outage.median,
                one.into_outage.bad_tail,
            );
        }
        text
    }

    /// Returns the table of each law's `count` worst runs by utilisation and by refusals.
    pub(super) fn worst(self, summaries: &[Summary], scores: &[Score], count: usize) -> String {
        let mut text = String::new();
        let by: [(&str, Badness); 2] = [
            ("least used", |run| -run.utilisation),
            ("most refused", |run| run.refused_share),
        ];
        for summary in summaries {
            for (what, badness) in by {
                let mut runs: Vec<_> = scores.iter().filter(|run| run.law == summary.law).collect();
                runs.sort_by(|a, b| badness(b).total_cmp(&badness(a)));
                let _ = writeln!(text, "\n{}: {what}\n{}", summary.law, self.head());
                for run in runs.into_iter().take(count) {
                    let _ = writeln!(
                        text,
                        "{}  seed {}",
                        self.row(std::slice::from_ref(run)),
                        run.seed
                    );
                }
            }
        }
        text
    }
}
