//! The last half hour of a key in steps of one minute, for sparklines and for recent trouble.

use std::time::Duration;

use politely::core::Timestamp;
use politely_api::wire::Minutes;

/// The number of minutes that are kept, the current one included.
pub(super) const KEPT: usize = 30;
/// The number of minutes that count as recent, the current one included.
const RECENT: usize = 5;
const MINUTE: Duration = Duration::from_mins(1);

/// The counts of one minute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Minute {
    pub(super) granted: u32,
    pub(super) reported: u32,
    pub(super) refused: u32,
    /// The permits whose leases expired without a report.
    pub(super) expired: u32,
}

/// The minutes, at the place of their number modulo their count.
#[derive(Default)]
pub(super) struct Past {
    ring: [Minute; KEPT],
    /// The number of the newest minute.
    newest: u64,
}

fn number(now: Timestamp) -> u64 {
    now.as_micros() / MINUTE.as_micros() as u64
}

impl Past {
    /// Returns the counts of the current minute.
    pub(super) fn current(&mut self, now: Timestamp) -> &mut Minute {
        let current = number(now).max(self.newest);
        let begun = current - self.newest;
        for ago in 0..begun.min(KEPT as u64) {
            self.ring[((current - ago) % KEPT as u64) as usize] = Minute::default();
        }
        self.newest = current;
        &mut self.ring[(current % KEPT as u64) as usize]
    }

    /// Returns the minutes until `now`, newest first. Minutes without events are empty.
    fn until(&self, now: Timestamp) -> impl Iterator<Item = Minute> {
        let current = number(now).max(self.newest);
        (0..KEPT as u64).map(move |ago| {
            let kept = current
                .checked_sub(ago)
                .filter(|at| *at <= self.newest && self.newest - at < KEPT as u64);
            kept.map_or_else(Minute::default, |at| self.ring[(at % KEPT as u64) as usize])
        })
    }

    /// Returns the minutes until `now`, oldest first.
    pub(super) fn points(&self, now: Timestamp) -> Minutes {
        let mut minutes: Vec<Minute> = self.until(now).collect();
        minutes.reverse();
        Minutes {
            granted: minutes.iter().map(|minute| minute.granted).collect(),
            refused: minutes.iter().map(|minute| minute.refused).collect(),
        }
    }

    /// Returns the sum of the recent minutes.
    pub(super) fn recent(&self, now: Timestamp) -> Minute {
        self.until(now)
            .take(RECENT)
            .fold(Minute::default(), |sum, minute| Minute {
                granted: sum.granted.saturating_add(minute.granted),
                reported: sum.reported.saturating_add(minute.reported),
                refused: sum.refused.saturating_add(minute.refused),
                expired: sum.expired.saturating_add(minute.expired),
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minutes: u64) -> Timestamp {
        Timestamp::from_micros(minutes * 60_000_000 + 1)
    }

    #[test]
    fn each_minute_has_its_place_and_old_ones_leave() {
        let mut past = Past::default();
        past.current(at(1_000)).granted = 7;
        past.current(at(1_002)).granted = 9;
        let granted = |past: &Past, now| past.points(at(now)).granted;
        assert_eq!(granted(&past, 1_002)[27..], [7, 0, 9]);
        assert_eq!(granted(&past, 1_029)[..3], [7, 0, 9]);
        assert_eq!(granted(&past, 1_030)[..2], [0, 9]);
        assert!(granted(&past, 1_040).iter().all(|count| *count == 0));
        past.current(at(1_032)).granted = 1;
        let all = granted(&past, 1_032);
        assert_eq!((all[0], all[29], all.iter().sum::<u32>()), (0, 1, 1));
    }

    #[test]
    fn recent_is_the_last_five_minutes() {
        let mut past = Past::default();
        past.current(at(10)).refused = 3;
        past.current(at(12)).refused = 4;
        assert_eq!(past.recent(at(14)).refused, 7);
        assert_eq!(past.recent(at(15)).refused, 4);
        assert_eq!(past.recent(at(17)), Minute::default());
    }
}
