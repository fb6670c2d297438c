//! While the engine is away: who goes on with a share, and from when on everybody goes by the engine again.

use std::time::Duration;

use politely_core::Timestamp;

use super::Node;
use crate::replica::fallback;
use crate::shared_clock::{HEARTBEAT_EVERY, STALE};

impl Node {
    /// Called whenever it is asked what to do: who is asked nothing for long has stood still.
    pub(super) fn stays_awake(&mut self, local: Timestamp) {
        let before = self.awake.filter(|before| local.since(*before) < STALE);
        self.awake = before.map(|_| local);
    }

    /// That the engine was not heard is our own doing, until it does not answer what is asked now.
    pub(super) fn stood_still(&self, local: Timestamp) -> bool {
        let slept = self.awake.is_none_or(|before| local.since(before) >= STALE);
        slept && self.context.clock.last_seen().is_some()
    }

    /// The engine answered what was sent then, and had answered before at `seen`: each of those who share looks within
    /// [`STALE`], and until then some may go on with their shares.
    pub(super) fn is_back(&mut self, seen: Option<Timestamp>, sent: Timestamp, local: Timestamp) {
        self.awake = Some(local);
        let was_away = seen.is_none_or(|seen| sent.since(seen) >= STALE);
        if self.shares && was_away && self.members() > 1 {
            self.context.apart_until = local + STALE;
        }
    }

    /// The engine is away, and shares are allowed for as long as that. Who stood still may be counted by nobody any more.
    pub(super) fn is_alone(&self, local: Timestamp) -> bool {
        let clock = &self.context.clock;
        let away = clock.last_seen().map(|seen| local.since(seen));
        self.shares
            && self.awake.is_some()
            && clock.is_counted()
            && away.is_some_and(|away| away >= STALE && away < STALE + fallback::LASTS)
    }

    pub(super) fn serve_alone(&mut self, local: Timestamp) {
        let mut replies = Vec::new();
        while let Some(&(at, id)) = self.due.first().filter(|(at, _)| *at <= local) {
            self.due.remove(&(at, id));
            self.due_of[id] = Timestamp::NEVER;
            if let Some(replica) = &mut self.replicas[id] {
                let until = replica.step_alone(&self.context, local, &mut replies);
                self.at(
                    id,
                    until
                        .max(local + Duration::from_micros(100))
                        .min(local + HEARTBEAT_EVERY),
                );
            }
            self.collect(id, &mut replies, local);
        }
    }
}
