//! The wishes of a caller about the limits, in header fields that are removed before the request is
//! sent.
//!
//! `x-politely-client`, `x-politely-labels: team=a,job=b`, `x-politely-priority: 0` to `9`,
//! `x-politely-cost: 3` or `tokens=1200,requests=1`, and `Prefer: wait=SECONDS` (RFC 7240).

use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use politely::attempts::Terms;
use politely::policy::is_label_value;
use politely::{Labels, UnitCosts, UnitError, UnitName};

use super::problem::Problem;

/// The longest wait if the operator set none.
const WAIT_DEFAULT: Duration = Duration::from_mins(1);
/// The longest wait that a caller may ask for if the operator set none.
const WAIT_MAX: Duration = Duration::from_hours(1);
/// The beginning of the names of this proxy's own header fields.
const PREFIX: &str = "x-politely-";
/// The name of the requests that a request counts as, among the units of its cost.
const REQUESTS: &str = "requests";

/// Takes the wishes out of the header fields of a request.
///
/// # Errors
/// A wish cannot be understood; the problem names its header field.
pub(super) fn take(
    headers: &mut HeaderMap,
    wait_max: Option<Duration>,
    has_unit: impl Fn(UnitName) -> bool,
) -> Result<(Terms, Labels), Problem> {
    let mut terms = Terms {
        wait_max: Some(wait(headers, wait_max)),
        ..Terms::default()
    };
    let mut labels = Vec::new();
    let ours = headers
        .keys()
        .filter(|name| name.as_str().starts_with(PREFIX));
    let ours: Vec<_> = ours.cloned().collect();
    for name in ours {
        let wrong = |why: &str| Problem::bad(&format!("{name}: {why}"));
        // Several lines of a field are one list (RFC 9110, section 5.3).
        let lines = headers.get_all(&name).into_iter();
        let lines: Result<Vec<_>, _> = lines.map(HeaderValue::to_str).collect();
        let lines = lines.map_err(|_| wrong("not ASCII"))?;
        let (text, is_one) = (lines.join(","), lines.len() == 1);
        headers.remove(&name);
        let text = text.trim();
        match name.as_str().strip_prefix(PREFIX).unwrap_or_default() {
            "client" if is_one && is_label_value(text) => {
                labels.push((Labels::CLIENT.to_owned(), text.to_owned()));
            }
            "client" => return Err(wrong("send one name of 1 to 128 characters")),
            "labels" => {
                let read = text.parse::<crate::config::Labels>();
                labels.extend(read.map_err(|why| wrong(&why))?.0);
            }
            "priority" => match text.parse() {
                Ok(priority @ 0..=9) => terms.priority = priority,
                _ => return Err(wrong("must be from 0 to 9")),
            },
            "cost" => cost(text, &mut terms, &has_unit).map_err(|why| wrong(&why))?,
            // It was read before.
            "token" => {}
            _ => return Err(wrong("there is no such field")),
        }
    }
    Ok((terms, labels.into_iter().collect()))
}

/// Reads `3`, or `tokens=1200,requests=1`.
fn cost(text: &str, terms: &mut Terms, has_unit: impl Fn(UnitName) -> bool) -> Result<(), String> {
    let mut units = Vec::new();
    for part in text.split(',') {
        let (unit, amount) = part.split_once('=').unwrap_or((REQUESTS, part));
        let wrong = |_| format!("\"{}\" is not N or UNIT=N", part.escape_debug());
        let amount: u64 = amount.trim().parse().map_err(wrong)?;
        match unit.trim() {
            REQUESTS if (1..=1_000).contains(&amount) => terms.cost = amount as u16,
            REQUESTS => return Err("requests must be from 1 to 1,000".to_owned()),
            unit => {
                let name = unit.parse().map_err(|why: UnitError| why.to_string())?;
                if !has_unit(name) {
                    return Err(format!("no rule charges the unit {name}"));
                }
                units.push((unit, amount));
            }
        }
    }
    terms.units = UnitCosts::new(units).map_err(|why| why.to_string())?;
    Ok(())
}

/// Returns the longest wait of a request: what it prefers, within what the operator allows.
fn wait(headers: &HeaderMap, allowed: Option<Duration>) -> Duration {
    let fields = headers.get_all("prefer").into_iter();
    let fields = fields.filter_map(|value| value.to_str().ok());
    let preferences = fields.flat_map(|field| field.split([',', ';']));
    let mut named = preferences.filter_map(|preference| preference.split_once('='));
    let wanted = named.find(|(name, _)| name.trim().eq_ignore_ascii_case("wait"));
    let wanted = wanted.and_then(|(_, value)| value.trim().trim_matches('"').parse().ok());
    match wanted.map(Duration::from_secs) {
        Some(wanted) => wanted.min(allowed.unwrap_or(WAIT_MAX)),
        None => allowed.unwrap_or(WAIT_DEFAULT),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn wishes_are_read_and_removed() {
        let mut headers = headers(&[
            ("x-politely-client", "ci"),
            ("x-politely-labels", "team=a"),
            ("x-politely-labels", "job=b"),
            ("x-politely-priority", "9"),
            ("x-politely-cost", "tokens=1200, requests=2"),
            ("x-politely-token", "0123456789abcdef"),
            ("accept", "*/*"),
        ]);
        let (terms, labels) = take(&mut headers, None, UnitName::is_stated).unwrap();
        assert_eq!(headers.len(), 1);
        assert_eq!((terms.priority, terms.cost), (9, 2));
        assert_eq!(terms.units, UnitCosts::new([("tokens", 1200)]).unwrap());
        let labels: Vec<_> = labels.iter().collect();
        assert_eq!(labels, [("client", "ci"), ("job", "b"), ("team", "a")]);
    }

    #[test]
    fn a_wish_that_means_nothing_is_refused() {
        for (name, value) in [
            ("x-politely-client", ""),
            ("x-politely-labels", "host=a"),
            ("x-politely-priority", "10"),
            ("x-politely-cost", "0"),
            ("x-politely-cost", "tokens=many"),
            ("x-politely-cost", "Tokens=1"),
            ("x-politely-cost", "tokns=1"),
            ("x-politely-clients", "ci"),
        ] {
            let taken = take(&mut headers(&[(name, value)]), None, UnitName::is_stated);
            assert!(taken.is_err(), "{name}: {value}");
        }
    }

    #[test]
    fn a_caller_shortens_the_wait_and_lengthens_only_the_default() {
        let wait = |prefer: &[(&'static str, &'static str)], allowed: Option<u64>| {
            let allowed = allowed.map(Duration::from_secs);
            wait(&headers(prefer), allowed).as_secs()
        };
        assert_eq!((wait(&[], None), wait(&[], Some(5))), (60, 5));
        let prefers = [("prefer", "respond-async, wait=10")];
        assert_eq!((wait(&prefers, None), wait(&prefers, Some(5))), (10, 5));
        assert_eq!(wait(&[("prefer", "wait=600")], None), 600);
        assert_eq!(wait(&[("prefer", "wait=99999")], None), 3600);
        assert_eq!(wait(&[("prefer", "wait=soon")], None), 60);
    }
}
