//! When to ask for more: a budget, and patience that grows.
//!
//! A probe of a limit that has not moved ends in a refusal. So probes are paid for: every served
//! request earns a small credit, every refusal costs one. And the wait from one probe to the next
//! doubles as long as they find nothing, up to a share of the time between the changes seen so far:
//! a host that never changed is left in peace, one that changes every five minutes is asked a few
//! times in between.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// Earned by each served request: what share of requests may be refused in the long run.
const EARNED: f32 = 0.002;
/// The share on a host whose limit changes so often that probing pays.
const EARNED_RESTLESS: f32 = 0.006;
/// What comes sooner after another is part of the same change.
const CHANGE: Duration = Duration::from_mins(2);
const RESTLESS: Duration = Duration::from_mins(15);
/// To begin with.
const CREDIT_START: f32 = 3.0;
const CREDIT_MAX: f32 = 6.0;
const CREDIT_MIN: f32 = -6.0;
/// The shortest wait, in requests and in seconds.
const WAIT_MIN: Duration = Duration::from_secs(20);
/// The shortest wait after a first window that is known well.
const WAIT_FIRST: Duration = Duration::from_mins(1);
/// The longest wait while nothing ever changed.
const WAIT_MAX: Duration = Duration::from_hours(2);
/// Probes between two changes, if changes come regularly.
const PROBES_PER_CHANGE: f64 = 8.0;

/// The budget and the clock of probes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Probing {
    credit: f32,
    wait: Duration,
    /// Not before.
    next: Timestamp,
    /// The last change of the limit, and how long changes are apart.
    changed: Timestamp,
    apart: Option<Duration>,
    /// Changes that came alone.
    changes: u8,
    /// The first bracket was questioned.
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
            && self.apart.is_none_or(|apart| !apart.is_zero())
    }

    pub(super) fn earn(&mut self) {
        let earned = match self.apart {
            Some(apart) if apart < RESTLESS && self.changes >= 3 => EARNED_RESTLESS,
            _ => EARNED,
        };
        self.credit = (self.credit + earned).min(CREDIT_MAX);
    }

    pub(super) fn pay(&mut self) {
        self.credit = (self.credit - 1.0).max(CREDIT_MIN);
    }

    /// What was paid for was noise.
    pub(super) fn refund(&mut self) {
        self.credit = (self.credit + 1.0).min(CREDIT_MAX);
    }

    /// All that was paid for of late was noise.
    pub(super) const fn forgive(&mut self) {
        self.credit = self.credit.max(CREDIT_START);
    }

    pub(super) const fn credit(&self) -> f32 {
        self.credit
    }

    /// May it ask for more now?
    pub(super) fn due(&self, now: Timestamp, on_budget: bool) -> bool {
        now >= self.next && (self.credit >= 1.0 || !on_budget)
    }

    /// It asked and found nothing.
    pub(super) fn found_nothing(&mut self, now: Timestamp) {
        let most = self
            .apart
            .filter(|_| self.changes >= 2)
            .map_or(WAIT_MAX, |apart| apart.div_f64(PROBES_PER_CHANGE));
        self.wait = (self.wait * 2).clamp(WAIT_MIN, most.max(WAIT_MIN));
        self.rest(now);
    }

    /// The limit is another than it was.
    pub(super) fn changed(&mut self, now: Timestamp) {
        let since = now.since(self.changed);
        if since >= CHANGE {
            self.apart = Some(self.apart.map_or(since, |apart| (apart + since) / 2));
            self.changes = self.changes.saturating_add(1);
        }
        self.changed = now;
        self.wait = WAIT_MIN;
        self.afford();
        self.rest(now);
    }

    /// What was learned is no guess, and of the first requests each refused one is a large share.
    pub(super) fn be_patient(&mut self, now: Timestamp) {
        self.wait = WAIT_FIRST;
        self.rest(now);
    }

    /// A bracket was closed. After the first it is asked whether it was the right one, whatever
    /// that costs.
    pub(super) fn invest(&mut self, now: Timestamp) {
        if !self.invested {
            self.afford();
            self.invested = true;
        }
        self.rest(now);
    }

    /// The next probe is paid for, whatever was spent.
    pub(super) const fn afford(&mut self) {
        self.credit = self.credit.max(1.0);
    }

    /// Not for a day.
    pub(super) fn forbid(&mut self, now: Timestamp) {
        self.next = now + Duration::from_hours(24);
    }

    /// The next probe is a whole wait away.
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

    /// How long it waits after a probe that found nothing.
    fn waits(probing: &mut Probing, now: Timestamp) -> Duration {
        probing.found_nothing(now);
        probing.next.since(now)
    }

    /// Changes every five minutes.
    fn restless() -> Probing {
        let mut probing = Probing::new(at(0));
        (1..=4).for_each(|i| probing.changed(at(i * 300)));
        probing
    }

    #[test]
    fn a_refusal_costs_what_five_hundred_served_requests_earn() {
        let mut probing = Probing::new(at(0));
        (0..3).for_each(|_| probing.pay());
        assert!(!probing.due(at(1), true));
        assert!(probing.due(at(1), false), "without a budget it may");
        (0..490).for_each(|_| probing.earn());
        assert!(!probing.due(at(1), true));
        (0..20).for_each(|_| probing.earn());
        assert!(probing.due(at(1), true));
    }

    #[test]
    fn neither_debt_nor_credit_is_without_end() {
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
    fn a_change_makes_it_curious_again() {
        let mut probing = Probing::new(at(0));
        (0..9).for_each(|_| probing.pay());
        (0..9).for_each(|_| probing.found_nothing(at(0)));
        let now = at(100_000);
        probing.changed(now);
        assert!(!probing.due(now, true));
        assert!(probing.due(now + WAIT_MIN, true));
    }

    #[test]
    fn a_host_that_changes_every_five_minutes_is_asked_often() {
        let mut probing = restless();
        let longest = (5..15).map(|i| waits(&mut probing, at(i * 300))).max();
        assert_eq!(longest, Some(Duration::from_millis(37_500)));
    }

    #[test]
    fn where_asking_pays_it_may_cost_more() {
        let (mut calm, mut restless) = (Probing::new(at(0)), restless());
        for probing in [&mut calm, &mut restless] {
            (0..5).for_each(|_| probing.pay());
            (0..500).for_each(|_| probing.earn());
        }
        assert!(restless.credit() > calm.credit() + 1.5);
    }

    #[test]
    fn changes_within_two_minutes_are_one() {
        let mut probing = Probing::new(at(0));
        (0..9).for_each(|i| probing.changed(at(600 + i * 60)));
        assert_eq!(
            (probing.changes, probing.apart),
            (1, Some(Duration::from_mins(10)))
        );
    }

    #[test]
    fn only_the_first_bracket_is_questioned_on_credit() {
        let mut probing = Probing::new(at(0));
        for allowed in [true, false] {
            (0..9).for_each(|_| probing.pay());
            probing.invest(at(0));
            assert_eq!(probing.due(at(20), true), allowed);
        }
    }

    #[test]
    fn a_block_page_forbids_asking_for_a_day() {
        let mut probing = Probing::new(at(0));
        probing.forbid(at(0));
        probing.rest(at(10));
        assert!(!probing.due(at(86_399), false));
        assert!(probing.due(at(86_400), false));
    }
}
