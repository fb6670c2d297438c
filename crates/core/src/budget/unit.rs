//! Units that an operator names, such as tokens, and the amounts of them that a request costs.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::de::{self, Deserializer};
use serde::{Deserialize, Serialize, Serializer};

/// The most characters of a unit's name.
const NAME_MAX: usize = 16;
/// The most named units that one request costs.
pub const UNITS_MAX: usize = 3;
/// The largest amount, 2^53: every whole number up to it is exact in JSON.
pub const AMOUNT_MAX: u64 = 1 << 53;

/// The units that requests state without a rule that charges them, as servers do in their headers.
const STATED: [&str; 4] = ["tokens", "input_tokens", "output_tokens", "points"];

/// The name of a unit, for example `tokens`: 1 to 16 lowercase letters, digits and `_`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct UnitName(u64, u64);

/// The amounts of named units that a request costs. The default is none.
///
/// Few requests name a unit, so the amounts are behind one pointer: a request without them pays for
/// one comparison.
///
/// ```
/// use politely_core::budget::UnitCosts;
///
/// let costs = UnitCosts::new([("tokens", 1_000)])?;
/// assert_eq!(costs.of("tokens".parse()?), Some(1_000));
/// # Ok::<(), politely_core::budget::UnitError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnitCosts(Option<Arc<[(UnitName, u64)]>>);

/// Why amounts of units are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// The text is not a unit's name.
    #[error("\"{0}\" is not a unit; use 1 to 16 lowercase letters, digits and `_`")]
    Name(String),
    /// The amount is too large.
    #[error("{0} must be from 0 to 2^53")]
    Amount(UnitName),
    /// There are too many units.
    #[error("more than 3 units; remove some")]
    Many,
}

impl FromStr for UnitName {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let mut bytes = [0; NAME_MAX];
        let is_word = text.starts_with(|first: char| first.is_ascii_lowercase())
            && (text.bytes())
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
        let Some(name) = bytes.get_mut(..text.len()).filter(|_| is_word) else {
            let shown: String = text.chars().take(2 * NAME_MAX).collect();
            return Err(UnitError::Name(shown.escape_debug().to_string()));
        };
        name.copy_from_slice(text.as_bytes());
        let number = u128::from_le_bytes(bytes);
        Ok(Self(number as u64, (number >> 64) as u64))
    }
}

impl UnitName {
    /// Returns whether requests state this unit themselves. Any other name is a mistake unless a
    /// rule charges it: its limit would never be spent.
    pub fn is_stated(self) -> bool {
        STATED.contains(&self.to_string().as_str())
    }
}

impl fmt::Display for UnitName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = u128::from(self.0) | u128::from(self.1) << 64;
        let bytes = number.to_le_bytes();
        let len = bytes.iter().take_while(|byte| **byte != 0).count();
        f.write_str(std::str::from_utf8(&bytes[..len]).unwrap_or("?"))
    }
}

impl UnitCosts {
    /// No unit.
    pub const NONE: Self = Self(None);

    /// Returns the costs of these units.
    ///
    /// # Errors
    /// A name or an amount is invalid, or there are more than three units.
    pub fn new<'a>(costs: impl IntoIterator<Item = (&'a str, u64)>) -> Result<Self, UnitError> {
        let read = |(name, amount): (&str, u64)| Ok((name.parse()?, amount));
        Self::of_names(costs.into_iter().map(read))
    }

    /// Returns the costs of units whose names are read already.
    ///
    /// # Errors
    /// The error of the first pair, an amount that is too large, or more than three units.
    fn of_names(
        costs: impl IntoIterator<Item = Result<(UnitName, u64), UnitError>>,
    ) -> Result<Self, UnitError> {
        let mut all = Vec::new();
        for cost in costs {
            let (name, amount) = cost?;
            if amount > AMOUNT_MAX {
                return Err(UnitError::Amount(name));
            }
            if all.len() == UNITS_MAX {
                return Err(UnitError::Many);
            }
            all.push((name, amount));
        }
        Ok(Self::of_all(all))
    }

    fn of_all(all: Vec<(UnitName, u64)>) -> Self {
        Self((!all.is_empty()).then(|| all.into()))
    }

    /// Returns the cost of one unit.
    pub(crate) fn one(name: UnitName, amount: u64) -> Self {
        Self::of_all(vec![(name, amount)])
    }

    /// Returns whether no unit is named.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Returns the amount of one unit, if it is named.
    pub fn of(&self, name: UnitName) -> Option<u64> {
        self.iter()
            .find(|(own, _)| *own == name)
            .map(|(_, amount)| amount)
    }

    /// Returns the units and their amounts.
    pub fn iter(&self) -> impl Iterator<Item = (UnitName, u64)> {
        self.0.as_deref().unwrap_or_default().iter().copied()
    }

    /// Returns these amounts, and those of `other` for units that these do not name, at most three.
    #[must_use]
    pub fn or(&self, other: &Self) -> Self {
        if other.is_empty() {
            return self.clone();
        }
        let added = other.iter().filter(|(name, _)| self.of(*name).is_none());
        Self::of_all(self.iter().chain(added).take(UNITS_MAX).collect())
    }

    /// Returns these amounts, with those of `truth` for the units that it names.
    #[must_use]
    pub fn corrected(&self, truth: &Self) -> Self {
        let corrected = |(name, amount)| (name, truth.of(name).unwrap_or(amount));
        let known = Self::of_all(self.iter().map(corrected).collect());
        known.or(truth)
    }
}

/// Collects the first three units.
impl FromIterator<(UnitName, u64)> for UnitCosts {
    fn from_iter<I: IntoIterator<Item = (UnitName, u64)>>(costs: I) -> Self {
        Self::of_all(costs.into_iter().take(UNITS_MAX).collect())
    }
}

impl Serialize for UnitCosts {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.0.as_deref().unwrap_or_default())
    }
}

impl<'de> Deserialize<'de> for UnitCosts {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let all = Vec::<(UnitName, u64)>::deserialize(from)?;
        Self::of_names(all.into_iter().map(Ok)).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_written() {
        for name in ["t", "tokens", "output_tokens_24"] {
            assert_eq!(name.parse::<UnitName>().unwrap().to_string(), name);
        }
        for name in ["", "Tokens", "9", "a b", "seventeen_letters", "é", "a\n"] {
            let error = name.parse::<UnitName>().unwrap_err().to_string();
            assert_eq!(error.lines().count(), 1, "{error}");
        }
    }

    #[test]
    fn the_truth_replaces_an_estimate() {
        let costs = |all: &[(&str, u64)]| UnitCosts::new(all.iter().copied()).unwrap();
        let estimate = costs(&[("tokens", 1_000), ("points", 5)]);
        let truth = costs(&[("tokens", 340), ("calls", 1)]);
        let all = costs(&[("tokens", 340), ("points", 5), ("calls", 1)]);
        assert_eq!(estimate.corrected(&truth), all);
        assert!(UnitCosts::new([("a", AMOUNT_MAX + 1)]).is_err());
        assert!(UnitCosts::new([("a", 1), ("b", 1), ("c", 1), ("d", 1)]).is_err());
    }
}
