//! Units that an operator names, such as tokens, and the amounts of them that a request costs.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The most characters of a unit's name.
const NAME_MAX: usize = 16;
/// The most named units that one request costs.
pub const UNITS_MAX: usize = 3;
/// The largest amount, 2^53: every whole number up to it is exact in JSON.
pub const AMOUNT_MAX: u64 = 1 << 53;

/// The name of a unit, for example `tokens`: 1 to 16 lowercase letters, digits and `_`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct UnitName(u64, u64);

/// The amounts of named units that a request costs. The default is none.
///
/// ```
/// use politely_core::budget::UnitCosts;
///
/// let costs = UnitCosts::new([("tokens", 1_000)])?;
/// assert_eq!(costs.of("tokens".parse()?), Some(1_000));
/// # Ok::<(), politely_core::budget::UnitError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitCosts {
    names: [UnitName; UNITS_MAX],
    amounts: [u64; UNITS_MAX],
}

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
    pub const NONE: Self = Self {
        names: [UnitName(0, 0); UNITS_MAX],
        amounts: [0; UNITS_MAX],
    };

    /// Returns the costs of these units.
    ///
    /// # Errors
    /// A name or an amount is invalid, or there are more than three units.
    pub fn new<'a>(costs: impl IntoIterator<Item = (&'a str, u64)>) -> Result<Self, UnitError> {
        let mut all = Self::NONE;
        for (i, (name, amount)) in costs.into_iter().enumerate() {
            let name: UnitName = name.parse()?;
            if amount > AMOUNT_MAX {
                return Err(UnitError::Amount(name));
            }
            *all.names.get_mut(i).ok_or(UnitError::Many)? = name;
            *all.amounts.get_mut(i).ok_or(UnitError::Many)? = amount;
        }
        Ok(all)
    }

    /// Returns the cost of one unit.
    pub(crate) fn one(name: UnitName, amount: u64) -> Self {
        let mut one = Self::NONE;
        (one.names[0], one.amounts[0]) = (name, amount);
        one
    }

    /// Returns whether no unit is named.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.names[0] == UnitName::default()
    }

    /// Returns the amount of one unit, if it is named.
    pub fn of(&self, name: UnitName) -> Option<u64> {
        self.iter()
            .find(|(own, _)| *own == name)
            .map(|(_, amount)| amount)
    }

    /// Returns the units and their amounts.
    pub fn iter(&self) -> impl Iterator<Item = (UnitName, u64)> {
        let all = self.names.into_iter().zip(self.amounts);
        all.take_while(|(name, _)| *name != UnitName::default())
    }

    /// Returns these amounts, with those of `truth` for the units that it names.
    #[must_use]
    pub(crate) fn corrected(&self, truth: &Self) -> Self {
        let mut all = *self;
        for (name, amount) in truth.iter() {
            let place =
                (all.names.iter()).position(|own| *own == name || *own == UnitName::default());
            if let Some(place) = place {
                (all.names[place], all.amounts[place]) = (name, amount);
            }
        }
        all
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
