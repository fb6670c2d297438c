//! The small state of an application-limited key: a few numbers, stored inline.
//!
//! The demand sets the pace of such a key, so its outcomes teach the law nothing. Most of a crawl's
//! million keys are in this state at any moment.
//!
//! The state holds only the last served request. The full state is created by the first outcome
//! that teaches something: a request that had to wait, had another in flight, was refused, or
//! received a quota.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::learning::Learning;
use super::queue;
use super::{DiscoverConfig, Law, Limits, Mechanism, RATE_MAX, RATE_MIN, Sample, Setpoint, Signal};
use crate::Timestamp;

/// The state of an application-limited key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Quiet {
    /// Requests per second.
    rate: f64,
    /// When the last served request was sent. Before the first one: when the key was created.
    sent: Timestamp,
    /// When the last answer arrived. Before the first one: when the key was created.
    heard: Timestamp,
    /// Latency of the last answer, in microseconds.
    latency_us: u32,
    /// Whether a request was served.
    served: bool,
    #[serde(skip)]
    config: Arc<DiscoverConfig>,
}

impl Quiet {
    pub(super) fn new(config: Arc<DiscoverConfig>, rate: f64, now: Timestamp) -> Self {
        Self {
            rate: rate.clamp(RATE_MIN, RATE_MAX),
            sent: now,
            heard: now,
            latency_us: 0,
            served: false,
            config,
        }
    }

    pub(super) fn adopt(&mut self, config: &Arc<DiscoverConfig>, back: Duration) {
        self.config = Arc::clone(config);
        (self.sent, self.heard) = (self.sent - back, self.heard - back);
    }

    pub(super) fn plausible(&self) -> bool {
        (RATE_MIN..=RATE_MAX).contains(&self.rate)
    }

    /// Records `sample` and returns true if it teaches nothing. Returns false if the full state is
    /// needed.
    pub(super) fn keeps(&mut self, sample: &Sample<'_>) -> bool {
        if !sample.quotas.is_empty() {
            return false;
        }
        match sample.signal {
            Signal::Ok if sample.pressed || sample.beside > 0 => false,
            Signal::Ok => {
                (self.sent, self.heard, self.served) = (sample.sent, sample.now, true);
                self.latency_us = u32::try_from(sample.latency.as_micros()).unwrap_or(u32::MAX);
                true
            }
            Signal::RateLimited | Signal::Overloaded | Signal::Blocked => false,
            Signal::Unreachable | Signal::UrlError => true,
        }
    }

    /// Returns the full state as it is just before the first `sample` that teaches something.
    pub(super) fn learning(&self, sample: &Sample<'_>) -> Box<Learning> {
        let mut law = Box::new(self.beginning());
        if self.served {
            law.on_sample(&Sample {
                now: self.heard,
                sent: self.sent,
                signal: Signal::Ok,
                pressed: false,
                latency: Duration::from_micros(u64::from(self.latency_us)),
                beside: 0,
                quotas: &[],
                ..*sample
            });
        }
        law
    }

    /// Returns the full state as it is before any outcome.
    pub(super) fn beginning(&self) -> Learning {
        Learning::new(Arc::clone(&self.config), self.rate, self.sent)
    }

    pub(super) fn setpoint(&self, limits: &Limits) -> Setpoint {
        let queue = self.config.without != Some(Mechanism::Queue);
        let cap = if queue { queue::START as u32 } else { u32::MAX };
        Setpoint {
            rate: self.rate,
            in_flight: cap.min(limits.in_flight).max(1),
            burst: limits.burst,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::sample;
    use super::super::{Discover, State};
    use super::*;
    use crate::config::Config;
    use crate::signal::Quota;

    fn fresh() -> Discover {
        Discover::new(Arc::default(), 1.0, Timestamp::ZERO)
    }

    fn idle(now_s: f64) -> Sample<'static> {
        Sample {
            pressed: false,
            latency: Duration::from_millis(70),
            ..sample(now_s, Signal::Ok)
        }
    }

    #[test]
    fn a_key_stays_quiet_until_an_outcome_teaches_something() {
        let waited_for = sample(9.0, Signal::Ok);
        let (beside, quotas) = (1, &[Quota::default()][..]);
        for (teaches, last) in [
            (false, idle(9.0)),
            (
                false,
                Sample {
                    signal: Signal::Unreachable,
                    ..idle(9.0)
                },
            ),
            (true, waited_for),
            (
                true,
                Sample {
                    beside,
                    ..idle(9.0)
                },
            ),
            (
                true,
                Sample {
                    quotas,
                    ..idle(9.0)
                },
            ),
            (
                true,
                Sample {
                    signal: Signal::RateLimited,
                    ..idle(9.0)
                },
            ),
            (
                true,
                Sample {
                    signal: Signal::Blocked,
                    ..idle(9.0)
                },
            ),
        ] {
            let mut law = fresh();
            (0..9).for_each(|i| law.on_sample(&idle(f64::from(i))));
            assert!(matches!(law.0, State::Quiet(_)), "{law:?}");
            law.on_sample(&last);
            assert_eq!(matches!(law.0, State::Learning(_)), teaches, "{last:?}");
        }
    }

    /// The behaviour of a key does not depend on whether it was quiet at first.
    #[test]
    fn one_quiet_request_leads_to_the_same_full_state() {
        let mut whole = Learning::new(Arc::default(), 1.0, Timestamp::ZERO);
        let mut law = fresh();
        let first = Sample {
            sent: Timestamp::ZERO,
            ..idle(0.07)
        };
        let limits = Config::api().limits;
        assert_eq!(
            law.setpoint(first.now, &limits),
            whole.setpoint(first.now, &limits)
        );
        assert_eq!(law.metrics(), whole.metrics());
        for sample in [first, sample(1.0, Signal::Ok)] {
            law.on_sample(&sample);
            whole.on_sample(&sample);
        }
        assert_eq!(law.0, State::Learning(Box::new(whole)));
    }
}
