//! Follows the quotas that a server announces, so that the law need not search for the limit.
//!
//! The policy of a quota is its limit per window. There are two ways to spend a quota of requests:
//!
//! * A short window is spent evenly at the policy's rate, which no limiter refuses. The number of
//!   requests left corrects the pace. It falls if other clients use the same quota, and rises if
//!   part of a window has gone unused.
//! * A long window is spent at up to [`SPEED_UP`] times the policy's rate, so that waiting pages
//!   leave soon. Near the end the pace falls. A reserve is spread over the time until the reset,
//!   for requests in flight and for other clients. A quota with nothing left stops the key until
//!   its reset ([`Announced::stops_at`]).
//!
//! If the server announces no window, its length is the longest announced time until a reset of the
//! same limit.
//!
//! A refusal while requests are left means that the server has another limit as well. From then on
//! even a long window is spent evenly. After two refusals at that pace, the announcements are
//! ignored.
//!
//! The slowest of several quotas of requests sets the pace. Quotas of other units do not affect it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Sample;
use super::window::rounds;
use crate::Timestamp;
use crate::signal::{COUNT_MAX, Quota, Unit};

/// Distance of the even pace below the announced policy, as a share. It is small because an
/// announced limit is exact.
const MARGIN: f64 = 0.003;
/// Time by which the network may shorten the interval between two requests.
const EARLY: Duration = Duration::from_millis(20);
/// Shortest time until a reset from which a pace is computed. Resets are announced in whole
/// seconds, so a shorter time is too imprecise.
const TELLING: Duration = Duration::from_secs(3);

/// Longest window that is always spent evenly. Resets are announced in whole seconds. A short
/// window that is spent at once would lose the rest of a second each time.
const EVEN_UP_TO: Duration = Duration::from_mins(1);
/// Highest pace of a long window, as a multiple of its policy's rate.
const SPEED_UP: f64 = 4.0;
/// Share of the limit that is spread over the time until the reset.
const RESERVE: f64 = 0.02;
/// Least reserve, in requests.
const RESERVE_MIN: f64 = 1.0;
/// Shortest time, in seconds, in which the requests above the reserve are spent. Requests in flight
/// then do not exceed the quota. If two round trips take longer, their time counts instead.
const SPEND_WITHIN_S: f64 = 2.0;

/// Share of the limit below which the number of requests left slows the even pace down.
const NEARLY_SPENT: f64 = 0.05;
/// Lowest even pace, as a share of the policy's rate. A sliding window frees a few requests all the
/// time.
const SLOWEST: f64 = 0.3;

/// Number of refusals against the announcement from which it is ignored.
const BROKEN: u8 = 2;
const SECOND: Duration = Duration::from_secs(1);
/// Longest window that is believed. Without this bound, one header could park a key for ever.
const LONGEST: Duration = Duration::from_hours(24);

/// The quotas that a server announces, and the rate that follows from them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Announced {
    /// The longest time until a reset so far, for each of two limits.
    rests: [Rest; 2],
    /// The allowed rate, in requests per second. Zero: the server announces none.
    rate: f64,
    /// The rate that a key starts with, in requests per second.
    start: f64,
    /// When the tightest quota resets, according to the last answer.
    end: Timestamp,
    /// Number of requests left in that quota, according to the last answer.
    left: u64,
    /// When that answer arrived.
    heard: Timestamp,
    /// Whether the window slides: requests became free long before the announced reset.
    slides: bool,
    /// Whether less than the limit was left after a reset. The quota is then a bucket that holds
    /// less than the limit.
    fills_slowly: bool,
    spending: Spending,
    /// Number of refusals that contradict the announcement.
    broken: u8,
}

/// The present rate in relation to the even pace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Spending {
    /// At or below the even pace.
    Evenly,
    /// Above the even pace.
    Faster,
    /// At or below the even pace for good. The server refused a request at a faster rate, or
    /// its window slides.
    EvenlyForGood,
}

/// The longest time until a reset that was announced with a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Rest {
    limit: u64,
    longest: Duration,
}

/// A quota of requests with its window.
struct Known {
    /// Requests per window.
    limit: f64,
    window: Duration,
    /// Number of requests left, without those that were in flight beside the answered one.
    left: Option<f64>,
    /// Time until the reset. Zero: none was announced.
    reset: Duration,
}

impl Default for Announced {
    fn default() -> Self {
        Self::starting_at(1.0)
    }
}

impl Announced {
    /// Creates the state of a key that starts at `start` requests per second, without
    /// announcements.
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

    /// Returns the rate that the server announces, in requests per second, if it is believed.
    pub(super) fn rate(&self) -> Option<f64> {
        (self.rate > 0.0 && self.is_believed()).then_some(self.rate)
    }

    const fn is_believed(&self) -> bool {
        self.broken < BROKEN
    }

    /// Records a refusal of a request that was sent with `beside` others in flight. The refusal
    /// contradicts the announcement if more requests than those are left.
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

    /// Returns whether a quota stops the key until the quota's reset, with `under_way` requests in
    /// flight.
    pub(super) fn stops_at(&self, quota: &Quota, under_way: u64) -> bool {
        let (Some(left), Some(reset)) = (quota.remaining, quota.reset) else {
            return false;
        };
        // A sliding window frees requests before its reset, at the pace at which the key spends it.
        if self.slides || !self.is_believed() {
            return false;
        }
        let window = self.window(quota).max(reset);
        // A short window is spent evenly, and its pace already accounts for the requests in flight.
        let under_way = if window > EVEN_UP_TO { under_way } else { 0 };
        // A reset is announced in whole seconds, rounded up. At an even pace the next request
        // leaves after one interval or later, so a shorter time until the reset needs no hold.
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

    /// Moves all times back by `back`, the time by which the clock was set back.
    pub(super) fn rebase(&mut self, back: Duration) {
        (self.end, self.heard) = (self.end - back, self.heard - back);
    }

    /// Updates the rate from the quotas of an answer.
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

    /// Records the longest time until a reset for the quota's limit. A new limit replaces the one
    /// with the shorter time.
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

    /// Derives from the resets of the tightest quota whether its window slides or fills slowly.
    fn watch(&mut self, quota: &Quota, sample: &Sample<'_>) {
        let (Some(reset), Some(left)) = (quota.reset, quota.remaining) else {
            return;
        };
        // Answers may arrive out of order. Only a request that was sent after the last answer was
        // certainly counted after it.
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

    /// Returns the window of a quota, announced or measured, or zero if it is unknown.
    fn window(&self, quota: &Quota) -> Duration {
        if let Some(window) = quota.window {
            return window.clamp(SECOND, LONGEST);
        }
        let mut rests = self.rests.iter();
        let rest = rests.find(|rest| Some(rest.limit) == quota.limit && !rest.longest.is_zero());
        rest.map_or(Duration::ZERO, |rest| {
            // A reset that is announced as a time of day is rounded up to a second. So a time just
            // above a round length means that length.
            let longest = rest.longest;
            rounds()
                .find(|round| longest > *round && longest <= *round + SECOND)
                .unwrap_or(longest)
                .clamp(SECOND, LONGEST)
        })
    }

    /// Returns the quota with its window, if that is known.
    fn known(&self, quota: &Quota, beside: u16) -> Option<Known> {
        let reset = quota.reset.unwrap_or_default().min(LONGEST);
        let window = self.window(quota);
        let left = quota
            .remaining
            .map(|left| left.saturating_sub(u64::from(beside)) as f64);
        // If no limit is announced, the number of requests left is used instead.
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

    /// Returns the pace that a quota allows, in requests per second.
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
        // If no reset is announced, it is assumed after one window.
        let until_whole_s = if known.reset.is_zero() {
            known.window.as_secs_f64()
        } else {
            reset_s.max(TELLING.as_secs_f64())
        };
        // With nothing left, the next request leaves after the reset.
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
    /// Returns the policy's rate in requests per second: the limit per window, less a small margin.
    fn policy(&self) -> f64 {
        self.limit / (self.window + EARLY).as_secs_f64() * (1.0 - MARGIN)
    }

    /// Returns the policy's rate, corrected by the number of requests left.
    fn even(&self) -> f64 {
        let policy = self.policy();
        let Some(remaining) = self.left.filter(|_| self.reset >= TELLING) else {
            return policy;
        };
        let left = remaining / self.reset.as_secs_f64();
        // The reset is rounded up, so it may come up to a second sooner. Slowing down without need
        // would leave requests unused.
        let sooner = remaining / self.reset.saturating_sub(SECOND).as_secs_f64();
        let share = remaining / (self.limit * NEARLY_SPENT);
        // The pace rises if part of the window has gone unused. It falls if the window is nearly
        // spent, by this key or by other clients.
        policy
            .max(left.min(2.0 * policy))
            .min(sooner.max(policy * share.max(SLOWEST)))
    }
}

/// Returns the quotas whose unit is requests.
fn of_requests(quotas: &[Quota]) -> impl Iterator<Item = &Quota> {
    quotas.iter().filter(|quota| quota.unit == Unit::Requests)
}

#[cfg(test)]
#[path = "quota_tests.rs"]
mod tests;
