//! The keys that need an operator's attention, and why.

use std::time::Duration;

use politely::core::Timestamp;
use politely::core::key::Key;
use politely_api::wire::{KeyState, Need, NeedCounts};
use std::collections::HashMap;

use super::minutes::Minute;

/// Callers that wait for longer than this are starved.
const STARVED: Duration = Duration::from_mins(1);
/// The share of refusals above which a key needs attention.
const REFUSED_SHARE: f64 = 0.01;
/// One refusal is how a law finds a limit. More within the recent minutes need attention.
const REFUSED_MIN: u32 = 2;

/// The needs of one key, as a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Needs(u8);

impl Needs {
    /// The rank of a key without needs.
    pub(super) const NONE_RANK: u32 = u8::BITS;

    fn add(&mut self, need: Need, is_needed: bool) {
        self.0 |= u8::from(is_needed) << need as u8;
    }

    pub(super) const fn contains(self, need: Need) -> bool {
        self.0 & (1 << need as u8) != 0
    }

    /// Returns the needs, most urgent first.
    pub(super) fn list(self) -> Vec<Need> {
        let all = Need::ALL.into_iter();
        all.filter(|need| self.contains(*need)).collect()
    }

    /// Returns the place of the most urgent need. A key without needs comes last.
    pub(super) const fn rank(self) -> u32 {
        self.0.trailing_zeros()
    }

    /// Adds one to the count of each need.
    pub(super) fn count(self, counts: &mut NeedCounts) {
        let each = [
            (&mut counts.unavailable, Need::Unavailable),
            (&mut counts.blocked, Need::Blocked),
            (&mut counts.failing, Need::Failing),
            (&mut counts.starved, Need::Starved),
            (&mut counts.refused, Need::Refused),
            (&mut counts.expiring, Need::Expiring),
        ];
        for (count, need) in each {
            *count += u32::from(self.contains(need));
        }
    }
}

/// Finds the needs of keys. It remembers since when callers have waited for a key that granted
/// nothing.
#[derive(Clone, Default)]
pub(super) struct Attention {
    recent: HashMap<Key, Minute>,
    /// The time at which waiting callers were first seen, and the key's permits at that time.
    waiting: HashMap<Key, (Timestamp, u64)>,
}

/// What is known about a key beside its recent minutes.
pub(super) struct Known<'a> {
    pub(super) key: &'a Key,
    pub(super) state: KeyState,
    pub(super) ready: Timestamp,
    pub(super) waiting: u32,
    pub(super) granted: u64,
}

impl Attention {
    /// Returns the finder for the next table. `recent` has the keys with refusals or expired
    /// leases.
    pub(super) fn next(&self, recent: HashMap<Key, Minute>) -> Next<'_> {
        let after = Self {
            recent,
            waiting: HashMap::new(),
        };
        Next {
            before: self,
            after,
        }
    }
}

/// An [`Attention`] while its table is built.
pub(super) struct Next<'a> {
    before: &'a Attention,
    after: Attention,
}

impl Next<'_> {
    pub(super) fn needs(&mut self, now: Timestamp, known: &Known<'_>) -> Needs {
        let recent = self.after.recent.get(known.key).copied();
        let Minute {
            reported,
            refused,
            expired,
            ..
        } = recent.unwrap_or_default();
        let mut needs = Needs::default();
        needs.add(Need::Unavailable, known.state == KeyState::Unavailable);
        needs.add(Need::Blocked, known.state == KeyState::Quarantine);
        needs.add(Need::Failing, known.state == KeyState::Breaker);
        needs.add(
            Need::Starved,
            known.waiting > 0 && self.is_starved(now, known),
        );
        let share = f64::from(refused) / f64::from(reported.max(1));
        needs.add(
            Need::Refused,
            refused >= REFUSED_MIN && share > REFUSED_SHARE,
        );
        needs.add(Need::Expiring, expired > 0);
        needs
    }

    /// Returns whether the callers have waited for too long, or will.
    fn is_starved(&mut self, now: Timestamp, known: &Known<'_>) -> bool {
        let before = self.before.waiting.get(known.key);
        let since = match before {
            Some((since, granted)) if *granted == known.granted => *since,
            _ => now,
        };
        let waiting = (since, known.granted);
        self.after.waiting.insert(known.key.clone(), waiting);
        now.since(since) > STARVED || known.ready.since(now) > STARVED
    }

    pub(super) fn done(self) -> Attention {
        self.after
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Timestamp {
        Timestamp::from_micros(secs * 1_000_000)
    }

    fn needs(state: KeyState, minute: Minute) -> Vec<Need> {
        let key = Key::host("a.example").unwrap();
        let before = Attention::default();
        let mut next = before.next(HashMap::from_iter([(key.clone(), minute)]));
        let known = Known {
            key: &key,
            state,
            ready: at(0),
            waiting: 0,
            granted: 0,
        };
        next.needs(at(0), &known).list()
    }

    #[test]
    fn each_trouble_is_a_need() {
        let quiet = Minute::default();
        assert_eq!(needs(KeyState::Ready, quiet), []);
        assert_eq!(needs(KeyState::Hold, quiet), []);
        assert_eq!(needs(KeyState::Unavailable, quiet), [Need::Unavailable]);
        assert_eq!(needs(KeyState::Quarantine, quiet), [Need::Blocked]);
        assert_eq!(needs(KeyState::Breaker, quiet), [Need::Failing]);
        let minute = |reported, refused, expired| Minute {
            granted: 0,
            reported,
            refused,
            expired,
        };
        assert_eq!(needs(KeyState::Ready, minute(10, 1, 0)), []);
        assert_eq!(needs(KeyState::Ready, minute(200, 2, 0)), []);
        assert_eq!(needs(KeyState::Ready, minute(199, 2, 0)), [Need::Refused]);
        assert_eq!(
            needs(KeyState::Breaker, minute(2, 2, 1)),
            [Need::Failing, Need::Refused, Need::Expiring]
        );
    }

    #[test]
    fn callers_that_wait_for_a_minute_without_a_permit_are_starved() {
        let key = Key::host("a.example").unwrap();
        let mut attention = Attention::default();
        let mut starved = |secs, waiting, granted, ready| {
            let mut next = attention.next(HashMap::new());
            let known = Known {
                key: &key,
                state: KeyState::Full,
                ready: at(ready),
                waiting,
                granted,
            };
            let needs = next.needs(at(secs), &known);
            let after = next.done();
            attention = after;
            needs.contains(Need::Starved)
        };
        assert!(!starved(0, 3, 5, 0));
        assert!(!starved(60, 3, 5, 60));
        assert!(starved(61, 3, 5, 61));
        assert!(!starved(62, 3, 6, 62), "one was granted");
        assert!(!starved(63, 0, 6, 63));
        assert!(!starved(200, 1, 6, 200), "others came");
        assert!(starved(201, 1, 6, 300), "none leaves for a minute");
        assert!(!starved(202, 0, 6, 300), "no caller waits");
    }
}
