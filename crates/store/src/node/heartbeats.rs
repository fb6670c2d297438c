//! Heartbeats: when the engine is asked for its time, and what an answer or a silence means.
//!
//! A node asks every [`HEARTBEAT_EVERY`]. After [`STALE`] without an answer the engine counts as
//! unavailable and nothing is written. A node may have been suspended itself (a stopped process, a
//! closed laptop). It notices that by a long gap between two calls of [`Node::poll_commands`], and
//! does not blame the engine for it.
//!
//! If fallback shares are allowed, a replica goes on with its share of the key while the engine is
//! unavailable. Once the engine answers again, each node waits for [`STALE`]: by then all nodes
//! know of it and have ended their shares.

use std::time::Duration;

use politely_core::Timestamp;

use super::Node;
use crate::engine::{EngineError, Heartbeat, Write};
use crate::replica::fallback;
use crate::shared_clock::{HEARTBEAT_EVERY, STALE};

/// The delay of the heartbeat after one that did not settle the time. It doubles with each
/// repetition.
const RETRY_MIN: Duration = Duration::from_millis(1);
/// The shortest interval between two heartbeats after a write failed.
const AFTER_FAILURE: Duration = Duration::from_millis(50);

/// The state of the heartbeats.
#[derive(Debug)]
pub(super) struct Heartbeats {
    /// The time of the next heartbeat.
    pub(super) next_at: Timestamp,
    /// The time when the last heartbeat was sent.
    sent_at: Timestamp,
    is_in_flight: bool,
    /// The number of consecutive heartbeats that did not settle the time.
    unsettled: u32,
    /// The time of the last call of [`Node::poll_commands`]. `None` after this process was
    /// suspended, until the engine answers.
    awake_at: Option<Timestamp>,
    /// The time since which the engine answers but refuses writes, and its reason.
    pub(super) refused: Option<(Timestamp, String)>,
}

impl Default for Heartbeats {
    fn default() -> Self {
        Self {
            next_at: Timestamp::ZERO,
            sent_at: Timestamp::ZERO,
            is_in_flight: false,
            unsettled: 0,
            awake_at: None,
            refused: None,
        }
    }
}

impl Heartbeats {
    /// Returns whether a heartbeat is to be sent now, and marks it as sent.
    pub(super) fn is_due(&mut self, local: Timestamp) -> bool {
        let is_due = !self.is_in_flight && self.next_at <= local;
        if is_due {
            self.is_in_flight = true;
            self.sent_at = local;
        }
        is_due
    }

    pub(super) fn next_wakeup(&self) -> Timestamp {
        if self.is_in_flight {
            Timestamp::NEVER
        } else {
            self.next_at
        }
    }

    /// Notes that the node is polled at `local`. A gap since the last poll means that it was
    /// suspended.
    pub(super) fn note_poll(&mut self, local: Timestamp) {
        let before = self.awake_at.filter(|before| local.since(*before) < STALE);
        self.awake_at = before.map(|_| local);
    }

    pub(super) fn note_write_done(&mut self) {
        self.refused = None;
    }

    pub(super) fn note_write_failed(&mut self, why: &str, local: Timestamp) {
        let since = self.refused.take().map_or(local, |(since, _)| since);
        self.refused = Some((since, why.to_owned()));
        let soon = local.max(self.sent_at + AFTER_FAILURE);
        self.next_at = self.next_at.min(soon);
    }
}

impl Node {
    /// Handles the answer to the heartbeat that was sent at `sent`. Returns a write of the epoch's
    /// cell.
    pub fn handle_heartbeat(
        &mut self,
        sent: Timestamp,
        heartbeat: Result<Heartbeat, EngineError>,
        local: Timestamp,
    ) -> Option<Write> {
        let beats = &mut self.heartbeats;
        beats.is_in_flight = false;
        beats.next_at = sent.max(local - HEARTBEAT_EVERY / 2) + HEARTBEAT_EVERY;
        let heartbeat = match heartbeat {
            Ok(heartbeat) => heartbeat,
            Err(EngineError(why)) => {
                self.context.last_error = Some(why);
                self.settings.read_again();
                return None;
            }
        };
        self.context.last_error = self.context.clock.foreign_cell(&heartbeat);
        if local.since(sent) >= STALE {
            // This process was suspended: the engine's time then says little about its time now.
            beats.next_at = local;
            return None;
        }
        let was_unavailable = !self.context.clock.is_fresh(sent);
        let seen_before = self.context.clock.last_seen();
        let seen = self.context.clock.observe(sent, local, &heartbeat);
        if seen.again {
            // The first repetition is sent at once. The delay grows if no proposal is accepted.
            let delay = RETRY_MIN * (1 << beats.unsettled.min(16));
            beats.next_at = local + HEARTBEAT_EVERY.min(delay);
            beats.unsettled += 1;
        } else {
            beats.unsettled = 0;
        }
        if seen.new_epoch {
            self.settings.read_again();
            self.table.change_all(crate::replica::Replica::check);
        }
        if !seen.again {
            self.confirm(sent, local);
            if !self.unconfirmed.is_empty() {
                // These grants came after this heartbeat was sent.
                self.heartbeats.next_at = local;
            }
        }
        if was_unavailable {
            self.table.wake_scheduled();
        }
        self.note_answer(seen_before, sent, local);
        seen.write
    }

    /// Decides on the grants from cells that were new to the engine.
    ///
    /// A grant stands if the engine's last loss is still the one from before the grant.
    fn confirm(&mut self, sent: Timestamp, local: Timestamp) {
        let loss = self.context.clock.loss();
        let ready = self
            .unconfirmed
            .extract_if(.., |(since, ..)| *since <= sent);
        let ready: Vec<_> = ready.collect();
        for (_, id, pending) in ready {
            if pending.unconfirmed_since == Some(loss) {
                self.deliver(id, &pending, local);
            } else {
                self.take_back(id, &pending, local);
            }
        }
    }

    /// Notes that the engine answered. Before, it had last answered at `seen_before`.
    fn note_answer(&mut self, seen_before: Option<Timestamp>, sent: Timestamp, local: Timestamp) {
        self.heartbeats.awake_at = Some(local);
        let was_unavailable = seen_before.is_none_or(|seen| sent.since(seen) >= STALE);
        if self.shares_when_unavailable && was_unavailable && self.members() > 1 {
            self.context.apart_until = local + STALE;
        }
    }

    /// Returns whether this process was suspended since the engine last answered.
    pub(super) fn was_suspended(&self, local: Timestamp) -> bool {
        let awake_at = self.heartbeats.awake_at;
        let was_suspended = awake_at.is_none_or(|before| local.since(before) >= STALE);
        was_suspended && self.context.clock.last_seen().is_some()
    }

    /// Returns whether replicas go on with their fallback shares.
    ///
    /// A process that was suspended does not, since the other nodes may not count it any more.
    pub(super) fn is_on_fallback(&self, local: Timestamp) -> bool {
        let clock = &self.context.clock;
        let silence = clock.last_seen().map(|seen| local.since(seen));
        self.shares_when_unavailable
            && self.heartbeats.awake_at.is_some()
            && clock.is_counted()
            && silence.is_some_and(|silence| silence >= STALE && silence < STALE + fallback::LASTS)
    }

    pub(super) fn serve_from_fallback(&mut self, local: Timestamp) {
        let mut replies = Vec::new();
        while let Some(id) = self.table.pop_due(local) {
            if let Some(replica) = self.table.get_mut(id) {
                let next = replica.step_on_fallback(&self.context, local, &mut replies);
                let soonest = local + Duration::from_micros(100);
                let next = next.max(soonest).min(local + HEARTBEAT_EVERY);
                self.table.set_wakeup(id, next);
            }
            self.collect(id, &mut replies, local);
        }
    }
}
