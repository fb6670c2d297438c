//! Tells a hidden cap on requests in flight from a limit on the rate.
//!
//! A rate limit refuses at any number of requests in flight. A cap refuses only when many are in
//! flight. The limit is a cap of `x` if three conditions hold:
//!
//! - Three requests with at least `x` others in flight were refused.
//! - Hardly any request with fewer others in flight was refused.
//! - At least a quarter of the requests with `x` or more others in flight was refused.

use serde::{Deserialize, Serialize};

/// Number of separate counts, by requests in flight. The last count includes all larger numbers.
const EXACT: usize = 24;
/// Least number of refusals with `x` or more others in flight that show a cap of `x`.
const REFUSALS: u16 = 3;
/// Least share of the requests with `x` or more others in flight that must be refused.
const SHARE: f64 = 0.25;

/// Number of served requests with which the last count restarts after a cap has proved wrong. The
/// next mistake then needs more refusals. The number at least doubles with each mistake.
const MISTAKEN: u16 = 12;

/// The conclusion from a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// No conclusion yet.
    Nothing,
    /// The limit is a cap on requests in flight.
    Cap,
    /// The learned cap was wrong.
    NoCap,
}

/// Counts of outcomes by the number of other requests in flight.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Slots {
    served: [u16; EXACT],
    refused: [u16; EXACT],
    /// The learned cap. Zero: no cap.
    cap: u16,
}

impl Slots {
    pub(super) fn plausible(&self) -> bool {
        usize::from(self.cap) < EXACT
    }

    /// Returns the learned cap.
    pub(super) fn cap(&self) -> Option<u32> {
        (self.cap > 0).then_some(u32::from(self.cap))
    }

    /// Counts a served request that was sent with `beside` others in flight.
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

    /// Counts a new refusal of a request that was sent with `beside` others in flight, and returns
    /// the conclusion.
    pub(super) fn refused(&mut self, beside: u16) -> Told {
        if self.cap > 0 && beside < self.cap {
            // A refusal below the cap has another cause.
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

    /// Halves all counts if one of them is full.
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

    /// Returns the counts after ten served requests with each number of others in flight, from 0 to
    /// `most`.
    fn used(most: u16) -> Slots {
        let mut slots = Slots::default();
        for beside in 0..=most {
            (0..10).for_each(|_| slots.served(beside));
        }
        slots
    }

    #[test]
    fn three_refusals_with_four_others_in_flight_show_a_cap_of_four() {
        let mut slots = used(3);
        let told = [4, 5, 4].map(|beside| slots.refused(beside));
        assert_eq!(
            (told, slots.cap()),
            ([Told::Nothing, Told::Nothing, Told::Cap], Some(4))
        );
    }

    #[test]
    fn refusals_at_any_number_in_flight_show_no_cap() {
        let mut slots = used(8);
        for turn in 0..90 {
            assert_eq!(slots.refused(turn % 9), Told::Nothing, "{slots:?}");
        }
        assert_eq!(slots.cap(), None);
    }

    #[test]
    fn a_small_share_of_refusals_shows_no_cap() {
        let mut slots = used(12);
        (0..3).for_each(|_| {
            slots.refused(8);
        });
        assert_eq!(slots.cap(), None, "{slots:?}");
    }

    #[test]
    fn a_cap_needs_thirty_served_requests_below_it() {
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

    /// Before the rule, a rate limit could repeatedly count as a cap, and the rate became six times
    /// higher each time.
    #[test]
    fn each_repeated_mistake_needs_more_refusals() {
        let mut slots = used(3);
        for expected in [3, 4, 8, 16, 32] {
            (0..30).for_each(|_| slots.served(3));
            let needed = (1..100).find(|_| slots.refused(4) == Told::Cap);
            assert_eq!(needed, Some(expected));
            assert_eq!(slots.refused(3), Told::NoCap);
        }
    }

    #[test]
    fn full_counts_are_halved_and_keep_their_proportion() {
        let mut slots = Slots::default();
        (0..u32::from(u16::MAX)).for_each(|_| slots.served(0));
        (0..9).for_each(|_| slots.served(1));
        assert!(slots.served[0] > 30_000, "{slots:?}");
        assert!((0..3).any(|_| slots.refused(u16::MAX) == Told::Cap));
        assert!(slots.plausible());
    }
}
