//! What is simulated, as a file writes it.

use politely_target::Signals;
use politely_target::model::{FaultSpec, LimitSpec, Service, SpecError};
use serde::{Deserialize, Serialize};

/// One scenario. An unknown field is an error that names it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// For people and result lines.
    pub name: String,
    /// Virtual seconds. A run of pages ends when the last is fetched, at the latest then.
    pub duration_s: f64,
    /// What is to be fetched.
    pub demand: Demand,
    /// Network time to the host and back, milliseconds; each way varies by a tenth.
    pub rtt_ms: f64,
    /// Time in the host.
    #[serde(default)]
    pub service: Service,
    /// What it allows.
    pub limit: LimitSpec,
    /// How it says no.
    #[serde(default)]
    pub signals: Signals,
    /// What else goes wrong.
    #[serde(default)]
    pub faults: Vec<FaultSpec>,
    /// How many clients share the host.
    #[serde(default = "one")]
    pub workers: u32,
    /// Whether they share one state, or each knows only its own.
    #[serde(default = "yes")]
    pub coordinated: bool,
}

const fn one() -> u32 {
    1
}

const fn yes() -> bool {
    true
}

/// Connections of a run of pages, and of a greedy one that does not say.
const fn connections() -> u32 {
    64
}

/// What is to be fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Demand {
    /// There is always one more page.
    Greedy {
        /// Requests under way at most, over all workers.
        #[serde(default = "connections")]
        connections: u32,
    },
    /// So many pages, then the run is over.
    Pages {
        /// Pages.
        count: u32,
        /// Requests under way at most, over all workers.
        #[serde(default = "connections")]
        connections: u32,
    },
}

impl Demand {
    /// Requests under way at most, over all workers.
    pub const fn connections(self) -> u32 {
        match self {
            Self::Greedy { connections } | Self::Pages { connections, .. } => connections,
        }
    }
}

/// Why a scenario cannot be simulated.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// Not the JSON of scenarios; names an unknown field.
    #[error("{0}")]
    Parse(#[from] serde_json::Error),
    /// A limit or fault out of range.
    #[error("scenario {name}: {source}")]
    Spec {
        /// Whose.
        name: String,
        /// What.
        source: SpecError,
    },
    /// A number of the scenario itself out of range.
    #[error("scenario {name}: {field} must be {rule}, not {value}")]
    Range {
        /// Whose.
        name: String,
        /// Which.
        field: &'static str,
        /// What it must be.
        rule: &'static str,
        /// What it is.
        value: f64,
    },
}

impl Scenario {
    /// Reads a JSON array of scenarios and checks each.
    pub fn read(json: &str) -> Result<Vec<Self>, ScenarioError> {
        let scenarios: Vec<Self> = serde_json::from_str(json)?;
        for scenario in &scenarios {
            scenario.validate()?;
        }
        Ok(scenarios)
    }

    /// Checks every number.
    pub fn validate(&self) -> Result<(), ScenarioError> {
        let range = |field, value: f64, min: f64, max: f64, rule| {
            if (min..=max).contains(&value) {
                return Ok(());
            }
            Err(ScenarioError::Range {
                name: self.name.clone(),
                field,
                rule,
                value,
            })
        };
        range(
            "duration_s",
            self.duration_s,
            1e-3,
            1e7,
            "0.001 to 10000000",
        )?;
        range("rtt_ms", self.rtt_ms, 0.0, 1e6, "0 to 1000000")?;
        range("workers", f64::from(self.workers), 1.0, 1e4, "1 to 10000")?;
        let status = f64::from(self.signals.status);
        range("status", status, 400.0, 599.0, "400 to 599")?;
        let connections = f64::from(self.demand.connections());
        range("connections", connections, 1.0, 1e5, "1 to 100000")?;
        let named = |source| ScenarioError::Spec {
            name: self.name.clone(),
            source,
        };
        self.service.validate().map_err(named)?;
        self.host(politely_core::Rng::new(0)).map_err(named)?;
        Ok(())
    }
}
