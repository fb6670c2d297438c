//! The engine's settings: when they are read, and which of them may lose acknowledged writes.
//!
//! They are read together with a heartbeat: with the first one, every [`READ_EVERY`], and as soon
//! as they may be those of another server. That is after a heartbeat failed, and in a new epoch,
//! which a restart and a failover begin.

use std::time::Duration;

use politely_core::Timestamp;

use super::Node;
use crate::engine::{EngineError, Risk, Severity};

/// The interval at which the settings are read. An operator may change them at any time.
const READ_EVERY: Duration = Duration::from_mins(1);

/// The engine's settings as last read.
#[derive(Debug, Default)]
pub(super) struct EngineSettings {
    /// The time from which the settings are to be read again.
    next_at: Timestamp,
    is_in_flight: bool,
    /// The settings that may lose writes, `None` until they are read for the first time.
    risks: Option<Vec<Risk>>,
}

impl EngineSettings {
    /// Returns whether the settings are to be read now, and marks them as being read.
    pub(super) fn is_due(&mut self, local: Timestamp) -> bool {
        let is_due = !self.is_in_flight && self.next_at <= local;
        if is_due {
            self.is_in_flight = true;
            self.next_at = local + READ_EVERY;
        }
        is_due
    }

    /// Lets the next heartbeat read the settings.
    pub(super) const fn read_again(&mut self) {
        self.next_at = Timestamp::ZERO;
    }

    pub(super) const fn are_known(&self) -> bool {
        self.risks.is_some()
    }
}

impl Node {
    /// Handles the answer to a read of the engine's settings.
    pub fn handle_risks(&mut self, result: Result<Vec<Risk>, EngineError>) {
        let settings = &mut self.settings;
        settings.is_in_flight = false;
        match result {
            Ok(risks) => settings.risks = Some(risks),
            // The heartbeat reports why the engine does not answer.
            Err(_) => settings.read_again(),
        }
    }

    /// Returns the engine's settings that may lose acknowledged writes, the critical ones first.
    pub fn risks(&self) -> Vec<Risk> {
        let mut risks = self.settings.risks.clone().unwrap_or_default();
        risks.sort_by_key(|risk| risk.severity != Severity::Critical);
        risks
    }
}
