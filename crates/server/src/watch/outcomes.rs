//! Counts of outcomes since the process began.

use std::sync::atomic::{AtomicU64, Ordering};

use politely::core::signal::Signal;

/// One count for each signal, in the order of [`Signal::ALL`].
#[derive(Default)]
pub(super) struct Outcomes([AtomicU64; Signal::ALL.len()]);

impl Outcomes {
    pub(super) fn count(&self, signal: Signal) {
        if let Some(at) = Signal::ALL.iter().position(|known| *known == signal) {
            self.0[at].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Hands all counts to the metrics recorder, as `politely_outcomes_total` with the label
    /// `signal`.
    pub(super) fn emit(&self) {
        for (signal, count) in Signal::ALL.iter().zip(&self.0) {
            let count = count.load(Ordering::Relaxed);
            ::metrics::counter!("politely_outcomes_total", "signal" => signal.as_str())
                .absolute(count);
        }
    }
}
