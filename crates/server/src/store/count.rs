//! Counts of the store's successes and failures. A failure is logged once, until a write succeeds
//! again.

use std::fmt::Display;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

/// Counters since the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Transactions committed.
    pub commits: u64,
    /// Key states in the committed transactions.
    pub states: u64,
    /// Transactions that failed.
    pub failures: u64,
    /// Key states dropped because too many waited for the disk to recover.
    pub dropped: u64,
    /// Calls of the journal that failed. A crash forgets their permits, or the ends of these.
    pub journal_failures: u64,
    /// Journal files that were replaced by a new file with the live permits.
    pub journal_replaced: u64,
    /// The length of the journal, in bytes.
    pub journal_bytes: u64,
    /// Permits in the journal that have not ended.
    pub permits_live: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counts {
    commits: AtomicU64,
    states: AtomicU64,
    failures: AtomicU64,
    dropped: AtomicU64,
    journal_failures: AtomicU64,
    journal_replaced: AtomicU64,
    failing: AtomicBool,
    journal_failing: AtomicBool,
    /// Whether the thread has ended, so that nothing is written until a restart.
    died: AtomicBool,
    /// Why the last write failed: of the database, of the journal, and why the thread ended.
    why: Mutex<[Option<String>; 3]>,
}

impl Counts {
    pub(super) fn read(&self) -> Counters {
        Counters {
            commits: self.commits.load(Relaxed),
            states: self.states.load(Relaxed),
            failures: self.failures.load(Relaxed),
            dropped: self.dropped.load(Relaxed),
            journal_failures: self.journal_failures.load(Relaxed),
            journal_replaced: self.journal_replaced.load(Relaxed),
            journal_bytes: 0,
            permits_live: 0,
        }
    }

    pub(super) fn is_failing(&self) -> bool {
        self.failing.load(Relaxed) || self.journal_failing.load(Relaxed) || self.has_died()
    }

    pub(super) fn is_database_failing(&self) -> bool {
        self.failing.load(Relaxed)
    }

    pub(super) fn is_journal_failing(&self) -> bool {
        self.journal_failing.load(Relaxed)
    }

    pub(super) fn has_died(&self) -> bool {
        self.died.load(Relaxed)
    }

    /// Returns why a state is not on disk, in one line.
    pub(super) fn last_error(&self) -> Option<String> {
        if !self.is_failing() {
            return None;
        }
        let why = self.why.lock().iter().flatten().next_back().cloned();
        Some(why.unwrap_or_else(|| "the state folder cannot be written".to_owned()))
    }

    pub(super) fn committed(&self, states: usize) {
        self.commits.fetch_add(1, Relaxed);
        self.states.fetch_add(states as u64, Relaxed);
        if self.failing.swap(false, Relaxed) {
            tracing::info!("politely.redb: written again");
        }
    }

    pub(super) fn failed(&self, why: &dyn Display, dropped: usize) {
        self.failures.fetch_add(1, Relaxed);
        self.dropped.fetch_add(dropped as u64, Relaxed);
        self.why.lock()[0] = Some(format!("politely.redb: {why}"));
        if !self.failing.swap(true, Relaxed) {
            tracing::error!(
                "cannot write politely.redb: {why}; changes are refused until it can be written"
            );
        }
    }

    /// Notes that the thread that writes has ended unexpectedly.
    pub(super) fn thread_ended(&self) {
        let why = "the thread that writes politely.redb has ended; restart the coordinator";
        self.why.lock()[2] = Some(why.to_owned());
        if !self.died.swap(true, Relaxed) {
            tracing::error!("{why}");
        }
    }

    pub(super) fn journaled(&self, written: &io::Result<()>) {
        match written {
            Ok(()) => {
                if self.journal_failing.load(Relaxed) && self.journal_failing.swap(false, Relaxed) {
                    tracing::info!("permits.journal: written again");
                }
            }
            Err(why) => {
                self.journal_failures.fetch_add(1, Relaxed);
                self.why.lock()[1] = Some(format!("permits.journal: {why}"));
                if !self.journal_failing.swap(true, Relaxed) {
                    tracing::error!(
                        "cannot write permits.journal: {why}; no permits are granted until it can \
                         be written"
                    );
                }
            }
        }
    }

    pub(super) fn replaced(&self, replaced: io::Result<()>) {
        match replaced {
            Ok(()) => {
                self.journal_replaced.fetch_add(1, Relaxed);
            }
            Err(why) => {
                self.journal_failures.fetch_add(1, Relaxed);
                tracing::error!("permits.journal: {why}; it cannot be begun anew and grows on");
            }
        }
    }
}
