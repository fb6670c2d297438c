//! Windows of a calendar, and the quantity that was spent in the present one.
//!
//! Times count from 1970 here, as the clocks of all shells do.

use std::fmt;
use std::time::Duration;

#[cfg(feature = "calendar")]
use jiff::{ToSpan, ZonedDateTime, civil::Weekday, tz::TimeZone};
use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// Nothing leaves for this long before a boundary. A late request would otherwise count in the
/// server's next window. It is longer than [`crate::host::HORIZON`].
const BEFORE: Duration = Duration::from_secs(3);
/// Nothing leaves for this long after a boundary, because the server's clock may be behind.
const AFTER: Duration = Duration::from_secs(1);

/// A period of the calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Period {
    /// From midnight to midnight.
    Day,
    /// From Monday to Sunday (ISO 8601).
    Week,
    /// From the first of a month to the first of the next.
    Month,
}

/// A time zone of the IANA database that this program contains, for example `Europe/Berlin`.
/// Without the feature `calendar` there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone(Rules);

#[cfg(feature = "calendar")]
type Rules = TimeZone;
#[cfg(not(feature = "calendar"))]
type Rules = std::convert::Infallible;

#[cfg(feature = "calendar")]
impl Zone {
    /// Returns the zone of this name, or `None` if there is none.
    pub fn named(name: &str) -> Option<Self> {
        TimeZone::get(name).ok().map(Self)
    }

    fn name(&self) -> &str {
        self.0.iana_name().unwrap_or("UTC")
    }
}

#[cfg(not(feature = "calendar"))]
impl Zone {
    /// Returns `None`, because the feature `calendar` is not enabled.
    pub const fn named(_: &str) -> Option<Self> {
        None
    }

    const fn name(&self) -> &str {
        match self.0 {}
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Period {
    pub(super) fn named(name: &str) -> Option<Self> {
        match name {
            "d" | "day" => Some(Self::Day),
            "w" | "week" => Some(Self::Week),
            "month" => Some(Self::Month),
            _ => None,
        }
    }

    /// Returns the first moment of the period around `now`, and that of the next period.
    ///
    /// Returns `None` beyond the years of the calendar.
    #[cfg(feature = "calendar")]
    fn around(self, now: Timestamp, Zone(zone): &Zone) -> Option<(Timestamp, Timestamp)> {
        let micros = i64::try_from(now.as_micros()).ok()?;
        let now = jiff::Timestamp::from_microsecond(micros).ok()?;
        let day = now.to_zoned_datetime(zone.clone()).start_of_day().ok()?;
        let (first, next) = match self {
            Self::Day => (day.clone(), day.checked_add(1.day())),
            Self::Week => {
                let back = i64::from(day.weekday().since(Weekday::Monday));
                let first = day.checked_sub(back.days()).ok()?;
                (first.clone(), first.checked_add(1.week()))
            }
            Self::Month => {
                let first = day.first_of_month().ok()?;
                (first.clone(), first.checked_add(1.month()))
            }
        };
        // Midnight may not exist on the day of a clock change.
        let moment = |day: ZonedDateTime| {
            let micros = day.start_of_day().ok()?.timestamp().as_microsecond();
            Some(Timestamp::from_micros(u64::try_from(micros).unwrap_or(0)))
        };
        Some((moment(first)?, moment(next.ok()?)?))
    }

    #[cfg(not(feature = "calendar"))]
    #[expect(clippy::unused_self, reason = "the same call as with the feature")]
    const fn around(self, _: Timestamp, zone: &Zone) -> Option<(Timestamp, Timestamp)> {
        match zone.0 {}
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
        })
    }
}

/// The quantity that was spent in the latest period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Calendar {
    /// The first moment of that period.
    since: Timestamp,
    /// The first moment of the next one. Zero after the clock was set back: the quantity then
    /// counts in the period around the next call.
    until: Timestamp,
    spent: u64,
}

impl Calendar {
    /// Returns the quantity that is spent in the period around `now`, with its two boundaries.
    fn at(&self, now: Timestamp, period: Period, zone: &Zone) -> Option<Self> {
        // A request may start a little ahead, in the next period.
        let now = now.max(self.since);
        if now < self.until {
            return Some(*self);
        }
        let (since, until) = period.around(now, zone)?;
        let spent = match self.until {
            Timestamp::ZERO => self.spent,
            _ => 0,
        };
        Some(Self {
            since,
            until,
            spent,
        })
    }

    /// Returns the quantity that is spent in the period around `now`, and when the next one begins.
    pub(super) fn spent(&self, now: Timestamp, period: Period, zone: &Zone) -> (u64, Timestamp) {
        let at = self.at(now, period, zone);
        at.map_or((u64::MAX, Timestamp::NEVER), |at| (at.spent, at.until))
    }

    /// Returns when a request of `cost` may leave, not before `now`.
    pub(super) fn next_start(
        &self,
        now: Timestamp,
        cost: u64,
        quantity: u64,
        period: Period,
        zone: &Zone,
    ) -> Timestamp {
        let Some(at) = self.at(now, period, zone) else {
            return Timestamp::NEVER;
        };
        if at.spent.saturating_add(cost) > quantity || now + BEFORE > at.until {
            return at.until + AFTER;
        }
        // The period around the origin of time began earlier.
        if at.since == Timestamp::ZERO {
            return now;
        }
        now.max(at.since + AFTER)
    }

    pub(super) fn charge(&mut self, at: Timestamp, cost: u64, period: Period, zone: &Zone) {
        if let Some(now) = self.at(at, period, zone) {
            *self = now;
        }
        self.spent = self.spent.saturating_add(cost);
    }

    /// Charges a request that leaves at `at`, if that is in the latest period.
    pub(super) fn charge_present(&mut self, at: Timestamp, cost: u64) {
        if at < self.until {
            self.spent = self.spent.saturating_add(cost);
        }
    }

    /// Returns whether nothing counts at `now`, because the latest period is over.
    pub(super) fn is_past(&self, now: Timestamp) -> bool {
        self.until != Timestamp::ZERO && now >= self.until || self.spent == 0
    }

    /// Takes back the charge of a request that did not leave at `at`.
    pub(super) fn put_back(&mut self, at: Timestamp, cost: u64) {
        if at >= self.since {
            self.spent = self.spent.saturating_sub(cost);
        }
    }

    /// Keeps the smaller remainder of the two.
    pub(super) fn join(&mut self, other: Self) {
        *self = match (self.until, self.since).cmp(&(other.until, other.since)) {
            std::cmp::Ordering::Less => other,
            std::cmp::Ordering::Equal => Self {
                spent: self.spent.max(other.spent),
                ..*self
            },
            std::cmp::Ordering::Greater => *self,
        };
    }

    pub(super) fn rebase(&mut self, now: Timestamp) {
        if self.since > now {
            (self.since, self.until) = (Timestamp::ZERO, Timestamp::ZERO);
        }
    }
}

#[cfg(all(test, feature = "calendar"))]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        let zoned: ZonedDateTime = text.parse().unwrap();
        Timestamp::from_micros(zoned.timestamp().as_microsecond().cast_unsigned())
    }

    fn zone(name: &str) -> Zone {
        Zone::named(name).unwrap()
    }

    #[test]
    fn a_day_has_the_hours_of_its_calendar() {
        let berlin = zone("Europe/Berlin");
        for (noon, hours) in [
            ("2026-03-29T12:00[Europe/Berlin]", 23),
            ("2026-10-25T12:00[Europe/Berlin]", 25),
            ("2026-11-25T12:00[Europe/Berlin]", 24),
        ] {
            let (first, next) = Period::Day.around(at(noon), &berlin).unwrap();
            assert_eq!(next.since(first), Duration::from_hours(hours), "{noon}");
        }
        // On this day, midnight does not exist in Beirut.
        let noon = at("2022-03-27T12:00[Asia/Beirut]");
        let (first, next) = Period::Day.around(noon, &zone("Asia/Beirut")).unwrap();
        assert_eq!(next.since(first), Duration::from_hours(23));
    }

    #[test]
    fn weeks_begin_on_monday_and_months_on_the_first() {
        let (now, utc) = (at("2026-11-25T12:00[UTC]"), zone("UTC"));
        let week = Period::Week.around(now, &utc).unwrap();
        let monday = (at("2026-11-23T00:00[UTC]"), at("2026-11-30T00:00[UTC]"));
        assert_eq!(week, monday);
        let month = Period::Month.around(now, &utc).unwrap();
        let first = (at("2026-11-01T00:00[UTC]"), at("2026-12-01T00:00[UTC]"));
        assert_eq!(month, first);
    }

    #[test]
    fn a_spent_day_waits_for_the_next_one() {
        let (day, utc) = (Period::Day, zone("UTC"));
        let mut spent = Calendar::default();
        let noon = at("2026-11-25T12:00[UTC]");
        assert_eq!(spent.next_start(noon, 5, 5, day, &utc), noon);
        spent.charge(noon, 5, day, &utc);
        let midnight = at("2026-11-26T00:00[UTC]");
        assert_eq!(spent.next_start(noon, 1, 5, day, &utc), midnight + AFTER);
        spent.put_back(noon, 1);
        assert_eq!(spent.next_start(noon, 1, 5, day, &utc), noon);
        let morning = midnight + AFTER;
        assert_eq!(spent.next_start(morning, 5, 5, day, &utc), morning);
        let late = midnight - Duration::from_secs(2);
        assert_eq!(spent.next_start(late, 1, 5, day, &utc), midnight + AFTER);
    }

    #[test]
    fn a_clock_that_was_set_back_frees_nothing() {
        let (day, utc) = (Period::Day, zone("UTC"));
        let mut spent = Calendar::default();
        spent.charge(at("2027-11-25T12:00[UTC]"), 5, day, &utc);
        let now = at("2026-11-25T12:00[UTC]");
        spent.rebase(now);
        let midnight = at("2026-11-26T00:00[UTC]");
        assert_eq!(spent.next_start(now, 1, 5, day, &utc), midnight + AFTER);
        spent.charge(now, 1, day, &utc);
        assert_eq!(spent.spent(now, day, &utc), (6, midnight));
        assert_eq!(spent.spent(midnight, day, &utc).0, 0);
    }

    #[test]
    fn no_time_panics() {
        let (mut spent, utc) = (Calendar::default(), zone("UTC"));
        for now in [
            Timestamp::ZERO,
            Timestamp::NEVER,
            Timestamp::from_micros(1 << 62),
        ] {
            for period in [Period::Day, Period::Week, Period::Month] {
                spent.next_start(now, 1, 5, period, &utc);
                spent.charge(now, 1, period, &utc);
            }
        }
    }
}
