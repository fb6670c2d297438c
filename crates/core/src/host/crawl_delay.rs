//! The Crawl-delay of robots.txt: how long a host wants to rest after each request.
//!
//! A worker that has read the file reports the delay to the key, by itself or with a request
//! ([`AcquireRequest::crawl_delay`](super::AcquireRequest::crawl_delay)). From then on the key has
//! one request in flight at a time. The next request of any worker waits until the delay has passed
//! since the end of the last one.
//!
//! Workers may have read different delays. The largest one that is still fresh counts. After that
//! one is stale, a smaller one must be reported again. The delay is an upper bound beside those of
//! law, profile and operator.

use std::time::Duration;

use super::{Host, Reason, Wait};
use crate::Timestamp;
use crate::config::Config;
use crate::gate::HoldReason;

/// The longest delay obeyed: a day. A longer one counts as a day.
pub const CRAWL_DELAY_MAX: Duration = Duration::from_hours(24);

/// The longest time that a robots.txt is used without a new request for it: 24 h (RFC 9309, 2.4).
pub const CRAWL_DELAY_FRESH_MAX: Duration = Duration::from_hours(24);

/// The Crawl-delay of a robots.txt, as a worker reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrawlDelay {
    /// Time from a request's end to the next one's start, rounded up to whole milliseconds; at most
    /// [`CRAWL_DELAY_MAX`].
    pub pause: Duration,
    /// How long the file stays fresh; at most [`CRAWL_DELAY_FRESH_MAX`].
    pub fresh: Duration,
}

/// The Crawl-delay in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pause {
    ms: u32,
    until: Timestamp,
}

impl Host {
    /// Applies the Crawl-delay of the host's robots.txt. Returns whether that changed anything: the
    /// delay is larger than the one in force, or it lasts longer.
    ///
    /// A larger one counts from now on, because the end of the last request is not known.
    pub fn crawl_delay(&mut self, now: Timestamp, told: CrawlDelay, config: &Config) -> bool {
        if !self.crawl_delay_is_news(now, told) {
            return false;
        }
        let known = self.pause(now);
        let old = self.bounds(now, config).rate;
        let told = Pause::new(now, told);
        self.rare().pause = Some(told);
        let new = self.bounds(now, config).rate;
        self.pace.change(now, &old, &new, self.last_grant);
        if known.is_none_or(|known| known.ms < told.ms) {
            self.rest(now, now);
        }
        true
    }

    /// Returns whether [`Host::crawl_delay`] would change anything.
    pub fn crawl_delay_is_news(&self, now: Timestamp, told: CrawlDelay) -> bool {
        /// The furthest that two clocks may differ about when a file was read.
        const SAME: Duration = Duration::from_mins(1);
        let told = Pause::new(now, told);
        if self.operator_numbers().crawl_delay_ms.is_some() {
            return false;
        }
        match self.pause(now) {
            _ if told.ms == 0 || told.until <= now => false,
            None => true,
            Some(known) if known.ms == told.ms => told.until > known.until + SAME,
            Some(known) => told.ms > known.ms,
        }
    }

    /// Returns the wait of a request whose caller read a Crawl-delay that the key does not know.
    ///
    /// It counts from the start of the last request.
    pub(super) fn rest_before(&self, now: Timestamp, told: CrawlDelay) -> Option<Wait> {
        if self.last_grant == Timestamp::ZERO || !self.crawl_delay_is_news(now, told) {
            return None;
        }
        let at = self.last_grant + Pause::new(now, told).length();
        (at > now).then_some(Wait {
            at,
            reason: Reason::Hold(HoldReason::CrawlDelay),
        })
    }

    /// Starts the rest of a request that ended at `ended`.
    pub(super) fn rest(&mut self, ended: Timestamp, now: Timestamp) {
        if let Some(pause) = self.pause(now) {
            self.hold
                .extend(now, ended + pause.length(), HoldReason::CrawlDelay);
        } else if let Some(rare) = &mut self.rare {
            rare.pause = None;
        }
    }

    /// Returns the Crawl-delay in force at `now`.
    #[inline]
    pub(super) fn pause(&self, now: Timestamp) -> Option<Pause> {
        let rare = self.rare.as_ref()?;
        let pause = match rare.operator.and_then(|set| set.crawl_delay_ms) {
            None => rare.pause,
            Some(0) => None,
            Some(ms) => Some(Pause {
                ms,
                until: Timestamp::NEVER,
            }),
        };
        pause.filter(|pause| pause.until > now)
    }
}

impl Pause {
    fn new(now: Timestamp, told: CrawlDelay) -> Self {
        let micros = told.pause.min(CRAWL_DELAY_MAX).as_micros();
        Self {
            ms: micros.div_ceil(1_000) as u32,
            until: now + told.fresh.min(CRAWL_DELAY_FRESH_MAX),
        }
    }

    pub(super) fn length(self) -> Duration {
        Duration::from_millis(u64::from(self.ms))
    }

    /// Returns the rate for requests that are answered at once, requests per second.
    pub(super) fn rate(self) -> f64 {
        1e3 / f64::from(self.ms)
    }

    /// Returns the longer length of the two, with the later end.
    pub(super) fn join(self, other: Self) -> Self {
        Self {
            ms: self.ms.max(other.ms),
            until: self.until.max(other.until),
        }
    }

    /// Bounds the end after a restart, when the clock may have jumped.
    pub(super) fn rebase(&mut self, now: Timestamp) {
        self.until = self.until.min(now + CRAWL_DELAY_FRESH_MAX);
    }

    pub(super) fn to_bytes(self) -> [u8; 12] {
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(&self.ms.to_le_bytes());
        bytes[4..].copy_from_slice(&self.until.as_micros().to_le_bytes());
        bytes
    }

    pub(super) const fn from_bytes([a, b, c, d, until @ ..]: [u8; 12]) -> Self {
        Self {
            ms: u32::from_le_bytes([a, b, c, d]),
            until: Timestamp::from_micros(u64::from_le_bytes(until)),
        }
    }
}
