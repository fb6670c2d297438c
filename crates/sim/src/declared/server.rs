//! Declared limits as a server enforces them, in windows that begin by its own clock.
//!
//! A refused request costs nothing. Tokens are counted as the request arrives, and may exceed what
//! is left once, as at the provider of `politely target --preset openai`. It does not use the code
//! of the client's budgets.

use std::time::Duration;

use politely_core::budget::{LimitUnit, LimitWindow};
use politely_core::{Rng, Timestamp};

use super::study::Case;

/// The clock of the server differs by at most this much where windows begin at midnight.
const CLOCK_SECONDS: f64 = 0.5;

pub(super) struct Server {
    windows: Vec<Window>,
    refused: u64,
}

struct Window {
    quantity: u64,
    is_tokens: bool,
    bounds: Bounds,
    /// The end of the present window.
    end: Timestamp,
    spent: u64,
    total: u64,
    /// The quantity of all windows of a run.
    capacity: f64,
}

enum Bounds {
    /// Windows of this length.
    Every(Duration),
    /// These boundaries, in order.
    At(Vec<Timestamp>),
}

impl Server {
    /// Creates the server of a run that begins at `begin`. Its clock is drawn from `rng`.
    pub(super) fn new(case: &Case, begin: Timestamp, rng: &mut Rng) -> Self {
        let limits = case.limits();
        let windows = limits.windows().iter().map(|limit| {
            let (bounds, end, count) = if let LimitWindow::Rolling(length) = limit.window() {
                let end = begin + length.mul_f64(rng.unit());
                let count = case.length.as_secs_f64() / length.as_secs_f64();
                (Bounds::Every(*length), end, count)
            } else {
                let clock = rng.between(-CLOCK_SECONDS, CLOCK_SECONDS);
                let times = case.midnights_s.iter();
                let times = times.map(|secs| Timestamp::from_secs_f64(*secs as f64 + clock));
                let times: Vec<_> = times.collect();
                let count = times.len() - 1;
                (Bounds::At(times), Timestamp::ZERO, count as f64)
            };
            Window {
                quantity: limit.quantity(),
                is_tokens: matches!(limit.unit(), LimitUnit::Named(_)),
                bounds,
                end,
                spent: 0,
                total: 0,
                capacity: limit.quantity() as f64 * count,
            }
        });
        Self {
            windows: windows.collect(),
            refused: 0,
        }
    }

    /// Counts a request that arrives.
    ///
    /// # Errors
    /// The time after which it would have been served.
    pub(super) fn arrive(&mut self, now: Timestamp, tokens: u64) -> Result<(), Duration> {
        let mut wait: Option<Duration> = None;
        for window in &mut self.windows {
            window.begin(now);
            if window.spent >= window.quantity {
                wait = wait.max(Some(window.end.since(now)));
            }
        }
        if let Some(wait) = wait {
            self.refused += 1;
            return Err(wait);
        }
        for window in &mut self.windows {
            let cost = if window.is_tokens { tokens } else { 1 };
            window.spent += cost;
            window.total += cost;
        }
        Ok(())
    }

    /// Returns the used share of the limit that was used most.
    pub(super) fn used(&self) -> f64 {
        let shares = self.windows.iter();
        let shares = shares.map(|window| window.total as f64 / window.capacity);
        shares.fold(0.0, f64::max)
    }

    pub(super) const fn refused(&self) -> u64 {
        self.refused
    }
}

impl Window {
    /// Begins the window of `now`, if the present one has ended.
    fn begin(&mut self, now: Timestamp) {
        while self.end <= now {
            self.spent = 0;
            self.end = match &self.bounds {
                Bounds::Every(length) => self.end + *length,
                Bounds::At(times) => {
                    let next = times.iter().find(|at| **at > now);
                    next.copied().unwrap_or(Timestamp::NEVER)
                }
            };
        }
    }
}
