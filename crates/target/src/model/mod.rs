//! Limits as servers really enforce them, as pure models: time comes in, a [`Verdict`] comes out.
//!
//! One file is one kind of limit, written after the server that made the kind popular, with its
//! rounding: nginx's `limit_req` in milliseconds and thousandths of a request, Cloudflare's
//! weighted two windows, and so on. The target's server and the simulator run the same models, so
//! results in virtual time hold for a socket.
//!
//! Two tested properties hold for all of them. A refused request costs nothing: only accepted ones
//! are charged. And `retry_after` is exact: without other clients, a request at `now + retry_after`
//! is accepted, and one a microsecond earlier is not.

mod all;
mod ban;
mod best_time;
mod build;
mod concurrency;
mod fault;
mod fixed_window;
mod host;
mod leaky;
mod service;
mod shared;
mod sliding_counter;
mod sliding_log;
mod spec;
mod steps;
mod token_bucket;
mod varying;

use std::time::Duration;

use politely_core::Timestamp;

pub use all::All;
pub use ban::BanAnswer;
pub use best_time::best_time;
pub use concurrency::Concurrency;
pub use fault::{FaultSpec, Outage};
pub use fixed_window::FixedWindow;
pub use host::{Answer, LimitedHost};
pub use leaky::Leaky;
pub use service::Service;
pub use shared::{Others, Shared};
pub use sliding_counter::SlidingCounter;
pub use sliding_log::SlidingLog;
pub use spec::{LimitSpec, SpecError};
pub use steps::Steps;
pub use token_bucket::TokenBucket;
pub use varying::Varying;

/// A limit's verdict on one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Accepted. The server starts on it after this delay, which is zero except for a leaky bucket
    /// that delays.
    Serve {
        /// From the arrival to the start of the work.
        after: Duration,
    },
    /// Accepted, but no slot is free. It starts when [`Limit::depart`] hands a slot on, first come
    /// first served, and not before `after`.
    Queue {
        /// The earliest start, from the arrival.
        after: Duration,
    },
    /// Refused, and nothing was charged.
    Refuse {
        /// The exact time until the same request would be accepted without other clients. `None` if
        /// that depends on other requests ending.
        retry_after: Option<Duration>,
    },
}

impl Verdict {
    /// Accepted, at once.
    const NOW: Self = Self::Serve {
        after: Duration::ZERO,
    };

    /// Returns whether it is served now or later.
    pub const fn accepted(self) -> bool {
        !matches!(self, Self::Refuse { .. })
    }

    /// Returns a refusal until `at`.
    fn refuse_until(now: Timestamp, at: Timestamp) -> Self {
        Self::Refuse {
            retry_after: Some(at.since(now)),
        }
    }
}

/// What a server could truthfully announce about a limit in its headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Requests allowed per `window`.
    pub limit: u64,
    /// Requests that would be accepted now.
    pub remaining: u64,
    /// Time until the quota is full again.
    pub reset: Duration,
    /// The window of `limit`; zero for a limit on concurrency.
    pub window: Duration,
}

/// One limit with its state, built from a [`LimitSpec`].
#[derive(Clone, Debug, PartialEq)]
pub enum Limit {
    /// Tokens at a rate, up to a burst.
    TokenBucket(TokenBucket),
    /// A count per window.
    FixedWindow(FixedWindow),
    /// A count in every window.
    SlidingLog(SlidingLog),
    /// A count in two weighted windows.
    SlidingCounter(SlidingCounter),
    /// nginx's `limit_req`.
    Leaky(Leaky),
    /// A number of concurrent requests; further ones are refused or queued.
    Concurrency(Concurrency),
    /// Several limits at once.
    All(All),
    /// One limit after another.
    Steps(Steps),
    /// Tokens at a rate that varies.
    Varying(Varying),
    /// A limit that other clients use too.
    Shared(Shared),
    /// No limit.
    None,
}

impl Limit {
    /// Handles an arriving request, and charges it if it is accepted. `now` must not go back
    /// between calls.
    pub fn arrive(&mut self, now: Timestamp) -> Verdict {
        let verdict = self.check(now);
        if verdict.accepted() {
            self.take(now, verdict);
        }
        verdict
    }

    /// Returns the verdict of [`Self::arrive`] without charging.
    pub fn check(&mut self, now: Timestamp) -> Verdict {
        match self {
            Self::TokenBucket(limit) => limit.check(now),
            Self::FixedWindow(limit) => limit.check(now),
            Self::SlidingLog(limit) => limit.check(now),
            Self::SlidingCounter(limit) => limit.check(now),
            Self::Leaky(limit) => limit.check(now),
            Self::Concurrency(limit) => limit.check(),
            Self::All(limit) => limit.check(now),
            Self::Steps(limit) => limit.check(now),
            Self::Varying(limit) => limit.check(now),
            Self::Shared(limit) => limit.check(now),
            Self::None => Verdict::NOW,
        }
    }

    /// Charges a request that [`Self::check`] has accepted with `verdict` at the same `now`.
    fn take(&mut self, now: Timestamp, verdict: Verdict) {
        match self {
            Self::TokenBucket(limit) => limit.take(),
            Self::FixedWindow(limit) => limit.take(now),
            Self::SlidingLog(limit) => limit.take(now),
            Self::SlidingCounter(limit) => limit.take(),
            Self::Leaky(limit) => limit.take(now),
            Self::Concurrency(limit) => limit.take(verdict),
            Self::All(limit) => limit.take(now, verdict),
            Self::Steps(limit) => limit.take(now, verdict),
            Self::Varying(limit) => limit.take(),
            Self::Shared(limit) => limit.take(now, verdict),
            Self::None => {}
        }
    }

    /// Ends a served request, or one whose client has left. Returns how many queued requests start
    /// now, the longest waiting first.
    #[must_use = "queued requests may start now"]
    pub fn depart(&mut self, now: Timestamp) -> u32 {
        match self {
            Self::Concurrency(limit) => limit.depart(),
            Self::All(limit) => limit.depart(now),
            Self::Steps(limit) => limit.depart(now),
            _ => 0,
        }
    }

    /// Removes a queued request whose client left before it started.
    pub fn abandon(&mut self) {
        match self {
            Self::Concurrency(limit) => limit.abandon(),
            Self::All(limit) => limit.abandon(),
            Self::Steps(limit) => limit.abandon(),
            _ => {}
        }
    }

    /// Returns what could be announced now, if anything.
    pub fn quota(&mut self, now: Timestamp) -> Option<Quota> {
        match self {
            Self::TokenBucket(limit) => Some(limit.quota(now)),
            Self::FixedWindow(limit) => Some(limit.quota(now)),
            Self::SlidingLog(limit) => Some(limit.quota(now)),
            Self::SlidingCounter(limit) => Some(limit.quota(now)),
            Self::Leaky(limit) => Some(limit.quota(now)),
            Self::Concurrency(limit) => Some(limit.quota()),
            Self::All(limit) => limit.quota(now),
            Self::Steps(limit) => limit.quota(now),
            Self::Varying(limit) => Some(limit.quota(now)),
            Self::Shared(limit) => limit.quota(now),
            Self::None => None,
        }
    }

    /// Makes the clock of aligned windows and days read `phase` at time zero. Random walks and
    /// other clients of a shared limit are drawn from the seed and this phase. Call it on a fresh
    /// limit.
    pub fn shift(&mut self, phase: Duration) {
        match self {
            Self::FixedWindow(limit) => limit.shift(phase.as_micros() as u64),
            Self::SlidingCounter(limit) => limit.shift(phase.as_micros() as u64),
            Self::All(limit) => limit.shift(phase),
            Self::Steps(limit) => limit.shift(phase),
            Self::Varying(limit) => limit.shift(phase),
            Self::Shared(limit) => limit.shift(phase),
            _ => {}
        }
    }

    /// Returns whether departures matter to it.
    pub fn has_slots(&self) -> bool {
        match self {
            Self::Concurrency(_) => true,
            Self::All(limit) => limit.has_slots(),
            Self::Steps(limit) => limit.has_slots(),
            _ => false,
        }
    }

    /// Returns how many requests it can queue for a slot.
    fn queue_len_max(&self) -> u32 {
        match self {
            Self::Concurrency(limit) => limit.queue_len_max(),
            Self::All(limit) => limit.queue_len_max(),
            Self::Steps(limit) => limit.queue_len_max(),
            _ => 0,
        }
    }

    /// Takes over requests that another limit had accepted.
    fn adopt(&mut self, running: u32, queued: u32) {
        match self {
            Self::Concurrency(limit) => limit.adopt(running, queued),
            Self::All(limit) => limit.adopt(running, queued),
            Self::Steps(limit) => limit.adopt(running, queued),
            _ => {}
        }
    }
}

/// Returns the first integer at which a sum that grows by `per_step` reaches `need`.
const fn steps_to_reach(need: u64, per_step: u64) -> u64 {
    need.div_ceil(per_step)
}

#[cfg(test)]
mod property_tests;
#[cfg(test)]
mod tests;
