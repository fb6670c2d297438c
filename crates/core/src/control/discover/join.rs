//! Merges two continuations of one key's state that have received different outcomes. The slower
//! state wins.

use super::learning::{Learning, Stage};
use super::queue::Queue;
use super::{Discover, State};
use crate::{Timestamp, join};

impl Discover {
    /// Merges `other`. The state with the lower rate wins, and the lower caps in flight win. A
    /// probe ends, because its rate grows by itself. If both states are equal, nothing changes.
    pub(in super::super) fn join(&mut self, other: &Self, now: Timestamp) {
        match (&mut self.0, &other.0) {
            (State::Quiet(mine), State::Quiet(theirs)) => {
                // The order of their bytes is that of the full states that they lead to: by rate,
                // then by time.
                join::least(mine, theirs, |quiet| quiet.beginning().wish(now).to_bits());
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
        // The caps are equal now, so the rest of the state decides.
        (other.queue, other.slots) = (self.queue, self.slots.clone());
        join::least(self, &other, |law| law.wish(now).to_bits());
    }

    /// Ends a probe and returns to the cruise.
    fn end_probe(&mut self, now: Timestamp) {
        if self.stage == Stage::Probe && self.block.is_none() {
            self.cruise(self.ceiling, now);
            self.probing.rest(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::super::learning::tests::{cruising, fresh};
    use super::super::{DiscoverConfig, Law};
    use super::*;

    fn at(secs: u64) -> Timestamp {
        Timestamp::from_micros(1_800_000_000_000_000) + Duration::from_secs(secs)
    }

    fn joined(one: &Learning, other: &Learning) -> Learning {
        let (mut this, mut that) = (one.clone(), other.clone());
        this.join(other, at(1));
        that.join(one, at(1));
        assert_eq!(this, that, "in either order");
        this
    }

    #[test]
    fn the_slower_state_wins_and_its_probe_ends() {
        let (mut asking, mut faster) = (cruising(), cruising());
        asking.enter(Stage::Probe, 10.0, at(0));
        asking.stage_served = 1_000;
        faster.cruise(12.0, at(0));
        assert!(
            asking.wish(at(60)) > 100.0,
            "the probe would soon have reached this rate"
        );
        let law = joined(&asking, &faster);
        assert_eq!(law.stage, Stage::Cruise);
        assert!(law.wish(at(60)) < 10.0 && !law.probing.due(at(2), true));
        assert_eq!(joined(&asking, &asking), asking, "nothing was lost");
    }

    #[test]
    fn the_lower_caps_in_flight_win() {
        let (mut slower, mut faster) = (cruising(), cruising());
        faster.cruise(12.0, at(0));
        for _ in 0..200 {
            let cap = slower.queue.cap() as u16;
            slower
                .queue
                .served(Duration::from_millis(200), cap - 1, true);
            faster.slots.served(3);
        }
        (0..3).for_each(|_| _ = faster.slots.refused(4));
        assert!(slower.queue.cap() > 9 && faster.slots.cap() == Some(4));

        let law = joined(&slower, &faster);
        assert!(law.wish(at(1)) < 10.0);
        assert_eq!((law.queue.cap(), law.slots.cap()), (2, Some(4)));
    }

    #[test]
    fn a_quiet_state_wins_if_it_is_slower() {
        let config = Arc::<DiscoverConfig>::default();
        let young = |secs| Discover::new(Arc::clone(&config), 1.0, at(secs));
        let both = |one: &Discover, other: &Discover| {
            let mut law = one.clone();
            law.join(other, at(9));
            law
        };
        let learned = Discover(State::Learning(Box::new(cruising())));
        let slow = both(&young(0), &learned);
        assert_eq!(slow, both(&learned, &young(0)));
        assert_eq!(slow, Discover(State::Learning(Box::new(fresh()))));
        assert_eq!(slow.metrics().ceiling, None);

        for secs in [1, 200, 2_000_000] {
            let [one, other] = [young(0), young(secs)];
            assert_eq!(
                both(&both(&one, &other), &learned),
                both(&one, &both(&other, &learned)),
            );
        }
    }
}
