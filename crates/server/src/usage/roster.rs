//! The coordinators that count, and the hours whose counts are incomplete.
//!
//! Each coordinator of a fleet gives a sign every few seconds that all its counts so far are in the
//! log, and takes its entry away at its end. An entry without new signs belongs to a coordinator
//! that was killed or is cut off. Its counts may be missing from its last sign until others found
//! it silent. A coordinator that was only cut off sends its counts later, and its next sign clears
//! its entry.
//!
//! A coordinator without a fleet keeps a roster in its state folder, with a sign of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use politely::core::Timestamp;
use serde::{Deserialize, Serialize};

use super::{KEPT_HOURS, hour_of};

/// The interval of signs.
pub(crate) const SIGN_EVERY: Duration = Duration::from_secs(2);
/// The time without a sign after which a coordinator is silent.
const SILENT: Duration = Duration::from_secs(6);
/// The time after which a silent coordinator is not expected back.
const LEFT: Duration = Duration::from_mins(10);

/// The signs of coordinators, and the hours that are incomplete for good.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Roster {
    signs: BTreeMap<u64, Sign>,
    lost: BTreeSet<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Sign {
    /// The time until which all counts are known.
    last: Timestamp,
    /// When another coordinator found it silent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    silent: Option<Timestamp>,
}

impl Sign {
    /// Returns the hours whose counts may be missing.
    fn hours(self, now: Timestamp) -> std::ops::RangeInclusive<u64> {
        let last = hour_of(self.silent.unwrap_or(now));
        hour_of(self.last).max(last.saturating_sub(KEPT_HOURS))..=last
    }

    fn is_silent(self, now: Timestamp) -> bool {
        self.silent.is_some() || now.since(self.last) > SILENT
    }
}

impl Roster {
    /// Creates a roster in which the coordinator `me` has not given a sign yet.
    pub(super) fn before_signs(me: u64) -> Self {
        let mut roster = Self::default();
        roster.signs.insert(me, Sign::default());
        roster
    }

    /// Notes that all counts of the coordinator `me` until `last` are in the log, and looks for
    /// silent coordinators.
    pub(crate) fn sign(&mut self, me: u64, last: Timestamp, now: Timestamp) {
        self.signs.insert(me, Sign { last, silent: None });
        let Self { signs, lost } = self;
        for (_, sign) in signs.iter_mut().filter(|(id, _)| **id != me) {
            if sign.is_silent(now) {
                sign.silent.get_or_insert(now);
            }
        }
        signs.retain(|_, sign| {
            let has_left = sign.silent.is_some_and(|at| now.since(at) > LEFT);
            if has_left {
                lost.extend(sign.hours(now));
            }
            !has_left
        });
        self.forget_before(hour_of(now).saturating_sub(KEPT_HOURS));
    }

    /// Notes that the coordinator `me`, which has no fleet, saves again before `until`. Its counts
    /// until `saved` are saved.
    pub(super) fn sign_alone(&mut self, me: u64, saved: Option<Timestamp>, until: Timestamp) {
        let sign = self.signs.entry(me).or_default();
        sign.last = saved.unwrap_or(sign.last);
        sign.silent = Some(until);
    }

    /// Removes the coordinator `me`, whose counts are all written.
    pub(crate) fn leave(&mut self, me: u64) {
        self.signs.remove(&me);
    }

    /// Notes that the coordinators in it, which have no fleet, were killed.
    pub(super) fn end_all(&mut self, now: Timestamp) {
        for (_, sign) in std::mem::take(&mut self.signs) {
            self.lost.extend(sign.hours(now));
        }
    }

    /// Notes that counts of these hours are lost.
    pub(super) fn lose(&mut self, hours: impl IntoIterator<Item = u64>) {
        self.lost.extend(hours);
    }

    /// Forgets the lost hours before `first`.
    pub(super) fn forget_before(&mut self, first: u64) {
        self.lost.retain(|hour| *hour >= first);
    }

    /// Adds the lost hours of `other`.
    pub(crate) fn join_lost(&mut self, other: &Self) {
        self.lost.extend(&other.lost);
    }

    /// Returns the hours that are incomplete for good.
    pub(super) const fn lost(&self) -> &BTreeSet<u64> {
        &self.lost
    }

    /// Returns the hours that are incomplete at `now`.
    pub(super) fn incomplete(&self, now: Timestamp) -> BTreeSet<u64> {
        let silent = self.signs.values().filter(|sign| sign.is_silent(now));
        let hours = silent.flat_map(|sign| sign.hours(now));
        hours.chain(self.lost.iter().copied()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Timestamp {
        Timestamp::from_micros(secs * 1_000_000)
    }

    fn sign(roster: &mut Roster, id: u64, secs: u64) {
        roster.sign(id, at(secs), at(secs));
    }

    fn incomplete(roster: &Roster, secs: u64) -> Vec<u64> {
        roster.incomplete(at(secs)).into_iter().collect()
    }

    #[test]
    fn a_killed_coordinator_makes_its_hours_incomplete_and_one_that_left_none() {
        let mut roster = Roster::default();
        sign(&mut roster, 1, 7_190);
        sign(&mut roster, 2, 7_190);
        roster.leave(1);
        assert_eq!(incomplete(&roster, 7_195), [0; 0]);
        // The killed coordinator may have counted in both hours.
        assert_eq!(incomplete(&roster, 7_201), [1, 2]);
        sign(&mut roster, 3, 7_201);
        assert_eq!(incomplete(&roster, 7_203), [1, 2]);
        // The hours after it was found silent are complete, also when it is not expected back.
        for secs in (7_203..11_000).step_by(2) {
            sign(&mut roster, 3, secs);
        }
        assert_eq!(incomplete(&roster, 11_000), [1, 2]);
        assert_eq!(roster.signs.len(), 1);
        sign(&mut roster, 3, 7_200 + 31 * 86_400);
        sign(&mut roster, 3, 7_201 + 31 * 86_400);
        assert_eq!(roster.lost.len(), 0, "older hours are not kept");
    }

    #[test]
    fn a_coordinator_that_was_cut_off_clears_its_entry() {
        let mut roster = Roster::default();
        sign(&mut roster, 1, 100);
        sign(&mut roster, 2, 110);
        assert_eq!(incomplete(&roster, 110), [0]);
        sign(&mut roster, 1, 120);
        sign(&mut roster, 2, 120);
        assert_eq!(incomplete(&roster, 120), [0; 0]);
    }

    #[test]
    fn an_outage_makes_its_hours_incomplete_for_coordinators_that_do_not_return() {
        let mut roster = Roster::default();
        sign(&mut roster, 1, 3_500);
        sign(&mut roster, 2, 3_500);
        // Neither of them reached the engine until now. One was killed meanwhile.
        sign(&mut roster, 2, 7_300);
        assert_eq!(incomplete(&roster, 7_301), [0, 1, 2]);
    }

    #[test]
    fn a_folder_whose_coordinator_was_killed_lost_what_came_after_the_last_save() {
        let mut roster = Roster::default();
        roster.sign_alone(1, Some(at(3_599)), at(3_609));
        let mut ended = roster.clone();
        roster.end_all(at(90_000));
        assert_eq!(incomplete(&roster, 90_000), [0, 1]);
        ended.leave(1);
        ended.end_all(at(90_000));
        assert_eq!(incomplete(&ended, 90_000), [0; 0]);
    }
}
