//! robots.txt's Crawl-delay: how long the host wants to be left alone after each request.
//!
//! Whoever has read it tells the key. From then on the key has one request under way at a time, and after its end the
//! next waits for the delay, whoever asks for it. Several may have read different ones: the largest told that is still
//! fresh counts, and a smaller one is to be told again when that has run out. It bounds what law, profile and operator say,
//! and never raises it.

use std::time::Duration;

use super::Host;
use crate::Timestamp;
use crate::config::Config;
use crate::gate::HoldReason;

/// The longest delay obeyed: a day. A longer one counts as a day.
pub const CRAWL_DELAY_MAX: Duration = Duration::from_hours(24);

/// The longest a robots.txt is gone by without asking for it again: 24 h (RFC 9309, 2.4).
pub const CRAWL_DELAY_FRESH_MAX: Duration = Duration::from_hours(24);

/// What a robots.txt asks for, as it is told to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrawlDelay {
    /// From a request's end to the next one's start, in whole milliseconds, rounded up; at most [`CRAWL_DELAY_MAX`].
    pub pause: Duration,
    /// For how long the file that says so is still gone by; at most [`CRAWL_DELAY_FRESH_MAX`].
    pub fresh: Duration,
}

/// What a key goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pause {
    ms: u32,
    until: Timestamp,
}

impl Host {
    /// The host asks for `told` in its robots.txt. Says whether that is news: a delay larger than what the key goes by, or one
    /// that lasts longer. A larger one counts from now on, since when the last request ended is not known.
    pub fn crawl_delay(&mut self, now: Timestamp, told: CrawlDelay, config: &Config) -> bool {
        if !self.crawl_delay_is_news(now, told) {
            return false;
        }
        let known = self.pause(now);
        let old = self.bounds(now, config).rate;
        let told = Pause::new(now, told);
        self.rare().pause = Some(told);
        let new = self.bounds(now, config).rate;
        self.pace.change(now, &old, &new);
        if known.is_none_or(|known| known.ms < told.ms) {
            self.rest(now, now);
        }
        true
    }

    /// Would [`Host::crawl_delay`] change anything?
    pub fn crawl_delay_is_news(&self, now: Timestamp, told: CrawlDelay) -> bool {
        /// By so much two clocks may differ about when a file was read.
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

    /// A request is over since `ended`.
    pub(super) fn rest(&mut self, ended: Timestamp, now: Timestamp) {
        if let Some(pause) = self.pause(now) {
            self.hold
                .extend(now, ended + pause.length(), HoldReason::CrawlDelay);
        } else if let Some(rare) = &mut self.rare {
            rare.pause = None;
        }
    }

    /// What it goes by at `now`.
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

    /// Requests per second, were they answered at once.
    pub(super) fn rate(self) -> f64 {
        1e3 / f64::from(self.ms)
    }

    /// The longer of two, for as long as the later.
    pub(super) fn join(self, other: Self) -> Self {
        Self {
            ms: self.ms.max(other.ms),
            until: self.until.max(other.until),
        }
    }

    /// After a restart the clock may have jumped.
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
