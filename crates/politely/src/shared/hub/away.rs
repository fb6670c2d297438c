//! While the engine is away: who goes on with a share, and from when on everybody goes by the engine again.

use std::time::Duration;

use politely_core::Timestamp;

use super::super::alone;
use super::super::epoch::{PULSE, STALE};
use super::Hub;

impl Hub {
    /// Called whenever it is asked what to do: who is asked nothing for long has stood still.
    pub(super) fn stays_awake(&mut self, mono: Timestamp) {
        let before = self.awake.filter(|before| mono.since(*before) < STALE);
        self.awake = before.map(|_| mono);
    }

    /// That the engine was not heard is our own doing, until it does not answer what is asked now.
    pub(super) fn stood_still(&self, mono: Timestamp) -> bool {
        let slept = self.awake.is_none_or(|before| mono.since(before) >= STALE);
        slept && self.shop.epochs.last_seen().is_some()
    }

    /// The engine answered what was sent then, and had answered before at `seen`: each of those who share looks within
    /// [`STALE`], and until then some may go on with their shares.
    pub(super) fn is_back(&mut self, seen: Option<Timestamp>, sent: Timestamp, mono: Timestamp) {
        self.awake = Some(mono);
        let was_away = seen.is_none_or(|seen| sent.since(seen) >= STALE);
        if self.shares && was_away && self.members() > 1 {
            self.shop.apart_until = mono + STALE;
        }
    }

    /// The engine is away, and shares are allowed for as long as that. Who stood still may be counted by nobody any more.
    pub(super) fn is_alone(&self, mono: Timestamp) -> bool {
        let epochs = &self.shop.epochs;
        let away = epochs.last_seen().map(|seen| mono.since(seen));
        self.shares
            && self.awake.is_some()
            && epochs.is_counted()
            && away.is_some_and(|away| away >= STALE && away < STALE + alone::LASTS)
    }

    pub(super) fn serve_alone(&mut self, mono: Timestamp) {
        let mut told = Vec::new();
        while let Some(&(at, id)) = self.due.first().filter(|(at, _)| *at <= mono) {
            self.due.remove(&(at, id));
            self.due_of[id] = Timestamp::NEVER;
            if let Some(desk) = &mut self.desks[id] {
                let until = desk.step_alone(&self.shop, mono, &mut told);
                self.at(
                    id,
                    until
                        .max(mono + Duration::from_micros(100))
                        .min(mono + PULSE),
                );
            }
            self.hear(id, &mut told, mono);
        }
    }
}
