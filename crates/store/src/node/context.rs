//! What all replicas of a process share.

use std::collections::HashSet;
use std::sync::Arc;

use politely_core::Timestamp;
use politely_core::config::Config;

use super::commit_latency::CommitLatency;
use crate::record::NodeId;
use crate::shared_clock::SharedClock;

/// One for all.
pub(crate) struct NodeContext {
    pub(crate) me: NodeId,
    pub(crate) clock: SharedClock,
    pub(crate) config: Arc<Config>,
    pub(crate) seed: u64,
    /// Our last write's number.
    pub(crate) number: u64,
    /// Tickets of those who gave up while they were served.
    pub(crate) gone: HashSet<u64, foldhash::fast::RandomState>,
    pub(crate) count: Counts,
    /// Until then, by our own clock, others may not have heard that the engine is back, and go on with their shares.
    pub(crate) apart_until: Timestamp,
    /// The engine is to be looked at now.
    pub(crate) look: bool,
    /// Why the last look at it failed.
    pub(crate) last_error: Option<String>,
    /// From a batch's first look or attempt until it stood.
    pub(crate) took: CommitLatency,
}

/// What group commit comes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Writes that stood.
    pub commits: u64,
    /// … that met another's.
    pub conflicts: u64,
    /// … of which nobody knows.
    pub unknown: u64,
    /// Looks at a cell.
    pub reads: u64,
    /// Events and permits written.
    pub items: u64,
    /// States that the engine had lost some of.
    pub lost: u64,
    pub granted: u64,
    pub reported: u64,
    pub refused: u64,
    pub cancelled: u64,
    pub late: u64,
}
