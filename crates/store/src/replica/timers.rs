//! The timers of a replica, as a table.

use politely_core::Timestamp;

/// A kind of timer. All times are local.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Timer {
    /// The next attempt to serve the queue or to read the cell. See [`super::Attempt`].
    Attempt,
    /// The time by which the pending events must be written. [`Timestamp::NEVER`]: there are none.
    Flush,
    /// The time until which a batch gathers. Nothing is read or written before.
    Gather,
    /// The time until which no write starts: after a failure, or as a pause for other writers.
    Backoff,
}

/// The time of each kind of timer.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimerTable {
    at: [Timestamp; 4],
}

impl TimerTable {
    /// Returns the table of a new replica, which may be called at once and has nothing to write.
    pub(super) const fn new() -> Self {
        let mut at = [Timestamp::ZERO; 4];
        at[Timer::Flush as usize] = Timestamp::NEVER;
        Self { at }
    }

    pub(super) const fn get(&self, timer: Timer) -> Timestamp {
        self.at[timer as usize]
    }

    pub(super) const fn set(&mut self, timer: Timer, at: Timestamp) {
        self.at[timer as usize] = at;
    }

    /// Sets the timer to `at` if that is earlier.
    pub(super) fn bring_forward(&mut self, timer: Timer, at: Timestamp) {
        let time = &mut self.at[timer as usize];
        *time = at.min(*time);
    }

    /// Stops the timer.
    pub(super) const fn stop(&mut self, timer: Timer) {
        self.set(timer, Timestamp::NEVER);
    }

    /// Returns whether the time of the timer has come.
    pub(super) fn is_due(&self, timer: Timer, local: Timestamp) -> bool {
        self.get(timer) <= local
    }

    /// Returns the earlier of two timers. A replica with nothing to do now sleeps until then.
    pub(super) fn next_wakeup(&self, attempt: Option<Timestamp>) -> Timestamp {
        let attempt = attempt.unwrap_or(self.get(Timer::Attempt));
        self.get(Timer::Flush).min(attempt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(micros: u64) -> Timestamp {
        Timestamp::from_micros(micros)
    }

    #[test]
    fn a_new_replica_may_be_called_at_once_and_has_nothing_to_write() {
        let timers = TimerTable::new();
        assert!(timers.is_due(Timer::Attempt, Timestamp::ZERO));
        assert!(!timers.is_due(Timer::Flush, at(u64::MAX - 1)));
    }

    #[test]
    fn the_earlier_of_flush_and_attempt_is_the_next_wakeup() {
        let mut timers = TimerTable::new();
        timers.set(Timer::Attempt, at(5));
        assert_eq!(timers.next_wakeup(None), at(5));
        timers.bring_forward(Timer::Flush, at(7));
        timers.bring_forward(Timer::Flush, at(9));
        assert_eq!(timers.next_wakeup(Some(Timestamp::NEVER)), at(7));
        timers.stop(Timer::Flush);
        assert_eq!(timers.next_wakeup(None), at(5));
    }
}
