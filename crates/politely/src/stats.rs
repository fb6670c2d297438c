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
