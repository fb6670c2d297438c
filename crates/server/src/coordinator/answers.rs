//! What was answered to permits that came back: whoever asks again because an answer was lost is told the same.
//!
//! A number's place follows from the number, four to a place, and a newcomer takes the oldest's. Numbers come one after the
//! other, so an answer is remembered for three to four times [`PLACES`] further ones whoever else reports; and those that come
//! together lie together, where a table by hash would cost a cold line of memory for each.

use politely::core::Timestamp;
use politely::wire::Next;

/// Per shard of the permits; with four answers each 64 k in all: enough for whoever asks again.
const PLACES: usize = 256;
const ANSWERS: usize = 4;

/// What was answered.
#[derive(Clone)]
pub(crate) struct Answered {
    pub(crate) next: Next,
    pub(crate) rate: f64,
    pub(crate) hold_until: Timestamp,
    pub(crate) url_fault: bool,
}

#[derive(Default)]
pub(super) struct Answers {
    /// Empty until there is the first answer.
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
            rate,
            hold_until: Timestamp::ZERO,
            url_fault: false,
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
