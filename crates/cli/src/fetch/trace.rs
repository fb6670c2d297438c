//! Spans of a run's acquires, and its numbers, for `--otlp`.

use politely::Limiter;
use politely::core::Timestamp;
use politely::core::key::Key;
use politely_otlp::{Acquire, AcquireResult, Collector, Parent};

use super::lanes::Lane;

/// The numbers of a run, with their help texts.
const FAMILIES: [(&str, &str); 7] = [
    ("politely_granted_total", "Permits granted."),
    ("politely_keys", "Known keys."),
    ("politely_memory_bytes", "Estimated memory for keys."),
    (
        "politely_refused_share",
        "Share of reported outcomes that were refusals, since the start.",
    ),
    (
        "politely_refused_total",
        "Reported outcomes that were refusals by the host.",
    ),
    ("politely_reported_total", "Outcomes reported."),
    (
        "politely_turned_away_total",
        "Requests for a permit that a key did not grant at once.",
    ),
];

/// Sends the spans of a run's acquires. It does nothing without a collector.
#[derive(Default)]
pub(super) struct Trace(Option<Collector>);

impl Trace {
    /// Sends spans to `collector`, and the numbers of `limiter`.
    pub(super) fn new(collector: Option<Collector>, limiter: &Limiter) -> Self {
        if let Some(collector) = &collector {
            let limiter = limiter.clone();
            collector.observe(&FAMILIES, move || limiter.stats().emit());
        }
        Self(collector)
    }

    /// Sends the span of an acquire that `key` granted to `lane`.
    pub(super) fn granted(&self, lane: &Lane, key: &Key, now: Timestamp) {
        let Some(collector) = &self.0 else { return };
        let reason = lane.waits_for.take().map(|reason| reason.to_string());
        let acquire = Acquire {
            key: key.as_str(),
            worker: None,
            waited: now.since(lane.first_since),
            reason: reason.as_deref(),
            result: AcquireResult::Granted,
        };
        collector.acquired(&Parent::default(), &acquire);
    }
}
