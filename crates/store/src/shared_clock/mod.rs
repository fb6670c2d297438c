//! The time all who share an engine agree on, and whether the engine lost anything.
//!
//! One cell holds the *epoch*: a number that grows whenever writes may have been lost (the engine was started again,
//! another server stands in for it, or the cell itself is gone), and how far shared time is from the engine's clock.
//! Shared time goes on where it was: when the engine stood still it stood still for everybody, so no lease runs out and no token
//! flows in meanwhile; and when the engine's clock is set, the difference is taken up here. Whenever shared time is put back the
//! number grows as well: who has not heard of it, and finds a state of a later number, looks before it goes on.
//!
//! Each process looks every [`PULSE`] and keeps the tightest of its last looks as a lower bound of the engine's clock, so
//! that what it lets leave at a time leaves at that time or, by a one-way delay, later.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use politely_core::Timestamp;
use serde::{Deserialize, Serialize};

use crate::engine::{Heartbeat, Version, Write};
use crate::record::NodeId;

/// How often the engine is looked at.
pub const HEARTBEAT_EVERY: Duration = Duration::from_millis(250);
/// Without a look for so long nothing is written: who knows what time it is.
pub(crate) const STALE: Duration = Duration::from_secs(1);
/// Nobody saw the engine for so long: it stood still.
const STALL: Duration = Duration::from_millis(1_200);
/// Shared time stands still for so long at most: then whoever held leases is gone.
const STALL_MAX: Duration = Duration::from_mins(1);
/// A clock that is off by more than this, and more than the answer took, was set.
const STEP: Duration = Duration::from_millis(100);
/// After a loss new keys wait for those who remember them.
pub(crate) const QUIET: Duration = Duration::from_secs(1);
/// How often somebody says that the engine was seen.
const SEEN: Duration = Duration::from_millis(300);
/// … and each that it is there; who was not heard of for [`GONE`] is not.
const HERE: Duration = Duration::from_secs(2);
const GONE: Duration = Duration::from_secs(7);
/// Looks kept to estimate the clock from.
const LOOKS: usize = 8;
/// The epoch's cell, and how long it is kept.
const NAME: &str = "politely:epoch";
const KEEP: Duration = Duration::from_hours(24 * 30);

/// What the epoch's cell holds, behind its version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Epoch {
    number: u32,
    run: u64,
    /// Shared time is so many microseconds ahead of the engine's clock.
    ahead: i64,
    /// When it began, in shared time.
    began: Timestamp,
    /// The engine's clock when somebody looked.
    seen: Timestamp,
    /// Who is there, and when each last said so.
    members: Vec<(NodeId, Timestamp)>,
    /// The number at the last loss. What is older may lack what was written last.
    #[serde(skip)]
    lost: u32,
}

/// One process's view of it.
pub(crate) struct SharedClock {
    me: NodeId,
    cell: Arc<str>,
    /// As it was when all was well last.
    known: Option<Epoch>,
    /// The engine's clock less ours, as far as the last looks tell; each a lower bound.
    looks: VecDeque<i64>,
    last: Option<ClockReading>,
    /// Since when it has been read that we are there.
    listed: Option<Timestamp>,
    /// What was known at the last look holds still.
    settled: bool,
    writes: u64,
    /// How often shared time was put right.
    corrections: u32,
}

/// A look that was answered.
#[derive(Clone, Copy)]
struct ClockReading {
    sent: Timestamp,
    came: Timestamp,
    time: Timestamp,
}

/// What a look showed.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Observation {
    /// To be written; whether it succeeds shows at the next look.
    pub(crate) write: Option<Write>,
    /// The epoch is another than before: what one remembers should be compared.
    pub(crate) new_epoch: bool,
    /// ClockReading again at once.
    pub(crate) again: bool,
}

impl SharedClock {
    pub(crate) fn new(me: NodeId) -> Self {
        Self {
            me,
            cell: NAME.into(),
            known: None,
            looks: VecDeque::new(),
            last: None,
            listed: None,
            settled: false,
            writes: 0,
            corrections: 0,
        }
    }

    pub(crate) fn cell(&self) -> Arc<str> {
        Arc::clone(&self.cell)
    }

    /// Shared time, at `mono` of our own clock.
    pub(crate) fn now(&self, local: Timestamp) -> Timestamp {
        let ahead = self.known.as_ref().map_or(0, |epoch| epoch.ahead);
        shift(local, self.engine_ahead().saturating_add(ahead))
    }

    /// Our own clock, when it is `at` in shared time.
    pub(crate) fn local(&self, at: Timestamp) -> Timestamp {
        if at == Timestamp::NEVER {
            return at;
        }
        let ahead = self.known.as_ref().map_or(0, |epoch| epoch.ahead);
        shift(at, -self.engine_ahead().saturating_add(ahead))
    }

    fn engine_ahead(&self) -> i64 {
        self.looks.iter().copied().max().unwrap_or(0)
    }

    /// The engine was seen lately, and what time it is is known.
    pub(crate) fn is_fresh(&self, local: Timestamp) -> bool {
        self.settled && self.last.is_some_and(|look| local.since(look.came) < STALE)
    }

    /// When the engine last answered.
    pub(crate) const fn last_seen(&self) -> Option<Timestamp> {
        match self.last {
            Some(look) => Some(look.came),
            None => None,
        }
    }

    /// Grows whenever shared time is another than was thought, so that what was worked out before is to be worked out again.
    pub(crate) const fn corrections(&self) -> u32 {
        self.corrections
    }

    pub(crate) fn number(&self) -> u32 {
        number(self.known.as_ref())
    }

    /// [`SharedClock::number`] when the engine was last found to have lost something.
    pub(crate) fn lost(&self) -> u32 {
        self.known.as_ref().map_or(0, |epoch| epoch.lost)
    }

    /// The engine was looked at after `at` of shared time.
    pub(crate) fn looked_after(&self, at: Timestamp) -> bool {
        let look = self.known.as_ref().zip(self.last);
        look.is_some_and(|(known, look)| shift(look.time, known.ahead) > at)
    }

    /// The engine was looked at after `mono`.
    pub(crate) fn looked_since(&self, local: Timestamp) -> bool {
        self.last.is_some_and(|look| look.sent > local)
    }

    /// When this epoch began, in shared time.
    pub(crate) fn began(&self) -> Timestamp {
        self.known
            .as_ref()
            .map_or(Timestamp::ZERO, |epoch| epoch.began)
    }

    /// Our place among those who are there, and how many they are.
    pub(crate) fn place(&self) -> (usize, usize) {
        let Some(epoch) = &self.known else {
            return (0, 1);
        };
        let mut members: Vec<_> = epoch.members.iter().map(|(who, _)| *who).collect();
        if !members.contains(&self.me) {
            members.push(self.me);
        }
        members.sort_unstable();
        let place = members.iter().position(|who| *who == self.me);
        (place.unwrap_or(0), members.len())
    }

    /// We have been there for so long that all who are have read it.
    pub(crate) fn is_counted(&self) -> bool {
        let listed = self.listed.zip(self.last);
        listed.is_some_and(|(listed, last)| last.came.since(listed) >= STALE)
    }

    /// A look that was sent and came back at these times of our clock.
    pub(crate) fn seen(
        &mut self,
        sent: Timestamp,
        came: Timestamp,
        heartbeat: &Heartbeat,
    ) -> Observation {
        let look = ClockReading {
            sent,
            came,
            time: heartbeat.time,
        };
        let stored = heartbeat.epoch.as_deref().and_then(decode);
        let mut next =
            self.as_it_stands(stored.as_ref().map(|(_, stored)| stored), &look, heartbeat);
        let is_new = stored
            .as_ref()
            .is_none_or(|(_, stored)| stored.number != next.number);
        self.put_right(&mut next, &look, is_new);
        let moved = stored
            .as_ref()
            .is_some_and(|(_, stored)| stored.ahead != next.ahead);
        if is_new {
            next.began = shift(heartbeat.time, next.ahead);
            next.lost = next.number;
        }
        let seen_long_ago = heartbeat.time.since(next.seen) >= SEEN || next.seen > heartbeat.time;
        let here = next.members.iter().any(|(who, at)| {
            *who == self.me && shift(heartbeat.time, next.ahead).since(*at) < HERE
        });
        let listed = next.members.iter().any(|(who, _)| *who == self.me);
        let expected = stored.as_ref().map(|(version, _)| *version);
        let write = (is_new || moved || seen_long_ago || !here)
            .then(|| self.propose(&mut next, heartbeat.time, expected));
        // What is only proposed holds once it is read; until then no time is known, and nothing is written.
        self.settled = !is_new && !moved;
        if !self.settled {
            return Observation {
                write,
                new_epoch: false,
                again: true,
            };
        }
        let lost_and_ahead = |known: &Epoch| (known.lost, known.ahead);
        let before = self.known.replace(next);
        let before = before.as_ref().map(lost_and_ahead);
        let now = self.known.as_ref().map(lost_and_ahead);
        if before.map(|(_, ahead)| ahead) != now.map(|(_, ahead)| ahead) || self.step(&look) != 0 {
            self.looks.clear();
            self.corrections += 1;
        }
        if self.looks.len() == LOOKS {
            self.looks.pop_front();
        }
        self.looks.push_back(micros(heartbeat.time) - micros(came));
        self.listed = listed.then(|| self.listed.unwrap_or(came));
        self.last = Some(look);
        Observation {
            write,
            new_epoch: before.is_some()
                && before.map(|(lost, _)| lost) != now.map(|(lost, _)| lost),
            again: false,
        }
    }

    /// What is wrong with the epoch's cell, if it holds something else.
    pub(crate) fn strange(&self, heartbeat: &Heartbeat) -> Option<String> {
        let is_strange = heartbeat
            .epoch
            .as_deref()
            .is_some_and(|held| decode(held).is_none());
        is_strange.then(|| {
            format!("{} holds something that is no state of politely's: delete it, or use another database", self.cell())
        })
    }

    /// We had not seen the engine for too long to tell what its clock did.
    fn was_away(&self, look: &ClockReading) -> bool {
        self.last
            .is_none_or(|last| look.sent.since(last.came) >= STALL)
    }

    /// By how much the engine's clock was set since our last look.
    fn step(&self, look: &ClockReading) -> i64 {
        self.last.map_or(0, |last| step(&last, look))
    }

    /// What is stored, or what follows from what is known where that is lost or an engine's of before.
    fn as_it_stands(
        &self,
        stored: Option<&Epoch>,
        look: &ClockReading,
        heartbeat: &Heartbeat,
    ) -> Epoch {
        // What is stored may be older than what was seen a moment ago, if the engine lost some.
        let mine = self.known.as_ref().zip(self.last);
        let mine = mine.map(|(known, last)| (known.ahead, last.time));
        match (stored, &self.known) {
            (Some(stored), _) if stored.run == heartbeat.run => stored.clone(),
            (Some(stored), known) => {
                let theirs = (stored.ahead, stored.seen);
                let newer = |mine: &(i64, Timestamp)| {
                    !self.was_away(look) || shift(mine.1, mine.0) > shift(theirs.1, theirs.0)
                };
                let (ahead, seen) = mine.filter(newer).unwrap_or(theirs);
                Epoch {
                    number: above(stored.number.max(number(known.as_ref())), heartbeat.time),
                    run: heartbeat.run,
                    ahead,
                    seen,
                    ..stored.clone()
                }
            }
            (None, known) => Epoch {
                number: above(number(known.as_ref()), heartbeat.time),
                run: heartbeat.run,
                ahead: known.as_ref().map_or(0, |known| known.ahead),
                began: Timestamp::ZERO,
                lost: 0,
                seen: mine.map_or(heartbeat.time, |(_, seen)| seen),
                members: known
                    .as_ref()
                    .map_or_else(Vec::new, |known| known.members.clone()),
            },
        }
    }

    /// Takes up in shared time what became of the engine's clock since we looked last.
    fn put_right(&self, next: &mut Epoch, look: &ClockReading, is_new: bool) {
        let (away, step) = (self.was_away(look), self.step(look));
        // Somebody else may have seen to it already, or to some of it.
        let seen_to = match (&self.known, is_new) {
            (Some(known), false) => next.ahead.saturating_sub(known.ahead),
            _ => 0,
        };
        let gap = micros(look.time) - micros(next.seen);
        let wrong = if away {
            // Not seen by anybody: it stood still, or its clock was set while it was away.
            let stood_still = !(0..as_micros(STALL)).contains(&gap);
            // Whatever its clock says, by our own no more than this went by.
            let own = |last: ClockReading| micros(look.sent) - micros(last.came);
            let passed = self.last.map_or(gap, |last| gap.min(own(last)));
            let too_long = (passed - as_micros(STALL_MAX)).max(0);
            stood_still.then(|| gap.saturating_sub(too_long))
        } else if !is_new && self.was_with_a_zombie(next) {
            None
        } else {
            let left = step.saturating_add(seen_to);
            let hidden = self.last.map_or(0, |last| hidden(&last, look));
            // Whoever had to put time back said so, and it stays put back: what was granted since goes by it.
            let put_back = left < 0 && next.number > number(self.known.as_ref());
            let unseen = seen_to == 0 || (left.abs() > as_micros(STEP) + hidden && !put_back);
            (step != 0 && unseen).then_some(left)
        };
        let Some(wrong) = wrong else { return };
        next.ahead = next.ahead.saturating_sub(wrong);
        // To whoever has not heard of it shared time is another.
        if (away || seen_to != 0) && !is_new {
            next.number = above(next.number, look.time);
        }
    }

    /// We looked at one server when another was in charge already: what its clock says is for those to judge who were there.
    fn was_with_a_zombie(&self, next: &Epoch) -> bool {
        let ours = self.known.as_ref().zip(self.last);
        ours.is_some_and(|(known, last)| {
            known.run != next.run && shift(last.time, known.ahead) > next.began
        })
    }

    /// Says that the engine was seen, and that we are there.
    fn propose(&mut self, next: &mut Epoch, time: Timestamp, expected: Option<Version>) -> Write {
        next.seen = time;
        let now = shift(time, next.ahead);
        let me = self.me;
        next.members
            .retain(|(who, at)| *who != me && now.since(*at) < GONE && *at <= now + GONE);
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
        let value = postcard::to_extend(epoch, value).expect("a Vec grows");
        postcard::to_extend(&epoch.lost, value).expect("a Vec grows")
    }
}

fn decode(value: &[u8]) -> Option<(Version, Epoch)> {
    let version = Version::of(value)?;
    let (mut epoch, later) = postcard::take_from_bytes::<Epoch>(&value[Version::LEN..]).ok()?;
    // Earlier versions did not tell the one number from the other.
    let lost = postcard::take_from_bytes(later).ok();
    epoch.lost = lost.map_or(epoch.number, |(lost, _later)| lost);
    Some((version, epoch))
}

/// The next epoch's number: grows, and is no number that was forgotten with the engine's memory.
fn above(number: u32, time: Timestamp) -> u32 {
    let secs = u32::try_from(time.as_micros() / 1_000_000).unwrap_or(u32::MAX);
    number.saturating_add(1).max(secs)
}

fn number(epoch: Option<&Epoch>) -> u32 {
    epoch.map_or(0, |epoch| epoch.number)
}

/// By how much the engine's clock was set between two looks; zero if that cannot be told from the way the looks took.
fn step(last: &ClockReading, look: &ClockReading) -> i64 {
    let passed = micros(look.time) - micros(last.time);
    // Between the two readings no less and no more than this went by.
    let least = micros(look.sent) - micros(last.came);
    let most = micros(look.came) - micros(last.sent);
    let slack = as_micros(STEP);
    if passed > most + slack || passed < least - slack {
        // Shared time may lose what the looks took, and never gains it.
        passed - least
    } else {
        0
    }
}

/// What two looks took on their ways: they tell no step that is shorter.
fn hidden(last: &ClockReading, look: &ClockReading) -> i64 {
    as_micros(last.came.since(last.sent) + look.came.since(look.sent))
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
