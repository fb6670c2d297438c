//! What callers named: asked twice, granted once; and a place in line is kept for who comes back.

use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use politely::Turn;
use politely::core::Timestamp;

use super::names::Number;

const SHARDS: u64 = 64;
/// A wish is remembered this long after it was last asked, granted or not.
const KEPT: Duration = Duration::from_mins(1);
/// … if no more than so many come meanwhile, per shard: 512 k in all, about 30 MB.
const REMEMBERED: usize = 8_192;

/// The wishes of all workers, by a hash of worker and name.
pub(crate) struct Wishes(Box<[Mutex<Shard>]>);

#[derive(Default)]
struct Shard {
    wishes: HashMap<u64, Wish, foldhash::fast::RandomState>,
    /// In the order they were last touched; only the newest mention of a wish counts.
    order: VecDeque<(Timestamp, u64)>,
}

struct Wish {
    turn: Turn,
    touched: Timestamp,
    state: State,
    /// Of the item; 0 where it is not known, after a restart.
    fingerprint: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// A call waits for it now.
    Asked,
    /// Nobody does; its place is kept.
    Left,
    Granted(Number),
    /// Its caller gave it up: a request that arrives later is not granted.
    Cancelled,
}

/// What is known of a wish that is asked for.
pub(crate) enum Known<'a> {
    /// Wait with this turn.
    Wanted(Claim<'a>, Turn),
    /// Another call waits for it.
    AskedTwice,
    /// It was granted.
    Granted(Number),
    /// Its caller gave it up.
    Cancelled,
    /// The id stands for another item.
    OtherItem,
}

/// What a caller's id stood for when it was given up.
pub(crate) enum GivenUp {
    /// A permit.
    Granted(Number),
    /// A wish without a permit.
    Asked,
    /// Nothing that is known.
    Unknown,
}

/// A call's claim on a wish: nobody else waits for it meanwhile. Dropped without a permit, its
/// place in line is kept.
pub(crate) struct Claim<'a> {
    wishes: &'a Wishes,
    wish: u64,
}

impl Claim<'_> {
    pub(crate) const fn wish(&self) -> u64 {
        self.wish
    }

    /// Enters the permit; `false` if the caller gave the wish up meanwhile.
    pub(crate) fn granted(&self, number: Number) -> bool {
        if let Some(known) = self.wishes.shard(self.wish).wishes.get_mut(&self.wish) {
            if known.state == State::Cancelled {
                return false;
            }
            known.state = State::Granted(number);
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
    /// The hash a wish goes by; never 0.
    pub(crate) fn hash(client: &str, id: &str) -> u64 {
        // Written to the journal: the same in every run.
        let hasher = foldhash::quality::FixedState::with_seed(0x706f_6c69_7465_6c79);
        hasher.hash_one((client, id)).max(1)
    }

    /// Asks for `wish`, an item with `fingerprint`. A new one takes the turn that `turn` makes.
    pub(crate) fn ask(
        &self,
        wish: u64,
        fingerprint: u64,
        now: Timestamp,
        turn: impl FnOnce() -> Turn,
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
                State::Asked => Known::AskedTwice,
                State::Left => {
                    known.state = State::Asked;
                    Known::Wanted(claim(), known.turn)
                }
            };
        }
        let turn = turn();
        shard.insert(
            wish,
            Wish {
                turn,
                touched: now,
                state: State::Asked,
                fingerprint,
            },
        );
        Known::Wanted(claim(), turn)
    }

    /// Returns the permit that was granted for `wish`, an item with `fingerprint`.
    pub(crate) fn granted(&self, wish: u64, fingerprint: u64) -> Option<Number> {
        let shard = self.shard(wish);
        let known = shard.wishes.get(&wish)?;
        match known.state {
            State::Granted(number) if !known.is_other(fingerprint) => Some(number),
            _ => None,
        }
    }

    /// Gives `wish` up for its caller: what arrives under its id later is not granted.
    pub(crate) fn give_up(&self, wish: u64, now: Timestamp, turn: Turn) -> GivenUp {
        let mut shard = self.shard(wish);
        let Some(known) = shard.wishes.get_mut(&wish) else {
            shard.insert(
                wish,
                Wish {
                    turn,
                    touched: now,
                    state: State::Cancelled,
                    fingerprint: 0,
                },
            );
            return GivenUp::Unknown;
        };
        known.touched = now;
        match std::mem::replace(&mut known.state, State::Cancelled) {
            State::Granted(number) => GivenUp::Granted(number),
            State::Asked | State::Left => GivenUp::Asked,
            State::Cancelled => GivenUp::Unknown,
        }
    }

    /// The permit of `wish` was taken back unread. The wish keeps its place in line.
    pub(crate) fn unread(&self, wish: u64) {
        if let Some(known) = self.shard(wish).wishes.get_mut(&wish)
            && matches!(known.state, State::Granted(_))
        {
            known.state = State::Left;
        }
    }

    /// A permit from before a restart was granted for `wish`.
    pub(crate) fn restore(&self, wish: u64, turn: Turn, now: Timestamp, number: Number) {
        let state = State::Granted(number);
        self.shard(wish).insert(
            wish,
            Wish {
                turn,
                touched: now,
                state,
                fingerprint: 0,
            },
        );
    }

    /// The permit is not out any more: its wish may be forgotten.
    pub(crate) fn forget(&self, wish: u64) {
        self.shard(wish).wishes.remove(&wish);
    }

    /// Forgets what nobody came back to.
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

    /// Looks at the oldest once more: it is asked for still, or was touched since, or it goes.
    fn drop_oldest(&mut self, now: Timestamp) {
        let Some((_, wish)) = self.order.pop_front() else {
            return;
        };
        let Some(known) = self.wishes.get_mut(&wish) else {
            return;
        };
        if known.state == State::Asked {
            known.touched = now;
        }
        if now.since(known.touched) >= KEPT
            || (known.state != State::Asked && self.order.len() + 1 >= REMEMBERED)
        {
            self.wishes.remove(&wish);
        } else {
            self.order.push_back((known.touched, wish));
        }
    }
}
