//! Locks of a key: who holds it, who waits for it, and the fencing numbers.
//!
//! A [`LockClaim`] is a session's claim on a key. Claims are served in the order of their arrival.
//! The first waiting claim becomes a holder as soon as its own `max` and the `max` of every holder
//! allow one holder more. No later claim overtakes it, so no claim starves. An exclusive lock is a
//! claim with `max` 1.
//!
//! Each grant has a *fencing number* that is larger than all earlier ones of the key. A resource
//! that remembers the largest number can refuse a holder whose lock has ended. A number is also at
//! least the time of its grant in microseconds. So numbers grow even if the state was lost, unless
//! the clock was set back as well.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// The most claims on one key, holders and waiting claims together.
pub const CLAIMS_MAX: usize = 4_096;

/// The id of a session, a random number.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct SessionId(pub u64);

/// The claim of one session on a key. A session has at most one claim on each key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockClaim {
    /// The session.
    pub session: SessionId,
    /// The id of the call that made the claim, 0 for none. A repeated call finds its claim by it.
    pub id: u64,
    /// The most holders that may hold the key beside each other, this one included.
    pub max: u16,
    /// The number of the claim's arrival, which orders the waiting claims.
    arrival: u64,
    /// The fencing number, 0 while the claim waits.
    fencing: u64,
    /// When the claim ends, unless its session is renewed.
    pub ends: Timestamp,
}

impl LockClaim {
    /// Returns the fencing number, or `None` while the claim waits.
    pub const fn fencing(&self) -> Option<u64> {
        if self.fencing == 0 {
            None
        } else {
            Some(self.fencing)
        }
    }
}

/// A change of a key's locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockOp {
    /// Claims the key. A session that has a claim with the same `id` keeps it.
    Claim {
        /// The session.
        session: SessionId,
        /// The id of the call, 0 for none.
        id: u64,
        /// The most holders beside each other, at least 1.
        max: u16,
        /// How long the claim lasts unless the session is renewed.
        lasts: Duration,
    },
    /// Lets the session's claim last this long from now on.
    Renew {
        /// The session.
        session: SessionId,
        /// How long the claim lasts.
        lasts: Duration,
    },
    /// Ends the session's claim.
    Release {
        /// The session.
        session: SessionId,
    },
    /// Ends the claims whose time is over, and serves the next ones.
    Tend,
}

/// The locks of one key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Locks {
    /// The largest number so far, of an arrival or a grant.
    last: u64,
    /// The claims in the order of their arrival.
    claims: Vec<LockClaim>,
}

impl Locks {
    /// Applies `op` at `now`. Claims that have ended are removed first, and claims that can be
    /// served are served last.
    pub fn apply(&mut self, now: Timestamp, op: &LockOp) {
        self.claims.retain(|claim| claim.ends > now);
        match *op {
            LockOp::Claim {
                session,
                id,
                max,
                lasts,
            } => self.claim(now, session, id, max, now + lasts),
            LockOp::Renew { session, lasts } => {
                if let Some(claim) = self.find(session) {
                    claim.ends = claim.ends.max(now + lasts);
                }
            }
            LockOp::Release { session } => self.claims.retain(|claim| claim.session != session),
            LockOp::Tend => {}
        }
        self.serve(now);
    }

    fn claim(&mut self, now: Timestamp, session: SessionId, id: u64, max: u16, ends: Timestamp) {
        if let Some(claim) = self.find(session) {
            if claim.id == id && id != 0 {
                claim.ends = claim.ends.max(ends);
            }
        } else if self.claims.len() < CLAIMS_MAX {
            let claim = LockClaim {
                session,
                id,
                max: max.max(1),
                arrival: self.next(now),
                fencing: 0,
                ends,
            };
            self.claims.push(claim);
        }
    }

    /// Grants the waiting claims in order, up to the first that must wait.
    fn serve(&mut self, now: Timestamp) {
        let held = self.holders();
        let (mut count, mut most) = held.fold((0, usize::MAX), |(count, most), claim| {
            (count + 1, most.min(usize::from(claim.max)))
        });
        for at in 0..self.claims.len() {
            let claim = self.claims[at];
            if claim.fencing != 0 {
                continue;
            }
            most = most.min(usize::from(claim.max));
            if count >= most {
                return;
            }
            count += 1;
            self.claims[at].fencing = self.next(now);
        }
    }

    /// Returns the next number, which is larger than all before it and at least the time.
    fn next(&mut self, now: Timestamp) -> u64 {
        self.last = self.last.saturating_add(1).max(now.as_micros());
        self.last
    }

    fn find(&mut self, session: SessionId) -> Option<&mut LockClaim> {
        let mut claims = self.claims.iter_mut();
        claims.find(|claim| claim.session == session)
    }

    /// Returns the claim of a session.
    pub fn of(&self, session: SessionId) -> Option<&LockClaim> {
        self.claims.iter().find(|claim| claim.session == session)
    }

    /// Returns all claims in the order of their arrival.
    pub fn claims(&self) -> &[LockClaim] {
        &self.claims
    }

    /// Returns the claims that hold the key.
    pub fn holders(&self) -> impl Iterator<Item = &LockClaim> {
        self.claims.iter().filter(|claim| claim.fencing != 0)
    }

    /// Returns whether a claim waits.
    pub fn has_waiting(&self) -> bool {
        self.claims.iter().any(|claim| claim.fencing == 0)
    }

    /// Returns the number of waiting claims before the claim of `session`, 0 for a holder.
    pub fn position(&self, session: SessionId) -> usize {
        let before = self
            .claims
            .iter()
            .take_while(|claim| claim.session != session);
        match self.of(session) {
            Some(claim) if claim.fencing == 0 => before.filter(|claim| claim.fencing == 0).count(),
            _ => 0,
        }
    }

    /// Returns when the first claim ends, [`Timestamp::NEVER`] if there is none.
    pub fn first_end(&self) -> Timestamp {
        let ends = self.claims.iter().map(|claim| claim.ends);
        ends.min().unwrap_or(Timestamp::NEVER)
    }

    /// Returns a number that differs between two states of one key with different claims.
    pub fn mark(&self) -> (u64, usize) {
        (self.last, self.claims.len())
    }

    /// Returns the largest fencing number so far, or a larger number.
    pub const fn last(&self) -> u64 {
        self.last
    }

    /// Keeps the claims for which `lasts` returns a length, and lets each last that long from `now`
    /// on. Claims whose time is over stay too: the process that renews them did not run.
    pub fn resume(&mut self, now: Timestamp, mut lasts: impl FnMut(SessionId) -> Option<Duration>) {
        self.claims.retain_mut(|claim| match lasts(claim.session) {
            Some(lasts) => {
                claim.ends = now + lasts;
                true
            }
            None => false,
        });
        self.serve(now);
    }

    /// Returns whether the state can be dropped at `now`. A new state then grants larger numbers.
    pub fn is_forgettable(&self, now: Timestamp) -> bool {
        self.claims.iter().all(|claim| claim.ends <= now) && self.last < now.as_micros()
    }

    /// Merges another state of the same key. No holder is dropped, so more than `max` may hold the
    /// key until some leave. The merge is commutative, associative and idempotent.
    pub fn join(&mut self, other: &Self) {
        self.last = self.last.max(other.last);
        for theirs in &other.claims {
            match self.find(theirs.session) {
                None => self.claims.push(*theirs),
                Some(mine) => *mine = mine.later(*theirs),
            }
        }
        self.claims
            .sort_unstable_by_key(|claim| (claim.arrival, claim.session));
    }

    /// Moves all ends back after the clock was set back.
    pub(crate) fn rebase(&mut self, set_back: Duration) {
        for claim in &mut self.claims {
            claim.ends = claim.ends - set_back;
        }
    }

    /// Returns whether [`Locks::apply`] and [`Locks::join`] could have led to this state.
    pub(crate) fn is_plausible(&self) -> bool {
        let order = |claim: &LockClaim| (claim.arrival, claim.session);
        let mut sessions: Vec<_> = self.claims.iter().map(|claim| claim.session).collect();
        sessions.sort_unstable();
        sessions.windows(2).all(|two| two[0] != two[1])
            && self.claims.is_sorted_by_key(order)
            && self.claims.iter().all(|claim| {
                claim.max > 0 && claim.arrival <= self.last && claim.fencing <= self.last
            })
    }
}

impl LockClaim {
    /// Merges two claims of one session: the later one counts, and of one claim the later end.
    fn later(self, other: Self) -> Self {
        let order = |claim: &Self| {
            (
                claim.arrival,
                claim.fencing,
                claim.id,
                claim.max,
                claim.ends,
            )
        };
        let (less, more) = if order(&self) < order(&other) {
            (self, other)
        } else {
            (other, self)
        };
        let ends = if less.arrival == more.arrival {
            more.ends.max(less.ends)
        } else {
            more.ends
        };
        Self { ends, ..more }
    }
}

#[cfg(test)]
#[path = "lock_tests.rs"]
mod tests;
