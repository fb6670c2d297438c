//! The clock that all nodes of one engine agree on, and whether the engine has lost writes.
//!
//! One cell holds the *epoch*: a number, and the offset of shared time from the engine's clock. The
//! number grows whenever writes may have been lost: the engine was restarted, another server took
//! over, or the cell itself is gone. The offset absorbs what happens to the engine:
//!
//! - While the engine stalls, shared time stands still for all nodes. No lease expires and no token
//!   is added meanwhile.
//! - If the engine's clock is set, the offset changes by the difference.
//! - If shared time is put back, the number grows as well. A node that does not know of it, and
//!   finds a record with a later number, sends a heartbeat before it goes on.
//!
//! Every node sends a heartbeat each [`HEARTBEAT_EVERY`]. It keeps the tightest of its last
//! readings as a lower bound of the engine's clock. A permit therefore starts at its time or later
//! by a one-way delay, and never earlier.
//!
//! The epoch also lists the nodes that are alive, for fallback shares.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use politely_core::Timestamp;
use serde::{Deserialize, Serialize};

use crate::engine::{Heartbeat, Version, Write};
use crate::record::NodeId;

/// The interval of heartbeats.
pub const HEARTBEAT_EVERY: Duration = Duration::from_millis(250);
/// Without an answer for this long, the time is unknown and nothing is written.
pub(crate) const STALE: Duration = Duration::from_secs(1);
/// If no node saw the engine for this long, the engine stalled.
const STALL: Duration = Duration::from_millis(1_200);
/// The longest time for which shared time stands still. By then the holders of leases are gone.
const STALL_MAX: Duration = Duration::from_mins(1);
/// A clock that is off by more than this, and by more than the round trip, was set.
const STEP: Duration = Duration::from_millis(100);
/// After a loss, a new key waits this long for the nodes that remember it.
pub(crate) const QUIET: Duration = Duration::from_secs(1);
/// The interval at which a node writes that the engine was seen.
const SEEN_EVERY: Duration = Duration::from_millis(300);
/// The interval at which each node writes that it is alive.
const ALIVE_EVERY: Duration = Duration::from_secs(2);
/// A node that did not write for this long is no longer listed.
const ALIVE_MAX: Duration = Duration::from_secs(7);
/// The number of readings from which the engine's clock is estimated.
const READINGS: usize = 8;
/// The name of the epoch's cell.
const NAME: &str = "politely:epoch";
/// The engine may delete the epoch's cell if it is not written for this long.
const KEEP: Duration = Duration::from_hours(24 * 30);

/// The value of the epoch's cell, behind its version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Epoch {
    number: u32,
    /// The id of the engine's run.
    run: u64,
    /// The offset of shared time from the engine's clock, in microseconds.
    ahead: i64,
    /// The shared time when this epoch began.
    began: Timestamp,
    /// The engine's clock when a node last saw it.
    seen: Timestamp,
    /// The nodes that are alive, and the shared time when each last wrote so.
    members: Vec<(NodeId, Timestamp)>,
    /// The number at the last loss. A record of an older epoch may lack its last writes.
    #[serde(skip)]
    lost: u32,
}

/// One node's view of the shared clock.
pub(crate) struct SharedClock {
    me: NodeId,
    cell: Arc<str>,
    /// The epoch as last read.
    known: Option<Epoch>,
    /// Lower bounds of the engine's clock less the local clock, in microseconds.
    offsets: VecDeque<i64>,
    last: Option<Reading>,
    /// The local time since when the epoch lists this node.
    listed_since: Option<Timestamp>,
    /// Whether the last heartbeat confirmed the known epoch.
    is_settled: bool,
    writes: u64,
    /// The number of times that shared time was corrected.
    corrections: u32,
}

/// A heartbeat that was answered.
#[derive(Clone, Copy)]
struct Reading {
    /// The local time when the heartbeat was sent.
    sent: Timestamp,
    /// The local time when the answer came.
    came: Timestamp,
    /// The engine's clock in the answer.
    time: Timestamp,
}

/// The consequences of a heartbeat.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Observation {
    /// A write of the epoch's cell. The next heartbeat shows whether it succeeded.
    pub(crate) write: Option<Write>,
    /// Whether the engine has lost writes. All known records must then be compared with the
    /// engine's.
    pub(crate) new_epoch: bool,
    /// Whether the next heartbeat must be sent at once, to confirm the write.
    pub(crate) again: bool,
}

impl SharedClock {
    pub(crate) fn new(me: NodeId) -> Self {
        Self {
            me,
            cell: NAME.into(),
            known: None,
            offsets: VecDeque::new(),
            last: None,
            listed_since: None,
            is_settled: false,
            writes: 0,
            corrections: 0,
        }
    }

    /// Returns the name of the epoch's cell.
    pub(crate) fn cell(&self) -> Arc<str> {
        Arc::clone(&self.cell)
    }

    /// Returns the shared time at `local`.
    pub(crate) fn now(&self, local: Timestamp) -> Timestamp {
        let ahead = self.known.as_ref().map_or(0, |epoch| epoch.ahead);
        shift(local, self.engine_ahead().saturating_add(ahead))
    }

    /// Returns the local time when the shared time is `at`.
    pub(crate) fn local(&self, at: Timestamp) -> Timestamp {
        if at == Timestamp::NEVER {
            return at;
        }
        let ahead = self.known.as_ref().map_or(0, |epoch| epoch.ahead);
        shift(at, -self.engine_ahead().saturating_add(ahead))
    }

    fn engine_ahead(&self) -> i64 {
        self.offsets.iter().copied().max().unwrap_or(0)
    }

    /// Returns whether the engine has answered lately and the shared time is known.
    pub(crate) fn is_fresh(&self, local: Timestamp) -> bool {
        self.is_settled && self.last.is_some_and(|last| local.since(last.came) < STALE)
    }

    /// Returns the local time of the engine's last answer.
    pub(crate) const fn last_seen(&self) -> Option<Timestamp> {
        match self.last {
            Some(last) => Some(last.came),
            None => None,
        }
    }

    /// Returns a number that grows with each correction of shared time.
    ///
    /// Everything that was computed with the old time must then be computed again.
    pub(crate) const fn corrections(&self) -> u32 {
        self.corrections
    }

    /// Returns the number of the epoch.
    pub(crate) fn number(&self) -> u32 {
        number(self.known.as_ref())
    }

    /// Returns the number of the epoch in which the engine last lost writes.
    pub(crate) fn loss(&self) -> u32 {
        self.known.as_ref().map_or(0, |epoch| epoch.lost)
    }

    /// Returns whether the engine answered a heartbeat after the shared time `at`.
    pub(crate) fn looked_after(&self, at: Timestamp) -> bool {
        let look = self.known.as_ref().zip(self.last);
        look.is_some_and(|(known, last)| shift(last.time, known.ahead) > at)
    }

    /// Returns whether the engine answered a heartbeat that was sent after `local`.
    pub(crate) fn looked_since(&self, local: Timestamp) -> bool {
        self.last.is_some_and(|last| last.sent > local)
    }

    /// Returns the shared time when the epoch began.
    pub(crate) fn began(&self) -> Timestamp {
        self.known
            .as_ref()
            .map_or(Timestamp::ZERO, |epoch| epoch.began)
    }

    /// Returns this node's rank among the nodes that are alive, and their number.
    pub(crate) fn rank(&self) -> (usize, usize) {
        let Some(epoch) = &self.known else {
            return (0, 1);
        };
        let mut members: Vec<_> = epoch.members.iter().map(|(node, _)| *node).collect();
        if !members.contains(&self.me) {
            members.push(self.me);
        }
        members.sort_unstable();
        let rank = members.iter().position(|node| *node == self.me);
        (rank.unwrap_or(0), members.len())
    }

    /// Returns whether all nodes have read by now that this one is alive.
    pub(crate) fn is_counted(&self) -> bool {
        let listed = self.listed_since.zip(self.last);
        listed.is_some_and(|(since, last)| last.came.since(since) >= STALE)
    }

    /// Handles the answer to a heartbeat. The heartbeat left at the local time `sent`, and the
    /// answer arrived at the local time `came`.
    pub(crate) fn observe(
        &mut self,
        sent: Timestamp,
        came: Timestamp,
        heartbeat: &Heartbeat,
    ) -> Observation {
        let time = heartbeat.time;
        let reading = Reading { sent, came, time };
        let stored = heartbeat.epoch.as_deref().and_then(decode);
        let stored_epoch = stored.as_ref().map(|(_, stored)| stored);
        let mut next = self.continued(stored_epoch, &reading, heartbeat.run);
        let is_new = stored_epoch.is_none_or(|stored| stored.number != next.number);
        self.correct(&mut next, &reading, is_new);
        let has_moved = stored_epoch.is_some_and(|stored| stored.ahead != next.ahead);
        if is_new {
            next.began = shift(time, next.ahead);
            next.lost = next.number;
        }
        let seen_long_ago = time.since(next.seen) >= SEEN_EVERY || next.seen > time;
        let now = shift(time, next.ahead);
        let mut members = next.members.iter();
        let is_alive = members.any(|(node, at)| *node == self.me && now.since(*at) < ALIVE_EVERY);
        let is_listed = next.members.iter().any(|(node, _)| *node == self.me);
        let expected = stored.as_ref().map(|(version, _)| *version);
        let write = (is_new || has_moved || seen_long_ago || !is_alive)
            .then(|| self.propose(&mut next, time, expected));
        // A proposal holds once it is read again. Until then the time is unknown.
        self.is_settled = !is_new && !has_moved;
        if !self.is_settled {
            return Observation {
                write,
                new_epoch: false,
                again: true,
            };
        }
        let loss_and_ahead = |known: &Epoch| (known.lost, known.ahead);
        let now = loss_and_ahead(&next);
        let before = self.known.replace(next);
        let before = before.as_ref().map(loss_and_ahead);
        if before.map(|(_, ahead)| ahead) != Some(now.1) || self.step(&reading) != 0 {
            self.offsets.clear();
            self.corrections += 1;
        }
        if self.offsets.len() == READINGS {
            self.offsets.pop_front();
        }
        self.offsets.push_back(micros(time) - micros(came));
        self.listed_since = is_listed.then(|| self.listed_since.unwrap_or(came));
        self.last = Some(reading);
        Observation {
            write,
            new_epoch: before.is_some_and(|(lost, _)| lost != now.0),
            again: false,
        }
    }

    /// Returns an error message if the epoch's cell holds something else.
    pub(crate) fn foreign_cell(&self, heartbeat: &Heartbeat) -> Option<String> {
        let value = heartbeat.epoch.as_deref();
        let is_foreign = value.is_some_and(|value| decode(value).is_none());
        is_foreign.then(|| {
            let cell = self.cell();
            format!(
                "{cell} holds something that is no state of politely's: delete it, or use another database"
            )
        })
    }

    /// Returns whether this node has not seen the engine for [`STALL`] or longer. The engine's
    /// clock may then have been set to anything.
    fn was_away(&self, reading: &Reading) -> bool {
        self.last
            .is_none_or(|last| reading.sent.since(last.came) >= STALL)
    }

    /// Returns by how many microseconds the engine's clock was set since the last reading.
    fn step(&self, reading: &Reading) -> i64 {
        self.last.map_or(0, |last| step(&last, reading))
    }

    /// Returns the stored epoch, or a new one if it is gone or is from an earlier run of the
    /// engine.
    fn continued(&self, stored: Option<&Epoch>, reading: &Reading, run: u64) -> Epoch {
        // The stored epoch may be older than what this node saw a moment ago.
        let mine = self.known.as_ref().zip(self.last);
        let mine = mine.map(|(known, last)| (known.ahead, last.time));
        match (stored, &self.known) {
            (Some(stored), _) if stored.run == run => stored.clone(),
            (Some(stored), known) => {
                let theirs = (stored.ahead, stored.seen);
                let is_newer = |mine: &(i64, Timestamp)| {
                    !self.was_away(reading) || shift(mine.1, mine.0) > shift(theirs.1, theirs.0)
                };
                let (ahead, seen) = mine.filter(is_newer).unwrap_or(theirs);
                Epoch {
                    number: above(stored.number.max(number(known.as_ref())), reading.time),
                    run,
                    ahead,
                    seen,
                    ..stored.clone()
                }
            }
            (None, known) => Epoch {
                number: above(number(known.as_ref()), reading.time),
                run,
                ahead: known.as_ref().map_or(0, |known| known.ahead),
                began: Timestamp::ZERO,
                lost: 0,
                seen: mine.map_or(reading.time, |(_, seen)| seen),
                members: known
                    .as_ref()
                    .map_or_else(Vec::new, |known| known.members.clone()),
            },
        }
    }

    /// Absorbs into the offset what happened to the engine's clock since the last reading.
    fn correct(&self, next: &mut Epoch, reading: &Reading, is_new: bool) {
        let (was_away, step) = (self.was_away(reading), self.step(reading));
        // Another node may have absorbed the change already, or a part of it.
        let absorbed = match (&self.known, is_new) {
            (Some(known), false) => next.ahead.saturating_sub(known.ahead),
            _ => 0,
        };
        let gap = micros(reading.time) - micros(next.seen);
        let error = if was_away {
            // No node saw the engine: it stalled, or its clock was set meanwhile.
            let has_stalled = !(0..as_micros(STALL)).contains(&gap);
            // The stall was at most as long as the local clock tells.
            let own = |last: Reading| micros(reading.sent) - micros(last.came);
            let passed = self.last.map_or(gap, |last| gap.min(own(last)));
            let too_long = (passed - as_micros(STALL_MAX)).max(0);
            has_stalled.then(|| gap.saturating_sub(too_long))
        } else if !is_new && self.was_with_zombie(next) {
            None
        } else {
            let left = step.saturating_add(absorbed);
            let hidden = self.last.map_or(0, |last| hidden(&last, reading));
            // If another node put time back, it raised the number. Time then stays put back,
            // because permits that were granted afterwards follow it.
            let was_put_back = left < 0 && next.number > number(self.known.as_ref());
            let is_unseen =
                absorbed == 0 || (left.abs() > as_micros(STEP) + hidden && !was_put_back);
            (step != 0 && is_unseen).then_some(left)
        };
        let Some(error) = error else { return };
        next.ahead = next.ahead.saturating_sub(error);
        // A node that does not know of this correction now has a wrong shared time.
        if (was_away || absorbed != 0) && !is_new {
            next.number = above(next.number, reading.time);
        }
    }

    /// Returns whether the last reading was from a server that had been replaced already.
    ///
    /// The nodes that saw the new server judge its clock.
    fn was_with_zombie(&self, next: &Epoch) -> bool {
        let ours = self.known.as_ref().zip(self.last);
        ours.is_some_and(|(known, last)| {
            known.run != next.run && shift(last.time, known.ahead) > next.began
        })
    }

    /// Returns a write that the engine was seen and that this node is alive.
    fn propose(&mut self, next: &mut Epoch, time: Timestamp, expected: Option<Version>) -> Write {
        next.seen = time;
        let now = shift(time, next.ahead);
        let me = self.me;
        next.members.retain(|(node, at)| {
            *node != me && now.since(*at) < ALIVE_MAX && *at <= now + ALIVE_MAX
        });
        next.members.push((me, now));
        self.writes += 1;
        Write {
            cell: self.cell(),
            expected,
            before: None,
            value: self.encode(next),
            keep: KEEP,
            notify: false,
        }
    }

    fn encode(&self, epoch: &Epoch) -> Vec<u8> {
        let mut value = Vec::with_capacity(128);
        value.extend(self.writes.to_le_bytes());
        value.extend(self.me.0.to_le_bytes());
        value.extend(epoch.number.to_le_bytes());
        let value = postcard::to_extend(epoch, value).expect("writing to a Vec cannot fail");
        postcard::to_extend(&epoch.lost, value).expect("writing to a Vec cannot fail")
    }
}

fn decode(value: &[u8]) -> Option<(Version, Epoch)> {
    let version = Version::of(value)?;
    let (mut epoch, later) = postcard::take_from_bytes::<Epoch>(&value[Version::LEN..]).ok()?;
    // An early version did not distinguish the number of the loss from the number of the epoch.
    let lost = postcard::take_from_bytes(later).ok();
    epoch.lost = lost.map_or(epoch.number, |(lost, _later)| lost);
    Some((version, epoch))
}

/// Returns the number of the next epoch. It grows even if the engine has forgotten the last number.
fn above(number: u32, time: Timestamp) -> u32 {
    let secs = u32::try_from(time.as_micros() / 1_000_000).unwrap_or(u32::MAX);
    number.saturating_add(1).max(secs)
}

fn number(epoch: Option<&Epoch>) -> u32 {
    epoch.map_or(0, |epoch| epoch.number)
}

/// Returns by how many microseconds the engine's clock was set between two readings.
///
/// The result is zero if the difference may as well come from the round trips.
fn step(last: &Reading, reading: &Reading) -> i64 {
    let passed = micros(reading.time) - micros(last.time);
    // The time between the two readings of the engine's clock is within these bounds.
    let least = micros(reading.sent) - micros(last.came);
    let most = micros(reading.came) - micros(last.sent);
    let slack = as_micros(STEP);
    if passed > most + slack || passed < least - slack {
        // Shared time may lose the round trips and never gains them.
        passed - least
    } else {
        0
    }
}

/// Returns the length of the two round trips. A shorter step of the clock cannot be seen.
fn hidden(last: &Reading, reading: &Reading) -> i64 {
    as_micros(last.came.since(last.sent) + reading.came.since(reading.sent))
}

fn micros(at: Timestamp) -> i64 {
    i64::try_from(at.as_micros()).unwrap_or(i64::MAX)
}

fn as_micros(length: Duration) -> i64 {
    i64::try_from(length.as_micros()).unwrap_or(i64::MAX)
}

fn shift(at: Timestamp, by: i64) -> Timestamp {
    Timestamp::from_micros(at.as_micros().saturating_add_signed(by))
}
