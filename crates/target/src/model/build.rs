//! Builds a limit from its description in a file, and checks every number.

use std::time::Duration;

use politely_core::Timestamp;

use super::{
    All, Concurrency, FixedWindow, Leaky, Limit, LimitSpec, Shared, SlidingCounter, SlidingLog,
    SpecError, Steps, TokenBucket, Varying,
};

/// Ten years: beyond any limit's window, and far from an overflow of microseconds.
const SECS_MAX: f64 = 315_360_000.0;

/// A span in seconds from a file.
pub(super) fn secs(field: &'static str, value: f64) -> Result<Duration, SpecError> {
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

/// Returns `rate` in whole parts, `scale` of which are one request per second.
fn rate(field: &'static str, rate: f64, scale: f64, rule: &'static str) -> Result<u64, SpecError> {
    let parts = (rate * scale).round();
    // NaN is in no range.
    if parts >= 1.0 && rate <= 1e9 {
        Ok(parts as u64)
    } else {
        Err(SpecError::new(field, rule, rate))
    }
}

/// Keeps a bucket's capacity, counted in 10^-12 of a token, within 64 bits.
const BURST_MAX: u32 = 10_000_000;

fn burst(burst: u32) -> Result<u32, SpecError> {
    if (1..=BURST_MAX).contains(&burst) {
        Ok(burst)
    } else {
        Err(SpecError::new("burst", "1 to 10000000", burst))
    }
}

/// Returns bounds in microtokens per second. From a thousandth on, a token comes within a thousand
/// pieces of a varying rate.
fn bounds(low: f64, high: f64) -> Result<(u64, u64), SpecError> {
    const RULE: &str = "0.001 to 1e9 per second";
    if low < 0.001 {
        return Err(SpecError::new("low", RULE, low));
    }
    if high < low {
        return Err(SpecError::new("high", "at least low", high));
    }
    Ok((rate("low", low, 1e6, RULE)?, rate("high", high, 1e6, RULE)?))
}

/// Checks that `value` is within `min` and `max`; `rule` says so in words.
fn within(
    field: &'static str,
    value: f64,
    min: f64,
    max: f64,
    rule: &'static str,
) -> Result<f64, SpecError> {
    if (min..=max).contains(&value) {
        Ok(value)
    } else {
        Err(SpecError::new(field, rule, value))
    }
}

/// Refuses a shared limit: other clients share a host's whole limit, or the optimum could not be
/// computed.
fn not_shared(field: &'static str, limit: &LimitSpec) -> Result<(), SpecError> {
    if matches!(limit, LimitSpec::Shared { .. }) {
        return Err(SpecError::new(
            field,
            "a limit that is not shared: the whole may be",
            limit,
        ));
    }
    Ok(())
}

impl LimitSpec {
    /// Builds the limit in its fresh state.
    pub fn build(&self) -> Result<Limit, SpecError> {
        Ok(match self {
            Self::TokenBucket {
                rate: per_s,
                burst: most,
            } => Limit::TokenBucket(TokenBucket::new(
                rate("rate", *per_s, 1e6, "0.000001 to 1e9 per second")?,
                burst(*most)?,
            )),
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
                rate("rate", *per_s, 1e3, "0.001 to 1e9 per second")?,
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
            Self::All { of } => all(of)?,
            Self::Steps { at } => Limit::Steps(Steps::new(phases(at)?)),
            Self::Walk {
                low,
                high,
                burst: most,
                every_s,
                factor,
                seed,
            } => {
                within("every_s", *every_s, 1.0, SECS_MAX, "1 to 315360000 seconds")?;
                within("factor", *factor, 1.0, 10.0, "1 to 10")?;
                let every = secs("every_s", *every_s)?;
                Limit::Varying(Varying::walk(
                    bounds(*low, *high)?,
                    *factor,
                    every,
                    burst(*most)?,
                    *seed,
                ))
            }
            Self::Day {
                low,
                high,
                burst: most,
                period_s,
            } => {
                // A piece lasts at least a second.
                within(
                    "period_s",
                    *period_s,
                    96.0,
                    SECS_MAX,
                    "96 to 315360000 seconds",
                )?;
                let period = secs("period_s", *period_s)?;
                Limit::Varying(Varying::day(bounds(*low, *high)?, period, burst(*most)?))
            }
            Self::Shared {
                others_per_s,
                of,
                seed,
            } => shared(of, *others_per_s, *seed)?,
            Self::None {} => Limit::None,
        })
    }
}

fn all(of: &[LimitSpec]) -> Result<Limit, SpecError> {
    of.iter().try_for_each(|limit| not_shared("of", limit))?;
    let of = (of.iter())
        .map(LimitSpec::build)
        .collect::<Result<Vec<_>, _>>()?;
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
    Ok(Limit::All(All::new(of)))
}

fn shared(of: &LimitSpec, others_per_s: f64, seed: u64) -> Result<Limit, SpecError> {
    not_shared("of", of)?;
    let limit = of.build()?;
    if limit.has_slots() {
        return Err(SpecError::new("of", "a limit without slots", of));
    }
    // Above this rate, catching up after an hour without a request would take seconds.
    let rule = "0.000001 to 1000 per second";
    let others_per_s = within("others_per_s", others_per_s, 1e-6, 1e3, rule)?;
    Ok(Limit::Shared(Shared::new(limit, others_per_s, seed)))
}

fn phases(at: &[(f64, LimitSpec)]) -> Result<Vec<(Timestamp, Limit)>, SpecError> {
    at.iter()
        .try_for_each(|(_, limit)| not_shared("at", limit))?;
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

#[cfg(test)]
mod tests {
    use super::*;

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
            (
                r#"{"kind":"walk","low":0,"high":20,"burst":10,"every_s":10,"factor":1.1}"#,
                "low",
            ),
            (
                r#"{"kind":"walk","low":5,"high":4,"burst":10,"every_s":10,"factor":1.1}"#,
                "high",
            ),
            (
                r#"{"kind":"walk","low":5,"high":20,"burst":0,"every_s":10,"factor":1.1}"#,
                "burst",
            ),
            (
                r#"{"kind":"walk","low":5,"high":20,"burst":10,"every_s":0.5,"factor":1.1}"#,
                "every_s",
            ),
            (
                r#"{"kind":"walk","low":5,"high":20,"burst":10,"every_s":10,"factor":0.9}"#,
                "factor",
            ),
            (
                r#"{"kind":"day","low":5,"high":20,"burst":10,"period_s":95}"#,
                "period_s",
            ),
            (
                r#"{"kind":"day","low":5,"high":2e9,"burst":10,"period_s":96}"#,
                "high",
            ),
            (
                r#"{"kind":"shared","others_per_s":0,"of":{"kind":"none"}}"#,
                "others_per_s",
            ),
            (
                r#"{"kind":"shared","others_per_s":1,"of":{"kind":"concurrency_reject","slots":1}}"#,
                "of",
            ),
            (
                r#"{"kind":"shared","others_per_s":1,"of":{"kind":"shared","others_per_s":1,"of":{"kind":"none"}}}"#,
                "of",
            ),
            (
                r#"{"kind":"all","of":[{"kind":"shared","others_per_s":1,"of":{"kind":"none"}}]}"#,
                "of",
            ),
            (
                r#"{"kind":"steps","at":[[0,{"kind":"shared","others_per_s":1,"of":{"kind":"none"}}]]}"#,
                "at",
            ),
        ] {
            let error = serde_json::from_str::<LimitSpec>(json)
                .unwrap()
                .build()
                .unwrap_err();
            let named = error.to_string().starts_with(&format!("{field} must be "));
            assert!(named, "{json}: {error}");
        }
    }
}
