//! A constant rate. Outcomes do not change it.

use serde::{Deserialize, Serialize};

use super::{Law, Metrics, Sample, Setpoint};
use crate::Timestamp;
use crate::config::Limits;

/// A law that always returns the configured start values.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Fixed;

impl Law for Fixed {
    fn on_sample(&mut self, _: &Sample<'_>) {}

    fn setpoint(&mut self, _: Timestamp, limits: &Limits) -> Setpoint {
        limits.start()
    }

    fn metrics(&self) -> Metrics {
        Metrics::default()
    }
}
