//! Requests during a hold: the host had announced when to come back.

use std::collections::VecDeque;
use std::time::Duration;

use politely_core::Timestamp;

/// How many announcements within one grace are kept apart; beyond it the youngest ones merge. Only
/// a client that sends thousands of requests a second into refusals reaches this number.
const YOUNG_MAX: usize = 1024;

/// The announced holds. A request that was on its way when a hold was announced is allowed, so each
/// announcement binds only after a grace, which should be a round trip.
#[derive(Debug)]
pub(super) struct Holds {
    grace: Duration,
    /// Announcements still in their grace: the time from which one binds, and its end, ordered by
    /// the first.
    young: VecDeque<(Timestamp, Timestamp)>,
    /// The latest end of all other announcements.
    until: Timestamp,
}

impl Holds {
    pub(super) const fn new(grace: Duration) -> Self {
        Self {
            grace,
            young: VecDeque::new(),
            until: Timestamp::ZERO,
        }
    }

    pub(super) fn announce(&mut self, now: Timestamp, hold: Duration) {
        let (from, until) = (now + self.grace, now + hold);
        if self.young.len() >= YOUNG_MAX
            && let Some(last) = self.young.back_mut()
        {
            *last = (from, last.1.max(until));
        } else {
            self.young.push_back((from, until));
        }
    }

    /// Returns whether an arrival at `now` violates a hold.
    pub(super) fn forbid(&mut self, now: Timestamp) -> bool {
        while let Some(&(from, until)) = self.young.front()
            && from < now
        {
            self.until = self.until.max(until);
            self.young.pop_front();
        }
        now < self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(at: u64) -> Timestamp {
        Timestamp::from_micros(at * 1000)
    }

    #[test]
    fn only_what_leaves_after_the_announcement_offends() {
        let mut holds = Holds::new(Duration::from_millis(50));
        assert!(!holds.forbid(ms(0)));
        holds.announce(ms(0), Duration::from_secs(1));
        assert!(!holds.forbid(ms(50)), "on its way");
        // A request that was on its way is refused too, with a hold of its own.
        holds.announce(ms(50), Duration::from_secs(1));
        assert!(holds.forbid(ms(51)));
        assert!(holds.forbid(ms(999)));
        assert!(holds.forbid(ms(1000)), "the second hold binds until 1050");
        assert!(!holds.forbid(ms(1050)), "both have passed");
    }

    #[test]
    fn a_later_hold_does_not_make_an_offence_of_who_obeyed_the_first() {
        let mut holds = Holds::new(Duration::from_millis(50));
        holds.announce(ms(0), Duration::from_secs(1));
        holds.announce(ms(990), Duration::from_secs(1));
        assert!(!holds.forbid(ms(1000)));
        assert!(holds.forbid(ms(1041)));
    }
}
