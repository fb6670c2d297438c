//! What a limiter has done, in numbers.

use std::ops::AddAssign;
use std::time::Duration;

/// Totals since the limiter was made, and the present state. A permit of several keys counts once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Keys known.
    pub keys: u64,
    /// Keys dropped to stay within capacity.
    pub evicted: u64,
    /// Permits given.
    pub granted: u64,
    /// Outcomes reported.
    pub reported: u64,
    /// Reported outcomes that were refusals by the server: limits, challenges and block pages.
    pub refused: u64,
    /// Permits dropped unreported.
    pub cancelled: u64,
    /// Reports that came after their lease had expired.
    pub late: u64,
    /// Requests told to wait, be it by `try_acquire` or in `acquire`.
    pub turned_away: u64,
    /// Those waiting in `acquire` now.
    pub waiting: u64,
    /// `acquire` calls that had to wait.
    pub waits: u64,
    /// How long they waited, all together.
    pub waited: Duration,
    /// Bytes held for keys, an estimate from capacities; 0 beside a coordinator, who holds them.
    pub memory: u64,
}

impl Stats {
    /// Refused requests, as a share of those reported; 0 if none was.
    pub fn refused_share(&self) -> f64 {
        if self.reported == 0 {
            0.0
        } else {
            self.refused as f64 / self.reported as f64
        }
    }

    /// How long those waited in `acquire` that had to, on average; zero if none had to.
    pub fn average_wait(&self) -> Duration {
        let waits = u32::try_from(self.waits.max(1)).unwrap_or(u32::MAX);
        self.waited / waits
    }

    /// Hands every number to the [`metrics`] recorder. Call it on a timer or when scraped; the hot path
    /// touches no recorder. There are no labels: of several limiters in a process, add the numbers up first (`+=`).
    ///
    /// | name | kind |
    /// | --- | --- |
    /// | `politely_keys`, `politely_memory_bytes`, `politely_waiting` | gauges: the present |
    /// | `politely_refused_share` | gauge, 0 to 1, since the limiter was made |
    /// | `politely_waited_seconds` | gauge that only grows: all waiting together |
    /// | `politely_granted_total`, `…_reported_total`, `…_refused_total`, `…_cancelled_total`, `…_late_total`, `…_turned_away_total`, `…_waits_total`, `…_evicted_total` | counters |
    ///
    /// One more is not among the totals: the histogram `politely_wait_seconds`, to which each
    /// [`crate::Limiter::acquire`] that had to wait adds how long, at once.
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
        metrics::counter!("politely_waits_total").absolute(self.waits);
        metrics::gauge!("politely_waited_seconds").set(self.waited.as_secs_f64());
    }
}

/// What sharing keys through an engine came to so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Commits {
    /// Writes that stood.
    pub commits: u64,
    /// … that met somebody else's and were made again.
    pub conflicts: u64,
    /// … without an answer.
    pub unknown: u64,
    /// Looks at a key.
    pub reads: u64,
    /// Permits and reports in the writes that stood.
    pub items: u64,
    /// Keys of which the engine had lost something.
    pub lost: u64,
    /// Processes that share the engine now, this one included.
    pub coordinators: u64,
    /// From a batch's first look or attempt until it stood, conflicts included: the median of the last 4,096 commits.
    pub took_p50: Duration,
    /// … and the 99th percentile.
    pub took_p99: Duration,
}

impl Commits {
    /// Hands every number to the [`metrics`] recorder, as [`Stats::emit`] does: counters `politely_commits_total`,
    /// `…_commit_conflicts_total`, `…_commits_unknown_total`, `…_cell_reads_total`, `…_commit_items_total`,
    /// `…_cells_lost_total`, and the gauge `politely_coordinators`.
    ///
    /// How long commits take is told at once, to the histogram `politely_commit_seconds`.
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
