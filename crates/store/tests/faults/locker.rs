//! Sessions that lock keys, renew their locks and release them (P12).
//!
//! Unless the engine's clock is set, no two sessions have the same fencing number on a key. If the
//! engine also loses nothing, no more than `max` sessions hold a key at the same time.
//! A session holds a key from when it sees its number until it releases the key, or until the time
//! for which its last confirmed renewal lasts.

use std::sync::Arc;
use std::time::Duration;

use politely_core::lock::{LockOp, SessionId};
use politely_store::{Barrier, Event};

use super::dice::{MS, Micros, SECOND};
use super::plan::{Fault, Memory, Plan};
use super::world::{Own, World};

/// The time for which a claim lasts unless it is renewed.
const LASTS: Micros = 3 * SECOND;
/// The sessions of one process.
pub(super) const SESSIONS: usize = 2;
/// The holders that a key may have.
pub(super) const HOLDERS_MAX: u16 = 2;

/// One session after the other, of one process.
pub(super) struct Locker {
    who: usize,
    life: u32,
    key: usize,
    session: SessionId,
    state: State,
    /// A change of the claim that is not confirmed, and when it was made.
    unconfirmed: Option<(Arc<Barrier>, Micros)>,
    /// The time for which the claim surely lasts.
    sure_until: Micros,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Idle,
    Waits,
    Holds { fencing: u64, from: Micros },
}

/// The time for which a session held a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct LockHeld {
    pub(super) key: usize,
    pub(super) from: Micros,
    pub(super) until: Micros,
}

/// A fencing number that a session saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fenced {
    pub(super) key: usize,
    pub(super) session: SessionId,
    pub(super) number: u64,
}

impl World {
    /// Lets the sessions of process `who` begin.
    pub(super) fn locks_later(&mut self, who: usize) {
        if !self.plan.locks {
            return;
        }
        for _ in 0..SESSIONS {
            self.lockers.push(Locker {
                who,
                life: self.seats[who].life,
                key: 0,
                session: SessionId(0),
                state: State::Idle,
                unconfirmed: None,
                sure_until: 0,
            });
            let locker = self.lockers.len() - 1;
            let at = self.now + self.dice.whole(0, SECOND);
            self.to(who, at, Own::Locks(locker));
        }
    }

    /// Makes the next change of a session's claim.
    pub(super) fn locks(&mut self, index: usize) {
        self.looks_at_lock(index);
        let Locker { who, state, .. } = self.lockers[index];
        let is_over = self.now >= self.plan.load;
        let lasts = Duration::from_micros(LASTS);
        match state {
            State::Idle if is_over => return,
            State::Idle => {
                let session = SessionId(self.dice.bits());
                let locker = &mut self.lockers[index];
                locker.key = self.dice.whole(0, self.keys.len() as u64 - 1) as usize;
                (locker.session, locker.state) = (session, State::Waits);
                let (id, max) = (0, HOLDERS_MAX);
                self.changes_lock(
                    index,
                    LockOp::Claim {
                        session,
                        id,
                        max,
                        lasts,
                    },
                );
            }
            State::Holds { .. } if is_over || self.dice.chance(0.3) => self.releases(index),
            State::Waits if is_over || self.dice.chance(0.05) => self.releases(index),
            State::Waits | State::Holds { .. } => {
                let session = self.lockers[index].session;
                self.changes_lock(index, LockOp::Renew { session, lasts });
            }
        }
        let at = self.now + self.dice.whole(20 * MS, LASTS / 3);
        self.to(who, at, Own::Locks(index));
    }

    fn changes_lock(&mut self, index: usize, op: LockOp) {
        let Locker { who, key, .. } = self.lockers[index];
        self.tell(who, key, Event::Lock(op));
        // While a change is in flight, the claim surely lasts only for the one before.
        if self.lockers[index].unconfirmed.is_none() {
            let barrier = Arc::new(Barrier::default());
            self.tell(who, key, Event::Barrier(Arc::clone(&barrier)));
            self.lockers[index].unconfirmed = Some((barrier, self.now));
        }
    }

    fn releases(&mut self, index: usize) {
        self.ends_holding(index);
        let Locker {
            who, key, session, ..
        } = self.lockers[index];
        self.tell(who, key, Event::Lock(LockOp::Release { session }));
        self.lockers[index].unconfirmed = None;
    }

    /// Notes for how long the session held the key.
    fn ends_holding(&mut self, index: usize) {
        let Locker {
            key,
            state,
            sure_until,
            ..
        } = self.lockers[index];
        if let State::Holds { from, .. } = state {
            let until = self.now.min(sure_until);
            self.books.locks_held.push(LockHeld { key, from, until });
        }
        self.lockers[index].state = State::Idle;
    }

    /// Lets the sessions of process `who` look at their claims.
    pub(super) fn looks_at_locks(&mut self, who: usize) {
        for index in 0..self.lockers.len() {
            if self.lockers[index].who == who {
                self.looks_at_lock(index);
            }
        }
    }

    fn looks_at_lock(&mut self, index: usize) {
        let Locker {
            who,
            life,
            key,
            session,
            state,
            ..
        } = self.lockers[index];
        if life != self.seats[who].life {
            // The process was killed, and its session ends by itself.
            return self.ends_holding(index);
        }
        let margin = LASTS / 10 + 2 * self.plan.wire.longest();
        let locker = &mut self.lockers[index];
        if let Some((barrier, since)) = &locker.unconfirmed
            && barrier.is_written()
        {
            let until = (since + LASTS).saturating_sub(margin);
            locker.sure_until = locker.sure_until.max(until);
            locker.unconfirmed = None;
        }
        if state == State::Idle {
            return;
        }
        let local = self.local(who);
        let locks = self.seats[who].node.locks(&self.keys[key].0, local);
        let seen = locks.and_then(|(locks, _)| locks.of(session)?.fencing());
        let is_sure = self.now < self.lockers[index].sure_until;
        match (state, seen) {
            (State::Waits, Some(fencing)) if is_sure => {
                let from = self.now;
                self.lockers[index].state = State::Holds { fencing, from };
                self.books.fenced(Fenced {
                    key,
                    session,
                    number: fencing,
                });
            }
            (State::Holds { fencing, .. }, seen) if !is_sure || seen != Some(fencing) => {
                self.releases(index);
            }
            _ => {}
        }
    }
}

/// Returns whether the engine keeps all that it confirmed, and its clock is not set.
pub(super) fn is_lossless(plan: &Plan) -> bool {
    plan.faults.iter().all(|(_, fault)| match fault {
        Fault::Restart(memory, _) => *memory == Memory::Everything,
        Fault::Failover { .. } | Fault::Flush | Fault::Clock(_) => false,
        _ => true,
    })
}
