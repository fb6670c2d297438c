//! What a request costs by its method, in the units of a rule.

use std::collections::BTreeMap;
use std::fmt;

use http::Method;
use politely_core::budget::{AMOUNT_MAX, UNITS_MAX, UnitCosts, UnitName};
use toml::Spanned;

/// The most tokens of the rate that a request costs.
const REQUESTS_MAX: u64 = 1_000;
/// The word for all methods that a cost does not name.
const DEFAULT: &str = "default";

/// The costs of a rule, by unit and method.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleCosts {
    requests: ByMethod,
    units: Vec<(UnitName, ByMethod)>,
}

/// An amount for each method that is named, and for all others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ByMethod {
    named: Vec<(Method, u64)>,
    other: Option<u64>,
}

impl ByMethod {
    fn of(&self, method: &Method) -> Option<u64> {
        let named = self.named.iter().find(|(name, _)| name == method);
        named.map(|(_, amount)| *amount).or(self.other)
    }
}

impl RuleCosts {
    /// Returns whether the rule names no cost.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the tokens of the rate that a request costs, if the rule says so.
    pub fn requests(&self, method: &Method) -> Option<u16> {
        self.requests.of(method).map(|amount| amount as u16)
    }

    /// Returns whether some request costs this unit.
    pub(super) fn charge(&self, unit: UnitName) -> bool {
        self.units.iter().any(|(name, _)| *name == unit)
    }

    /// Returns the amounts of named units that a request costs.
    pub fn units(&self, method: &Method) -> UnitCosts {
        let costs = self.units.iter();
        let costs = costs.filter_map(|(name, amounts)| Some((*name, amounts.of(method)?)));
        costs.collect()
    }
}

impl fmt::Display for RuleCosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let requests = ("requests".to_owned(), &self.requests);
        let units = self.units.iter();
        let units = units.map(|(name, amounts)| (name.to_string(), amounts));
        let named = [requests].into_iter().chain(units);
        let named = named.filter(|(_, amounts)| **amounts != ByMethod::default());
        for (i, (name, amounts)) in named.enumerate() {
            write!(f, "{}{name}", if i > 0 { ", " } else { "" })?;
            for (method, amount) in &amounts.named {
                write!(f, " {method} {amount}")?;
            }
            if let Some(amount) = amounts.other {
                write!(f, " {amount}")?;
            }
        }
        Ok(())
    }
}

/// Reads `{ points = { GET = 1, default = 5 }, tokens = 1000 }`.
///
/// # Errors
/// A description of the mistake.
pub(super) fn read(
    written: &Spanned<BTreeMap<String, toml::Value>>,
) -> Result<RuleCosts, (usize, String)> {
    let mut costs = RuleCosts::default();
    let at = written.span().start;
    for (name, value) in written.get_ref() {
        let wrong = |why: String| (at, format!("cost of `{}`: {why}", name.escape_debug()));
        match name.as_str() {
            "requests" => costs.requests = by_method(value, 1, REQUESTS_MAX).map_err(wrong)?,
            "bytes" | "concurrent" => {
                let why = "known from the request itself; name another unit";
                return Err(wrong(why.to_owned()));
            }
            _ => {
                let unit: UnitName = name.parse().map_err(|why| wrong(format!("{why}")))?;
                let amounts = by_method(value, 0, AMOUNT_MAX).map_err(wrong)?;
                costs.units.push((unit, amounts));
            }
        }
    }
    if costs.units.len() > UNITS_MAX {
        return Err((
            at,
            format!("cost: more than {UNITS_MAX} units; remove some"),
        ));
    }
    Ok(costs)
}

fn by_method(value: &toml::Value, least: u64, most: u64) -> Result<ByMethod, String> {
    let amount = |value: &toml::Value| {
        let amount = value
            .as_integer()
            .and_then(|amount| u64::try_from(amount).ok());
        amount
            .filter(|amount| (least..=most).contains(amount))
            .ok_or_else(|| format!("must be a whole number from {least} to {most}"))
    };
    let Some(table) = value.as_table() else {
        return Ok(ByMethod {
            named: Vec::new(),
            other: Some(amount(value)?),
        });
    };
    let mut costs = ByMethod::default();
    for (name, value) in table {
        let amount = amount(value).map_err(|why| format!("`{}` {why}", name.escape_debug()))?;
        if name == DEFAULT {
            costs.other = Some(amount);
            continue;
        }
        costs.named.push((method(name)?, amount));
    }
    Ok(costs)
}

/// Reads a method. Methods are written in capitals.
pub(super) fn method(name: &str) -> Result<Method, String> {
    let is_word = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_uppercase());
    let method = Method::from_bytes(name.as_bytes()).ok().filter(|_| is_word);
    method.ok_or_else(|| {
        format!(
            "`{}` is no method; write GET, POST or `default`",
            name.escape_debug()
        )
    })
}
