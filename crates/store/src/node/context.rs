//! The values that all replicas of a node share.

use std::collections::HashSet;
use std::sync::Arc;

use politely_core::Timestamp;
use politely_core::config::Config;

use super::Ticket;
use super::commit_latency::CommitLatency;
use crate::record::NodeId;
use crate::shared_clock::SharedClock;

/// The shared values. A node has one, and passes it to each replica that it calls.
pub(crate) struct NodeContext {
    /// The id of this node.
    pub(crate) me: NodeId,
    pub(crate) clock: SharedClock,
    pub(crate) config: Arc<Config>,
    pub(crate) seed: u64,
    /// The sequence number of this node's last write to any cell.
    pub(crate) write_number: u64,
    /// The tickets of callers that left while a grant for them was in flight.
    pub(crate) left: HashSet<Ticket, foldhash::fast::RandomState>,
    pub(crate) counts: Counts,
    /// Until this local time, other nodes may still go on with their fallback shares. They may not
    /// know yet that the engine is available again.
    pub(crate) apart_until: Timestamp,
    /// Whether a replica needs a heartbeat as soon as possible.
    pub(crate) needs_heartbeat: bool,
    /// The error of the last heartbeat, if it failed.
    pub(crate) last_error: Option<String>,
    /// The latency of each batch, from its first read or attempt to its confirmation.
    pub(crate) latency: CommitLatency,
}

impl NodeContext {
    pub(super) fn new(me: NodeId, seed: u64, config: Arc<Config>) -> Self {
        Self {
            me,
            clock: SharedClock::new(me),
            config,
            seed,
            write_number: 0,
            left: HashSet::default(),
            counts: Counts::default(),
            apart_until: Timestamp::ZERO,
            needs_heartbeat: false,
            last_error: None,
            latency: CommitLatency::default(),
        }
    }
}

/// The totals of one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Writes that were confirmed.
    pub commits: u64,
    /// Writes that failed because another node had written.
    pub conflicts: u64,
    /// Writes whose result is unknown.
    pub unknown: u64,
    /// Reads of cells.
    pub reads: u64,
    /// Events and permits in confirmed writes.
    pub items: u64,
    /// Records of which the engine lost some writes.
    pub lost: u64,
    /// Permits granted.
    pub granted: u64,
    /// Outcomes reported.
    pub reported: u64,
    /// Outcomes that were rate limits.
    pub refused: u64,
    /// Permits cancelled.
    pub cancelled: u64,
    /// Permits that went to the next caller, because the caller that they were for had left.
    pub passed_on: u64,
    /// Outcomes that came after their lease had expired.
    pub late: u64,
}
