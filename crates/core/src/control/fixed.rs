//! The rate somebody set, whatever happens.

use serde::{Deserialize, Serialize};

use super::{Law, Metrics, Sample, Setpoint};
use crate::Timestamp;

/// Asks for what it was given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fixed {
    setpoint: Setpoint,
}

impl Fixed {
    /// Keeps `setpoint`.
    pub const fn new(setpoint: Setpoint) -> Self {
        Self { setpoint }
    }
}

impl Law for Fixed {
    fn on_sample(&mut self, _: &Sample) {}

    fn setpoint(&mut self, _: Timestamp) -> Setpoint {
        self.setpoint
    }

    fn metrics(&self) -> Metrics {
        Metrics {
            rate: self.setpoint.rate,
            ..Metrics::default()
        }
    }
}
