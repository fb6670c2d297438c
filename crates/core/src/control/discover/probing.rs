//! Decides when to probe for a higher limit, by a budget and by waits that grow.
//!
//! A probe ends in a refusal if the limit has not changed. So probes have a budget: every served
//! request earns a small credit, and every refusal costs one.
//!
//! The wait between probes doubles while they find nothing. It grows up to a share of the mean time
//! between the changes seen so far. So a host whose limit never changes is hardly ever probed. A
//! host whose limit changes every five minutes is probed several times in between.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// Credit that each served request earns. It is also the share of requests that may be refused in
/// the long run.
const EARNED: f32 = 0.002;
/// The same credit on a host whose limit changes so often that probes pay off.
const EARNED_RESTLESS: f32 = 0.006;
/// A change of the limit within this time after another counts as part of it.
const CHANGE: Duration = Duration::from_mins(2);
/// Mean time between changes below which each served request earns [`EARNED_RESTLESS`].
const RESTLESS: Duration = Duration::from_mins(15);
/// Credit of a new key, in refusals.
const CREDIT_START: f32 = 3.0;
/// Highest credit, in refusals.
const CREDIT_MAX: f32 = 6.0;
/// Lowest credit, in refusals: the largest debt.
const CREDIT_MIN: f32 = -6.0;
/// Shortest wait between two probes.
const WAIT_MIN: Duration = Duration::from_secs(20);
/// Wait before the first probe after a first window that is known well.
const WAIT_FIRST: Duration = Duration::from_mins(1);
/// Longest wait between two probes.
const WAIT_MAX: Duration = Duration::from_hours(2);
/// Longest time between two changes that counts.
const APART_MAX: Duration = Duration::from_hours(30 * 24);
/// Number of longest waits that fit between two changes, if changes come regularly.
const PROBES_PER_CHANGE: f64 = 8.0;

/// The budget and the schedule of probes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Probing {
    /// Number of refusals that probes may still cost. A probe needs a credit of one.
    credit: f32,
    /// Time from the end of one probe to the next probe.
    wait: Duration,
    /// Earliest time of the next probe.
    next: Timestamp,
    /// When the limit last changed.
    changed: Timestamp,
    /// Moving average of the time between two changes.
    apart: Option<Duration>,
    /// Number of changes. Changes within [`CHANGE`] of another do not count.
    changes: u8,
    /// Whether the first bracket has received a probe on credit.
    invested: bool,
}

impl Probing {
    pub(super) fn new(now: Timestamp) -> Self {
        Self {
            credit: CREDIT_START,
            wait: WAIT_MIN,
            next: now,
            changed: now,
            apart: None,
            changes: 0,
            invested: false,
        }
    }

    pub(super) fn rebase(&mut self, back: Duration) {
        (self.next, self.changed) = (self.next - back, self.changed - back);
    }

    pub(super) fn plausible(&self) -> bool {
        (CREDIT_MIN..=CREDIT_MAX).contains(&self.credit)
            && (WAIT_MIN..=WAIT_MAX).contains(&self.wait)
            && self
                .apart
                .is_none_or(|apart| !apart.is_zero() && apart <= APART_MAX)
    }

    /// Adds the credit of one served request.
    pub(super) fn earn(&mut self) {
        let earned = match self.apart {
            Some(apart) if apart < RESTLESS && self.changes >= 3 => EARNED_RESTLESS,
            _ => EARNED,
        };
        self.credit = (self.credit + earned).min(CREDIT_MAX);
    }

    /// Subtracts the cost of one refusal.
    pub(super) fn pay(&mut self) {
        self.credit = (self.credit - 1.0).max(CREDIT_MIN);
    }

    /// Returns the cost of a refusal that was noise.
    pub(super) fn refund(&mut self) {
        self.credit = (self.credit + 1.0).min(CREDIT_MAX);
    }

    /// Restores the credit of a new key, if it is lower now, because the recent refusals were
    /// noise.
    pub(super) const fn forgive(&mut self) {
        self.credit = self.credit.max(CREDIT_START);
    }

    pub(super) const fn credit(&self) -> f32 {
        self.credit
    }

    /// Returns whether a probe is due. With `on_budget` it also needs enough credit.
    pub(super) fn due(&self, now: Timestamp, on_budget: bool) -> bool {
        now >= self.next && (self.credit >= 1.0 || !on_budget)
    }

    /// Doubles the wait after a probe that found nothing.
    pub(super) fn found_nothing(&mut self, now: Timestamp) {
        let most = self
            .apart
            .filter(|_| self.changes >= 2)
            .map_or(WAIT_MAX, |apart| apart.div_f64(PROBES_PER_CHANGE));
        self.wait = (self.wait * 2).clamp(WAIT_MIN, most.clamp(WAIT_MIN, WAIT_MAX));
        self.rest(now);
    }

    /// Records a change of the limit. The wait becomes short again, and the next probe has credit.
    pub(super) fn changed(&mut self, now: Timestamp) {
        let since = now.since(self.changed);
        if since >= CHANGE {
            let since = since.min(APART_MAX);
            self.apart = Some(self.apart.map_or(since, |apart| (apart + since) / 2));
            self.changes = self.changes.saturating_add(1);
        }
        self.changed = now;
        self.wait = WAIT_MIN;
        self.afford();
        self.rest(now);
    }

    /// Waits [`WAIT_FIRST`] after a first window that is no guess. Each refusal is a large share of
    /// a new key's requests.
    pub(super) fn be_patient(&mut self, now: Timestamp) {
        self.wait = WAIT_FIRST;
        self.rest(now);
    }

    /// Waits after a bracket was closed. The first bracket is always tested by a probe, even
    /// without credit.
    pub(super) fn invest(&mut self, now: Timestamp) {
        if !self.invested {
            self.afford();
            self.invested = true;
        }
        self.rest(now);
    }

    /// Provides the credit for the next probe, whatever was spent.
    pub(super) const fn afford(&mut self) {
        self.credit = self.credit.max(1.0);
    }

    /// Forbids probes for a day.
    pub(super) fn forbid(&mut self, now: Timestamp) {
        self.next = now + Duration::from_hours(24);
    }

    /// Delays the next probe by at least the wait.
    pub(super) fn rest(&mut self, now: Timestamp) {
        self.next = self.next.max(now + self.wait);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_secs(secs)
    }

    /// Returns the wait after a probe that found nothing.
    fn waits(probing: &mut Probing, now: Timestamp) -> Duration {
        probing.found_nothing(now);
        probing.next.since(now)
    }

    /// Returns the state for a host whose limit has changed every five minutes.
    fn restless() -> Probing {
        let mut probing = Probing::new(at(0));
        (1..=4).for_each(|i| probing.changed(at(i * 300)));
        probing
    }

    /// Regression: limits that change twice a day made a state that no restart could read.
    #[test]
    fn the_state_of_a_limit_that_seldom_changes_can_be_restored() {
        for hours in [1, 12, 24, 1_000, 100_000] {
            let mut probing = Probing::new(at(0));
            for i in 1..6 {
                probing.changed(at(i * hours * 3_600));
                for _ in 0..12 {
                    probing.found_nothing(at(i * hours * 3_600));
                    assert!(probing.plausible(), "{hours} h: {probing:?}");
                }
            }
        }
    }

    #[test]
    fn a_refusal_costs_the_credit_of_five_hundred_served_requests() {
        let mut probing = Probing::new(at(0));
        (0..3).for_each(|_| probing.pay());
        assert!(!probing.due(at(1), true));
        assert!(probing.due(at(1), false), "due without a budget");
        (0..490).for_each(|_| probing.earn());
        assert!(!probing.due(at(1), true));
        (0..20).for_each(|_| probing.earn());
        assert!(probing.due(at(1), true));
    }

    #[test]
    fn debt_and_credit_are_bounded() {
        let mut probing = Probing::new(at(0));
        (0..100).for_each(|_| probing.pay());
        assert!(probing.plausible());
        (0..100_000).for_each(|_| probing.earn());
        assert!(probing.plausible());
        (0..6).for_each(|_| probing.pay());
        assert!(!probing.due(at(1), true));
    }

    #[test]
    fn the_wait_doubles_up_to_two_hours_while_nothing_is_found() {
        let mut probing = Probing::new(at(0));
        assert_eq!(waits(&mut probing, at(100)), Duration::from_secs(40));
        assert_eq!(waits(&mut probing, at(1_000)), Duration::from_secs(80));
        let last = (1..20).map(|i| waits(&mut probing, at(i * 10_000))).last();
        assert_eq!(last, Some(WAIT_MAX));
    }

    #[test]
    fn a_probe_is_due_soon_after_a_change() {
        let mut probing = Probing::new(at(0));
        (0..9).for_each(|_| probing.pay());
        (0..9).for_each(|_| probing.found_nothing(at(0)));
        let now = at(100_000);
        probing.changed(now);
        assert!(!probing.due(now, true));
        assert!(probing.due(now + WAIT_MIN, true));
    }

    #[test]
    fn a_host_that_changes_every_five_minutes_is_probed_often() {
        let mut probing = restless();
        let longest = (5..15).map(|i| waits(&mut probing, at(i * 300))).max();
        assert_eq!(longest, Some(Duration::from_millis(37_500)));
    }

    #[test]
    fn a_host_that_changes_often_earns_more_credit() {
        let (mut calm, mut restless) = (Probing::new(at(0)), restless());
        for probing in [&mut calm, &mut restless] {
            (0..5).for_each(|_| probing.pay());
            (0..500).for_each(|_| probing.earn());
        }
        assert!(restless.credit() > calm.credit() + 1.5);
    }

    #[test]
    fn changes_within_two_minutes_count_once() {
        let mut probing = Probing::new(at(0));
        (0..9).for_each(|i| probing.changed(at(600 + i * 60)));
        assert_eq!(
            (probing.changes, probing.apart),
            (1, Some(Duration::from_mins(10)))
        );
    }

    #[test]
    fn only_the_first_bracket_is_probed_without_credit() {
        let mut probing = Probing::new(at(0));
        for allowed in [true, false] {
            (0..9).for_each(|_| probing.pay());
            probing.invest(at(0));
            assert_eq!(probing.due(at(20), true), allowed);
        }
    }

    #[test]
    fn probes_can_be_forbidden_for_a_day() {
        let mut probing = Probing::new(at(0));
        probing.forbid(at(0));
        probing.rest(at(10));
        assert!(!probing.due(at(86_399), false));
        assert!(probing.due(at(86_400), false));
    }
}
