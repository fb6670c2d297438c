//! Estimates how long a key takes for the requests that wait, as things are now.

use std::time::Duration;

use super::{Explanation, Reason};
use crate::Timestamp;
use crate::budget::{LimitUnit, LimitWindow, Period, Remainder};
use crate::gate::HoldReason;

/// A longer hold says nothing about what follows it, so its key is closed.
const HOLD_MAX: Duration = Duration::from_mins(1);
/// The longest estimate.
const LONGEST: Duration = Duration::from_hours(1000 * 365 * 24);

impl Explanation {
    /// Returns how long `requests` requests take from `now` on. Returns `None` if the key is
    /// closed: it is held for more than a minute, blocked or unreachable, so nothing tells when it
    /// serves requests again.
    pub fn time_for(&self, requests: u64, now: Timestamp) -> Option<Duration> {
        let pause = self.wait.map_or(Duration::ZERO, |wait| wait.at.since(now));
        let pause = match self.wait.map(|wait| wait.reason) {
            Some(
                Reason::Parked(_)
                | Reason::Breaker
                | Reason::Quarantine
                | Reason::Unavailable
                | Reason::Unreadable,
            ) => return None,
            Some(Reason::Hold(why)) if why != HoldReason::CrawlDelay && pause > HOLD_MAX => {
                return None;
            }
            // A slot returns with a report, long before its lease expires.
            Some(Reason::InFlight) => Duration::ZERO,
            _ => pause,
        };
        let slots = self.latency.map_or(f64::INFINITY, |(median, _)| {
            f64::from(self.in_flight.1) / median.as_secs_f64()
        });
        let sending = requests as f64 / self.rate.min(slots);
        let declared = self.budgets.iter().map(|left| spending(left, requests));
        let longest = declared.fold(pause.as_secs_f64() + sending, f64::max);
        Some(Duration::try_from_secs_f64(longest).map_or(LONGEST, |time| time.min(LONGEST)))
    }
}

/// Returns the seconds until a declared limit has had room for `requests` requests.
fn spending(left: &Remainder, requests: u64) -> f64 {
    if left.limit.unit() != LimitUnit::Requests {
        return 0.0;
    }
    let days = |days: u64| Duration::from_hours(24 * days).as_secs_f64();
    let window = match left.limit.window() {
        LimitWindow::Rolling(length) => length.as_secs_f64(),
        LimitWindow::Calendar(Period::Day, _) => days(1),
        LimitWindow::Calendar(Period::Week, _) => days(7),
        LimitWindow::Calendar(Period::Month, _) => days(30),
        LimitWindow::InFlight => return 0.0,
    };
    let later = requests.saturating_sub(left.remaining);
    later as f64 / left.limit.quantity() as f64 * window
}

#[cfg(test)]
mod tests {
    use super::super::{AcquireRequest, Host};
    use super::*;
    use crate::Rng;
    use crate::config::Config;
    use crate::signal::{Report, Signal};

    const NOW: Timestamp = Timestamp::from_micros(1_000_000_000);

    /// Returns the seconds that 100 requests take after `reports`, one a second.
    fn seconds(config: &Config, reports: impl IntoIterator<Item = Report>) -> Option<u64> {
        let (mut host, mut rng, mut now) = (Host::new(config, NOW), Rng::new(1), NOW);
        for report in reports {
            now = now + Duration::from_secs(1);
            let grant = host.request(now, AcquireRequest::default(), config);
            if let super::super::Decision::Granted(grant) = grant {
                host.report(now, grant.lease, &report, config, &mut rng);
            }
        }
        let time = host.explain(now, config).time_for(100, now)?;
        Some(time.as_secs_f64().round() as u64)
    }

    fn of(signal: Signal, latency_ms: u64) -> Report {
        let mut report = Report::of(signal);
        report.latency = Duration::from_millis(latency_ms);
        report
    }

    #[test]
    fn the_rate_or_the_slots_decide_whichever_is_slower() {
        let mut config = Config::fixed(10.0, 1.0);
        assert_eq!(seconds(&config, []), Some(10));
        config.limits.in_flight = 2;
        let slow = std::iter::repeat_n(of(Signal::Ok, 1_000), 20);
        // The median is known to within some percent.
        let time = seconds(&config, slow).unwrap();
        assert!((45..=55).contains(&time), "{time}");
    }

    #[test]
    fn a_short_hold_adds_to_the_time_and_a_long_one_closes_the_key() {
        let config = Config::fixed(10.0, 1.0);
        let refused = |secs| {
            let mut report = of(Signal::RateLimited, 10);
            report.retry_after = Some(Duration::from_secs(secs));
            [report]
        };
        let short = seconds(&config, refused(30)).unwrap();
        assert!((40..=45).contains(&short), "{short}");
        assert_eq!(seconds(&config, refused(600)), None);
        let blocks = std::iter::repeat_n(of(Signal::Blocked, 10), 3);
        assert_eq!(seconds(&config, blocks), None);
    }

    #[test]
    fn a_declared_limit_decides_if_it_is_slower() {
        let mut config = Config::fixed(10.0, 1.0);
        config.declared = "60/h".parse().unwrap();
        assert_eq!(seconds(&config, []), Some(40 * 60));
    }
}
