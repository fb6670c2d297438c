//! A server that announces its limit need not be asked for it.
//!
//! Its policy (so many per window) is followed evenly, which no limiter refuses. Where the window is not told, the
//! longest rest until a reset that was ever announced is it. What is left, and until when, corrects the pace:
//! down if others spend of the same quota, up if part of a window has gone unused.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::window::rounds;
use crate::signal::Quota;

/// How far below the policy it rides: what is announced is exact …
const MARGIN: f64 = 0.003;
/// … but a request may arrive so much nearer to the one before it than it was sent.
const EARLY: Duration = Duration::from_millis(20);
/// Resets are told in whole seconds; a shorter one is too rough to count with.
const TELLING: Duration = Duration::from_secs(3);

/// With less than this share of the limit left, it slows down.
const NEARLY_SPENT: f64 = 0.05;
/// … but no further than to this share of the policy: a window that slides frees a little all the time.
const SLOWEST: f64 = 0.3;

/// The word of a server that broke it so often is worth nothing.
const BROKEN: u8 = 2;
const SECOND: Duration = Duration::from_secs(1);
/// A longer window parks a key for ever on the word of one header.
const LONGEST: Duration = Duration::from_hours(24);

/// What a server announces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Announced {
    /// The longest rest until a reset so far.
    window: Duration,
    /// What it allows, requests per second; zero: it says nothing.
    rate: f64,
    /// Refusals it should not have made by its own word.
    broken: u8,
}

impl Announced {
    /// The rate the server allows, if it says so.
    pub(super) fn rate(&self) -> Option<f64> {
        (self.rate > 0.0 && self.broken < BROKEN).then_some(self.rate)
    }

    /// It refused a request that left beside `beside` others, below the rate it announces.
    pub(super) fn refused(&mut self, quota: Option<Quota>, beside: u16) {
        let left = quota.and_then(|quota| quota.remaining);
        if self.rate > 0.0 && left.is_none_or(|left| left > u64::from(beside)) {
            self.broken = self.broken.saturating_add(1);
        }
    }

    pub(super) fn plausible(&self) -> bool {
        self.rate >= 0.0 && self.rate.is_finite()
    }

    /// A response announced `quota`; `beside` others were under way that it does not count.
    pub(super) fn hear(&mut self, quota: Option<Quota>, beside: u16) {
        let Some(quota) = quota else { return };
        let reset = quota.reset.unwrap_or_default().min(LONGEST);
        self.window = self.window.max(reset);
        // A reset told as a time of day is rounded up to a second; windows are round numbers.
        let measured = rounds()
            .find(|round| self.window > *round && self.window <= *round + SECOND)
            .unwrap_or(self.window);
        let window = quota.window.unwrap_or(measured).clamp(SECOND, LONGEST);
        let Some(limit) = quota
            .limit
            .filter(|_| quota.window.is_some() || !self.window.is_zero())
        else {
            return;
        };
        let policy = limit as f64 / (window + EARLY).as_secs_f64() * (1.0 - MARGIN);
        self.rate = match quota.remaining {
            Some(remaining) if reset >= TELLING => {
                let remaining = remaining.saturating_sub(u64::from(beside)) as f64;
                let left = remaining / reset.as_secs_f64();
                // Rounded up: it may be that much sooner, and slowing down for nothing leaves the rest unused.
                let sooner = remaining / reset.saturating_sub(SECOND).as_secs_f64();
                let share = remaining / (limit as f64 * NEARLY_SPENT);
                // Part of a window went unused; or it is nearly spent, by others or by us.
                policy
                    .max(left.min(2.0 * policy))
                    .min(sooner.max(policy * share.max(SLOWEST)))
            }
            _ => policy,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 600 a minute, less what is to be on the safe side.
    const POLICY: f64 = 600.0 / 60.02 * (1.0 - MARGIN);

    fn quota(window_s: Option<u64>, remaining: u64, reset_s: f64) -> Quota {
        Quota {
            limit: Some(600),
            window: window_s.map(Duration::from_secs),
            remaining: Some(remaining),
            reset: Some(Duration::from_secs_f64(reset_s)),
        }
    }

    fn heard(quotas: &[Quota]) -> Announced {
        let mut announced = Announced::default();
        for quota in quotas {
            announced.hear(Some(*quota), 0);
        }
        announced
    }

    #[track_caller]
    fn near(announced: &Announced, rate: f64) {
        let found = announced.rate().expect("a rate");
        assert!((found - rate).abs() < 1e-9, "{found}, not {rate}");
        assert!(announced.plausible());
    }

    #[test]
    fn a_policy_is_followed_evenly() {
        near(&heard(&[quota(Some(60), 400, 40.0)]), 10.0);
        near(&heard(&[quota(Some(60), 390, 40.0)]), POLICY);
    }

    #[test]
    fn who_says_nothing_is_not_believed_to_have_said_something() {
        let mut announced = Announced::default();
        announced.hear(None, 0);
        assert_eq!(announced.rate(), None);
        let no_window = Quota {
            window: None,
            reset: None,
            ..quota(None, 5, 0.0)
        };
        assert_eq!(heard(&[no_window]).rate(), None);
    }

    #[test]
    fn what_went_unused_may_be_used_but_at_no_more_than_twice_the_pace() {
        near(&heard(&[quota(Some(60), 300, 20.0)]), 15.0);
        near(&heard(&[quota(Some(60), 600, 5.0)]), 2.0 * POLICY);
    }

    #[test]
    fn what_others_spent_slows_down_before_it_is_gone() {
        near(&heard(&[quota(Some(60), 15, 50.0)]), POLICY / 2.0);
    }

    #[test]
    fn a_window_that_slides_is_spent_all_the_time_and_frees_a_little() {
        near(&heard(&[quota(Some(60), 0, 50.0)]), POLICY * SLOWEST);
    }

    /// Three seconds to go may be two, and 25 are what two and a half are for.
    #[test]
    fn a_reset_that_was_rounded_up_slows_nothing_down() {
        near(&heard(&[quota(Some(60), 25, 3.0)]), POLICY);
    }

    #[test]
    fn those_under_way_will_be_counted_too() {
        let mut announced = Announced::default();
        announced.hear(Some(quota(Some(60), 30, 50.0)), 15);
        near(&announced, POLICY / 2.0);
    }

    #[test]
    fn a_reset_told_in_a_second_or_two_is_too_rough_to_count_with() {
        near(&heard(&[quota(Some(60), 1, 1.0)]), POLICY);
    }

    #[test]
    fn a_window_that_is_not_told_is_the_longest_rest_until_a_reset() {
        let announced = heard(&[quota(None, 500, 45.0), quota(None, 90, 9.0)]);
        assert_eq!(announced.window, Duration::from_secs(45));
        near(&announced, 600.0 / 45.02 * (1.0 - MARGIN));
    }

    #[test]
    fn resets_of_whole_seconds_since_1970_are_rounded_to_the_minute_they_mean() {
        near(
            &heard(&[quota(None, 600, 60.7), quota(None, 390, 40.0)]),
            POLICY,
        );
    }

    /// Five in a second: three milliseconds below were not enough, and whoever came four early was refused and believed no more.
    #[test]
    fn requests_that_arrive_a_little_nearer_than_they_left_are_within_a_short_window_too() {
        let mut announced = Announced::default();
        announced.hear(
            Some(Quota {
                limit: Some(5),
                window: Some(SECOND),
                remaining: Some(4),
                reset: Some(SECOND),
            }),
            0,
        );
        let five = 5.0 / announced.rate().expect("a rate");
        assert!((1.015..1.03).contains(&five), "{five}");
    }

    #[test]
    fn who_lies_twice_is_not_believed_again() {
        let mut announced = heard(&[quota(Some(60), 390, 40.0)]);
        announced.refused(Some(quota(Some(60), 390, 40.0)), 3);
        near(&announced, POLICY);
        announced.refused(None, 3);
        assert_eq!(announced.rate(), None);
        announced.hear(Some(quota(Some(60), 390, 40.0)), 0);
        assert_eq!(announced.rate(), None);
    }

    #[test]
    fn a_refusal_when_nothing_is_left_is_no_lie() {
        let mut announced = heard(&[quota(Some(60), 390, 40.0)]);
        (0..9).for_each(|_| announced.refused(Some(quota(Some(60), 3, 40.0)), 3));
        near(&announced, POLICY);
    }

    #[test]
    fn no_header_parks_a_key_for_longer_than_a_day_is_long() {
        let mut for_ever = quota(None, 0, 0.0);
        for_ever.reset = Some(Duration::MAX);
        let rate = heard(&[for_ever]).rate().expect("a rate");
        assert!(rate >= 600.0 / 86_400.0 * SLOWEST * 0.99, "{rate}");
    }
}
