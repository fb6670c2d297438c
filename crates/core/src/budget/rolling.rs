//! The quantity that was spent in the last seconds, minutes or hours.
//!
//! The log counts in *slots*: a window has [`SLOTS`] of them. It keeps at most [`ENTRIES`] entries.
//! A full log merges the two neighbours that cost the least, and keeps the later slot of both. So
//! it never frees a quantity too early, and under a long steady use it frees it a little late.
//!
//! The requests of a burst reach the server at the pace of their way, which differs from burst to
//! burst. A server that counts strictly then refuses some of the next burst. So a short window
//! frees the quantity of a burst evenly over most of a window. This costs nothing: the next burst
//! is the last one, and all later requests are spread.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// The most entries. A steady use then reaches 98 % of the quantity.
const ENTRIES: usize = 72;
/// The number of entries of a little used log that may stay after they are free.
const FEW: usize = 8;
/// Slots in a window. A quantity counts until the end of its slot, which costs a thousandth.
const SLOTS: u64 = 1_024;
/// A window is longer than declared by this part, because two clocks drift apart.
const DRIFT: u64 = 2_000;
/// A window is longer by this part, too, but by no more than [`DELAY_MAX_US`], because the delays
/// of requests differ.
const DELAY: u64 = 200;
const DELAY_MAX_US: u64 = 200_000;
/// A window is at least this much longer than declared. A second is then used to 97 %.
const LONGER_MIN_US: u64 = 30_000;

/// The longest window whose quantity is freed evenly.
const EVEN_UP_TO_US: u64 = 10_000_000;
/// The part of the window in which a burst of the whole quantity is freed, in percent. Under a
/// steady use, requests leave further apart than this, and wait for nothing but the window.
const EVEN_PERCENT: u64 = 90;

/// The quantities that were spent, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Written")]
pub(super) struct Rolling {
    /// The latest slot that was removed from the log. What was spent until then cannot be put back.
    removed: u64,
    entries: Vec<Entry>,
    /// The sum of all entries, also of those outside of the window. Most requests fit beside it, so
    /// they need not look at the entries.
    #[serde(skip)]
    total: u64,
}

/// A log as it is serialised.
#[derive(Deserialize)]
struct Written {
    removed: u64,
    entries: Vec<Entry>,
}

impl From<Written> for Rolling {
    fn from(Written { removed, entries }: Written) -> Self {
        let total = sum(&entries);
        Self {
            removed,
            entries,
            total,
        }
    }
}

/// A quantity that was spent until the end of a slot, after the slot of the entry before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    slot: u64,
    spent: u64,
}

/// The times of a window, in microseconds. Every request computes them, so they are integers.
#[derive(Clone, Copy)]
struct Scale {
    slot_us: u64,
    counts_us: u64,
}

impl Scale {
    fn of(length: Duration) -> Self {
        let length_us = length.as_secs() * 1_000_000 + u64::from(length.subsec_micros());
        let delay = (length_us / DELAY).min(DELAY_MAX_US);
        Self {
            slot_us: (length_us / SLOTS).max(1),
            counts_us: length_us + (length_us / DRIFT + delay).max(LONGER_MIN_US),
        }
    }

    /// Returns whether the quantity of a burst is freed evenly.
    const fn is_even(self) -> bool {
        self.slot_us <= EVEN_UP_TO_US / SLOTS
    }

    /// Returns the slot that ends at `at` or next after it.
    const fn slot(self, at: Timestamp) -> u64 {
        at.as_micros().div_ceil(self.slot_us)
    }

    /// Returns when a quantity of `slot` counts no more.
    const fn frees(self, slot: u64) -> Timestamp {
        let end = slot.saturating_mul(self.slot_us);
        Timestamp::from_micros(end.saturating_add(self.counts_us))
    }
}

/// Frees the entries one after the other.
struct Freeing {
    scale: Scale,
    /// The shortest time between two units that are freed.
    gap_us: u64,
    /// The quantity that is freed at once after a pause: that of a request.
    cost: u64,
    /// When the next unit can be freed.
    next: Timestamp,
}

impl Freeing {
    fn new(length: Duration, quantity: u64, cost: u64) -> Self {
        let scale = Scale::of(length);
        let gap_us = if scale.is_even() {
            length.as_micros() as u64 * EVEN_PERCENT / 100 / quantity.max(1)
        } else {
            0
        };
        Self {
            scale,
            gap_us,
            cost,
            next: Timestamp::ZERO,
        }
    }

    /// Returns when the first `units` of an entry are free. The entries before it were passed.
    fn frees(&self, entry: &Entry, units: u64) -> Timestamp {
        let first = self.scale.frees(entry.slot).max(self.next);
        let late_us = self.gap_us.saturating_mul(units.saturating_sub(self.cost));
        Timestamp::from_micros(first.as_micros().saturating_add(late_us))
    }

    /// Continues behind `entry`.
    fn pass(&mut self, entry: &Entry) {
        let last = self.frees(entry, entry.spent);
        let gap_us = self.gap_us.saturating_mul(self.cost.min(entry.spent));
        self.next = Timestamp::from_micros(last.as_micros().saturating_add(gap_us));
    }

    /// Returns how much of an entry is free at `now`.
    fn free(&self, entry: &Entry, now: Timestamp) -> u64 {
        let first = self.scale.frees(entry.slot).max(self.next);
        if now < first {
            return 0;
        }
        let more = now.since(first).as_micros() as u64;
        let more = more.checked_div(self.gap_us).unwrap_or(u64::MAX);
        entry.spent.min(more.saturating_add(self.cost))
    }
}

impl Rolling {
    /// Returns the part of `quantity` that is not free at `now`, and when the next part of it is.
    pub(super) fn spent(
        &self,
        now: Timestamp,
        quantity: u64,
        length: Duration,
    ) -> (u64, Timestamp) {
        let mut freeing = Freeing::new(length, quantity, 1);
        let mut spent = self.total;
        for entry in &self.entries {
            let free = freeing.free(entry, now);
            spent = spent.saturating_sub(free);
            if free < entry.spent {
                return (spent, freeing.frees(entry, free + 1));
            }
            freeing.pass(entry);
        }
        (spent, now)
    }

    /// Returns when a request of `cost` may leave, not before `now`.
    pub(super) fn next_start(
        &self,
        now: Timestamp,
        cost: u64,
        quantity: u64,
        length: Duration,
    ) -> Timestamp {
        if cost > quantity {
            return Timestamp::NEVER;
        }
        if self.total <= quantity - cost {
            return now;
        }
        self.next_room(now, cost, quantity, length)
    }

    /// Returns when a request of `cost` has room beside all entries, not before `now`.
    #[inline(never)]
    fn next_room(&self, now: Timestamp, cost: u64, quantity: u64, length: Duration) -> Timestamp {
        let mut freeing = Freeing::new(length, quantity, cost);
        let mut excess = self.total - (quantity - cost);
        for entry in &self.entries {
            if excess <= entry.spent {
                return freeing.frees(entry, excess).max(now);
            }
            excess -= entry.spent;
            freeing.pass(entry);
        }
        now
    }

    /// Charges a request that is granted at `now` and leaves at `at`, now or later. `quantity` is
    /// that of the limit.
    pub(super) fn charge(
        &mut self,
        now: Timestamp,
        at: Timestamp,
        cost: u64,
        quantity: u64,
        length: Duration,
    ) {
        if cost == 0 {
            return;
        }
        self.total = self.total.saturating_add(cost);
        let scale = Scale::of(length);
        let slot = scale.slot(at);
        if let Some(last) = self.entries.last_mut()
            && last.slot == slot
        {
            last.spent = last.spent.saturating_add(cost);
            return;
        }
        // Another request may leave before `at`, so the window that ends now still counts. A burst
        // that is freed evenly stays for two windows.
        let is_busy = self.total > quantity / 2;
        if is_busy || self.entries.len() > FEW {
            let stays_us = scale.counts_us << u32::from(is_busy && scale.is_even());
            if let Some(last) = now.as_micros().checked_sub(stays_us) {
                self.remove_until(last / scale.slot_us);
            }
        }
        // Nearly every request leaves after all others.
        let later = self.entries.iter().rev();
        let later = later.take_while(|entry| entry.slot >= slot).count();
        let place = self.entries.len() - later;
        match self.entries.get_mut(place) {
            Some(entry) if entry.slot == slot => entry.spent = entry.spent.saturating_add(cost),
            _ => self.entries.insert(place, Entry { slot, spent: cost }),
        }
        if self.entries.len() > ENTRIES {
            self.make_room(now, quantity, length);
        }
    }

    /// Removes the first entry if it is free as a whole, and else merges two.
    #[inline(never)]
    fn make_room(&mut self, now: Timestamp, quantity: u64, length: Duration) {
        let (first, freeing) = (self.entries[0], Freeing::new(length, quantity, 1));
        if freeing.scale.is_even() && freeing.frees(&first, first.spent) <= now {
            self.remove_until(first.slot);
        }
        while self.entries.len() > ENTRIES {
            self.merge_the_cheapest();
        }
    }

    /// Removes the entries that are not after the slot `last`.
    fn remove_until(&mut self, last: u64) {
        let old = self.entries.iter().take_while(|entry| entry.slot <= last);
        let count = old.count();
        for entry in self.entries.drain(..count) {
            self.removed = self.removed.max(entry.slot);
            self.total = self.total.saturating_sub(entry.spent);
        }
    }

    /// Merges two neighbours, so that the smallest quantity counts for the shortest time too long.
    fn merge_the_cheapest(&mut self) {
        let pairs = self.entries.windows(2).enumerate();
        let cost = |pair: &[Entry]| pair[0].spent.saturating_mul(pair[1].slot - pair[0].slot);
        if let Some((i, _)) = pairs.min_by_key(|(_, pair)| cost(pair)) {
            let Entry { spent, .. } = self.entries.remove(i);
            self.entries[i].spent = self.entries[i].spent.saturating_add(spent);
        }
    }

    /// Takes back the charge of a request that did not leave at `at`. A part of it may have been
    /// charged later.
    pub(super) fn put_back(&mut self, at: Timestamp, mut cost: u64, length: Duration) {
        let slot = Scale::of(length).slot(at);
        if slot <= self.removed {
            return;
        }
        let first = self.entries.partition_point(|entry| entry.slot < slot);
        for entry in &mut self.entries[first..] {
            let returned = entry.spent.min(cost);
            (entry.spent, cost) = (entry.spent - returned, cost - returned);
            self.total = self.total.saturating_sub(returned);
        }
        self.entries.retain(|entry| entry.spent > 0);
    }

    /// Keeps the smaller remainder of the two at every time.
    pub(super) fn join(&mut self, other: &Self) {
        let all = self.entries.iter().chain(&other.entries);
        let mut slots: Vec<u64> = all.map(|entry| entry.slot).collect();
        slots.sort_unstable();
        slots.dedup();
        let mut joined: Vec<Entry> = Vec::with_capacity(slots.len());
        let mut later = 0;
        for slot in slots.into_iter().rev() {
            let since = self.spent_since(slot).max(other.spent_since(slot));
            if since > later {
                let spent = since - later;
                joined.push(Entry { slot, spent });
                later = since;
            }
        }
        joined.reverse();
        self.total = sum(&joined);
        self.entries = joined;
        self.removed = self.removed.max(other.removed);
    }

    fn spent_since(&self, slot: u64) -> u64 {
        let first = self.entries.partition_point(|entry| entry.slot < slot);
        sum(&self.entries[first..])
    }

    pub(super) fn rebase(&mut self, now: Timestamp, length: Duration) {
        let slot = Scale::of(length).slot(now);
        for entry in &mut self.entries {
            entry.slot = entry.slot.min(slot);
        }
    }

    pub(super) fn is_plausible(&self) -> bool {
        self.entries.is_sorted_by_key(|entry| entry.slot) && self.entries.len() <= 4 * ENTRIES
    }
}

fn sum(entries: &[Entry]) -> u64 {
    let spent = entries.iter().map(|entry| entry.spent);
    spent.fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const QUANTITY: u64 = 1_000;
    const MINUTE: Duration = Duration::from_mins(1);

    fn ms(ms: u64) -> Timestamp {
        Timestamp::from_micros(ms * 1_000)
    }

    /// Returns when requests leave that are due `gap_ms` after one another, until `end_ms`.
    fn leaves(quantity: u64, length: Duration, gap_ms: u64, end_ms: u64) -> Vec<u64> {
        let (mut log, mut now, mut left) = (Rolling::default(), 1, Vec::new());
        while now < end_ms {
            let start = log.next_start(ms(now), 1, quantity, length);
            if start > ms(now) {
                now = start.as_micros().div_ceil(1_000);
                continue;
            }
            log.charge(ms(now), ms(now), 1, quantity, length);
            left.push(now);
            now += gap_ms;
        }
        left
    }

    /// Returns the most requests in any window of `length`.
    fn most(left: &[u64], length: Duration) -> usize {
        let ends = left.iter().enumerate().map(|(i, &first)| {
            left.partition_point(|at| u128::from(*at) < u128::from(first) + length.as_millis()) - i
        });
        ends.max().unwrap_or(0)
    }

    #[test]
    fn a_window_starts_full_and_is_used_to_98_percent() {
        // The gaps are 0, a tenth of the mean, half of it, and just below it.
        for gap in [1, 20, 100, 190, 199] {
            let end = 3_600_000;
            let left = leaves(300, MINUTE, gap, end);
            assert!(most(&left, MINUTE) <= 300, "{gap}");
            let whole = 300.0 * (end as f64 / 60_000.0);
            let share = left.len() as f64 / whole;
            assert!(share >= 0.98, "{gap}: {share}");
        }
        let left = leaves(300, MINUTE, 1, 60_000);
        assert!(left[299] < 400, "the first 300 leave at once");
    }

    #[test]
    fn a_cost_above_the_quantity_never_leaves() {
        let log = Rolling::default();
        assert_eq!(log.next_start(ms(0), 6, 5, MINUTE), Timestamp::NEVER);
    }

    #[test]
    fn what_left_the_log_is_not_put_back() {
        let mut log = Rolling::default();
        log.charge(ms(0), ms(0), 5, QUANTITY, MINUTE);
        log.charge(ms(70_000), ms(70_000), 5, QUANTITY, MINUTE);
        log.put_back(ms(0), 5, MINUTE);
        assert_eq!(log.spent(ms(70_000), QUANTITY, MINUTE).0, 5);
    }

    /// Regression: a request that left ahead dropped what still counted for one that left now.
    #[test]
    fn a_departure_ahead_frees_nothing_for_now() {
        let mut log = Rolling::default();
        log.charge(ms(0), ms(0), 5, QUANTITY, MINUTE);
        log.charge(ms(60_000), ms(61_500), 1, QUANTITY, MINUTE);
        assert!(log.next_start(ms(60_050), 1, 6, MINUTE) > ms(60_050));
    }

    /// Regression: two entries of one slot, of which the smaller one was emptied.
    #[test]
    fn a_slot_has_one_entry() {
        let mut log = Rolling::default();
        log.charge(ms(9_000), ms(9_000), 1, QUANTITY, MINUTE);
        log.charge(ms(9_000), ms(11_000), 1, QUANTITY, MINUTE);
        log.charge(ms(9_000), ms(9_000), 500, QUANTITY, MINUTE);
        log.put_back(ms(9_000), 400, MINUTE);
        assert_eq!(log.spent(ms(9_000), QUANTITY, MINUTE).0, 102);
    }

    fn any_log() -> impl Strategy<Value = Rolling> {
        proptest::collection::vec((0_u64..90_000, 1_u64..9), 0..24).prop_map(|mut spent| {
            spent.sort_unstable();
            let mut log = Rolling::default();
            for (at, cost) in spent {
                log.charge(ms(at), ms(at), cost, QUANTITY, MINUTE);
            }
            log
        })
    }

    proptest! {
        /// P10: no window has more than its quantity, whatever is put back, and however late.
        #[test]
        fn no_window_has_more_than_its_quantity(
            quantity in 1_u64..40,
            steps in proptest::collection::vec((0_u64..9_000, 1_u64..6, 0_u64..4, 0_u64..2_000), 1..300),
        ) {
            let (mut log, mut now) = (Rolling::default(), 1);
            let (mut left, mut open) = (Vec::new(), Vec::new());
            for (pause, cost, what, ahead) in steps {
                now += pause;
                if what == 3 && !open.is_empty() {
                    let (at, cost) = open.remove(pause as usize % open.len());
                    log.put_back(ms(at), cost, MINUTE);
                    continue;
                }
                if log.next_start(ms(now), cost, quantity, MINUTE) > ms(now) {
                    continue;
                }
                let at = now + ahead;
                log.charge(ms(now), ms(at), cost, quantity, MINUTE);
                if what == 2 {
                    open.push((at, cost));
                } else {
                    left.extend(std::iter::repeat_n(at, cost as usize));
                }
            }
            left.sort_unstable();
            prop_assert!(most(&left, MINUTE) as u64 <= quantity);
        }

        #[test]
        fn a_join_leaves_no_more_than_either(
            mine in any_log(),
            theirs in any_log(),
            at in 0_u64..150_000,
        ) {
            let mut joined = mine.clone();
            joined.join(&theirs);
            let mut turned = theirs.clone();
            turned.join(&mine);
            prop_assert_eq!(&joined, &turned);
            let mut again = joined.clone();
            again.join(&theirs);
            prop_assert_eq!(&again, &joined);
            let spent = |log: &Rolling| log.spent(ms(at), QUANTITY, MINUTE).0;
            prop_assert_eq!(spent(&joined), spent(&mine).max(spent(&theirs)));
        }
    }
}
