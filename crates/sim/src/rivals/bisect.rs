//! The throttler proposed for Scrapy (PR #6931 "Throttling", open since 2025-06-29;
//! `scrapy/throttler.py` as read at 0796879 and, in the fork of `AdrianAtZyte`, 121de60): a
//! bracketing search for the smallest tolerated delay.
//!
//! A refusal marks the current delay as unsafe. The delay doubles (at least 1 s, at most 300 s), or
//! jumps to a delay known to be safe. Each quiet minute proves the delay safe, and tries the middle
//! between it and the highest unsafe one, which decays towards the base by half meanwhile. Within a
//! second of the base the search ends and is forgotten. Retry-After, or else an announced reset, is
//! one hold of at most 300 s on top of the step. Jitter is 10 % while backing off.
//!
//! Its documented defaults are base delay 0 and one request in flight. In the transition period the
//! concurrency would still be the old setting's 8; that is not simulated. The branch may have
//! changed since.

use std::time::Duration;

use politely_core::{Rng, Timestamp};

use super::pace::secs;
use crate::client::{Answer, Client, Reply};

const FACTOR: f64 = 2.0;
const JITTER: f64 = 0.1;
/// The least delay while backing off, in seconds.
const DELAY_MIN_S: f64 = 1.0;
/// Seconds.
const DELAY_MAX_S: f64 = 300.0;
/// A delay is safe after this span without a refusal.
const WINDOW: Duration = Duration::from_mins(1);

/// The search: delays in seconds, the base being zero.
#[derive(Clone, Copy, Debug, Default)]
struct Search {
    delay: f64,
    max_unsafe: Option<f64>,
    min_safe: Option<f64>,
    last_refused: Timestamp,
}

impl Search {
    /// Takes the steps of all quiet windows up to `now`.
    fn recover(&mut self, now: Timestamp) {
        while self.delay > 0.0 && now.since(self.last_refused) >= WINDOW {
            self.last_refused = self.last_refused + WINDOW;
            let safe = self
                .min_safe
                .map_or(self.delay, |safe| safe.min(self.delay));
            self.min_safe = Some(safe);
            self.delay = f64::midpoint(self.max_unsafe.unwrap_or(0.0), safe);
            self.max_unsafe = (self.max_unsafe)
                .map(|bound| bound / 2.0)
                .filter(|bound| *bound >= DELAY_MIN_S);
            if self.delay < DELAY_MIN_S {
                *self = Self::default();
            }
        }
    }

    fn refused(&mut self, now: Timestamp) {
        self.last_refused = now;
        let bound = self
            .max_unsafe
            .map_or(self.delay, |bound| bound.max(self.delay));
        self.max_unsafe = Some(bound);
        self.min_safe = self.min_safe.filter(|safe| *safe > bound);
        let grown = self.min_safe.unwrap_or(self.delay * FACTOR);
        self.delay = grown.clamp(DELAY_MIN_S, DELAY_MAX_S);
    }
}

#[derive(Debug)]
pub(super) struct Bisect {
    search: Search,
    in_flight: bool,
    next: Timestamp,
    hold: Timestamp,
    rng: Rng,
}

impl Bisect {
    pub(super) fn new(rng: Rng) -> Self {
        Self {
            search: Search::default(),
            in_flight: false,
            next: Timestamp::ZERO,
            hold: Timestamp::ZERO,
            rng,
        }
    }

    fn jittered(&mut self) -> Duration {
        secs(self.search.delay * self.rng.between(1.0 - JITTER, 1.0 + JITTER))
    }
}

impl Client for Bisect {
    fn ask(&mut self, now: Timestamp) -> Answer {
        self.search.recover(now);
        let due = self.next.max(self.hold);
        if now < due {
            return Answer::At(due);
        }
        if self.in_flight {
            return Answer::AfterReply;
        }
        self.in_flight = true;
        self.next = now + self.jittered();
        Answer::Go(0)
    }

    fn hear(&mut self, now: Timestamp, reply: &Reply, _rng: &mut Rng) {
        self.in_flight = false;
        if !matches!(reply.status, 429 | 502..=504 | 520..=524) {
            return;
        }
        let asked = reply
            .retry_after
            .or(reply.quota.and_then(|quota| quota.reset));
        if let Some(asked) = asked {
            self.hold = now + asked.min(secs(DELAY_MAX_S));
        }
        self.search.refused(now);
        self.next = now + self.jittered();
    }

    fn rate(&self, _now: Timestamp) -> Option<f64> {
        (self.search.delay > 0.0).then(|| 1.0 / self.search.delay)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::near;
    use super::*;

    const START: Timestamp = Timestamp::ZERO;

    fn at(secs: f64) -> Timestamp {
        Timestamp::from_secs_f64(secs)
    }

    /// The branch's `test_exponential_backoff`, `test_recovery_bisects_toward_ideal` and
    /// `test_backoff_escapes_stale_safe_delay`.
    #[test]
    fn the_branchs_own_search() {
        let mut search = Search::default();
        for delay in [1.0, 2.0, 4.0, 8.0] {
            search.refused(START);
            near(search.delay, delay);
        }
        assert_eq!((search.max_unsafe, search.min_safe), (Some(4.0), None));
        search.recover(at(60.0));
        assert_eq!((search.delay, search.min_safe), (6.0, Some(8.0)));
        let mut stale = search;
        search.refused(at(60.0));
        assert_eq!((search.max_unsafe, search.delay), (Some(6.0), 8.0));

        stale.delay = 8.0;
        stale.refused(at(60.0));
        assert_eq!((stale.delay, stale.min_safe), (16.0, None));
    }

    /// The branch's `test_recovery_reaches_base_and_resets`,
    /// `test_recovery_tracks_a_more_permissive_server`, `test_backoff_cap`.
    #[test]
    fn quiet_minutes_lead_back_to_the_base_and_refusals_to_the_cap() {
        for (refusals, quiet) in [(1, 600.0), (4, 6000.0)] {
            let mut search = Search::default();
            for _ in 0..refusals {
                search.refused(START);
            }
            search.recover(at(quiet));
            near(search.delay, 0.0);
            assert_eq!((search.max_unsafe, search.min_safe), (None, None));
        }
        let mut search = Search::default();
        for _ in 0..20 {
            search.refused(START);
        }
        near(search.delay, 300.0);
    }
}
