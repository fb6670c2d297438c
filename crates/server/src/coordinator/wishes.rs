//! Idempotency keys of acquire requests.
//!
//! A request that is repeated with the same id is granted once, and keeps its place in the queue
//! between calls.

use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use politely::Arrival;
use politely::core::Timestamp;

use super::names::Number;

const SHARDS: u64 = 64;
/// The time for which a request is remembered after its last call, granted or not.
const KEPT: Duration = Duration::from_mins(1);
/// The most requests that are remembered per shard: 512 k in all, about 30 MB. Beyond it, the
/// oldest are forgotten early.
const REMEMBERED: usize = 8_192;

/// The requests with an id of all workers, by a hash of worker and id.
pub(crate) struct Wishes(Box<[Mutex<Shard>]>);

#[derive(Default)]
struct Shard {
    wishes: HashMap<u64, Wish, foldhash::fast::RandomState>,
    /// The requests in the order of their last call. Entries can be outdated.
    order: VecDeque<(Timestamp, u64)>,
}

struct Wish {
    arrival: Arrival,
    touched: Timestamp,
    state: State,
    /// The hash of the item, or 0 if it is unknown, for example after a restart.
    fingerprint: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// A call waits for it now.
    Asked,
    /// No call waits for it. It keeps its place in the queue.
    Left,
    /// It has a permit that is not in the journal yet.
    Granting(Number),
    Granted(Number),
    /// Its caller cancelled it. A request that arrives later is not granted.
    Cancelled,
}

/// The state of a request when it is called again.
pub(crate) enum Known<'a> {
    /// The request is not granted. It waits in the queue at this arrival.
    Wanted(Claim<'a>, Arrival),
    /// Another call waits for the request.
    AskedTwice,
    /// The request was granted.
    Granted(Number),
    /// The caller cancelled the request.
    Cancelled,
    /// The id stands for another item.
    OtherItem,
}

/// The state of a request before it was cancelled.
pub(crate) enum GivenUp {
    /// The request had a permit.
    Granted(Number),
    /// The request had no permit.
    Asked,
    /// The request was unknown, or cancelled before.
    Unknown,
}

/// A call's claim on a request: no other call may wait for it. If the claim is dropped without a
/// permit, the request keeps its place in the queue.
pub(crate) struct Claim<'a> {
    wishes: &'a Wishes,
    wish: u64,
}

impl Claim<'_> {
    pub(crate) const fn wish(&self) -> u64 {
        self.wish
    }

    /// Records the permit of the request, which is answered to other calls only after
    /// [`Wishes::written`]. Returns `false` if the caller cancelled the request meanwhile.
    pub(crate) fn granted(&self, number: Number) -> bool {
        if let Some(known) = self.wishes.shard(self.wish).wishes.get_mut(&self.wish) {
            if known.state == State::Cancelled {
                return false;
            }
            known.state = State::Granting(number);
        }
        true
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if let Some(known) = self.wishes.shard(self.wish).wishes.get_mut(&self.wish)
            && known.state == State::Asked
        {
            known.state = State::Left;
        }
    }
}

impl Default for Wishes {
    fn default() -> Self {
        Self((0..SHARDS).map(|_| Mutex::default()).collect())
    }
}

impl Wishes {
    /// Returns the hash of a request's id and its client. It is never 0.
    pub(crate) fn hash(client: &str, id: &str) -> u64 {
        // The seed is fixed, because the journal keeps the hash for later runs.
        let hasher = foldhash::quality::FixedState::with_seed(0x706f_6c69_7465_6c79);
        hasher.hash_one((client, id)).max(1)
    }

    /// Claims the request `wish` for an item with `fingerprint`. A new request arrives at the time
    /// that `turn` returns.
    pub(crate) fn ask(
        &self,
        wish: u64,
        fingerprint: u64,
        now: Timestamp,
        arrival: impl FnOnce() -> Arrival,
    ) -> Known<'_> {
        let claim = || Claim { wishes: self, wish };
        let mut shard = self.shard(wish);
        if let Some(known) = shard.wishes.get_mut(&wish) {
            if known.is_other(fingerprint) {
                return Known::OtherItem;
            }
            known.touched = now;
            return match known.state {
                State::Cancelled => Known::Cancelled,
                State::Granted(number) => Known::Granted(number),
                State::Asked | State::Granting(_) => Known::AskedTwice,
                State::Left => {
                    known.state = State::Asked;
                    Known::Wanted(claim(), known.arrival)
                }
            };
        }
        let arrival = arrival();
        shard.insert(
            wish,
            Wish {
                arrival,
                touched: now,
                state: State::Asked,
                fingerprint,
            },
        );
        Known::Wanted(claim(), arrival)
    }

    /// Returns the permit that was granted for the request `wish`, if its item has `fingerprint`.
    pub(crate) fn granted(&self, wish: u64, fingerprint: u64) -> Option<Number> {
        let shard = self.shard(wish);
        let known = shard.wishes.get(&wish)?;
        match known.state {
            State::Granted(number) if !known.is_other(fingerprint) => Some(number),
            _ => None,
        }
    }

    /// Cancels the request `wish`. A call that arrives later under its id is not granted.
    pub(crate) fn give_up(&self, wish: u64, now: Timestamp, arrival: Arrival) -> GivenUp {
        let mut shard = self.shard(wish);
        let Some(known) = shard.wishes.get_mut(&wish) else {
            shard.insert(
                wish,
                Wish {
                    arrival,
                    touched: now,
                    state: State::Cancelled,
                    fingerprint: 0,
                },
            );
            return GivenUp::Unknown;
        };
        known.touched = now;
        match std::mem::replace(&mut known.state, State::Cancelled) {
            State::Granting(number) | State::Granted(number) => GivenUp::Granted(number),
            State::Asked | State::Left => GivenUp::Asked,
            State::Cancelled => GivenUp::Unknown,
        }
    }

    /// Notes that the permit of the request `wish` is in the journal. Returns `false` if the
    /// request was cancelled meanwhile.
    pub(crate) fn written(&self, wish: u64, number: Number) -> bool {
        let mut shard = self.shard(wish);
        let Some(known) = shard.wishes.get_mut(&wish) else {
            return true;
        };
        if known.state == State::Granting(number) {
            known.state = State::Granted(number);
        }
        known.state != State::Cancelled
    }

    /// Marks the request `wish` as waiting again, after its permit was taken back. It keeps its
    /// place in the queue.
    pub(crate) fn unread(&self, wish: u64) {
        if let Some(known) = self.shard(wish).wishes.get_mut(&wish)
            && matches!(known.state, State::Granting(_) | State::Granted(_))
        {
            known.state = State::Left;
        }
    }

    /// Restores a request that an earlier run granted.
    pub(crate) fn restore(&self, wish: u64, arrival: Arrival, now: Timestamp, number: Number) {
        let state = State::Granted(number);
        self.shard(wish).insert(
            wish,
            Wish {
                arrival,
                touched: now,
                state,
                fingerprint: 0,
            },
        );
    }

    /// Forgets the request, after its permit has ended.
    pub(crate) fn forget(&self, wish: u64) {
        self.shard(wish).wishes.remove(&wish);
    }

    /// Forgets requests that were not called again in time.
    pub(crate) fn sweep(&self, now: Timestamp) {
        for shard in &self.0 {
            let mut shard = shard.lock();
            while let Some(&(at, _)) = shard.order.front()
                && now.since(at) >= KEPT
            {
                shard.drop_oldest(now);
            }
        }
    }

    fn shard(&self, wish: u64) -> parking_lot::MutexGuard<'_, Shard> {
        self.0[(wish % SHARDS) as usize].lock()
    }
}

impl Wish {
    const fn is_other(&self, fingerprint: u64) -> bool {
        self.fingerprint != 0 && self.fingerprint != fingerprint
    }
}

impl Shard {
    fn insert(&mut self, wish: u64, made: Wish) {
        if self.order.len() >= REMEMBERED {
            let now = made.touched;
            self.drop_oldest(now);
        }
        self.order.push_back((made.touched, wish));
        self.wishes.insert(wish, made);
    }

    /// Examines the oldest request. Keeps it if a call waits for it or it was called since, and
    /// otherwise forgets it.
    fn drop_oldest(&mut self, now: Timestamp) {
        let Some((_, wish)) = self.order.pop_front() else {
            return;
        };
        let Some(known) = self.wishes.get_mut(&wish) else {
            return;
        };
        let is_in_use = matches!(known.state, State::Asked | State::Granting(_));
        if is_in_use {
            known.touched = now;
        }
        if now.since(known.touched) >= KEPT || (!is_in_use && self.order.len() + 1 >= REMEMBERED) {
            self.wishes.remove(&wish);
        } else {
            self.order.push_back((known.touched, wish));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a permit was answered to a repeated call before it was in the journal.
    #[test]
    fn a_permit_is_answered_after_it_is_written() {
        let (wishes, now, number) = (Wishes::default(), Timestamp::ZERO, Number(7));
        let ask = || wishes.ask(1, 9, now, || Arrival::LAST);
        let Known::Wanted(claim, _) = ask() else {
            panic!("it is new")
        };
        assert!(claim.granted(number));
        drop(claim);
        assert!(matches!(ask(), Known::AskedTwice) && wishes.granted(1, 9).is_none());
        assert!(wishes.written(1, number));
        assert!(matches!(ask(), Known::Granted(of) if of == number));
        assert_eq!(wishes.granted(1, 9), Some(number));
    }

    #[test]
    fn a_request_that_is_cancelled_while_its_permit_is_written_stays_cancelled() {
        let (wishes, now) = (Wishes::default(), Timestamp::ZERO);
        let Known::Wanted(claim, _) = wishes.ask(1, 9, now, || Arrival::LAST) else {
            panic!("it is new")
        };
        assert!(claim.granted(Number(7)));
        let given_up = wishes.give_up(1, now, Arrival::LAST);
        assert!(matches!(given_up, GivenUp::Granted(Number(7))));
        assert!(!wishes.written(1, Number(7)));
        assert!(matches!(
            wishes.ask(1, 9, now, || Arrival::LAST),
            Known::Cancelled
        ));
    }
}
