//! A queue of hosts, ordered by the time at which each may be asked next.
//!
//! A crawler holds millions of hosts and always needs the one that is due first. A binary heap
//! takes O(log n), and each of its levels is a cache miss once the heap has outgrown the cache. But
//! time only moves forward: no pushed item is due before the last popped one. Such a *monotone*
//! queue need not compare entries at all (radix heap, Ahuja, Mehlhorn, Orlin and Tarjan 1990).
//!
//! Due times are written as base-64 digits. The highest digit in which an entry's due time differs
//! from the last popped time determines the entry's slot. When the earliest entry of the lowest
//! slot is due, the slot's entries are moved to lower slots, front to back. Moving keeps the order
//! of insertion, and equal due times always share a slot. So items with equal due times leave in
//! the order of insertion, without a sequence number.
//!
//! The order is exact to the microsecond. A push is O(1). An entry moves at most once per digit of
//! its delay, about four times for a minute. The cost is uneven: the pop that enters a new slot
//! moves all its entries. That takes milliseconds at a million hosts and tens of milliseconds at
//! ten million, at most once every 16.8 s (2^24 µs).
//!
//! Entries are not removed or changed. If a host's due time changes, the caller pushes the host
//! again. It ignores the outdated entry when that is popped.

use std::collections::VecDeque;
use std::mem;

use crate::Timestamp;

/// Bits of a digit. A level then has 64 slots, and one word shows which of them are occupied.
const DIGIT_BITS: u32 = 6;
/// Number of digits of a 64-bit due time.
const LEVELS: u32 = u64::BITS.div_ceil(DIGIT_BITS);
/// Number of entries in a chunk. Slots grow by whole chunks and return them when they are emptied,
/// so a million entries use little more than their own size. Vectors that double and keep their
/// largest capacity used 157 bytes per entry.
const CHUNK: usize = 256;

/// A queue of items ordered by due time, then by insertion.
///
/// It uses 16 bytes per entry for items of 4 or 8 bytes, and up to 3 MB for partly filled chunks.
/// It keeps the memory of its largest size.
#[derive(Clone, Debug)]
pub struct NextQueue<T> {
    /// Items due at `last`, in order of insertion.
    ready: VecDeque<T>,
    /// The due time last popped, in microseconds. Every entry in a slot is later.
    last: u64,
    /// One word per level. Bit d is set if slot d holds entries.
    occupied: [u64; LEVELS as usize],
    slots: Vec<Slot<T>>,
    /// Empty chunks that keep their capacity.
    spare: Vec<Chunk<T>>,
    len: usize,
}

type Chunk<T> = Vec<(u64, T)>;

#[derive(Clone, Debug)]
struct Slot<T> {
    /// The earliest due time in this slot; [`u64::MAX`] if the slot is empty.
    earliest: u64,
    /// Full chunks, the oldest first.
    full: Vec<Chunk<T>>,
    /// The chunk that is being filled.
    open: Chunk<T>,
}

impl<T> NextQueue<T> {
    /// Returns an empty queue.
    pub fn new() -> Self {
        let slot = || Slot {
            earliest: u64::MAX,
            full: Vec::new(),
            open: Vec::new(),
        };
        Self {
            ready: VecDeque::new(),
            last: 0,
            occupied: [0; LEVELS as usize],
            slots: (0..LEVELS << DIGIT_BITS).map(|_| slot()).collect(),
            spare: Vec::new(),
            len: 0,
        }
    }

    /// Adds `item`, which is popped at `due` or later. A `due` before the last popped time counts
    /// as that time. The item is overdue anyway, and follows the items that are due at that time.
    pub fn push(&mut self, due: Timestamp, item: T) {
        self.len += 1;
        self.place(due.as_micros(), item);
    }

    /// Returns when the next item is due. It changes nothing, so a later push may still be due
    /// earlier.
    pub fn peek_due(&self) -> Option<Timestamp> {
        if self.ready.is_empty() {
            self.lowest_slot().map(|(level, digit)| {
                Timestamp::from_micros(self.slots[slot_at(level, digit)].earliest)
            })
        } else {
            Some(Timestamp::from_micros(self.last))
        }
    }

    /// Removes and returns the next item with its due time, if it is due at `now`.
    pub fn pop_due(&mut self, now: Timestamp) -> Option<(Timestamp, T)> {
        if self.peek_due()? > now {
            return None;
        }
        if self.ready.is_empty() {
            self.deal_lowest_slot();
        }
        let item = self.ready.pop_front()?;
        self.len -= 1;
        Some((Timestamp::from_micros(self.last), item))
    }

    /// Returns the number of items in the queue.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the queue is empty.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the occupied slot whose entries are due before those of all other slots, as level
    /// and digit.
    fn lowest_slot(&self) -> Option<(u32, u32)> {
        let level = self.occupied.iter().position(|&slots| slots != 0)?;
        Some((level as u32, self.occupied[level].trailing_zeros()))
    }

    /// Moves `last` to the earliest due time, and the entries of the lowest slot to lower slots.
    /// The caller pops that time at once. Before then an item may still be pushed that is due
    /// earlier, and it must not become late.
    fn deal_lowest_slot(&mut self) {
        let Some((level, digit)) = self.lowest_slot() else {
            return;
        };
        self.occupied[level as usize] &= !(1 << digit);
        let slot = &mut self.slots[slot_at(level, digit)];
        self.last = slot.earliest;
        slot.earliest = u64::MAX;
        let full = mem::take(&mut slot.full);
        let mut open = mem::take(&mut slot.open);
        // After a million hosts that start at the same time, this memory must be freed again.
        self.ready.shrink_to(CHUNK);
        for mut chunk in full {
            chunk
                .drain(..)
                .for_each(|(due, item)| self.place(due, item));
            self.spare.push(chunk);
        }
        open.drain(..).for_each(|(due, item)| self.place(due, item));
        self.slots[slot_at(level, digit)].open = open; // All entries moved to lower slots, so this slot is empty.
    }

    fn place(&mut self, due: u64, item: T) {
        if due <= self.last {
            self.ready.push_back(item);
            return;
        }
        let level = (u64::BITS - 1 - (due ^ self.last).leading_zeros()) / DIGIT_BITS;
        let digit = (due >> (level * DIGIT_BITS)) as u32 % (1 << DIGIT_BITS);
        self.occupied[level as usize] |= 1 << digit;
        let slot = &mut self.slots[slot_at(level, digit)];
        slot.earliest = slot.earliest.min(due);
        if slot.open.len() == CHUNK {
            let empty = self
                .spare
                .pop()
                .unwrap_or_else(|| Vec::with_capacity(CHUNK));
            slot.full.push(mem::replace(&mut slot.open, empty));
        }
        slot.open.push((due, item));
    }
}

impl<T> Default for NextQueue<T> {
    fn default() -> Self {
        Self::new()
    }
}

const fn slot_at(level: u32, digit: u32) -> usize {
    (level << DIGIT_BITS | digit) as usize
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const fn at(micros: u64) -> Timestamp {
        Timestamp::from_micros(micros)
    }

    #[test]
    fn equal_due_times_leave_in_order_of_insertion() {
        let mut queue = NextQueue::new();
        for item in 0..2000 {
            queue.push(at(5_000_000 + item % 3), item);
        }
        let popped: Vec<u64> = std::iter::from_fn(|| queue.pop_due(Timestamp::NEVER))
            .map(|(_, item)| item)
            .collect();
        let expected: Vec<u64> = (0..3)
            .flat_map(|rest| (0..2000).filter(move |item| item % 3 == rest))
            .collect();
        assert_eq!(popped, expected);
    }

    /// Peeking must not advance the queue: a later push would become as late as its head.
    #[test]
    fn asking_does_not_make_a_later_push_late() {
        let mut queue = NextQueue::new();
        queue.push(at(60_000_000), "slow");
        assert_eq!(queue.peek_due(), Some(at(60_000_000)));
        assert_eq!(queue.pop_due(at(59_999_999)), None);
        queue.push(at(2_000_000), "fast");
        assert_eq!(queue.pop_due(at(2_000_000)), Some((at(2_000_000), "fast")));
        assert_eq!(
            queue.pop_due(at(60_000_000)),
            Some((at(60_000_000), "slow"))
        );
        assert!(queue.is_empty());
    }

    #[test]
    fn a_clock_that_steps_back_pops_nothing_early() {
        let mut queue = NextQueue::new();
        queue.push(at(10), 'a');
        queue.push(at(10), 'b');
        assert_eq!(queue.pop_due(at(10)), Some((at(10), 'a')));
        assert_eq!(queue.pop_due(at(9)), None);
        assert_eq!(queue.pop_due(at(10)), Some((at(10), 'b')));
    }

    #[test]
    fn the_ends_of_time_have_a_place() {
        let mut queue = NextQueue::new();
        queue.push(Timestamp::NEVER, 'z');
        queue.push(Timestamp::ZERO, 'a');
        assert_eq!(queue.pop_due(Timestamp::ZERO), Some((Timestamp::ZERO, 'a')));
        assert_eq!(queue.peek_due(), Some(Timestamp::NEVER));
        assert_eq!(
            queue.pop_due(Timestamp::NEVER),
            Some((Timestamp::NEVER, 'z'))
        );
        queue.push(at(3), 'b'); // This is long overdue.
        assert_eq!(
            queue.pop_due(Timestamp::NEVER),
            Some((Timestamp::NEVER, 'b'))
        );
    }

    #[derive(Clone, Debug)]
    enum Step {
        /// Pushes an item. The number is its due time in microseconds from now; it may be negative.
        Push(i64),
        /// Lets the first number of microseconds pass. Then pops due items, at most the second
        /// number.
        Pop(u64, usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        // Small offsets give equal due times and pushes in the past. Large ones reach the high
        // levels.
        let offset = prop_oneof![-20_i64..20, -100_000_i64..10_000_000, Just(1_i64 << 40)];
        prop_oneof![
            3 => offset.prop_map(Step::Push),
            1 => (prop_oneof![0_u64..20, 0_u64..5_000_000, Just(1_u64 << 41)], 0_usize..8).prop_map(|(pass, most)| Step::Pop(pass, most)),
        ]
    }

    proptest! {
        #[test]
        fn it_is_a_sorted_set(steps in prop::collection::vec(step(), 1..600), start in prop_oneof![Just(0_u64), any::<u64>()]) {
            let (mut queue, mut model) = (NextQueue::new(), BTreeSet::new());
            let (mut now, mut last) = (start, 0);
            for (seq, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Push(offset) => {
                        let due = now.saturating_add_signed(offset);
                        queue.push(at(due), seq);
                        model.insert((due.max(last), seq));
                    }
                    Step::Pop(pass, most) => {
                        now = now.saturating_add(pass);
                        for _ in 0..most {
                            let expected = model.first().copied().filter(|&(due, _)| due <= now);
                            prop_assert_eq!(queue.pop_due(at(now)), expected.map(|(due, item)| (at(due), item)));
                            if let Some(entry) = expected {
                                last = entry.0;
                                model.remove(&entry);
                            }
                        }
                    }
                }
                prop_assert_eq!(queue.peek_due(), model.first().map(|&(due, _)| at(due)));
                prop_assert_eq!(queue.len(), model.len());
            }
            let rest: Vec<_> = std::iter::from_fn(|| queue.pop_due(Timestamp::NEVER)).collect();
            prop_assert_eq!(rest, model.into_iter().map(|(due, item)| (at(due), item)).collect::<Vec<_>>());
        }
    }
}
