//! Limits as a town or scenario file writes them: `{"kind": "token_bucket", "rate": 10, "burst": 5}`.
//!
//! The kinds and field names are shared with the simulator's scenario files. An unknown field is an error
//! that names it; a number out of range is an error that names the field and the rule.

use std::fmt;
use std::time::Duration;

use politely_core::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    All, Concurrency, FixedWindow, Leaky, Limit, SlidingCounter, SlidingLog, Steps, TokenBucket,
};

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
        /// Serve these at once instead of delaying them to the rate. An addition to the scenario format.
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
    /// No limit.
    None {},
}

/// Why a limit, fault or host cannot be as written.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{field} must be {rule}, not {value}")]
pub struct SpecError {
    field: &'static str,
    rule: &'static str,
    value: String,
}

impl SpecError {
    pub(crate) fn new(field: &'static str, rule: &'static str, value: impl fmt::Display) -> Self {
        Self {
            field,
            rule,
            value: value.to_string(),
        }
    }
}

/// Ten years: far beyond any limit's window, and no sum of microseconds near its end.
const SECS_MAX: f64 = 315_360_000.0;

/// A span in seconds from a file.
pub(crate) fn secs(field: &'static str, value: f64) -> Result<Duration, SpecError> {
    if (0.0..=SECS_MAX).contains(&value) {
        Ok(Duration::from_micros((value * 1e6).round() as u64))
    } else {
        Err(SpecError::new(
            field,
            "between 0 and 315360000 seconds",
            value,
        ))
    }
}

fn window(value: f64) -> Result<Duration, SpecError> {
    let window = secs("window_s", value)?;
    if window.is_zero() {
        Err(SpecError::new("window_s", "at least a microsecond", value))
    } else {
        Ok(window)
    }
}

fn at_least_one(field: &'static str, value: u32) -> Result<u32, SpecError> {
    if value == 0 {
        Err(SpecError::new(field, "at least 1", value))
    } else {
        Ok(value)
    }
}

/// `rate` in whole parts of which `scale` are one request per second.
fn rate(rate: f64, scale: f64, rule: &'static str) -> Result<u64, SpecError> {
    let parts = (rate * scale).round();
    // NaN is in no range.
    if parts >= 1.0 && rate <= 1e9 {
        Ok(parts as u64)
    } else {
        Err(SpecError::new("rate", rule, rate))
    }
}

/// Keeps the bucket's capacity, counted in 10^-12 of a token, within 64 bits.
const BURST_MAX: u32 = 10_000_000;

impl LimitSpec {
    /// The limit in its fresh state.
    pub fn build(&self) -> Result<Limit, SpecError> {
        Ok(match self {
            Self::TokenBucket { rate: per_s, burst } => {
                if !(1..=BURST_MAX).contains(burst) {
                    return Err(SpecError::new("burst", "1 to 10000000", burst));
                }
                Limit::TokenBucket(TokenBucket::new(
                    rate(*per_s, 1e6, "0.000001 to 1e9 per second")?,
                    *burst,
                ))
            }
            Self::FixedWindow {
                count,
                window_s,
                aligned,
            } => {
                let (count, window) = (at_least_one("count", *count)?, window(*window_s)?);
                Limit::FixedWindow(FixedWindow::new(
                    u64::from(count),
                    window.as_micros() as u64,
                    *aligned,
                ))
            }
            Self::SlidingLog { count, window_s } => Limit::SlidingLog(SlidingLog::new(
                at_least_one("count", *count)? as usize,
                window(*window_s)?,
            )),
            Self::SlidingCounter { count, window_s } => {
                let (count, window) = (at_least_one("count", *count)?, window(*window_s)?);
                Limit::SlidingCounter(SlidingCounter::new(
                    u64::from(count),
                    window.as_micros() as u64,
                ))
            }
            Self::Leaky {
                rate: per_s,
                queue,
                nodelay,
            } => Limit::Leaky(Leaky::new(
                rate(*per_s, 1e3, "0.001 to 1e9 per second")?,
                *queue,
                *nodelay,
            )),
            Self::ConcurrencyReject { slots } => {
                Limit::Concurrency(Concurrency::new(at_least_one("slots", *slots)?, 0))
            }
            Self::ConcurrencyQueue { slots, queue } => Limit::Concurrency(Concurrency::new(
                at_least_one("slots", *slots)?,
                at_least_one("queue", *queue)?,
            )),
            Self::All { of } => {
                let of = of.iter().map(Self::build).collect::<Result<Vec<_>, _>>()?;
                if of.is_empty() {
                    return Err(SpecError::new("of", "at least one limit", "empty"));
                }
                let queues = of.iter().filter(|limit| limit.queue_len_max() > 0).count();
                if queues > 1 {
                    return Err(SpecError::new(
                        "of",
                        "at most one limit that queues",
                        queues,
                    ));
                }
                Limit::All(All::new(of))
            }
            Self::Steps { at } => Limit::Steps(Steps::new(phases(at)?)),
            Self::None {} => Limit::None,
        })
    }
}

fn phases(at: &[(f64, LimitSpec)]) -> Result<Vec<(Timestamp, Limit)>, SpecError> {
    let phases = (at.iter())
        .map(|(from_s, spec)| Ok((Timestamp::ZERO + secs("at", *from_s)?, spec.build()?)))
        .collect::<Result<Vec<_>, SpecError>>()?;
    if phases
        .first()
        .is_none_or(|(from, _)| *from != Timestamp::ZERO)
    {
        return Err(SpecError::new(
            "at",
            "a list that begins at 0",
            at.first().map_or(f64::NAN, |step| step.0),
        ));
    }
    if let Some(pair) = phases.windows(2).find(|pair| pair[0].0 >= pair[1].0) {
        return Err(SpecError::new("at", "in order of time", pair[1].0));
    }
    Ok(phases)
}

/// As the judge's table writes it.
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

    #[test]
    fn a_bad_number_is_an_error_that_names_its_field() {
        for (json, field) in [
            (r#"{"kind":"token_bucket","rate":0,"burst":5}"#, "rate"),
            (r#"{"kind":"token_bucket","rate":-1,"burst":5}"#, "rate"),
            (r#"{"kind":"token_bucket","rate":1,"burst":0}"#, "burst"),
            (r#"{"kind":"leaky","rate":0.0001,"queue":5}"#, "rate"),
            (
                r#"{"kind":"fixed_window","count":0,"window_s":10,"aligned":true}"#,
                "count",
            ),
            (
                r#"{"kind":"sliding_log","count":1,"window_s":0}"#,
                "window_s",
            ),
            (
                r#"{"kind":"sliding_counter","count":1,"window_s":1e300}"#,
                "window_s",
            ),
            (r#"{"kind":"concurrency_reject","slots":0}"#, "slots"),
            (
                r#"{"kind":"concurrency_queue","slots":1,"queue":0}"#,
                "queue",
            ),
            (r#"{"kind":"all","of":[]}"#, "of"),
            (r#"{"kind":"steps","at":[]}"#, "at"),
            (r#"{"kind":"steps","at":[[1,{"kind":"none"}]]}"#, "at"),
            (
                r#"{"kind":"steps","at":[[0,{"kind":"none"}],[5,{"kind":"none"}],[5,{"kind":"none"}]]}"#,
                "at",
            ),
        ] {
            let error = parse(json).unwrap().build().unwrap_err();
            assert_eq!(error.field, field, "{json}: {error}");
        }
    }
}
