//! A server that announces its limit need not be asked for it.
//!
//! Two ways to use a quota of requests:
//!
//! * A short window is followed evenly at its policy's rate, which no limiter refuses. What is left
//!   corrects the pace: down if other clients spend of the same quota, up if part of a window has
//!   gone unused.
//! * Of a long window the pages that wait spend what is left at [`SPEED_UP`] times the policy's
//!   rate. Near the end the pace falls, and a reserve is spread over the time until the reset, for
//!   requests under way and for other clients. A quota with nothing left stops the key until its
//!   reset ([`Announced::stops_at`]).
//!
//! Where the window is not told, the longest rest until a reset that was announced for the same
//! limit is it. A refusal while quota is left means that the server has another limit as well: from
//! then on even a long window is followed evenly. After two refusals at that pace the server's word
//! is no longer believed. Of several quotas of requests the slowest decides; quotas of other units
//! do not pace.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Sample;
use super::window::rounds;
use crate::Timestamp;
use crate::signal::{COUNT_MAX, Quota, Unit};

/// How far below an announced policy the even pace stays. An announced limit is exact.
const MARGIN: f64 = 0.003;
/// How much nearer to the request before it a request may arrive than it was sent.
const EARLY: Duration = Duration::from_millis(20);
/// Resets are told in whole seconds; a shorter one is too rough to count with.
const TELLING: Duration = Duration::from_secs(3);

/// Windows up to this length are followed evenly. A reset is told in whole seconds, so spending a
/// short window at once would lose the rest of a second of each.
const EVEN_UP_TO: Duration = Duration::from_mins(1);
/// How much faster than its policy a long window is spent, at most.
const SPEED_UP: f64 = 4.0;
/// The share of the limit that is spread until the reset instead of being spent at once.
const RESERVE: f64 = 0.02;
/// At least so many requests are kept for that.
const RESERVE_MIN: f64 = 1.0;
/// What is left above the reserve is spent no faster than within this time, so that requests under
/// way do not exceed it. A longer round trip counts instead, twice.
const SPEND_WITHIN_S: f64 = 2.0;

/// With less than this share of the limit left, the even pace slows down.
const NEARLY_SPENT: f64 = 0.05;
/// The even pace falls to no less than this share of the policy: a window that slides frees a
/// little all the time.
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
    /// When the tightest quota is whole again, as the last answer said.
    end: Timestamp,
    /// How many were left of it then.
    left: u64,
    /// When that answer came.
    heard: Timestamp,
    /// Requests became free long before the told end: the window slides.
    slides: bool,
    /// Less than the limit was left after an end: a bucket that holds less than the limit.
    fills_slowly: bool,
    spending: Spending,
    /// Refusals it should not have made by its own word.
    broken: u8,
}

/// How the present rate compares with the policy's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Spending {
    /// At or below it.
    Evenly,
    /// Above it.
    Faster,
    /// At or below it for good: the server refused a request at a faster rate.
    EvenlyForGood,
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
            heard: Timestamp::ZERO,
            slides: false,
            fills_slowly: false,
            spending: Spending::Evenly,
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
            if self.spending == Spending::Faster {
                self.spending = Spending::EvenlyForGood;
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
        // A window that slides frees some before its reset, at the pace that it is followed at.
        if self.slides || !self.is_believed() {
            return false;
        }
        let window = self.window(quota).max(reset);
        // A short window is followed evenly, and the pace counts those under way.
        let under_way = if window > EVEN_UP_TO { under_way } else { 0 };
        // A reset is told in whole seconds, rounded up. At an even pace the next request leaves no
        // sooner than after one interval, so a shorter rest needs no hold.
        let interval = quota.limit.map_or(Duration::ZERO, |limit| {
            window.div_f64(limit.clamp(1, COUNT_MAX) as f64)
        });
        let is_rest = reset.saturating_sub(SECOND) >= interval && reset > SECOND;
        let is_rough = reset < TELLING && self.fills_slowly;
        left <= under_way && is_rest && !is_rough
    }

    pub(super) fn plausible(&self) -> bool {
        let is_rate = |rate: f64| rate >= 0.0 && rate.is_finite();
        let rests = self.rests.iter().all(|rest| rest.longest <= LONGEST);
        is_rate(self.rate) && is_rate(self.start) && rests
    }

    /// With a clock that was set back, its time goes back as far.
    pub(super) fn rebase(&mut self, back: Duration) {
        (self.end, self.heard) = (self.end - back, self.heard - back);
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
        if let Some((rate, is_faster)) = slowest {
            self.rate = rate;
            self.spending = match self.spending {
                Spending::EvenlyForGood => Spending::EvenlyForGood,
                _ if is_faster => Spending::Faster,
                _ => Spending::Evenly,
            };
        }
    }

    /// Keeps the longest rest until a reset; the limit that was announced with the shorter one
    /// gives way.
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
        // Answers come out of order. One to a request that left after the last answer was counted
        // after it.
        if sample.sent < self.heard {
            return;
        }
        let end = sample.now + reset.min(LONGEST);
        let has_passed = self.end <= sample.now;
        if self.end > Timestamp::ZERO && has_passed {
            let counted = left + 1 + u64::from(sample.beside);
            self.fills_slowly |= quota.limit.is_some_and(|limit| counted < limit);
        }
        let nothing_taken = left >= self.left;
        let is_early = sample.now + 2 * SECOND < self.end;
        if self.end > Timestamp::ZERO && is_early && nothing_taken {
            self.slides = true;
            self.spending = Spending::EvenlyForGood;
        }
        (self.end, self.left, self.heard) = (end, left, sample.now);
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
        if known.window <= EVEN_UP_TO || self.spending == Spending::EvenlyForGood {
            return known.even();
        }
        let reset_s = known.reset.as_secs_f64();
        if known.reset < TELLING && self.fills_slowly {
            return known.policy();
        }
        let reserve = (known.limit * RESERVE).max(RESERVE_MIN);
        // A quota that names no reset is taken to be whole again after a window.
        let until_whole_s = if known.reset.is_zero() {
            known.window.as_secs_f64()
        } else {
            reset_s.max(TELLING.as_secs_f64())
        };
        // With nothing left the next one leaves after the reset.
        let slow = if left >= 1.0 {
            left / until_whole_s
        } else if known.reset.is_zero() {
            1.0 / until_whole_s
        } else {
            1.0 / reset_s.max(1.0)
        };
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
        // Rounded up: it may be that much sooner, and slowing down for nothing leaves the rest
        // unused.
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
#[path = "quota_tests.rs"]
mod tests;
