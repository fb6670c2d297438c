//! How many at once: leases on in-flight slots.
//!
//! A counter leaks when its holder dies (four separate bugs in one peer alone); a lease has an id
//! and an end. Each grant takes one, its report or cancellation returns it, and what is never heard
//! of again expires. The books always balance: granted = reported + cancelled + expired + live.

use std::cmp::Reverse;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::{Timestamp, join};

/// Names one permit of one key; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LeaseId(pub u64);

impl LeaseId {
    /// The leases of a run of so many departures, of which this is the first.
    pub fn run(self, slots: u16) -> impl DoubleEndedIterator<Item = Self> {
        (0..u64::from(slots)).map(move |i| Self(self.0 + i))
    }
}

/// One request under way, or about to leave: 24 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// Its name.
    pub id: LeaseId,
    /// When its request may leave; what the laws take as the time it was sent.
    pub start: Timestamp,
    /// Its slot returns by itself this long after its start.
    lasts_ms: u32,
    /// Leases live beside it when it was granted.
    pub beside: u16,
    stage: Stage,
    /// Whether the key was not application-limited: the limit, not the demand, set the time.
    pub pressed: bool,
}

/// How far its request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Stage {
    /// Nothing is known of it yet.
    Sent,
    /// The same, and it is the single probe of a half-open breaker.
    Probe,
    /// Its outcome is known and learned from; a probe has done its work. The body is still to come.
    Heard,
}

impl Lease {
    /// It is the single probe of a half-open breaker, and not answered yet.
    pub fn is_probe(&self) -> bool {
        self.stage == Stage::Probe
    }

    /// Its outcome is known and learned from; the slot is taken until the body has come.
    pub fn is_heard(&self) -> bool {
        self.stage == Stage::Heard
    }

    fn join(&mut self, other: &Self) {
        let stage = match (self.stage, other.stage) {
            (Stage::Probe, _) | (_, Stage::Probe) => Stage::Probe,
            (Stage::Sent, _) | (_, Stage::Sent) => Stage::Sent,
            (Stage::Heard, Stage::Heard) => Stage::Heard,
        };
        let other = Self { stage, ..*other };
        self.stage = stage;
        join::least(self, &other, |lease| Reverse(lease.expires()));
    }

    /// When its slot returns by itself.
    #[inline]
    pub fn expires(&self) -> Timestamp {
        end(self.start, self.lasts_ms)
    }
}

/// The books of one key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Permits given.
    pub granted: u64,
    /// Permits whose outcome was reported in time.
    pub reported: u64,
    /// Permits that were given back unused, or abandoned.
    pub cancelled: u64,
    /// Permits whose lease expired.
    pub expired: u64,
    /// Permits that are still live.
    pub live: u64,
}

/// The last generation there can be has half its ids left: no state that is read back runs out of
/// them.
const NEXT_MAX: u64 = u64::MAX - (1 << 31);
/// Three counts below this, and the live ones, add up to a number.
const ENDED_MAX: u64 = 1 << 62;

/// The leases of one key, oldest first.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leases {
    live: SmallVec<[Lease; 1]>,
    /// The next id. It runs ahead of what was granted where state was lost: see
    /// [`Leases::generation`].
    next: u64,
    reported: u64,
    cancelled: u64,
    expired: u64,
}

impl Leases {
    /// Takes a slot; the caller has compared [`Leases::in_flight`] with its cap.
    pub fn take(&mut self, start: Timestamp, lasts: Duration, probe: bool, pressed: bool) -> Lease {
        let beside = u16::try_from(self.live.len()).unwrap_or(u16::MAX);
        let stage = if probe { Stage::Probe } else { Stage::Sent };
        let lease = self.make(start, lasts, beside, stage, pressed);
        self.live.push(lease);
        lease
    }

    /// [`Leases::take`] where no slot is taken, which is most grants' way: in its place, without a
    /// call.
    #[inline(always)]
    pub(crate) fn take_first(&mut self, start: Timestamp, lasts: Duration, pressed: bool) -> Lease {
        debug_assert!(self.live.is_empty() && !self.live.spilled());
        let lease = self.make(start, lasts, 0, Stage::Sent, pressed);
        // None are in place and own no memory (`shrink_if_empty`): not dropped, they leave no call
        // to give it back in a grant's way.
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
            beside,
            stage,
            pressed,
        }
    }

    /// Returns the slot of a request whose outcome is known. `None`: the lease has expired or was
    /// returned before, so the report is late or a repetition.
    #[inline]
    pub fn report(&mut self, id: LeaseId) -> Option<Lease> {
        let lease = self.remove(id)?;
        self.reported += 1;
        Some(lease)
    }

    /// The outcome is known, the slot stays taken until [`Leases::report`]. `None`: late, or a
    /// repetition.
    pub fn hear(&mut self, id: LeaseId) -> Option<Lease> {
        let at = self.find(id)?;
        let lease = &mut self.live[at];
        if lease.is_heard() {
            return None;
        }
        let copy = *lease;
        lease.stage = Stage::Heard;
        Some(copy)
    }

    /// Returns the slot of a request that never left or was abandoned.
    pub fn cancel(&mut self, id: LeaseId) -> Option<Lease> {
        let lease = self.remove(id)?;
        self.cancelled += 1;
        Some(lease)
    }

    /// Extends a lease to `until`, or up to a millisecond longer. `false`: there is no such lease
    /// any more.
    pub fn renew(&mut self, id: LeaseId, until: Timestamp) -> bool {
        let Some(at) = self.find(id) else {
            return false;
        };
        let lease = &mut self.live[at];
        lease.lasts_ms = lease.lasts_ms.max(ms(until.since(lease.start)));
        true
    }

    /// Takes back what nobody was heard of again and answers whether the last probe was among it.
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

    /// The clock was set back by `back` while nobody looked: the slots return when they would have.
    pub fn rebase(&mut self, back: Duration) {
        for lease in &mut self.live {
            lease.start = lease.start - back;
        }
    }

    /// A breaker's probe is under way.
    pub fn probing(&self) -> bool {
        self.live.iter().any(Lease::is_probe)
    }

    /// No lease is a probe any more: its breaker was closed by an operator.
    pub fn forget_probes(&mut self) {
        for lease in self.live.iter_mut().filter(|lease| lease.is_probe()) {
            lease.stage = Stage::Sent;
        }
    }

    /// Ids from now on are at least `number << 32`, and never lower than before. Whoever goes on
    /// from a state of which the latest may be lost calls this with a number above any before it
    /// (the seconds of its clock): what was granted and is forgotten then shares its id with
    /// nothing.
    pub fn generation(&mut self, number: u32) {
        self.ids_from(LeaseId(u64::from(number) << 32));
    }

    /// Ids from now on are at least `first`, and never lower than before.
    pub fn ids_from(&mut self, first: LeaseId) {
        self.next = self.next.max(first.0);
    }

    /// What the next lease is called: all those given so far have lower ids.
    pub const fn next(&self) -> LeaseId {
        LeaseId(self.next)
    }

    /// Could calls of this type's methods have led here? Bytes read back may be anything.
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

    /// Slots taken.
    #[inline]
    pub fn in_flight(&self) -> usize {
        self.live.len()
    }

    /// Slots taken by requests of which nothing is known yet.
    pub fn unheard(&self) -> usize {
        self.live.iter().filter(|lease| !lease.is_heard()).count()
    }

    /// When a slot returns by itself, if it is still out.
    pub fn ends(&self, id: LeaseId) -> Option<Timestamp> {
        self.find(id).map(|at| self.live[at].expires())
    }

    /// When the next slot returns by itself, if any is out.
    pub fn next_expiry(&self) -> Option<Timestamp> {
        self.live.iter().map(Lease::expires).min()
    }

    /// The books.
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

    /// Merges the leases of two states that were one. A lease that both know ends at the later
    /// expiry, and is at the earlier of its two stages, so that no probe is lost. A lease that
    /// ended on one side only is still live.
    pub(crate) fn join(&mut self, other: &Self) {
        for theirs in &other.live {
            match self.place(theirs.id) {
                Ok(at) => self.live[at].join(theirs),
                Err(at) => self.live.insert(at, *theirs),
            }
        }
        self.next = self.next.max(other.next);
        self.reported = self.reported.max(other.reported);
        self.cancelled = self.cancelled.max(other.cancelled);
        self.expired = self.expired.max(other.expired);
    }

    /// When nothing is out, the memory of a rush goes back: a state that keeps it waits for it ever
    /// after, one cold line more.
    #[inline]
    fn shrink_if_empty(&mut self) {
        if self.live.is_empty() && self.live.spilled() {
            self.live = SmallVec::new();
        }
    }

    #[inline]
    fn remove(&mut self, id: LeaseId) -> Option<Lease> {
        // Often it is the only one, or the newest.
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

    /// Where it is, or would be: ids only grow.
    fn place(&self, id: LeaseId) -> Result<usize, usize> {
        self.live.binary_search_by_key(&id, |lease| lease.id)
    }
}

/// A time before which no lease ends: until then [`Leases::expire`] finds nothing, however many are
/// out. Counted in steps of 2^20 us, so that it has room in a host; it follows from the leases, so
/// any two are equal, and zero is always true.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FirstEnd(u32);

impl FirstEnd {
    /// No lease is out.
    pub(crate) const NEVER: Self = Self(u32::MAX);

    /// Of a lease that ends then.
    #[inline]
    pub(crate) fn at(end: Timestamp) -> Self {
        // From the year 2112 on it is too early, and the leases are looked at.
        Self((end.as_micros() >> 20) as u32)
    }

    /// The earlier of two.
    #[inline]
    pub(crate) fn or(self, other: Self) -> Self {
        Self(self.0.min(other.0))
    }

    /// Nothing can have ended by `now`.
    #[inline]
    pub(crate) fn is_after(self, now: Timestamp) -> bool {
        now.as_micros() >> 20 < u64::from(self.0)
    }
}

impl PartialEq for FirstEnd {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Clone for Leases {
    fn clone(&self) -> Self {
        Self {
            // A copy of the memory, where the derived one would go from lease to lease.
            live: SmallVec::from_slice(&self.live),
            ..*self
        }
    }
}

/// What [`Leases::expire`] took back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expired {
    /// How many.
    pub count: usize,
    /// One of them was a breaker's probe, and no other is under way.
    pub probe: bool,
    /// When the last of them ended.
    pub last: Option<Timestamp>,
}

#[inline]
fn end(start: Timestamp, lasts_ms: u32) -> Timestamp {
    Timestamp::from_micros(
        start
            .as_micros()
            .saturating_add(u64::from(lasts_ms) * 1_000),
    )
}

/// Whole milliseconds, rounded up: at most 49 days.
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

/// Most leases last whole seconds, and need no division.
#[cold]
const fn begun_ms(nanos: u32) -> u32 {
    nanos.div_ceil(1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LASTS: Duration = Duration::from_secs(10);

    const fn at(secs: u64) -> Timestamp {
        Timestamp::from_micros(secs * 1_000_000)
    }

    #[test]
    fn a_killed_worker_leaks_nothing() {
        let mut leases = Leases::default();
        leases.take(at(0), LASTS, false, false);
        leases.take(at(1), LASTS, true, false);
        assert_eq!(leases.next_expiry(), Some(at(10)));
        assert_eq!(
            leases.expire(at(10)),
            Expired {
                count: 1,
                probe: false,
                last: Some(at(10)),
            }
        );
        assert_eq!(
            leases.expire(at(11)),
            Expired {
                count: 1,
                probe: true,
                last: Some(at(11)),
            }
        );
        assert_eq!(leases.in_flight(), 0);
    }

    /// Before this, a key that once had two requests out kept their memory for good.
    #[test]
    fn a_rush_that_is_over_owns_no_memory() {
        let mut leases = Leases::default();
        let rush = |leases: &mut Leases| -> Vec<_> {
            (0..9)
                .map(|_| leases.take(at(0), LASTS, false, false).id)
                .collect()
        };
        for id in rush(&mut leases) {
            assert!(leases.live.spilled());
            leases.report(id);
        }
        assert!(!leases.live.spilled());
        rush(&mut leases);
        leases.expire(at(10));
        assert!(!leases.live.spilled());
    }

    #[test]
    fn a_report_counts_once_and_never_after_its_lease() {
        let mut leases = Leases::default();
        let id = leases.take(at(0), LASTS, false, false).id;
        assert!(leases.report(id).is_some());
        assert!(leases.report(id).is_none());
        let late = leases.take(at(0), LASTS, false, false).id;
        leases.expire(at(60));
        assert!(leases.report(late).is_none());
        let tally = leases.tally();
        assert_eq!(
            (tally.granted, tally.reported, tally.expired, tally.live),
            (2, 1, 1, 0)
        );
    }

    #[test]
    fn what_was_heard_is_in_flight_until_reported() {
        let mut leases = Leases::default();
        let id = leases.take(at(0), LASTS, true, false).id;
        assert!(leases.hear(id).is_some_and(|lease| lease.is_probe()));
        assert!(leases.hear(id).is_none(), "heard once");
        assert_eq!((leases.in_flight(), leases.unheard()), (1, 0));
        assert_eq!(leases.tally().live, 1);
        assert!(leases.report(id).is_some_and(|lease| !lease.is_probe()));
        let tally = leases.tally();
        assert_eq!((tally.granted, tally.reported, tally.live), (1, 1, 0));
    }

    /// Before this, an id given and lost with the state was given a second time, and one report
    /// ended both.
    #[test]
    fn a_lost_state_gives_no_id_twice() {
        let mut leases = Leases::default();
        leases.take(at(0), LASTS, false, false);
        let kept = leases.clone();
        let lost = leases.take(at(0), LASTS, false, false).id;

        let mut leases = kept;
        leases.generation(1_800_000_000);
        let id = leases.take(at(1), LASTS, false, false).id;
        assert_eq!(id, LeaseId(1_800_000_000 << 32));
        assert!(leases.report(lost).is_none());
        leases.generation(7);
        assert_eq!(leases.next(), LeaseId(id.0 + 1), "never back");
        let tally = leases.tally();
        assert_eq!((tally.granted, tally.live), (2, 2));
        leases.generation(u32::MAX);
        leases.take(at(2), LASTS, false, false);
        assert!(leases.plausible());
    }

    #[test]
    fn joined_leases_are_those_of_both() {
        let mut one = Leases::default();
        let [probe, renewed, ended] =
            [true, false, false].map(|probe| one.take(at(0), LASTS, probe, false).id);
        let mut other = one.clone();
        other.generation(7);
        let own = one.take(at(1), LASTS, false, false).id;
        let later = other.take(at(2), LASTS, false, false).id;
        one.hear(probe);
        one.renew(renewed, at(60));
        other.hear(renewed);
        other.report(ended);

        let mut joined = one.clone();
        joined.join(&other);
        other.join(&one);
        assert_eq!(joined, other, "in either order");
        assert!(joined.plausible());
        let ids: Vec<_> = joined.live.iter().map(|lease| lease.id).collect();
        assert_eq!(ids, [probe, renewed, ended, own, later]);
        assert!(joined.probing(), "who waits for its probe is told");
        assert_eq!((joined.unheard(), joined.next()), (5, other.next()));
        assert_eq!(joined.expire(at(59)).count, 4);
        assert!(joined.renew(renewed, at(60)));
        let tally = joined.tally();
        assert_eq!(
            (tally.granted, tally.reported, tally.live),
            (6, 1, 1),
            "what ended on one side only is there twice"
        );
    }

    #[test]
    fn renewal_never_shortens() {
        let mut leases = Leases::default();
        let id = leases.take(at(0), LASTS, false, false).id;
        assert!(leases.renew(id, at(5)));
        assert_eq!(leases.next_expiry(), Some(at(10)));
        assert!(leases.renew(id, at(50)));
        assert_eq!(leases.expire(at(49)).count, 0);
    }
}
