//! A hidden cap on requests at once is told from a rate by *when* refusals come: with many under
//! way.
//!
//! Refusals of a rate come however many are under way. If three came with at least `x` under way,
//! hardly any with fewer, and a good share of those with `x` and more was refused, the limit is `x`
//! at once.

use serde::{Deserialize, Serialize};

/// Counts by requests under way: exactly up to here, the rest together.
const EXACT: usize = 24;
/// Refusals with `x` or more under way before the number is believed.
const REFUSALS: u16 = 3;
/// The share of those requests that must be refused.
const SHARE: f64 = 0.25;

/// A cap that was none is remembered as so many served with the most under way, twice as many each
/// time.
const MISTAKEN: u16 = 12;

/// What a refusal told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// Nothing yet.
    Nothing,
    /// The limit is on requests at once.
    Cap,
    /// What was taken for such a limit is none.
    NoCap,
}

/// Outcomes by how many were under way beside them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Slots {
    served: [u16; EXACT],
    refused: [u16; EXACT],
    /// The learned cap; zero: none.
    cap: u16,
}

impl Slots {
    pub(super) fn plausible(&self) -> bool {
        usize::from(self.cap) < EXACT
    }

    /// The learned cap.
    pub(super) fn cap(&self) -> Option<u32> {
        (self.cap > 0).then_some(u32::from(self.cap))
    }

    pub(super) fn served(&mut self, beside: u16) {
        let at = usize::from(beside).min(EXACT - 1);
        self.served[at] = self.served[at].saturating_add(1);
        if self.served[at] == u16::MAX {
            self.served
                .iter_mut()
                .chain(&mut self.refused)
                .for_each(|n| *n /= 2);
        }
    }

    /// A fresh refusal.
    pub(super) fn refused(&mut self, beside: u16) -> Told {
        if self.cap > 0 && beside < self.cap {
            // Refused below it: it was something else.
            let mistaken = self.served[EXACT - 1].saturating_mul(2).max(MISTAKEN);
            *self = Self::default();
            self.served[EXACT - 1] = mistaken;
            return Told::NoCap;
        }
        let at = usize::from(beside).min(EXACT - 1);
        self.refused[at] = self.refused[at].saturating_add(1);
        self.age(at);
        for x in 1..EXACT {
            let sum = |counts: &[u16]| counts.iter().map(|n| f64::from(*n)).sum::<f64>();
            let (refused, served) = (sum(&self.refused[x..]), sum(&self.served[x..]));
            let (refused_below, served_below) = (sum(&self.refused[..x]), sum(&self.served[..x]));
            if refused >= f64::from(REFUSALS)
                && refused >= SHARE * (refused + served)
                && refused_below <= 0.1 * refused
                && served_below >= 30.0
            {
                self.cap = x as u16;
                self.served[..EXACT - 1].fill(0);
                self.refused.fill(0);
                return Told::Cap;
            }
        }
        Told::Nothing
    }

    fn age(&mut self, at: usize) {
        if self.served[at].max(self.refused[at]) == u16::MAX {
            let all = self.served.iter_mut().chain(&mut self.refused);
            all.for_each(|n| *n /= 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten served with each number of others beside them, from none to `most`.
    fn used(most: u16) -> Slots {
        let mut slots = Slots::default();
        for beside in 0..=most {
            (0..10).for_each(|_| slots.served(beside));
        }
        slots
    }

    #[test]
    fn three_refusals_with_four_under_way_are_a_cap_of_four() {
        let mut slots = used(3);
        let told = [4, 5, 4].map(|beside| slots.refused(beside));
        assert_eq!(
            (told, slots.cap()),
            ([Told::Nothing, Told::Nothing, Told::Cap], Some(4))
        );
    }

    #[test]
    fn a_rate_refuses_however_many_are_under_way() {
        let mut slots = used(8);
        for turn in 0..90 {
            assert_eq!(slots.refused(turn % 9), Told::Nothing, "{slots:?}");
        }
        assert_eq!(slots.cap(), None);
    }

    #[test]
    fn where_most_is_served_there_is_no_cap() {
        let mut slots = used(12);
        (0..3).for_each(|_| {
            slots.refused(8);
        });
        assert_eq!(slots.cap(), None, "{slots:?}");
    }

    #[test]
    fn with_little_served_below_it_is_too_early_to_tell() {
        let mut slots = Slots::default();
        (0..29).for_each(|_| slots.served(0));
        assert!((0..9).all(|_| slots.refused(4) == Told::Nothing));
        slots.served(0);
        assert_eq!(slots.refused(4), Told::Cap);
    }

    #[test]
    fn a_refusal_below_the_cap_ends_it() {
        let mut slots = used(3);
        (0..3).for_each(|_| {
            slots.refused(4);
        });
        assert_eq!(slots.refused(3), Told::NoCap);
        assert_eq!(slots.cap(), None);
    }

    /// Before this a rate limit could be taken for slots again and again, six times faster each
    /// time.
    #[test]
    fn each_mistake_takes_more_refusals_to_repeat() {
        let mut slots = used(3);
        for expected in [3, 4, 8, 16, 32] {
            (0..30).for_each(|_| slots.served(3));
            let needed = (1..100).find(|_| slots.refused(4) == Told::Cap);
            assert_eq!(needed, Some(expected));
            assert_eq!(slots.refused(3), Told::NoCap);
        }
    }

    #[test]
    fn counts_that_are_full_keep_their_proportion() {
        let mut slots = Slots::default();
        (0..u32::from(u16::MAX)).for_each(|_| slots.served(0));
        (0..9).for_each(|_| slots.served(1));
        assert!(slots.served[0] > 30_000, "{slots:?}");
        assert!((0..3).any(|_| slots.refused(u16::MAX) == Told::Cap));
        assert!(slots.plausible());
    }
}
