//! The limits of one account, counted exactly.

use std::collections::VecDeque;
use std::time::Duration;

use politely_core::Timestamp;
use politely_core::budget::{DeclaredLimit, DeclaredLimits, LimitUnit, LimitWindow, UnitCosts};

use super::LimitReport;

/// The windows of one account.
pub(super) struct Meter {
    windows: Vec<Window>,
    in_flight_max: Option<u32>,
    in_flight: u32,
    in_flight_peak: u32,
}

/// The amounts in one window.
struct Window {
    limit: DeclaredLimit,
    length: Duration,
    amounts: VecDeque<(Timestamp, u64)>,
    sum: u64,
    used: u64,
    peak: u64,
}

/// What is left of one limit.
pub(super) struct Left {
    pub(super) unit: LimitUnit,
    pub(super) quantity: u64,
    pub(super) remaining: u64,
    /// Time until the oldest amount counts no more.
    pub(super) reset: Duration,
}

/// The length of a day, week or month here: a provider's calendar is not played.
fn length_of(window: &LimitWindow) -> Duration {
    match window {
        LimitWindow::Rolling(length) => *length,
        LimitWindow::Calendar(..) | LimitWindow::InFlight => Duration::from_hours(24),
    }
}

impl Meter {
    pub(super) fn new(limits: &DeclaredLimits) -> Self {
        let windows = limits.windows().iter().map(|limit| Window {
            length: length_of(limit.window()),
            limit: limit.clone(),
            amounts: VecDeque::new(),
            sum: 0,
            used: 0,
            peak: 0,
        });
        Self {
            windows: windows.collect(),
            in_flight_max: limits.in_flight(),
            in_flight: 0,
            in_flight_peak: 0,
        }
    }

    /// Counts a request. With `is_known`, its whole cost must fit; otherwise its named units may
    /// exceed what is left.
    ///
    /// # Errors
    /// The time after which the same request may be served.
    pub(super) fn take(
        &mut self,
        now: Timestamp,
        requests: u64,
        units: &UnitCosts,
        is_known: bool,
    ) -> Result<(), Duration> {
        let mut wait = Duration::ZERO;
        if self.in_flight_max.is_some_and(|max| self.in_flight >= max) {
            wait = Duration::from_secs(1);
        }
        for window in &mut self.windows {
            window.forget(now);
            let cost = window.cost(requests, units);
            let needs = match window.limit.unit() {
                LimitUnit::Named(_) if !is_known => cost.min(1),
                _ => cost,
            };
            if needs > 0 && window.sum + needs > window.limit.quantity() {
                wait = wait.max(window.frees(now, needs));
            }
        }
        if !wait.is_zero() {
            return Err(wait);
        }
        for window in &mut self.windows {
            let cost = window.cost(requests, units);
            window.add(now, cost);
        }
        self.in_flight += 1;
        self.in_flight_peak = self.in_flight_peak.max(self.in_flight);
        Ok(())
    }

    /// Frees the slot of a request.
    pub(super) fn leave(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    pub(super) fn quotas(&mut self, now: Timestamp) -> Vec<Left> {
        let left = |window: &mut Window| {
            window.forget(now);
            Left {
                unit: window.limit.unit(),
                quantity: window.limit.quantity(),
                remaining: window.limit.quantity().saturating_sub(window.sum),
                reset: window
                    .amounts
                    .front()
                    .map_or(Duration::ZERO, |(at, _)| (*at + window.length).since(now)),
            }
        };
        self.windows.iter_mut().map(left).collect()
    }

    pub(super) fn report(&self) -> Vec<LimitReport> {
        let windows = self.windows.iter().map(|window| LimitReport {
            limit: window.limit.to_string(),
            quantity: window.limit.quantity(),
            used: window.used,
            peak: window.peak,
        });
        let in_flight = self.in_flight_max.map(|max| LimitReport {
            limit: format!("{max} concurrent"),
            quantity: max.into(),
            used: self.in_flight.into(),
            peak: self.in_flight_peak.into(),
        });
        windows.chain(in_flight).collect()
    }
}

impl Window {
    fn cost(&self, requests: u64, units: &UnitCosts) -> u64 {
        match self.limit.unit() {
            LimitUnit::Requests => requests,
            LimitUnit::Bytes => 0,
            LimitUnit::Named(name) => units.of(name).unwrap_or(0),
        }
    }

    fn forget(&mut self, now: Timestamp) {
        while let Some((at, amount)) = self.amounts.front()
            && *at + self.length <= now
        {
            self.sum -= amount;
            self.amounts.pop_front();
        }
    }

    fn frees(&self, now: Timestamp, needs: u64) -> Duration {
        let mut sum = self.sum;
        for (at, amount) in &self.amounts {
            sum -= amount;
            if sum + needs <= self.limit.quantity() {
                return (*at + self.length).since(now);
            }
        }
        self.length
    }

    fn add(&mut self, now: Timestamp, cost: u64) {
        if cost > 0 {
            self.amounts.push_back((now, cost));
        }
        self.sum += cost;
        self.used += cost;
        self.peak = self.peak.max(self.sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Timestamp {
        Timestamp::from_micros(secs * 1_000_000)
    }

    #[test]
    fn a_window_is_exact_and_tokens_may_exceed_it_once() {
        let mut meter = Meter::new(&"2/min; 100 tokens/min".parse().unwrap());
        let tokens = UnitCosts::new([("tokens", 150)]).unwrap();
        assert_eq!(meter.take(at(1), 1, &tokens, false), Ok(()));
        let wait = meter.take(at(2), 1, &tokens, false).unwrap_err();
        assert_eq!(wait, Duration::from_secs(59));
        assert_eq!(meter.take(at(2), 1, &UnitCosts::NONE, false), Ok(()));
        assert!(meter.take(at(3), 1, &UnitCosts::NONE, false).is_err());
        assert!(meter.take(at(61), 1, &tokens, true).is_err(), "150 of 100");
        let report = meter.report();
        assert_eq!((report[0].peak, report[1].peak), (2, 150));
    }

    #[test]
    fn slots_return() {
        let mut meter = Meter::new(&"1 concurrent; 9/s".parse().unwrap());
        assert!(meter.take(at(1), 1, &UnitCosts::NONE, true).is_ok());
        assert!(meter.take(at(1), 1, &UnitCosts::NONE, true).is_err());
        meter.leave();
        assert!(meter.take(at(1), 1, &UnitCosts::NONE, true).is_ok());
    }
}
