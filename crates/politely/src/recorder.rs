//! Numbers for the recorder of the crate `metrics`.

use std::time::Duration;

#[cfg(feature = "metrics")]
use crate::stats::{Commits, Stats};

#[cfg(feature = "metrics")]
impl Stats {
    /// Sends every number to the [`metrics`] recorder.
    ///
    /// Call it on a timer or at each scrape; the hot path calls no recorder. There are no labels.
    /// If a process has several limiters, add their numbers up first (`+=`).
    ///
    /// | name | kind |
    /// | --- | --- |
    /// | `politely_keys` | gauge, the present number |
    /// | `politely_memory_bytes` | gauge, the present size |
    /// | `politely_waiting` | gauge, the present number |
    /// | `politely_refused_share` | gauge, 0 to 1, since the limiter was created |
    /// | `politely_granted_total` | counter |
    /// | `politely_reported_total` | counter |
    /// | `politely_refused_total` | counter |
    /// | `politely_cancelled_total` | counter |
    /// | `politely_late_total` | counter |
    /// | `politely_turned_away_total` | counter |
    /// | `politely_evicted_total` | counter |
    ///
    /// The waits are in the histogram `politely_wait_seconds` instead. Each
    /// [`crate::Limiter::acquire`] that had to wait records its wait there at once.
    pub fn emit(&self) {
        metrics::gauge!("politely_keys").set(self.keys as f64);
        metrics::gauge!("politely_memory_bytes").set(self.memory as f64);
        metrics::gauge!("politely_waiting").set(self.waiting as f64);
        metrics::gauge!("politely_refused_share").set(self.refused_share());
        metrics::counter!("politely_evicted_total").absolute(self.evicted);
        metrics::counter!("politely_granted_total").absolute(self.granted);
        metrics::counter!("politely_reported_total").absolute(self.reported);
        metrics::counter!("politely_refused_total").absolute(self.refused);
        metrics::counter!("politely_cancelled_total").absolute(self.cancelled);
        metrics::counter!("politely_late_total").absolute(self.late);
        metrics::counter!("politely_turned_away_total").absolute(self.turned_away);
    }
}

#[cfg(feature = "metrics")]
impl Commits {
    /// Sends every number to the [`metrics`] recorder, as [`Stats::emit`] does.
    ///
    /// | name | kind |
    /// | --- | --- |
    /// | `politely_commits_total` | counter |
    /// | `politely_commit_conflicts_total` | counter |
    /// | `politely_commits_unknown_total` | counter |
    /// | `politely_cell_reads_total` | counter |
    /// | `politely_commit_items_total` | counter |
    /// | `politely_cells_lost_total` | counter |
    /// | `politely_coordinators` | gauge |
    ///
    /// The latency of each commit is recorded at once, in the histogram `politely_commit_seconds`.
    pub fn emit(&self) {
        metrics::counter!("politely_commits_total").absolute(self.commits);
        metrics::counter!("politely_commit_conflicts_total").absolute(self.conflicts);
        metrics::counter!("politely_commits_unknown_total").absolute(self.unknown);
        metrics::counter!("politely_cell_reads_total").absolute(self.reads);
        metrics::counter!("politely_commit_items_total").absolute(self.items);
        metrics::counter!("politely_cells_lost_total").absolute(self.lost);
        metrics::gauge!("politely_coordinators").set(self.coordinators as f64);
    }
}

/// Records the wait of an `acquire` that was not granted at once.
#[cfg_attr(
    not(feature = "metrics"),
    expect(unused_variables, reason = "no recorder")
)]
pub(crate) fn record_wait(waited: Duration) {
    #[cfg(feature = "metrics")]
    metrics::histogram!("politely_wait_seconds").record(waited.as_secs_f64());
}

/// Records the latency of a commit.
#[cfg_attr(
    not(feature = "metrics"),
    expect(unused_variables, reason = "no recorder")
)]
pub(crate) fn record_commit(took: Duration) {
    #[cfg(feature = "metrics")]
    metrics::histogram!("politely_commit_seconds").record(took.as_secs_f64());
}
