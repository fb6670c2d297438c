//! A server that announces its limit need not be asked for it.
//!
//! Two ways to use a quota of requests:
//!
//! * A short window is followed evenly at its policy's rate, which no limiter refuses. What is left corrects
//!   the pace: down if other clients spend of the same quota, up if part of a window has gone unused.
//! * Of a long window the pages that wait spend what is left at [`SPEED_UP`] times the policy's rate. Near the
//!   end the pace falls, and a reserve is spread over the time until the reset, for requests under way and for
//!   other clients. A quota with nothing left stops the key until its reset ([`Announced::stops_at`]).
//!
//! Where the window is not told, the longest rest until a reset that was announced for the same limit is it.
//! A refusal while quota is left means that the server has another limit as well: from then on even a long
//! window is followed evenly. After two refusals at that pace the server's word is no longer believed.
//! Of several quotas of requests the slowest decides; quotas of other units do not pace.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Sample;
use super::window::rounds;
use crate::Timestamp;
use crate::signal::{Quota, Unit};

/// How far below an announced policy the even pace stays. An announced limit is exact.
const MARGIN: f64 = 0.003;
/// How much nearer to the request before it a request may arrive than it was sent.
const EARLY: Duration = Duration::from_millis(20);
/// Resets are told in whole seconds; a shorter one is too rough to count with.
const TELLING: Duration = Duration::from_secs(3);

/// Windows up to this length are followed evenly: no page waits longer than this for its turn.
const EVEN_UP_TO: Duration = Duration::from_secs(10);
/// How much faster than its policy a long window is spent, at most.
const SPEED_UP: f64 = 4.0;
/// The share of the limit that is spread until the reset instead of being spent at once.
const RESERVE: f64 = 0.02;
/// At least so many requests are kept for that.
const RESERVE_MIN: f64 = 1.0;
/// What is left above the reserve is spent no faster than within this time, so that requests under way do not
/// exceed it. A longer round trip counts instead, twice.
const SPEND_WITHIN_S: f64 = 2.0;
/// A window that slides is looked at so many times in its length, to find out when some of it is free again.
const LOOKS: f64 = 20.0;

/// With less than this share of the limit left, the even pace slows down.
const NEARLY_SPENT: f64 = 0.05;
/// The even pace falls to no less than this share of the policy: a window that slides frees a little all the time.
const SLOWEST: f64 = 0.3;

/// A server that refused so often against its own word is not believed.
const BROKEN: u8 = 2;
const SECOND: Duration = Duration::from_secs(1);
/// A longer window would park a key for ever on the word of one header.
const LONGEST: Duration = Duration::from_hours(24);

/// What a server announces.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Announced {
    /// The longest rest until a reset so far, for each of two limits.
    rests: [Rest; 2],
    /// What it allows, requests per second; zero: it says nothing.
    rate: f64,
    /// The rate that a key starts with, requests per second.
    start: f64,
    /// When the tightest quota was last said to be whole again.
    end: Timestamp,
    /// How many were left of it then.
    left: u64,
    /// The end moves on while nothing is given back: the window slides, or a bucket fills.
    slides: bool,
    /// Less than the limit was left after an end: a bucket that holds less than the limit.
    fills_slowly: bool,
    /// The rate is above the policy's.
    speeds_up: bool,
    /// It has refused a request at such a rate: no more of that.
    even_only: bool,
    /// Refusals it should not have made by its own word.
    broken: u8,
}

/// The longest rest until a reset that was announced with a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Rest {
    limit: u64,
    longest: Duration,
}

/// A quota of requests with all that is known of it.
struct Known {
    limit: f64,
    window: Duration,
    /// Requests left, less those under way beside the one that told it.
    left: Option<f64>,
    reset: Duration,
}

impl Default for Announced {
    fn default() -> Self {
        Self::starting_at(1.0)
    }
}

impl Announced {
    /// Nothing is announced yet to a key that starts at `start` requests per second.
    pub(super) fn starting_at(start: f64) -> Self {
        Self {
            rests: [Rest::default(); 2],
            rate: 0.0,
            start,
            end: Timestamp::ZERO,
            left: 0,
            slides: false,
            fills_slowly: false,
            speeds_up: false,
            even_only: false,
            broken: 0,
        }
    }

    /// The rate the server allows, if it says so.
    pub(super) fn rate(&self) -> Option<f64> {
        (self.rate > 0.0 && self.is_believed()).then_some(self.rate)
    }

    const fn is_believed(&self) -> bool {
        self.broken < BROKEN
    }

    /// It refused a request that left beside `beside` others, at or below the rate it announces.
    pub(super) fn refused(&mut self, quotas: &[Quota], beside: u16) {
        let left = of_requests(quotas)
            .filter_map(|quota| quota.remaining)
            .min();
        if self.rate > 0.0 && left.is_none_or(|left| left > u64::from(beside)) {
            if self.speeds_up {
                self.even_only = true;
            } else {
                self.broken = self.broken.saturating_add(1);
            }
        }
    }

    /// Whether a quota stops the key until its reset, with so many requests under way.
    pub(super) fn stops_at(&self, quota: &Quota, under_way: u64) -> bool {
        let (Some(left), Some(reset)) = (quota.remaining, quota.reset) else {
            return false;
        };
        // A short window is left evenly: those under way are counted by the pace.
        let is_long = self.window(quota).max(reset) > EVEN_UP_TO;
        let under_way = if is_long && !self.slides {
            under_way
        } else {
            0
        };
        let trusted = reset >= TELLING || !self.fills_slowly;
        self.is_believed() && left <= under_way && trusted
    }

    pub(super) fn plausible(&self) -> bool {
        let is_rate = |rate: f64| rate >= 0.0 && rate.is_finite();
        let rests = self.rests.iter().all(|rest| rest.longest <= LONGEST);
        is_rate(self.rate) && is_rate(self.start) && rests
    }

    /// With a clock that was set back, its time goes back as far.
    pub(super) fn rebase(&mut self, back: Duration) {
        self.end = self.end - back;
    }

    /// Takes in what an answer announced.
    pub(super) fn hear(&mut self, sample: &Sample<'_>) {
        let mut slowest: Option<(f64, bool)> = None;
        let mut is_first = true;
        for quota in of_requests(sample.quotas) {
            self.measure(quota);
            if is_first {
                self.watch(quota, sample);
                is_first = false;
            }
            let Some(known) = self.known(quota, sample.beside) else {
                continue;
            };
            let even = known.even();
            let rate = self.pace(&known, sample.latency);
            if slowest.is_none_or(|(slowest, _)| rate < slowest) {
                slowest = Some((rate, rate > even * 1.01));
            }
        }
        if let Some((rate, speeds_up)) = slowest {
            (self.rate, self.speeds_up) = (rate, speeds_up);
        }
    }

    /// Keeps the longest rest until a reset; the limit that was announced with the shorter one gives way.
    fn measure(&mut self, quota: &Quota) {
        let Some(limit) = quota.limit.filter(|_| quota.window.is_none()) else {
            return;
        };
        let reset = quota.reset.unwrap_or_default().min(LONGEST);
        let at = match self.rests.iter().position(|rest| rest.limit == limit) {
            Some(at) => at,
            None => usize::from(self.rests[1].longest < self.rests[0].longest),
        };
        let rest = &mut self.rests[at];
        if rest.limit != limit {
            *rest = Rest::default();
        }
        rest.limit = limit;
        rest.longest = rest.longest.max(reset);
    }

    /// Looks at how the end of the tightest quota moves.
    fn watch(&mut self, quota: &Quota, sample: &Sample<'_>) {
        let (Some(reset), Some(left)) = (quota.reset, quota.remaining) else {
            return;
        };
        let end = sample.now + reset.min(LONGEST);
        let has_passed = self.end <= sample.now;
        if self.end > Timestamp::ZERO && has_passed {
            let counted = left + 1 + u64::from(sample.beside);
            self.fills_slowly |= quota.limit.is_some_and(|limit| counted < limit);
        }
        let is_whole_again = left > self.left;
        self.left = left;
        if has_passed || is_whole_again {
            (self.end, self.slides) = (end, false);
        } else if end > self.end + 2 * SECOND {
            self.slides = true;
        }
    }

    /// The window of a quota, told or measured; zero if neither.
    fn window(&self, quota: &Quota) -> Duration {
        if let Some(window) = quota.window {
            return window.clamp(SECOND, LONGEST);
        }
        let mut rests = self.rests.iter();
        let rest = rests.find(|rest| Some(rest.limit) == quota.limit && !rest.longest.is_zero());
        rest.map_or(Duration::ZERO, |rest| {
            // A reset told as a time of day is rounded up to a second; windows are round numbers.
            let longest = rest.longest;
            rounds()
                .find(|round| longest > *round && longest <= *round + SECOND)
                .unwrap_or(longest)
                .clamp(SECOND, LONGEST)
        })
    }

    fn known(&self, quota: &Quota, beside: u16) -> Option<Known> {
        let reset = quota.reset.unwrap_or_default().min(LONGEST);
        let window = self.window(quota);
        let left = quota
            .remaining
            .map(|left| left.saturating_sub(u64::from(beside)) as f64);
        // A quota without a limit is as large as what is left of it.
        let (limit, window) = match quota.limit {
            Some(limit) => (limit as f64, window),
            None => (quota.remaining?.max(1) as f64, window.max(reset)),
        };
        (!window.is_zero()).then_some(Known {
            limit,
            window,
            left,
            reset,
        })
    }

    /// The pace that a quota allows, requests per second.
    fn pace(&self, known: &Known, round_trip: Duration) -> f64 {
        let Some(left) = known.left else {
            return known.policy();
        };
        if known.window <= EVEN_UP_TO || self.even_only {
            return known.even();
        }
        let reset_s = known.reset.as_secs_f64();
        if known.reset < TELLING && self.fills_slowly {
            return known.policy();
        }
        let mut reserve = (known.limit * RESERVE).max(RESERVE_MIN);
        if self.slides {
            reserve = reserve.max(LOOKS.min(known.limit / 4.0));
        }
        // A quota that names no reset is taken to be whole again after a window.
        let until_whole_s = if known.reset.is_zero() {
            known.window.as_secs_f64()
        } else {
            reset_s.max(TELLING.as_secs_f64())
        };
        // With nothing left the next one leaves after the reset.
        let mut slow = (left / until_whole_s).max(1.0 / (until_whole_s + 1.0));
        if self.slides && left >= 1.0 {
            slow = slow.max(LOOKS / known.window.as_secs_f64());
        }
        let within_s =
            SPEND_WITHIN_S.max(2.0 * round_trip.min(super::ROUND_TRIP_MAX).as_secs_f64());
        let fast = ((left - reserve) / within_s).min((known.policy() * SPEED_UP).max(self.start));
        slow.max(fast)
    }
}

impl Known {
    /// The limit over the window, a little less.
    fn policy(&self) -> f64 {
        self.limit / (self.window + EARLY).as_secs_f64() * (1.0 - MARGIN)
    }

    /// The policy's pace, corrected by what is left.
    fn even(&self) -> f64 {
        let policy = self.policy();
        let Some(remaining) = self.left.filter(|_| self.reset >= TELLING) else {
            return policy;
        };
        let left = remaining / self.reset.as_secs_f64();
        // Rounded up: it may be that much sooner, and slowing down for nothing leaves the rest unused.
        let sooner = remaining / self.reset.saturating_sub(SECOND).as_secs_f64();
        let share = remaining / (self.limit * NEARLY_SPENT);
        // Part of a window went unused; or it is nearly spent, by others or by us.
        policy
            .max(left.min(2.0 * policy))
            .min(sooner.max(policy * share.max(SLOWEST)))
    }
}

fn of_requests(quotas: &[Quota]) -> impl Iterator<Item = &Quota> {
    quotas.iter().filter(|quota| quota.unit == Unit::Requests)
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::sample;
    use super::*;
    use crate::signal::Signal;

    /// 600 a minute, less what is to be on the safe side.
    const POLICY: f64 = 600.0 / 60.02 * (1.0 - MARGIN);

    fn quota(window_s: Option<u64>, remaining: u64, reset_s: f64) -> Quota {
        Quota {
            limit: Some(600),
            window: window_s.map(Duration::from_secs),
            remaining: Some(remaining),
            reset: Some(Duration::from_secs_f64(reset_s)),
            ..Quota::default()
        }
    }

    /// An answer at `now_s` to a request that left beside `beside` others.
    fn hear(announced: &mut Announced, now_s: f64, quotas: &[Quota], beside: u16) {
        announced.hear(&Sample {
            quotas,
            beside,
            ..sample(now_s, Signal::Ok)
        });
    }

    /// A key that follows long windows evenly, too.
    fn even() -> Announced {
        Announced {
            even_only: true,
            ..Announced::default()
        }
    }

    fn heard(quotas: &[Quota]) -> Announced {
        let mut announced = even();
        for quota in quotas {
            hear(&mut announced, 1.0, &[*quota], 0);
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
        hear(&mut announced, 1.0, &[], 0);
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
        let mut announced = even();
        hear(&mut announced, 1.0, &[quota(Some(60), 30, 50.0)], 15);
        near(&announced, POLICY / 2.0);
    }

    #[test]
    fn a_reset_told_in_a_second_or_two_is_too_rough_to_count_with() {
        near(&heard(&[quota(Some(60), 1, 1.0)]), POLICY);
    }

    #[test]
    fn a_window_that_is_not_told_is_the_longest_rest_until_a_reset() {
        let announced = heard(&[quota(None, 500, 45.0), quota(None, 90, 9.0)]);
        assert_eq!(
            announced.rests[0]
                .longest
                .max(announced.rests[1].longest)
                .as_secs(),
            45
        );
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
        let five = Quota {
            limit: Some(5),
            window: Some(SECOND),
            remaining: Some(4),
            reset: Some(SECOND),
            ..Quota::default()
        };
        let announced = heard(&[five]);
        let five = 5.0 / announced.rate().expect("a rate");
        assert!((1.015..1.03).contains(&five), "{five}");
    }

    #[test]
    fn who_lies_twice_is_not_believed_again() {
        let mut announced = heard(&[quota(Some(60), 390, 40.0)]);
        announced.refused(&[quota(Some(60), 390, 40.0)], 3);
        near(&announced, POLICY);
        announced.refused(&[], 3);
        assert_eq!(announced.rate(), None);
        hear(&mut announced, 2.0, &[quota(Some(60), 390, 40.0)], 0);
        assert_eq!(announced.rate(), None);
    }

    #[test]
    fn a_refusal_when_nothing_is_left_is_no_lie() {
        let mut announced = heard(&[quota(Some(60), 390, 40.0)]);
        (0..9).for_each(|_| announced.refused(&[quota(Some(60), 3, 40.0)], 3));
        near(&announced, POLICY);
    }

    #[test]
    fn no_header_parks_a_key_for_longer_than_a_day_is_long() {
        let mut for_ever = quota(None, 0, 0.0);
        for_ever.reset = Some(Duration::MAX);
        let rate = heard(&[for_ever]).rate().expect("a rate");
        assert!(rate >= 600.0 / 86_400.0 * SLOWEST * 0.99, "{rate}");
    }

    fn hourly(remaining: u64, reset_s: u64) -> Quota {
        Quota {
            limit: Some(60),
            remaining: Some(remaining),
            reset: Some(Duration::from_secs(reset_s)),
            ..Quota::default()
        }
    }

    /// lychee#2027: eight pages waited for a minute each.
    #[test]
    fn what_is_left_of_a_long_window_is_spent_and_the_last_of_it_is_spread() {
        let mut announced = Announced::default();
        let mut now_s = 1.0;
        for left in (4..60).rev() {
            hear(
                &mut announced,
                now_s,
                &[hourly(left, 3_600 - now_s as u64)],
                0,
            );
            let rate = announced.rate().expect("a rate");
            assert!((0.9..=4.0).contains(&rate), "{rate} with {left} left");
            now_s += 1.0 / rate;
        }
        hear(&mut announced, now_s, &[hourly(1, 3_540)], 0);
        let rate = announced.rate().expect("a rate");
        assert!((rate * 3_540.0 - 1.0).abs() < 0.01, "{rate}");
        hear(&mut announced, now_s, &[hourly(0, 3_500)], 0);
        assert!(announced.rate().expect("a rate") < 1.0 / 3_500.0);
        assert!(announced.stops_at(&hourly(0, 3_500), 0));
        assert!(
            announced.stops_at(&hourly(2, 3_500), 2),
            "those under way are not counted yet"
        );
        assert!(!announced.stops_at(&hourly(1, 3_500), 0));
        assert!(announced.plausible());
    }

    #[test]
    fn requests_under_way_and_a_long_round_trip_slow_the_spending_near_the_end() {
        let mut announced = Announced::default();
        hear(&mut announced, 1.0, &[hourly(20, 3_600)], 16);
        assert!(announced.rate().expect("a rate") <= 1.0);
        let slow = Sample {
            quotas: &[hourly(20, 3_600)],
            latency: Duration::from_secs(30),
            ..sample(2.0, Signal::Ok)
        };
        announced.hear(&slow);
        assert!(announced.rate().expect("a rate") < 0.4);
    }

    #[test]
    fn a_refusal_with_quota_left_ends_the_spending_and_two_more_end_the_belief() {
        let mut announced = Announced::default();
        hear(&mut announced, 1.0, &[quota(Some(60), 500, 50.0)], 0);
        assert!(announced.rate().expect("a rate") > 3.9 * POLICY);
        announced.refused(&[quota(Some(60), 500, 50.0)], 3);
        hear(&mut announced, 2.0, &[quota(Some(60), 390, 40.0)], 0);
        near(&announced, POLICY);
        announced.refused(&[], 0);
        announced.refused(&[], 0);
        assert_eq!(announced.rate(), None);
        assert!(!announced.stops_at(&quota(Some(60), 0, 40.0), 0));
    }

    #[test]
    fn of_several_quotas_of_requests_the_slowest_decides_and_others_do_not_pace() {
        let secondly = Quota {
            limit: Some(10),
            window: Some(SECOND),
            remaining: Some(9),
            ..Quota::default()
        };
        let tokens = Quota {
            unit: Unit::Tokens,
            remaining: Some(1),
            ..hourly(1, 3_600)
        };
        let mut announced = Announced::default();
        hear(
            &mut announced,
            1.0,
            &[tokens, quota(Some(60), 590, 59.0), secondly],
            0,
        );
        let rate = announced.rate().expect("a rate");
        assert!((9.7..10.0).contains(&rate), "{rate}");
    }

    #[test]
    fn a_window_that_slides_keeps_more_and_is_looked_at_all_the_time() {
        let mut announced = Announced::default();
        for second in 1..10_u32 {
            let left = 18 - u64::from(second);
            hear(
                &mut announced,
                f64::from(second),
                &[quota(Some(60), left, 60.0)],
                0,
            );
        }
        assert!(announced.slides);
        let rate = announced.rate().expect("a rate");
        assert!((rate - LOOKS / 60.0).abs() < 1e-9, "{rate}");
        assert!(
            !announced.stops_at(&quota(Some(60), 2, 60.0), 2),
            "some is free before that"
        );
        assert!(announced.stops_at(&quota(Some(60), 0, 60.0), 0));
    }

    /// It was used at four fifths: each answer said that nothing was left for one second.
    #[test]
    fn a_bucket_of_one_is_paced_and_not_held() {
        let bucket = Quota {
            limit: Some(20),
            window: Some(Duration::from_secs(20)),
            remaining: Some(0),
            reset: Some(SECOND),
            ..Quota::default()
        };
        let mut announced = Announced::default();
        hear(&mut announced, 1.0, &[bucket], 0);
        assert!(announced.stops_at(&bucket, 0));
        hear(&mut announced, 2.1, &[bucket], 0);
        assert!(!announced.stops_at(&bucket, 0));
        near(&announced, 20.0 / 20.02 * (1.0 - MARGIN));
    }
}
