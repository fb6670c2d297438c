//! Scenarios as files describe them.

use std::collections::BTreeSet;

use politely_target::Signals;
use politely_target::model::{FaultSpec, LimitSpec, Service, SpecError};
use serde::{Deserialize, Serialize};

/// One scenario. An unknown field is an error that names it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// A unique name for result lines.
    pub name: String,
    /// The group of scenarios whose results are summarised together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub family: Option<String>,
    /// The duration in virtual seconds. A run of pages ends when the last is fetched, or then.
    pub duration_s: f64,
    /// The demand for pages.
    pub demand: Demand,
    /// Network time to the host and back in milliseconds; each way varies by a tenth.
    pub rtt_ms: f64,
    /// The service time of the host.
    #[serde(default)]
    pub service: Service,
    /// The host's limit.
    pub limit: LimitSpec,
    /// How the host refuses.
    #[serde(default)]
    pub signals: Signals,
    /// The host's faults.
    #[serde(default)]
    pub faults: Vec<FaultSpec>,
    /// Pages that fail at every attempt, while their neighbours are served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bad_pages: Option<BadPages>,
    /// From this share of each outage on, the host's status comes with a Retry-After. 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outage_told_from: Option<f64>,
    /// The resolution of a client's timers in milliseconds: a client that waits wakes at the next
    /// multiple. 0: timers are exact.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub timer_ms: f64,
    /// The number of clients that share the host.
    #[serde(default = "one")]
    pub workers: u32,
    /// Whether the clients share one state.
    #[serde(default = "yes")]
    pub coordinated: bool,
}

const fn one() -> u32 {
    1
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature that serde calls"
)]
fn is_zero(number: &f64) -> bool {
    *number <= 0.0
}

const fn yes() -> bool {
    true
}

/// Pages that fail at every attempt. A client gives such a page up after
/// [`crate::run::ATTEMPTS_MAX`] attempts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BadPages {
    /// The share of all pages. 0 to 1.
    pub share: f64,
    /// The status of their answers.
    pub status: u16,
}

/// The default number of connections.
const fn connections() -> u32 {
    64
}

/// The demand for pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Demand {
    /// Pages without end.
    Greedy {
        /// Most requests in flight, over all workers.
        #[serde(default = "connections")]
        connections: u32,
    },
    /// A number of pages; the run ends after them.
    Pages {
        /// Pages.
        count: u32,
        /// Most requests in flight, over all workers.
        #[serde(default = "connections")]
        connections: u32,
    },
}

impl Demand {
    /// Returns the most requests in flight, over all workers.
    pub const fn connections(self) -> u32 {
        match self {
            Self::Greedy { connections } | Self::Pages { connections, .. } => connections,
        }
    }
}

/// Without a limit on the rate, a shorter answer would let a client send without end in no time.
const ANSWER_MS_MIN: f64 = 0.01;

/// Why a scenario cannot be simulated.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// The file is not the JSON of scenarios.
    #[error("{place}{source}")]
    Parse {
        /// Scenario and field, as far as known, with a colon.
        place: String,
        /// The fault and its line.
        source: serde_json::Error,
    },
    /// Two scenarios share a name, so their results could not be told apart.
    #[error("two scenarios are named {0:?}")]
    SameName(String),
    /// The file is JSON, but not an array.
    #[error("a JSON array of scenarios is needed, [{{\"name\": …}}, …]")]
    NoArray,
    /// The array is empty.
    #[error("no scenarios in it")]
    Empty,
    /// A limit or fault is out of range.
    #[error("scenario {name}: {source}")]
    Spec {
        /// The scenario's name.
        name: String,
        /// The value and the rule.
        source: SpecError,
    },
    /// A number of the scenario itself is out of range.
    #[error("scenario {name}: {field} must be {rule}, not {}", short(*value))]
    Range {
        /// The scenario's name.
        name: String,
        /// The field.
        field: &'static str,
        /// The rule.
        rule: &'static str,
        /// The value.
        value: f64,
    },
}

/// 1e308 has more digits than a reader wants.
fn short(value: f64) -> String {
    let text = value.to_string();
    if text.len() > 20 {
        format!("{value:e}")
    } else {
        text
    }
}

impl Scenario {
    /// Reads a JSON array of scenarios and checks each.
    pub fn read(json: &str) -> Result<Vec<Self>, ScenarioError> {
        if !json.trim_start().starts_with('[') {
            return Err(ScenarioError::NoArray);
        }
        let mut reader = serde_json::Deserializer::from_str(json);
        let scenarios: Vec<Self> =
            serde_path_to_error::deserialize(&mut reader).map_err(|error| place(json, error))?;
        reader.end().map_err(|source| ScenarioError::Parse {
            place: String::new(),
            source,
        })?;
        if scenarios.is_empty() {
            return Err(ScenarioError::Empty);
        }
        let mut names = BTreeSet::new();
        for scenario in &scenarios {
            scenario.validate()?;
            if !names.insert(&scenario.name) {
                return Err(ScenarioError::SameName(scenario.name.clone()));
            }
        }
        Ok(scenarios)
    }

    /// Whether nothing but the time of an answer bounds how many requests are served.
    fn is_unpaced(&self) -> bool {
        fn is_unpaced(limit: &LimitSpec) -> bool {
            match limit {
                LimitSpec::None {}
                | LimitSpec::ConcurrencyReject { .. }
                | LimitSpec::ConcurrencyQueue { .. } => true,
                LimitSpec::All { of } => of.iter().all(is_unpaced),
                LimitSpec::Steps { at } => at.iter().any(|(_, limit)| is_unpaced(limit)),
                _ => false,
            }
        }
        is_unpaced(&self.limit)
    }

    /// Checks every number.
    ///
    /// # Errors
    /// The first number that is out of range.
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
        range("timer_ms", self.timer_ms, 0.0, 1e3, "0 to 1000")?;
        range("workers", f64::from(self.workers), 1.0, 1e4, "1 to 10000")?;
        let status = f64::from(self.signals.status);
        range("status", status, 400.0, 599.0, "400 to 599")?;
        if let Some(bad) = self.bad_pages {
            range("bad_pages.share", bad.share, 0.0, 1.0, "0 to 1")?;
            let status = f64::from(bad.status);
            range("bad_pages.status", status, 400.0, 599.0, "400 to 599")?;
        }
        if let Some(from) = self.outage_told_from {
            range("outage_told_from", from, 0.0, 1.0, "0 to 1")?;
        }
        let connections = f64::from(self.demand.connections());
        range("connections", connections, 1.0, 1e5, "1 to 100000")?;
        let named = |source| ScenarioError::Spec {
            name: self.name.clone(),
            source,
        };
        self.service.validate().map_err(named)?;
        if self.rtt_ms < ANSWER_MS_MIN && self.service.mean_ms < ANSWER_MS_MIN && self.is_unpaced()
        {
            let rule = "at least 0.01 where neither a rate nor a service time slows the host";
            return range("rtt_ms", self.rtt_ms, ANSWER_MS_MIN, 1e6, rule);
        }
        self.host(politely_core::Rng::new(0)).map_err(named)?;
        Ok(())
    }
}

/// Says where in the file an error is, by the scenario's name if it has one.
fn place(json: &str, error: serde_path_to_error::Error<serde_json::Error>) -> ScenarioError {
    let mut segments = error.path().iter();
    let mut place = Vec::new();
    if let Some(serde_path_to_error::Segment::Seq { index }) = segments.next() {
        let file: Option<serde_json::Value> = serde_json::from_str(json).ok();
        let name = file.and_then(|file| Some(file.get(*index)?.get("name")?.as_str()?.to_owned()));
        place.push(match name {
            Some(name) => format!("scenario {name}"),
            None => format!("scenario number {}", index + 1),
        });
        let fields: Vec<String> = segments
            .map(ToString::to_string)
            .filter(|segment| segment != "?")
            .collect();
        if !fields.is_empty() {
            place.push(fields.join("."));
        }
        // The colon before the message.
        place.push(String::new());
    }
    let place = place.join(": ");
    ScenarioError::Parse {
        place,
        source: error.into_inner(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(json: &str) -> String {
        Scenario::read(json).unwrap_err().to_string()
    }

    const REST: &str = r#""duration_s": 60, "demand": {"kind": "greedy"}, "rtt_ms": 20"#;

    #[test]
    fn the_issues_form_is_read() {
        let json = format!(
            r#"[{{"name": "a", {REST}, "service": {{"mean_ms": 50, "cv": 0.2}},
                 "limit": {{"kind": "all", "of": [{{"kind": "token_bucket", "rate": 10, "burst": 5}}]}},
                 "signals": {{"status": 429, "retry_after": "seconds", "headers": "ietf"}},
                 "faults": [{{"kind": "noise", "share": 0.01, "status": 429}}], "workers": 2, "coordinated": false}}]"#
        );
        assert_eq!(Scenario::read(&json).unwrap()[0].workers, 2);
    }

    #[test]
    fn an_error_names_the_scenario_and_the_field() {
        let limit = r#""limit": {"kind": "none"}"#;
        for (fields, expected) in [
            (
                format!(r#""name": "b", "wrokers": 2, {REST}, {limit}"#),
                "scenario b: wrokers: unknown field `wrokers`",
            ),
            (
                format!(
                    r#""name": "b", {REST}, "limit": {{"kind": "token_bucket", "rate": 3, "brust": 1}}"#
                ),
                "scenario b: limit: unknown field `brust`",
            ),
            (
                format!(r#""name": "b", {REST}, "limit": {{"kind": "tokens"}}"#),
                "scenario b: limit.kind: unknown variant `tokens`",
            ),
            (
                format!(r#""name": "b", {REST}, "service": {{"mean": 50}}, {limit}"#),
                "scenario b: service.mean: unknown field `mean`",
            ),
            (
                format!("{REST}, {limit}"),
                "scenario number 2: missing field `name`",
            ),
            (
                format!(r#""name": "b", {REST}, {limit}, "workers": 0"#),
                "scenario b: workers must be 1 to 10000, not 0",
            ),
            (
                format!(
                    r#""name": "b", {REST}, "limit": {{"kind": "token_bucket", "rate": -3, "burst": 1}}"#
                ),
                "scenario b: rate must be",
            ),
            (
                format!(r#""name": "a", {REST}, {limit}"#),
                "two scenarios are named \"a\"",
            ),
        ] {
            let json = format!(r#"[{{"name": "a", {REST}, {limit}}}, {{{fields}}}]"#);
            let error = error(&json);
            assert!(error.starts_with(expected), "{expected}\n{error}");
            assert_eq!(error.lines().count(), 1, "{error}");
        }
    }

    #[test]
    fn what_is_no_array_of_scenarios_is_told() {
        assert_eq!(error("[]"), "no scenarios in it");
        assert!(
            error("{}").contains("a JSON array of scenarios is needed"),
            "{}",
            error("{}")
        );
        assert!(error("[] x").contains("trailing characters"));
    }
}
