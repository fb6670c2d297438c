//! A server that announces its limit need not be asked for it.
//!
//! Its policy (so many per window) is followed evenly, which no limiter refuses. Where the window is not told, the
//! longest rest until a reset that was ever announced is it. What is left, and until when, corrects the pace:
//! down if others spend of the same quota, up if part of a window has gone unused.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::window::rounds;
use crate::signal::Quota;

/// How far below the policy it rides: what is announced is exact.
const MARGIN: f64 = 0.003;
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
        let policy = limit as f64 / window.as_secs_f64() * (1.0 - MARGIN);
        self.rate = match quota.remaining {
            Some(remaining) if reset >= TELLING => {
                let remaining = remaining.saturating_sub(u64::from(beside)) as f64;
                let left = remaining / reset.as_secs_f64();
                let share = remaining / (limit as f64 * NEARLY_SPENT);
                // Part of a window went unused; or it is nearly spent, by others or by us.
                policy
                    .max(left.min(2.0 * policy))
                    .min(left.max(policy * share.max(SLOWEST)))
            }
            _ => policy,
        };
    }
}
