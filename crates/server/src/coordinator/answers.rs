//! The answers to recent reports, so that a repeated report gets the same answer.
//!
//! The table is indexed by permit number and has four answers per place. A new answer replaces the
//! oldest of its place. Permit numbers are consecutive, so an answer is remembered for three to
//! four times [`PLACES`] further numbers. Answers that arrive together also lie together in memory.
//! A hash table would cost a cache miss for each of them.

use std::time::Duration;

use politely::core::Timestamp;
use politely_api::wire::{Next, ReportedSignal};

/// Places per shard of the permits. With four answers each, the table has 64 k answers in all,
/// which is enough for repeated reports.
const PLACES: usize = 256;
const ANSWERS: usize = 4;

/// The answer to a report.
#[derive(Clone)]
pub(crate) struct Answered {
    pub(crate) next: Next,
    /// The meaning of the answer that its worker cannot know: a rule gave it, or it proved to be a
    /// limit.
    pub(crate) signal: Option<ReportedSignal>,
    pub(crate) rate: f64,
    pub(crate) hold_until: Timestamp,
    pub(crate) url_fault: bool,
    /// The wait of a redirect's target.
    pub(crate) target_after: Duration,
}

#[derive(Default)]
pub(super) struct Answers {
    /// Empty until the first answer.
    places: Vec<Place>,
}

#[derive(Default)]
struct Place {
    answers: [Option<(u64, Answered)>; ANSWERS],
    oldest: u8,
}

impl Answers {
    pub(super) fn put(&mut self, number: u64, answered: Answered) {
        if self.places.is_empty() {
            self.places.resize_with(PLACES, Place::default);
        }
        let place = &mut self.places[number as usize % PLACES];
        let oldest = usize::from(place.oldest);
        place.answers[oldest] = Some((number, answered));
        place.oldest = ((oldest + 1) % ANSWERS) as u8;
    }

    pub(super) fn get(&self, number: u64) -> Option<&Answered> {
        let place = self.places.get(number as usize % PLACES)?;
        let mut answers = place.answers.iter().flatten();
        answers
            .find(|(known, _)| *known == number)
            .map(|(_, answered)| answered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_thousand_are_known_and_older_ones_are_not() {
        let mut answers = Answers::default();
        assert!(answers.get(0).is_none());
        let said = |rate| Answered {
            next: Next::Done,
            signal: None,
            rate,
            hold_until: Timestamp::ZERO,
            url_fault: false,
            target_after: Duration::ZERO,
        };
        let first = 1_u64 << 34;
        for number in first..first + 5_000 {
            answers.put(number, said(number as f64));
        }
        let known = |number| answers.get(number).map(|answered| answered.rate);
        for number in first + 5_000 - 1_024..first + 5_000 {
            assert_eq!(known(number), Some(number as f64));
        }
        assert_eq!((known(first), known(first + 5_000)), (None, None));
    }
}
