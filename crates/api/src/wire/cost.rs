//! The cost of a request: a number, or amounts of units.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::whole;

/// The cost of a request: tokens of the rate, or amounts of units such as
/// `{"requests": 1, "tokens": 1000}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(untagged)]
pub enum Cost {
    /// The number of tokens of the rate, 1 to 1,000.
    Tokens(u16),
    /// The estimated amount of each unit. `requests` are the tokens of the rate, 1 if absent.
    Units(BTreeMap<String, u64>),
}

impl Cost {
    /// Returns the tokens of the rate, or `None` for a number that is too large.
    pub fn requests(&self) -> Option<u16> {
        match self {
            Self::Tokens(tokens) => Some(*tokens),
            Self::Units(units) => match units.get("requests") {
                None => Some(1),
                Some(requests) => u16::try_from(*requests).ok(),
            },
        }
    }

    /// Returns the amounts of the units that have a name of their own.
    pub fn units(&self) -> impl Iterator<Item = (&str, u64)> {
        let units = match self {
            Self::Tokens(_) => None,
            Self::Units(units) => Some(units),
        };
        let units = units.into_iter().flatten();
        let named = units.filter(|(name, _)| *name != "requests");
        named.map(|(name, amount)| (name.as_str(), *amount))
    }

    pub(super) fn is_one(&self) -> bool {
        *self == Self::default()
    }
}

impl Default for Cost {
    fn default() -> Self {
        Self::Tokens(1)
    }
}

impl From<u16> for Cost {
    fn from(tokens: u16) -> Self {
        Self::Tokens(tokens)
    }
}

impl<'de> Deserialize<'de> for Cost {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(CostVisitor)
    }
}

struct CostVisitor;

impl<'de> Visitor<'de> for CostVisitor {
    type Value = Cost;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number from 0 to 65535, or an object of units and whole numbers")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Cost, E> {
        whole::deserialize(serde::de::value::U64Deserializer::new(number)).map(Cost::Tokens)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Cost, E> {
        whole::deserialize(serde::de::value::I64Deserializer::new(number)).map(Cost::Tokens)
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Cost, E> {
        whole::deserialize(serde::de::value::F64Deserializer::new(number)).map(Cost::Tokens)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Cost, A::Error> {
        amounts(serde::de::value::MapAccessDeserializer::new(map)).map(Cost::Units)
    }
}

#[derive(Deserialize)]
struct Amount(#[serde(with = "whole")] u64);

/// Deserializes amounts of units, for `#[serde(deserialize_with)]`.
pub(super) fn amounts<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<BTreeMap<String, u64>, D::Error> {
    let amounts = BTreeMap::<String, Amount>::deserialize(from)?;
    let plain = amounts
        .into_iter()
        .map(|(name, Amount(amount))| (name, amount));
    Ok(plain.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_is_a_number_or_units() {
        let read = |json: &str| serde_json::from_str::<Cost>(json);
        assert_eq!(read("2.0").unwrap(), Cost::Tokens(2));
        let units = read(r#"{"requests": 1, "tokens": 1e3}"#).unwrap();
        assert_eq!(units.requests(), Some(1));
        assert_eq!(units.units().collect::<Vec<_>>(), [("tokens", 1_000)]);
        let text = serde_json::to_string(&units).unwrap();
        assert_eq!(text, r#"{"requests":1,"tokens":1000}"#);
        for wrong in [
            "-1",
            "1.5",
            "70000",
            "\"1\"",
            "null",
            r#"{"tokens": -1}"#,
            r#"{"tokens": 0.5}"#,
        ] {
            let error = read(wrong).unwrap_err().to_string();
            assert_eq!(error.lines().count(), 1, "{error}");
        }
    }
}
