//! Counts of outcomes since the process began.

use std::sync::atomic::{AtomicU64, Ordering};

use politely::core::signal::{Report, Signal};

/// The classes of statuses, in the order of the counts. An answer without a status is `none`.
const CLASSES: [&str; 6] = ["1xx", "2xx", "3xx", "4xx", "5xx", "none"];

/// Counts by signal and by class of status.
#[derive(Default)]
pub(super) struct Outcomes {
    /// One count for each signal, in the order of [`Signal::ALL`].
    signals: [AtomicU64; Signal::ALL.len()],
    classes: [AtomicU64; CLASSES.len()],
}

impl Outcomes {
    pub(super) fn count(&self, report: &Report) {
        if let Some(at) = Signal::ALL.iter().position(|known| *known == report.signal) {
            self.signals[at].fetch_add(1, Ordering::Relaxed);
        }
        self.classes[class_of(report.status)].fetch_add(1, Ordering::Relaxed);
    }

    /// Hands all counts to the metrics recorder, as `politely_outcomes_total` with the label
    /// `signal` and `politely_responses_total` with the label `class`.
    pub(super) fn emit(&self) {
        for (signal, count) in Signal::ALL.iter().zip(&self.signals) {
            let count = count.load(Ordering::Relaxed);
            ::metrics::counter!("politely_outcomes_total", "signal" => signal.as_str())
                .absolute(count);
        }
        for (class, count) in CLASSES.iter().zip(&self.classes) {
            let count = count.load(Ordering::Relaxed);
            ::metrics::counter!("politely_responses_total", "class" => *class).absolute(count);
        }
    }
}

/// Returns the place of a status in [`CLASSES`]. A status above 599 counts as `5xx`.
fn class_of(status: Option<u16>) -> usize {
    match status {
        None => CLASSES.len() - 1,
        Some(status) => usize::from(status / 100).clamp(1, 5) - 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_status_has_a_class() {
        let class = |status| CLASSES[class_of(status)];
        assert_eq!(class(None), "none");
        assert_eq!(class(Some(0)), "1xx");
        assert_eq!(class(Some(204)), "2xx");
        assert_eq!(class(Some(429)), "4xx");
        assert_eq!(class(Some(999)), "5xx");
        assert_eq!(class(Some(u16::MAX)), "5xx");
    }
}
