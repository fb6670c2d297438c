//! Of which cells the engine is to tell us, and when it is told so again.

use std::sync::Arc;
use std::time::Duration;

use politely_core::Timestamp;

use super::Hub;

/// Between two times of telling it all.
const PAUSE: Duration = Duration::from_millis(200);

pub(super) struct Watching {
    more: Vec<Arc<str>>,
    less: Vec<Arc<str>>,
    /// When the engine is told of all once more, and when it was last.
    pub(super) again_at: Timestamp,
    told_at: Timestamp,
}

impl Default for Watching {
    fn default() -> Self {
        Self {
            more: Vec::new(),
            less: Vec::new(),
            again_at: Timestamp::NEVER,
            told_at: Timestamp::ZERO,
        }
    }
}

impl Hub {
    /// A desk may want to hear of its cell, or no more.
    pub(super) fn see_to_notices(&mut self, id: usize) {
        if let Some(desk) = &mut self.desks[id] {
            let wants = desk.wants_notices(self.shop.me);
            if wants != desk.watched {
                desk.watched = wants;
                let Watching { more, less, .. } = &mut self.watching;
                if wants { more } else { less }.push(Arc::clone(desk.name()));
            }
        }
    }

    /// Which cells the engine is to tell us of, and which no more.
    pub(super) fn watched(&mut self, mono: Timestamp) -> (Vec<Arc<str>>, Vec<Arc<str>>) {
        let watching = &mut self.watching;
        let mut more = std::mem::take(&mut watching.more);
        if watching.again_at <= mono {
            (watching.again_at, watching.told_at) = (Timestamp::NEVER, mono);
            let watched = self.desks.iter().flatten().filter(|desk| desk.watched);
            more = watched.map(|desk| Arc::clone(desk.name())).collect();
        }
        (more, std::mem::take(&mut watching.less))
    }

    /// Nothing is heard of a cell, or of none, unless the engine is told once more: at once, but not again and again.
    pub(in super::super) fn unheard(&mut self, cell: Option<&str>, mono: Timestamp) {
        let is_watched = |name| {
            let desk = self.named.get(name).and_then(|&id| self.desks[id].as_ref());
            desk.is_some_and(|desk| desk.watched)
        };
        if cell.is_none_or(is_watched) {
            let watching = &mut self.watching;
            let again_at = mono.max(watching.told_at + PAUSE);
            watching.again_at = watching.again_at.min(again_at);
        }
    }
}
