//! Log lines about events that any caller can repeat: one line per minute, with a count.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The time between two lines about the same kind of event.
const EVERY: Duration = Duration::from_mins(1);

/// Counts events of one kind and decides when a line is due.
#[derive(Default)]
pub(crate) struct Often(Mutex<State>);

#[derive(Default)]
struct State {
    logged: Option<Instant>,
    since: u64,
}

impl Often {
    /// Counts an event. If a line is due now, returns the number of events since the last line.
    pub(crate) fn note(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock();
        state.since += 1;
        let due = state
            .logged
            .is_none_or(|logged| now.saturating_duration_since(logged) >= EVERY);
        if !due {
            return None;
        }
        state.logged = Some(now);
        Some(std::mem::take(&mut state.since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_event_is_logged_and_then_one_line_a_minute() {
        let often = Often::default();
        let now = Instant::now();
        assert_eq!(often.note(now), Some(1));
        for ms in 0..1_000 {
            assert_eq!(often.note(now + Duration::from_millis(ms)), None);
        }
        assert_eq!(often.note(now + EVERY), Some(1_001));
        assert_eq!(often.note(now + EVERY), None);
    }
}
