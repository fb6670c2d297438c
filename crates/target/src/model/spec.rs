//! Limits as a town or scenario file writes them:
//! `{"kind": "token_bucket", "rate": 10, "burst": 5}`.
//!
//! The kinds and field names are shared with the simulator's scenario files. An unknown field is an
//! error that names it; a number out of range is an error that names the field and the rule.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A limit, without its state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum LimitSpec {
    /// `burst` tokens, `rate` new ones a second.
    TokenBucket {
        /// Requests per second; 0.000001 to 1e9.
        rate: f64,
        /// Requests; 1 to 10 million.
        burst: u32,
    },
    /// `count` per window.
    FixedWindow {
        /// Requests; at least 1.
        count: u32,
        /// Seconds.
        window_s: f64,
        /// Windows start at multiples of `window_s` (true) or with the first request (false).
        aligned: bool,
    },
    /// `count` in every window, exactly.
    SlidingLog {
        /// Requests; at least 1.
        count: u32,
        /// Seconds.
        window_s: f64,
    },
    /// `count` in two weighted windows.
    SlidingCounter {
        /// Requests; at least 1.
        count: u32,
        /// Seconds.
        window_s: f64,
    },
    /// nginx's `limit_req`.
    Leaky {
        /// Requests per second; 0.001 to 1e9.
        rate: f64,
        /// Requests above the rate that are not refused; nginx's `burst`.
        queue: u32,
        /// Serves these at once instead of delaying them to the rate, as nginx's `nodelay` does.
        #[serde(default)]
        nodelay: bool,
    },
    /// `slots` at a time, others refused.
    ConcurrencyReject {
        /// Requests; at least 1.
        slots: u32,
    },
    /// `slots` at a time, `queue` wait, others refused.
    ConcurrencyQueue {
        /// Requests; at least 1.
        slots: u32,
        /// Requests; at least 1.
        queue: u32,
    },
    /// All of these at once; at most one of them queues.
    All {
        /// At least one.
        of: Vec<Self>,
    },
    /// One after another: pairs of a start in seconds, the first 0, and a limit.
    Steps {
        /// In order of time.
        at: Vec<(f64, Self)>,
    },
    /// A token bucket whose rate wanders between its bounds: at intervals by a random factor,
    /// log-uniform, reflected at the bounds, from their geometric mean.
    Walk {
        /// Requests per second; 0.001 to 1e9.
        low: f64,
        /// Requests per second; at least `low`.
        high: f64,
        /// Requests; 1 to 10 million.
        burst: u32,
        /// Seconds between two changes; at least 1.
        every_s: f64,
        /// The largest change up or down; 1 to 10.
        factor: f64,
        /// The seed of the walk.
        #[serde(default = "one")]
        seed: u64,
    },
    /// A token bucket whose rate follows the hours: a cosine in 96 steps.
    Day {
        /// Requests per second at midnight; 0.001 to 1e9.
        low: f64,
        /// Requests per second at noon; at least `low`.
        high: f64,
        /// Requests; 1 to 10 million.
        burst: u32,
        /// The length of a day in seconds; at least 96.
        period_s: f64,
    },
    /// A limit that other clients use too. Not inside another limit, and not for slots.
    Shared {
        /// Requests of other clients per second, as a Poisson stream; 0.000001 to 1000.
        others_per_s: f64,
        /// The limit.
        of: Box<Self>,
        /// The seed of the other clients' arrivals.
        #[serde(default = "one")]
        seed: u64,
    },
    /// No limit.
    None {},
}

impl LimitSpec {
    /// Returns the requests per second that the limit allows for long, in its last state. `None`:
    /// it bounds no rate, or one that changes all the time.
    pub fn per_s(&self) -> Option<f64> {
        match self {
            Self::TokenBucket { rate, .. } | Self::Leaky { rate, .. } => Some(*rate),
            Self::FixedWindow {
                count, window_s, ..
            }
            | Self::SlidingLog { count, window_s }
            | Self::SlidingCounter { count, window_s } => Some(f64::from(*count) / window_s),
            Self::All { of } => of.iter().filter_map(Self::per_s).reduce(f64::min),
            Self::Steps { at } => at.last().and_then(|(_, limit)| limit.per_s()),
            Self::Shared {
                others_per_s, of, ..
            } => of.per_s().map(|rate| (rate - others_per_s).max(0.0)),
            Self::ConcurrencyReject { .. }
            | Self::ConcurrencyQueue { .. }
            | Self::Walk { .. }
            | Self::Day { .. }
            | Self::None {} => None,
        }
    }
}

const fn one() -> u64 {
    1
}

/// Why a limit, fault or host is invalid.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{field} must be {rule}, not {value}")]
pub struct SpecError {
    field: &'static str,
    rule: &'static str,
    value: String,
}

impl SpecError {
    pub(crate) fn new(field: &'static str, rule: &'static str, value: impl fmt::Display) -> Self {
        let value = value.to_string();
        Self {
            field,
            rule,
            value: match value.parse::<f64>() {
                // 1e308 has more digits than a reader wants.
                Ok(number) if value.len() > DIGITS_MAX => format!("{number:e}"),
                _ => value,
            },
        }
    }
}

/// A longer number is written with an exponent.
const DIGITS_MAX: usize = 20;

/// Writes the limit as the judge's table shows it.
impl fmt::Display for LimitSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TokenBucket { rate, burst } => write!(f, "{rate}/s burst {burst}"),
            Self::FixedWindow {
                count,
                window_s,
                aligned,
            } => {
                write!(
                    f,
                    "{count} per {window_s} s, {}",
                    if *aligned { "aligned" } else { "first-hit" }
                )
            }
            Self::SlidingLog { count, window_s } => write!(f, "{count} in any {window_s} s"),
            Self::SlidingCounter { count, window_s } => {
                write!(f, "{count} in about any {window_s} s")
            }
            Self::Leaky {
                rate,
                queue,
                nodelay,
            } => {
                write!(
                    f,
                    "leaky {rate}/s queue {queue}{}",
                    if *nodelay { " nodelay" } else { "" }
                )
            }
            Self::ConcurrencyReject { slots } => write!(f, "{slots} at a time"),
            Self::ConcurrencyQueue { slots, queue } => write!(f, "{slots} at a time, {queue} wait"),
            Self::All { of } => joined(f, of.iter().map(ToString::to_string), " and "),
            Self::Steps { at } => joined(f, at.iter().map(|(_, spec)| spec.to_string()), " then "),
            Self::Walk {
                low, high, burst, ..
            } => {
                write!(f, "{low} to {high}/s wandering, burst {burst}")
            }
            Self::Day {
                low,
                high,
                burst,
                period_s,
            } => {
                write!(f, "{low} to {high}/s in {period_s} s, burst {burst}")
            }
            Self::Shared {
                others_per_s, of, ..
            } => {
                write!(f, "{of}, {others_per_s}/s by others")
            }
            Self::None {} => f.write_str("none"),
        }
    }
}

fn joined(
    f: &mut fmt::Formatter<'_>,
    parts: impl Iterator<Item = String>,
    by: &str,
) -> fmt::Result {
    for (index, part) in parts.enumerate() {
        if index > 0 {
            f.write_str(by)?;
        }
        f.write_str(&part)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(json: &str) -> Result<LimitSpec, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    #[test]
    fn every_kind_of_the_scenario_format_parses_and_survives_a_round_trip() {
        for json in [
            r#"{"kind":"token_bucket","rate":10,"burst":5}"#,
            r#"{"kind":"fixed_window","count":20,"window_s":10,"aligned":true}"#,
            r#"{"kind":"sliding_log","count":20,"window_s":10}"#,
            r#"{"kind":"sliding_counter","count":20,"window_s":10}"#,
            r#"{"kind":"leaky","rate":2.5,"queue":5}"#,
            r#"{"kind":"concurrency_reject","slots":4}"#,
            r#"{"kind":"concurrency_queue","slots":4,"queue":16}"#,
            r#"{"kind":"all","of":[{"kind":"none"},{"kind":"sliding_log","count":1,"window_s":0.5}]}"#,
            r#"{"kind":"steps","at":[[0,{"kind":"none"}],[60.5,{"kind":"token_bucket","rate":1,"burst":1}]]}"#,
            r#"{"kind":"walk","low":5,"high":20,"burst":10,"every_s":10,"factor":1.1,"seed":7}"#,
            r#"{"kind":"day","low":5,"high":20,"burst":10,"period_s":86400}"#,
            r#"{"kind":"shared","others_per_s":4,"of":{"kind":"all","of":[{"kind":"none"}]},"seed":7}"#,
            r#"{"kind":"none"}"#,
        ] {
            let spec = parse(json).unwrap();
            spec.build().unwrap();
            assert_eq!(
                parse(&serde_json::to_string(&spec).unwrap()).unwrap(),
                spec,
                "{json}"
            );
        }
    }

    #[test]
    fn an_unknown_field_or_kind_is_named() {
        for json in [
            r#"{"kind":"token_bucket","rate":10,"burst":5,"brust":6}"#,
            r#"{"kind":"none","brust":6}"#,
            r#"{"kind":"all","of":[{"kind":"leaky","rate":1,"queue":1,"brust":6}]}"#,
            r#"{"kind":"brust"}"#,
        ] {
            let error = parse(json).unwrap_err();
            assert!(error.contains("`brust`"), "{error}");
        }
    }
}
