//! Statistics of a limiter.

use std::ops::AddAssign;
use std::time::Duration;

/// Totals since the limiter was created, and the present state. A permit of several keys counts
/// once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Known keys.
    pub keys: u64,
    /// Keys evicted to stay within the capacity.
    pub evicted: u64,
    /// Permits granted.
    pub granted: u64,
    /// Outcomes reported.
    pub reported: u64,
    /// Reported outcomes that were refusals by the server: limits, challenges and block pages.
    pub refused: u64,
    /// Permits dropped without a report.
    pub cancelled: u64,
    /// Reports that came after their lease had expired.
    pub late: u64,
    /// Refusals by a key, in `try_acquire` and in `acquire`.
    pub turned_away: u64,
    /// Callers that wait in `acquire` now.
    pub waiting: u64,
    /// Calls of `acquire` that had to wait.
    pub waits: u64,
    /// The total time that those calls waited.
    pub waited: Duration,
    /// Bytes held for keys, an estimate from capacities. It is 0 with a coordinator, which holds
    /// the keys.
    pub memory: u64,
}

impl Stats {
    /// Returns the share of refused requests among those reported, or 0 if none was reported.
    pub fn refused_share(&self) -> f64 {
        if self.reported == 0 {
            0.0
        } else {
            self.refused as f64 / self.reported as f64
        }
    }

    /// Returns the average wait of the `acquire` calls that had to wait, or zero if none had to.
    pub fn average_wait(&self) -> Duration {
        let waits = u32::try_from(self.waits.max(1)).unwrap_or(u32::MAX);
        self.waited / waits
    }

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

/// Statistics about the writes of shared keys to an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Commits {
    /// Writes that the engine confirmed.
    pub commits: u64,
    /// Writes that met another node's write and were made again.
    pub conflicts: u64,
    /// Writes without an answer.
    pub unknown: u64,
    /// Reads of a key's cell.
    pub reads: u64,
    /// Permits and reports in the confirmed writes.
    pub items: u64,
    /// Keys of which the engine had lost something.
    pub lost: u64,
    /// Processes that share the engine now, this one included.
    pub coordinators: u64,
    /// Median latency of the last 4,096 commits. It is the time from a batch's first read or
    /// attempt until its write is confirmed, conflicts included.
    pub took_p50: Duration,
    /// 99th percentile of the same latency.
    pub took_p99: Duration,
}

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

impl AddAssign for Stats {
    fn add_assign(&mut self, other: Self) {
        self.keys += other.keys;
        self.evicted += other.evicted;
        self.granted += other.granted;
        self.reported += other.reported;
        self.refused += other.refused;
        self.cancelled += other.cancelled;
        self.late += other.late;
        self.turned_away += other.turned_away;
        self.waiting += other.waiting;
        self.waits += other.waits;
        self.waited += other.waited;
        self.memory += other.memory;
    }
}
