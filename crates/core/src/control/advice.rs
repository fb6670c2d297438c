//! Advice only: the law computes a suggested rate and does not apply it.
//!
//! Operators can watch the suggestion in their telemetry before they let a law set the rate. The
//! suggestion follows the job scraper's rule. It grows by one per success up to a maximum. It falls
//! by one per refusal or block page down to a minimum.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Law, Metrics, Sample, Setpoint};
use crate::Timestamp;
use crate::config::Limits;
use crate::signal::Signal;

/// The bounds and the step of a suggestion, in requests per second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct AdviceConfig {
    /// The lowest suggestion. Default 1.
    pub rate_min: f64,
    /// The highest suggestion. Default 10.
    pub rate_max: f64,
    /// The change per outcome. Default 1.
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

/// A law that always returns the configured start values, and keeps a suggested rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Advice {
    suggested: f64,
    #[serde(skip)]
    config: Arc<AdviceConfig>,
}

impl Advice {
    /// Starts the suggestion at `rate` requests per second, within the bounds.
    pub fn new(config: Arc<AdviceConfig>, rate: f64) -> Self {
        Self {
            suggested: rate.clamp(config.rate_min, config.rate_max),
            config,
        }
    }

    /// Adapts a restored suggestion to the bounds of `config`.
    pub(super) fn adopt(&mut self, config: &Arc<AdviceConfig>) {
        *self = Self::new(Arc::clone(config), self.suggested);
    }

    /// Returns whether the law could have reached this state. Restored bytes may be anything.
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
    fn the_suggestion_follows_outcomes_and_is_not_applied() {
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
    fn the_suggestion_is_at_least_one() {
        let mut law = Advice::new(Arc::default(), 1.0);
        for _ in 0..5 {
            law.on_sample(&sample(0.0, Signal::RateLimited));
        }
        assert_eq!(law.metrics().suggested, Some(1.0));
    }
}
