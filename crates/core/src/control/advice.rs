//! Advice only: computes the rate it would suggest and applies nothing.
//!
//! For operators who want to see a law's opinion in their telemetry before they let it steer. The
//! suggestion is the job scraper's: one more per success up to a maximum, one less per refusal or
//! block page, at least one.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Law, Metrics, Sample, Setpoint};
use crate::Timestamp;
use crate::config::Limits;
use crate::signal::Signal;

/// The bounds of a suggestion, requests per second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct AdviceConfig {
    /// The least it suggests. Default 1.
    pub rate_min: f64,
    /// The most it suggests. Default 10.
    pub rate_max: f64,
    /// How far one outcome moves it. Default 1.
    pub step: f64,
}

impl Default for AdviceConfig {
    fn default() -> Self {
        Self {
            rate_min: 1.0,
            rate_max: 10.0,
            step: 1.0,
        }
    }
}

/// Asks for the configured start and keeps a suggestion beside it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Advice {
    suggested: f64,
    #[serde(skip)]
    config: Arc<AdviceConfig>,
}

impl Advice {
    /// Starts its suggestion from `rate` requests per second.
    pub fn new(config: Arc<AdviceConfig>, rate: f64) -> Self {
        Self {
            suggested: rate.clamp(config.rate_min, config.rate_max),
            config,
        }
    }

    /// Takes up its suggestion under bounds that may have changed.
    pub(super) fn adopt(&mut self, config: &Arc<AdviceConfig>) {
        *self = Self::new(Arc::clone(config), self.suggested);
    }

    /// Could it have suggested this? Bytes read back may be anything.
    pub(super) fn plausible(&self) -> bool {
        self.suggested.is_finite()
    }
}

impl Law for Advice {
    fn on_sample(&mut self, sample: &Sample<'_>) {
        let step = match sample.signal {
            Signal::Ok => self.config.step,
            Signal::RateLimited | Signal::Blocked => -self.config.step,
            Signal::Overloaded | Signal::Unreachable | Signal::UrlError => return,
        };
        self.suggested = (self.suggested + step).clamp(self.config.rate_min, self.config.rate_max);
    }

    fn setpoint(&mut self, _: Timestamp, limits: &Limits) -> Setpoint {
        limits.start()
    }

    fn metrics(&self) -> Metrics {
        Metrics {
            suggested: Some(self.suggested),
            ..Metrics::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::sample;
    use super::*;
    use crate::config::Config;

    #[test]
    fn the_job_scrapers_suggestion_and_nothing_applied() {
        let limits = Config::fixed(2.0, 2.0).limits;
        let mut law = Advice::new(Arc::default(), 2.0);
        let mut suggestions = Vec::new();
        let signals = [
            &[Signal::Ok; 9][..],
            &[Signal::RateLimited, Signal::Blocked, Signal::UrlError],
        ]
        .concat();
        for signal in signals {
            law.on_sample(&sample(0.0, signal));
            suggestions.push(law.metrics().suggested.unwrap());
            assert_eq!(law.setpoint(Timestamp::ZERO, &limits), limits.start());
        }
        assert_eq!(
            suggestions,
            [3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 10.0, 9.0, 8.0, 8.0]
        );
    }

    #[test]
    fn never_below_one() {
        let mut law = Advice::new(Arc::default(), 1.0);
        for _ in 0..5 {
            law.on_sample(&sample(0.0, Signal::RateLimited));
        }
        assert_eq!(law.metrics().suggested, Some(1.0));
    }
}
