//! The state of a cell as one process last saw it.

use std::sync::Arc;

use politely_core::Timestamp;
use politely_core::host::Host;

use crate::engine::Version;
use crate::node::NodeContext;
use crate::record::{LastWrite, NodeId, Record};

/// The last value of the cell that a process read or wrote.
pub(super) struct Known {
    /// The bytes of the cell, `None` if the cell does not exist.
    pub(super) value: Option<Arc<[u8]>>,
    /// The local time when `value` was confirmed last. `None`: `value` is a guess.
    pub(super) heard_at: Option<Timestamp>,
    /// The decoded `value`.
    pub(super) record: Record,
    /// The latest shared time that `record` contains.
    pub(super) time: Timestamp,
    /// The sequence number of this node's last confirmed write to the cell, zero for none.
    pub(super) last_write: u64,
    /// The local time when the engine was last found to have lost a write.
    pub(super) lost_at: Option<Timestamp>,
}

impl Known {
    pub(super) fn new(context: &NodeContext, local: Timestamp) -> Self {
        let now = context.clock.now(local);
        Self {
            value: None,
            heard_at: None,
            record: Record::new(Host::new(&context.config, now)),
            time: now,
            last_write: 0,
            lost_at: None,
        }
    }

    /// Returns the version that the next write expects.
    pub(super) fn version(&self) -> Option<Version> {
        self.value.as_deref().and_then(Version::of)
    }

    /// Returns the shared time at `local`, at least the latest time that the record contains.
    pub(super) fn now(&self, context: &NodeContext, local: Timestamp) -> Timestamp {
        context.clock.now(local).max(self.time)
    }

    /// Returns whether the engine has lost writes: `found` lacks this node's last write, or some
    /// commits.
    pub(super) fn is_lost_in(&self, found: &Record, me: NodeId) -> bool {
        let lacks_ours = match found.head.last_write(me) {
            LastWrite::Number(number) => number < self.last_write,
            LastWrite::None => self.last_write > 0,
            LastWrite::Unknown => false,
        };
        lacks_ours || found.head.commits < self.record.head.commits
    }
}
