//! An accepted request, from its arrival until it leaves.

use std::sync::Arc;

use politely_core::Timestamp;

use super::answer::Path;
use super::host::Host;
use crate::log::Kind;

/// Frees its slot or its place in the queue exactly once. When a client breaks its connection, the
/// future with the visit is dropped, and the visit counts as left.
pub(super) struct Visit {
    host: Arc<Host>,
    pub(super) path: Path,
    pub(super) arrived: Timestamp,
    /// Its number in the queue, if it was queued.
    pub(super) waiting: Option<u64>,
    finished: bool,
}

impl Visit {
    pub(super) fn new(
        host: &Arc<Host>,
        path: Path,
        arrived: Timestamp,
        waiting: Option<u64>,
    ) -> Self {
        Self {
            host: Arc::clone(host),
            path,
            arrived,
            waiting,
            finished: false,
        }
    }

    /// Ends the visit with its answer.
    pub(super) fn finish(&mut self, kind: Kind, status: u16) {
        self.finished = true;
        self.host.depart(self, kind, status);
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        if !self.finished {
            // 499: nginx's status for a client that closed the request.
            self.host.depart(self, Kind::Left, 499);
        }
    }
}
