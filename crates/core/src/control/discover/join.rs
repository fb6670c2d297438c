//! One again of two that were one until some outcomes were lost: the slower, at once and from then on.

use super::learning::{Learning, Stage};
use super::queue::Queue;
use super::{Discover, State};
use crate::{Timestamp, join};

impl Discover {
    /// Takes what `other` knows, if it is slower; and its cap in flight, if that is lower. Two that know the same
    /// go on as they were; otherwise none goes on asking for more, as a probe's rate grows by itself.
    pub(in super::super) fn join(&mut self, other: &Self, now: Timestamp) {
        match (&mut self.0, &other.0) {
            (State::Quiet(mine), State::Quiet(theirs)) => {
                // In the order of what becomes of them beside one that learns.
                join::least(mine, theirs, |quiet| {
                    let law = quiet.beginning();
                    (law.wish(now).to_bits(), join::bytes(&law))
                });
            }
            (State::Learning(mine), State::Learning(theirs)) => mine.join(theirs, now),
            (State::Learning(mine), State::Quiet(theirs)) => mine.join(&theirs.beginning(), now),
            (State::Quiet(mine), State::Learning(theirs)) => {
                let mut mine = Box::new(mine.beginning());
                mine.join(theirs, now);
                self.0 = State::Learning(mine);
            }
        }
    }
}

impl Learning {
    fn join(&mut self, other: &Self, now: Timestamp) {
        if self == other {
            return;
        }
        let mut other = other.clone();
        self.end_probe(now);
        other.end_probe(now);
        join::least(&mut self.queue, &other.queue, Queue::cap);
        join::least(&mut self.slots, &other.slots, |slots| {
            slots.cap().unwrap_or(u32::MAX)
        });
        // With the same caps, what is left decides.
        (other.queue, other.slots) = (self.queue, self.slots.clone());
        join::least(self, &other, |law| law.wish(now).to_bits());
    }

    fn end_probe(&mut self, now: Timestamp) {
        if self.stage == Stage::Probe && self.block.is_none() {
            self.cruise(self.ceiling, now);
            self.probing.rest(now);
        }
    }
}
