//! Leases on in-flight slots: they limit how many requests are in flight.
//!
//! A plain counter leaks when a worker dies. A lease has an id and an expiry instead. Each grant
//! takes a lease, and a report or a cancellation returns it. A lease that is not returned expires.
//! The counts always balance: granted = reported + cancelled + expired + live.

use std::cmp::Reverse;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::{Timestamp, join};

/// The id of one permit of one key. An id is never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LeaseId(pub u64);

impl LeaseId {
    /// Returns the ids of a run of `slots` permits that begins with this one.
    pub fn run(self, slots: u16) -> impl DoubleEndedIterator<Item = Self> {
        (0..u64::from(slots)).map(move |i| Self(self.0 + i))
    }
}

/// The lease of one request, which is in flight or about to leave: 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The id of its permit.
    pub id: LeaseId,
    /// When the request may leave. The laws take this as the time at which it was sent.
    pub start: Timestamp,
    /// Time from the start to the expiry of the lease.
    lasts_ms: u32,
    /// How many millionths of a token a cancellation may return, at most 4,294 tokens. It is what
    /// the bucket lacked at its fullest since this departure, so it never falls from one lease to
    /// the next.
    room: u32,
    /// Number of other live leases when this one was granted.
    pub beside: u16,
    stage: Stage,
    /// Whether the key was not application-limited: the limit set the start time, not the demand.
    pub pressed: bool,
}

/// The stage of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Stage {
    /// The request was granted, and nothing is known of its outcome.
    Sent,
    /// The same, and the request is the single probe of a half-open breaker.
    Probe,
    /// The outcome is known and the law has learned from it. The body is still being received. A
    /// probe that reaches this stage counts as an ordinary request.
    Heard,
}

impl Lease {
    /// Returns whether the request is the probe of a half-open breaker, without an answer yet.
    pub fn is_probe(&self) -> bool {
        self.stage == Stage::Probe
    }

    /// Returns whether the outcome is known. The slot stays taken until the body has been received.
    pub fn is_heard(&self) -> bool {
        self.stage == Stage::Heard
    }

    fn join(&mut self, other: &Self) {
        let room = self.room.min(other.room);
        let stage = match (self.stage, other.stage) {
            (Stage::Probe, _) | (_, Stage::Probe) => Stage::Probe,
            (Stage::Sent, _) | (_, Stage::Sent) => Stage::Sent,
            (Stage::Heard, Stage::Heard) => Stage::Heard,
        };
        let other = Self {
            room,
            stage,
            ..*other
        };
        (self.stage, self.room) = (stage, room);
        join::least(self, &other, |lease| Reverse(lease.expires()));
    }

    /// Returns when the lease expires and its slot is free again.
    #[inline]
    pub fn expires(&self) -> Timestamp {
        end(self.start, self.lasts_ms)
    }
}

/// The lease counts of one key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Permits granted.
    pub granted: u64,
    /// Permits whose outcome was reported in time.
    pub reported: u64,
    /// Permits that were returned unused, or abandoned.
    pub cancelled: u64,
    /// Permits whose lease expired.
    pub expired: u64,
    /// Permits that are still live.
    pub live: u64,
}

/// The millionths of a token.
const TOKEN: u32 = 1_000_000;
/// The largest next id in a plausible state. It leaves half of the ids of the last generation free,
/// so a restored state does not run out of ids.
const NEXT_MAX: u64 = u64::MAX - (1 << 31);
/// Bound of each count of ended leases in a plausible state. The sum of three counts and the live
/// leases then fits into 64 bits.
const ENDED_MAX: u64 = 1 << 62;

/// The leases of one key, oldest first.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leases {
    live: SmallVec<[Lease; 1]>,
    /// The next id. It is higher than the number of grants after state was lost; see
    /// [`Leases::generation`].
    next: u64,
    reported: u64,
    cancelled: u64,
    expired: u64,
}

impl Leases {
    /// Takes a slot. The caller has compared [`Leases::in_flight`] with its cap.
    pub fn take(&mut self, start: Timestamp, lasts: Duration, probe: bool, pressed: bool) -> Lease {
        let beside = u16::try_from(self.live.len()).unwrap_or(u16::MAX);
        let stage = if probe { Stage::Probe } else { Stage::Sent };
        let lease = self.make(start, lasts, beside, stage, pressed);
        self.live.push(lease);
        lease
    }

    /// Takes the first slot, as [`Leases::take`] does. Most grants find no live lease, so this
    /// function is short and inlined.
    #[inline(always)]
    pub(crate) fn take_first(&mut self, start: Timestamp, lasts: Duration, pressed: bool) -> Lease {
        debug_assert!(self.live.is_empty() && !self.live.spilled());
        let lease = self.make(start, lasts, 0, Stage::Sent, pressed);
        // `live` is stored inline while it is empty (see `shrink_if_empty`), so there is no memory
        // to free. Without `forget`, each grant would contain a call to the deallocator.
        std::mem::forget(std::mem::replace(
            &mut self.live,
            SmallVec::from_buf([lease]),
        ));
        lease
    }

    #[inline(always)]
    fn make(
        &mut self,
        start: Timestamp,
        lasts: Duration,
        beside: u16,
        stage: Stage,
        pressed: bool,
    ) -> Lease {
        let id = self.next();
        self.next += 1;
        Lease {
            id,
            start,
            lasts_ms: ms(lasts),
            room: TOKEN,
            beside,
            stage,
            pressed,
        }
    }

    /// Notes that the bucket lacked `room` tokens before the newest lease took `cost`. Earlier
    /// leases return no more than that.
    pub(crate) fn note_room(&mut self, room: f64, cost: f64) {
        let room = millionths(room);
        if let Some((newest, earlier)) = self.live.split_last_mut() {
            // Without earlier ones no other lease makes the bucket fuller.
            let beside = if earlier.is_empty() { 0 } else { room };
            newest.room = beside.saturating_add(millionths(cost));
            let fuller = earlier.iter_mut().rev();
            for lease in fuller.take_while(|lease| lease.room > room) {
                lease.room = room;
            }
        }
    }

    /// Returns how many of `tokens` a cancelled lease returns. The bucket is fuller by them since
    /// its departure, so the other leases return less.
    pub(crate) fn take_room(&mut self, cancelled: &Lease, tokens: f64) -> f64 {
        let returned = cancelled.room.min(millionths(tokens));
        let left = cancelled.room - returned;
        for lease in &mut self.live {
            lease.room = if lease.id < cancelled.id {
                lease.room.min(left)
            } else {
                lease.room.saturating_sub(returned)
            };
        }
        f64::from(returned) / f64::from(TOKEN)
    }

    /// Frees the slot of a request whose outcome is known, and returns its lease. Returns `None` if
    /// the lease has expired or was returned before: the report is late or repeated.
    #[inline]
    pub fn report(&mut self, id: LeaseId) -> Option<Lease> {
        let lease = self.remove(id)?;
        self.reported += 1;
        Some(lease)
    }

    /// Notes that the outcome is known, and returns the lease as it was. The slot stays taken until
    /// [`Leases::report`]. Returns `None` if the report is late or repeated.
    pub fn on_head(&mut self, id: LeaseId) -> Option<Lease> {
        let at = self.find(id)?;
        let lease = &mut self.live[at];
        if lease.is_heard() {
            return None;
        }
        let copy = *lease;
        lease.stage = Stage::Heard;
        Some(copy)
    }

    /// Frees the slot of a request that never left or was abandoned.
    pub fn cancel(&mut self, id: LeaseId) -> Option<Lease> {
        let lease = self.remove(id)?;
        self.cancelled += 1;
        Some(lease)
    }

    /// Extends a lease to `until`, rounded up to a millisecond. Returns `false` if the lease is
    /// gone.
    pub fn renew(&mut self, id: LeaseId, until: Timestamp) -> bool {
        let Some(at) = self.find(id) else {
            return false;
        };
        let lease = &mut self.live[at];
        lease.lasts_ms = lease.lasts_ms.max(ms(until.since(lease.start)));
        true
    }

    /// Frees the slots of all leases that have expired by `now`.
    #[inline]
    pub fn expire(&mut self, now: Timestamp) -> Expired {
        if self.live.iter().all(|lease| lease.expires() > now) {
            return Expired::default();
        }
        let before = self.live.len();
        let (mut probe, mut last) = (false, None);
        self.live.retain(|lease| {
            let keep = lease.expires() > now;
            if !keep {
                probe |= lease.is_probe();
                last = last.max(Some(lease.expires()));
            }
            keep
        });
        self.shrink_if_empty();
        probe = probe && !self.probing();
        let count = before - self.live.len();
        self.expired += count as u64;
        Expired { count, probe, last }
    }

    /// Moves all starts and expiries back by `back`, after a restart whose clock was set back.
    pub fn rebase(&mut self, back: Duration) {
        for lease in &mut self.live {
            lease.start = lease.start - back;
        }
    }

    /// Returns whether a breaker's probe is in flight.
    pub fn probing(&self) -> bool {
        self.live.iter().any(Lease::is_probe)
    }

    /// Makes a probe an ordinary request, because an operator closed its breaker.
    pub fn forget_probes(&mut self) {
        for lease in self.live.iter_mut().filter(|lease| lease.is_probe()) {
            lease.stage = Stage::Sent;
        }
    }

    /// Makes the ids of later leases at least `number << 32`, and never lower than before.
    ///
    /// Call this after restoring a state that may not be the latest one. `number` must be above all
    /// earlier ones; the clock's seconds are. Then no new id equals the id of a lease that was lost
    /// with the state.
    pub fn generation(&mut self, number: u32) {
        self.ids_from(LeaseId(u64::from(number) << 32));
    }

    /// Makes the ids of later leases at least `first`, and never lower than before.
    pub fn ids_from(&mut self, first: LeaseId) {
        self.next = self.next.max(first.0);
    }

    /// Returns the id of the next lease. All earlier leases have lower ids.
    pub const fn next(&self) -> LeaseId {
        LeaseId(self.next)
    }

    /// Returns whether calls of this type's methods could have led to this state. Restored bytes
    /// may be anything.
    pub fn plausible(&self) -> bool {
        let ended = [self.reported, self.cancelled, self.expired];
        self.next <= NEXT_MAX
            && ended.iter().all(|count| *count < ENDED_MAX)
            && self.live.is_sorted_by(|a, b| a.id < b.id)
            && self.live.last().is_none_or(|lease| lease.id < self.next())
    }

    /// Returns the leases that take a slot, oldest first.
    pub fn live(&self) -> &[Lease] {
        &self.live
    }

    /// Returns the number of slots that are taken.
    #[inline]
    pub fn in_flight(&self) -> usize {
        self.live.len()
    }

    /// Returns the number of slots taken by requests whose outcome is not known.
    pub fn unheard(&self) -> usize {
        self.live.iter().filter(|lease| !lease.is_heard()).count()
    }

    /// Returns when a lease expires, if it is live.
    pub fn ends(&self, id: LeaseId) -> Option<Timestamp> {
        self.find(id).map(|at| self.live[at].expires())
    }

    /// Returns when the next lease expires, if there is one.
    pub fn next_expiry(&self) -> Option<Timestamp> {
        self.live.iter().map(Lease::expires).min()
    }

    /// Returns the counts of leases.
    pub fn tally(&self) -> Tally {
        let live = self.live.len() as u64;
        Tally {
            granted: self.reported + self.cancelled + self.expired + live,
            reported: self.reported,
            cancelled: self.cancelled,
            expired: self.expired,
            live,
        }
    }

    /// Merges the leases of two states that were one. For a lease of both states, the later expiry
    /// counts, and the earlier stage, so that no probe is lost. A lease that ended on one side only
    /// is still live. If only one side granted it, it returns nothing, as those before it.
    pub(crate) fn join(&mut self, other: &Self) {
        for mine in &mut self.live {
            if other.find(mine.id).is_none() {
                mine.room = 0;
            }
        }
        for theirs in &other.live {
            match self.place(theirs.id) {
                Ok(at) => self.live[at].join(theirs),
                Err(at) => self.live.insert(at, Lease { room: 0, ..*theirs }),
            }
        }
        let mut room = u32::MAX;
        for lease in self.live.iter_mut().rev() {
            room = room.min(lease.room);
            lease.room = room;
        }
        self.next = self.next.max(other.next);
        self.reported = self.reported.max(other.reported);
        self.cancelled = self.cancelled.max(other.cancelled);
        self.expired = self.expired.max(other.expired);
    }

    /// Frees the heap memory of `live` when no lease is left. Otherwise every later access to this
    /// key would load one more cache line.
    #[inline]
    fn shrink_if_empty(&mut self) {
        if self.live.is_empty() && self.live.spilled() {
            self.live = SmallVec::new();
        }
    }

    #[inline]
    fn remove(&mut self, id: LeaseId) -> Option<Lease> {
        // In most cases the lease is the only one or the newest one.
        let lease = if self.live.last()?.id == id {
            self.live.pop()?
        } else {
            let at = self.find(id)?;
            self.live.remove(at)
        };
        self.shrink_if_empty();
        Some(lease)
    }

    fn find(&self, id: LeaseId) -> Option<usize> {
        self.place(id).ok()
    }

    /// Returns the index of the lease, or the index at which to insert it. Ids only grow, so `live`
    /// is sorted.
    fn place(&self, id: LeaseId) -> Result<usize, usize> {
        self.live.binary_search_by_key(&id, |lease| lease.id)
    }
}

impl Clone for Leases {
    fn clone(&self) -> Self {
        Self {
            // This copies the memory at once; the derived implementation would clone each lease.
            live: SmallVec::from_slice(&self.live),
            ..*self
        }
    }
}

/// The leases that [`Leases::expire`] ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expired {
    /// Number of leases.
    pub count: usize,
    /// Whether a breaker's probe was among them and no other probe is in flight.
    pub probe: bool,
    /// When the last of them expired.
    pub last: Option<Timestamp>,
}

/// Returns whole millionths, rounded up: the last of ten tokens that return must not be late by
/// what was lost of the others. The cast makes zero of what is below zero or no number.
fn millionths(tokens: f64) -> u32 {
    (tokens * f64::from(TOKEN)).ceil() as u32
}

#[inline]
fn end(start: Timestamp, lasts_ms: u32) -> Timestamp {
    Timestamp::from_micros(
        start
            .as_micros()
            .saturating_add(u64::from(lasts_ms) * 1_000),
    )
}

/// Returns whole milliseconds, rounded up; at most about 49 days.
#[inline]
fn ms(length: Duration) -> u32 {
    const SECS_MAX: u64 = (u32::MAX / 1_000 - 1) as u64;
    let secs = length.as_secs().min(SECS_MAX) as u32;
    let more = match length.subsec_nanos() {
        0 => 0,
        nanos => begun_ms(nanos),
    };
    secs * 1_000 + more
}

/// Rounds up the part below a second. Most leases last whole seconds and need no division.
#[cold]
const fn begun_ms(nanos: u32) -> u32 {
    nanos.div_ceil(1_000_000)
}

#[cfg(test)]
#[path = "leases_tests.rs"]
mod tests;
