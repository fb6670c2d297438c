//! Additive increase, multiplicative decrease (AIMD) of the *rate*.
//!
//! The law controls the rate, because servers meter the rate. A crawler that controlled its
//! concurrency exceeded a limit of 4 requests per second threefold. Concurrency also cannot express
//! less than one request per round trip.
//!
//! * **Start** multiplies the rate in each interval until the first refusal, so that a generous
//!   host soon gets a high rate. This is TCP's slow start (RFC 5681) with smaller strides.
//! * **Climb** adds one step per interval. The step is a share of the rate after the last cut. So a
//!   cycle takes about fifty requests on slow and fast hosts alike.
//! * **Cut** multiplies the rate by a share, once per congestion event. An event is a refusal, a
//!   503 or a time-out of a request that was sent after the last event was noticed. Earlier
//!   requests show nothing new. A released law that reacted to each refusal of a burst fell to 56 %
//!   of a limit that it had found. Consecutive refusals are one event too, because the canaries
//!   during a block are no reason for a lower rate after it.
//! * **Goodput** deepens the cut. The requests served between two events are about as many as the
//!   host allows (TCP Westwood, Mascolo et al. 2001). They are a little fewer if a window was
//!   already partly used. A rate above the goodput falls halfway to it. So a rate far above reaches
//!   it in a few events.
//! * **Early signal**: the law stops climbing and lowers the rate a little while the median latency
//!   is twice its normal value. The excess must also be large enough not to be noise.
//!
//! A key whose demand is below its rate learns nothing and keeps its rate.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Law, Metrics, Sample, Setpoint};
use crate::Timestamp;
use crate::config::Limits;
use crate::signal::Signal;

/// The constants of [`Aimd`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct AimdConfig {
    /// Share of the rate that remains after a cut, in (0, 1). Default 0.8, which leaves less of the
    /// limit unused than TCP's half.
    pub cut: f64,
    /// One step, as a share of the rate after the last cut. Default 0.05.
    pub step: f64,
    /// Number of served requests per step. A step also takes at least a second. Default 10.
    pub step_accepts: u16,
    /// Whether the rate grows by half per interval until the first cut. Default true.
    pub slow_start: bool,
    /// Ratio of the median latency to its normal value that counts as an early signal. Default 2. 0
    /// switches the signal off.
    pub latency_rise: f64,
    /// Time by which the median latency must also exceed its normal value. Default 50 ms, because a
    /// rise from one millisecond to three is noise.
    pub latency_excess: Duration,
    /// Lowest rate after a cut, in requests per second. Default 0.02 (one request in 50 s).
    pub rate_min: f64,
}

impl Default for AimdConfig {
    fn default() -> Self {
        Self {
            cut: 0.8,
            step: 0.05,
            step_accepts: 10,
            slow_start: true,
            latency_rise: 2.0,
            latency_excess: Duration::from_millis(50),
            rate_min: 0.02,
        }
    }
}

/// Shortest time between two steps. In a shorter time the host could not show strain.
const STEP_TIME_MIN: Duration = Duration::from_secs(1);
/// Number of served requests per stride of the start. Fewer requests could be a burst, which proves
/// nothing.
const START_ACCEPTS: u16 = 4;
/// Factor of the rate per stride of the start. The first cut divides by it, which returns to a rate
/// that was served.
const START_STRIDE: f64 = 1.5;
/// Least share of the rate that remains after one event. The goodput of a few seconds is not
/// precise enough for a deeper cut.
const GOODPUT_SHARE_MIN: f64 = 0.5;
/// Share of the rate that remains after an early signal, which is only a warning.
const EARLY_CUT: f64 = 0.95;

/// The law's state for one key. It takes 40 bytes, and the keys share the constants.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Aimd {
    /// Requests per second.
    rate: f64,
    /// The rate after the last cut without the goodput's part. A step is a share of it, so that the
    /// climb after a deep cut needs no more steps.
    base: f32,
    interval_began: Timestamp,
    /// Number of requests served since the last event.
    served: u32,
    /// Number of requests served in this interval while the key was not application-limited.
    accepts: u16,
    /// Number of requests served since the last event while the key was application-limited.
    idle_accepts: u16,
    cuts: u16,
    #[serde(skip)]
    config: Arc<AimdConfig>,
}

impl Aimd {
    /// Starts at `rate` requests per second.
    pub fn new(config: Arc<AimdConfig>, rate: f64, now: Timestamp) -> Self {
        Self {
            rate,
            base: rate as f32,
            interval_began: now,
            served: 0,
            accepts: 0,
            idle_accepts: 0,
            cuts: 0,
            config,
        }
    }

    /// Adapts a restored state to `config`. Its interval moves back by `back`, the time by which
    /// the clock was set back.
    pub(super) fn adopt(&mut self, config: &Arc<AimdConfig>, back: Duration) {
        self.config = Arc::clone(config);
        self.interval_began = self.interval_began - back;
    }

    /// Returns whether the law could have reached this state. Restored bytes may be anything.
    pub(super) fn plausible(&self) -> bool {
        let is_rate = |rate: f64| rate > 0.0 && rate.is_finite();
        is_rate(self.rate) && is_rate(self.base.into())
    }

    fn starting(&self) -> bool {
        self.cuts == 0 && self.config.slow_start
    }

    /// Cuts the rate to `share`, or further towards the goodput.
    fn cut(&mut self, share: f64, sample: &Sample<'_>) {
        let since_event = sample.now.since(sample.last_event).as_secs_f64();
        let goodput = f64::from(self.served) / since_event;
        let served_all_along = self.cuts > 0 && self.idle_accepts == 0;
        let mut rate = self.rate * share;
        if served_all_along && goodput < rate {
            rate = f64::midpoint(goodput, rate).max(self.rate * GOODPUT_SHARE_MIN);
        }
        self.base = (self.rate * share) as f32;
        self.rate = rate.max(self.config.rate_min);
        self.cuts = self.cuts.saturating_add(1);
        (self.served, self.idle_accepts) = (0, 0);
        self.begin_interval(sample.now);
    }

    fn begin_interval(&mut self, now: Timestamp) {
        self.interval_began = now;
        self.accepts = 0;
    }

    /// Returns whether the latency is an early signal.
    fn strained(&self, sample: &Sample<'_>) -> bool {
        let latencies = sample.latencies;
        self.config.latency_rise > 0.0
            && latencies.rise() >= self.config.latency_rise
            && latencies.excess() >= self.config.latency_excess
    }

    fn on_accept(&mut self, sample: &Sample<'_>) {
        self.served = self.served.saturating_add(1);
        if !sample.pressed {
            self.idle_accepts = self.idle_accepts.saturating_add(1);
        }
        if sample.sent < self.interval_began {
            return;
        }
        if self.strained(sample) {
            self.rate = (self.rate * EARLY_CUT).max(self.config.rate_min);
            self.begin_interval(sample.now);
            return;
        }
        if sample.pressed {
            self.accepts = self.accepts.saturating_add(1);
        }
        let needed = if self.starting() {
            START_ACCEPTS
        } else {
            self.config.step_accepts
        };
        if self.accepts < needed || sample.now.since(self.interval_began) < STEP_TIME_MIN {
            return;
        }
        self.rate += if self.starting() {
            self.rate * (START_STRIDE - 1.0)
        } else {
            f64::from(self.base) * self.config.step
        };
        self.begin_interval(sample.now);
    }
}

impl Law for Aimd {
    fn on_sample(&mut self, sample: &Sample<'_>) {
        match sample.signal {
            Signal::Ok => self.on_accept(sample),
            Signal::RateLimited | Signal::Overloaded
                if sample.fresh && sample.refused_in_a_row == 0 =>
            {
                let share = if self.starting() {
                    1.0 / START_STRIDE
                } else {
                    self.config.cut
                };
                self.cut(share, sample);
            }
            _ => {}
        }
    }

    fn setpoint(&mut self, _: Timestamp, limits: &Limits) -> Setpoint {
        Setpoint {
            rate: self.rate,
            ..limits.start()
        }
    }

    fn metrics(&self) -> Metrics {
        let ceiling = (self.cuts > 0).then_some(self.rate);
        Metrics {
            ceiling,
            suggested: None,
            cuts: u32::from(self.cuts),
            noise: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::sample;
    use super::*;

    fn law(rate: f64) -> Aimd {
        Aimd::new(Arc::default(), rate, Timestamp::ZERO)
    }

    fn rate(law: &mut Aimd) -> f64 {
        law.rate
    }

    #[test]
    fn the_start_strides_until_the_first_refusal_and_takes_the_last_stride_back() {
        let mut law = law(1.0);
        for i in 0..8 {
            law.on_sample(&sample(f64::from(i) * 0.5, Signal::Ok));
        }
        assert!((rate(&mut law) - 2.25).abs() < 1e-9, "{law:?}");
        law.on_sample(&sample(5.0, Signal::RateLimited));
        assert!((rate(&mut law) - 1.5).abs() < 1e-9);
    }

    #[test]
    fn a_rate_far_above_the_goodput_falls_halfway_to_it() {
        let mut law = law(9.0);
        law.on_sample(&sample(0.0, Signal::RateLimited));
        for i in 1..=9 {
            law.on_sample(&sample(f64::from(i) * 0.5, Signal::Ok));
        }
        law.on_sample(&sample(5.0, Signal::RateLimited));
        assert!(
            (rate(&mut law) - 3.3).abs() < 1e-9,
            "9 served in 5 s, and 4.8/s after a plain cut: {}",
            rate(&mut law)
        );
    }

    #[test]
    fn refused_canaries_are_no_new_events() {
        let mut law = law(9.0);
        for (i, refused_in_a_row) in [0, 1, 2, 3].into_iter().enumerate() {
            let now_s = 10.0 + i as f64;
            law.on_sample(&Sample {
                refused_in_a_row,
                ..sample(now_s, Signal::RateLimited)
            });
        }
        assert!((rate(&mut law) - 6.0).abs() < 1e-9);
    }

    #[test]
    fn a_burst_of_refusals_is_one_event() {
        let mut law = law(8.0);
        law.on_sample(&sample(5.0, Signal::RateLimited));
        for _ in 0..20 {
            law.on_sample(&Sample {
                fresh: false,
                ..sample(5.0, Signal::RateLimited)
            });
        }
        assert!((rate(&mut law) - 8.0 / 1.5).abs() < 1e-9);
    }

    #[test]
    fn it_climbs_by_equal_steps_without_needing_successes_in_a_row() {
        let mut law = law(8.0);
        law.on_sample(&sample(0.0, Signal::RateLimited));
        let mut rates = Vec::new();
        for i in 1..=60 {
            let signal = if i % 3 == 0 {
                Signal::UrlError
            } else {
                Signal::Ok
            };
            law.on_sample(&sample(f64::from(i), signal));
            rates.push(rate(&mut law));
        }
        rates.dedup();
        let steps: Vec<f64> = rates.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(rates.len(), 5, "one step per ten served: {rates:?}");
        assert!(
            steps
                .iter()
                .all(|step| (step - 8.0 / 1.5 * 0.05).abs() < 1e-6),
            "{steps:?}"
        );
    }

    #[test]
    fn idle_keys_learn_nothing() {
        let mut law = law(1.0);
        for i in 0..100 {
            law.on_sample(&Sample {
                pressed: false,
                ..sample(f64::from(i), Signal::Ok)
            });
        }
        assert!((rate(&mut law) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_rising_median_latency_lowers_the_rate_a_little() {
        let mut law = law(8.0);
        let mut latencies = super::super::Latency::default();
        for i in 0..40 {
            let latency = Duration::from_millis(if i < 20 { 100 } else { 900 });
            latencies.record(latency);
            law.on_sample(&Sample {
                latency,
                latencies: &latencies,
                ..sample(f64::from(i) / 100.0, Signal::Ok)
            });
        }
        assert!(latencies.rise() > 2.0);
        assert!(
            rate(&mut law) < 8.0 && rate(&mut law) > 2.0,
            "{}",
            rate(&mut law)
        );
    }

    #[test]
    fn faults_of_the_url_or_the_network_move_nothing() {
        let mut law = law(4.0);
        for signal in [Signal::UrlError, Signal::Unreachable, Signal::Blocked] {
            law.on_sample(&sample(1.0, signal));
        }
        assert!((rate(&mut law) - 4.0).abs() < 1e-9);
    }
}
