//! Of which cells the engine is to tell us, and when it is told so again.

use std::sync::Arc;
use std::time::Duration;

use politely_core::Timestamp;

use super::Node;

/// Between two times of telling it all.
const PAUSE: Duration = Duration::from_millis(200);

pub(super) struct Subscriptions {
    more: Vec<Arc<str>>,
    less: Vec<Arc<str>>,
    /// When the engine is told of all once more, and when it was last.
    pub(super) again_at: Timestamp,
    told_at: Timestamp,
}

impl Default for Subscriptions {
    fn default() -> Self {
        Self {
            more: Vec::new(),
            less: Vec::new(),
            again_at: Timestamp::NEVER,
            told_at: Timestamp::ZERO,
        }
    }
}

impl Node {
    /// A replica may want to hear of its cell, or no more.
    pub(super) fn see_to_notices(&mut self, id: usize) {
        if let Some(replica) = &mut self.replicas[id] {
            let wants = replica.wants_notices(self.context.me);
            if wants != replica.watched {
                replica.watched = wants;
                let Subscriptions { more, less, .. } = &mut self.watching;
                if wants { more } else { less }.push(Arc::clone(replica.name()));
            }
        }
    }

    /// Which cells the engine is to tell us of, and which no more.
    pub(super) fn watched(&mut self, local: Timestamp) -> (Vec<Arc<str>>, Vec<Arc<str>>) {
        let watching = &mut self.watching;
        let mut more = std::mem::take(&mut watching.more);
        if watching.again_at <= local {
            (watching.again_at, watching.told_at) = (Timestamp::NEVER, local);
            let watched = self
                .replicas
                .iter()
                .flatten()
                .filter(|replica| replica.watched);
            more = watched.map(|replica| Arc::clone(replica.name())).collect();
        }
        (more, std::mem::take(&mut watching.less))
    }

    /// Nothing is heard of a cell, or of none, unless the engine is told once more: at once, but not again and again.
    pub fn handle_lost_subscription(&mut self, cell: Option<&str>, local: Timestamp) {
        let is_watched = |name| {
            let replica = self
                .named
                .get(name)
                .and_then(|&id| self.replicas[id].as_ref());
            replica.is_some_and(|replica| replica.watched)
        };
        if cell.is_none_or(is_watched) {
            let watching = &mut self.watching;
            let again_at = local.max(watching.told_at + PAUSE);
            watching.again_at = watching.again_at.min(again_at);
        }
    }
}
