//! The change of one number by a patch: an absent field stays, null removes it (RFC 7396).

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::whole::maybe;

/// The change of a number that an operator can set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Change<T> {
    /// Leaves the number as it is: the field is absent.
    #[default]
    Keep,
    /// Removes the operator's number: the field is null.
    TakeBack,
    /// Sets the number to this value.
    To(T),
}

impl<T> Change<T> {
    /// Returns the new value, if the change sets one.
    pub fn set(self) -> Option<T> {
        match self {
            Self::To(number) => Some(number),
            Self::Keep | Self::TakeBack => None,
        }
    }

    /// Returns a reference to the new value, if the change sets one.
    pub const fn as_set(&self) -> Option<&T> {
        match self {
            Self::To(number) => Some(number),
            Self::Keep | Self::TakeBack => None,
        }
    }

    /// Returns the value to give to an operator's setting, where `none` stands for no value.
    pub fn or_none(self, none: T) -> Option<T> {
        match self {
            Self::Keep => None,
            Self::TakeBack => Some(none),
            Self::To(number) => Some(number),
        }
    }

    /// Returns one change with the effect of `before` and then `self`, for a number that is not set
    /// yet.
    #[must_use]
    pub fn after(self, before: Self) -> Self {
        match self {
            Self::Keep => before,
            Self::TakeBack => Self::Keep,
            Self::To(_) => self,
        }
    }
}

impl<T> From<Option<T>> for Change<T> {
    /// Converts `Some` to a change to that value, and `None` to no change.
    fn from(number: Option<T>) -> Self {
        number.map_or(Self::Keep, Self::To)
    }
}

impl<T: Serialize> Serialize for Change<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::To(number) => number.serialize(to),
            Self::Keep | Self::TakeBack => to.serialize_none(),
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Change<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let number = Option::deserialize(from)?;
        Ok(number.map_or(Self::TakeBack, Self::To))
    }
}

/// A change to a whole number, for `#[serde(with)]`. A whole number may be written as a float, for
/// languages with a single number type.
pub(super) mod whole {
    use super::{Change, Deserializer, maybe};

    pub(in crate::wire) use crate::wire::whole::serialize;

    pub(in crate::wire) fn deserialize<'de, T: TryFrom<u64>, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Change<T>, D::Error> {
        Ok(maybe::deserialize(from)?.map_or(Change::TakeBack, Change::To))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::KeyPatch;

    #[test]
    fn absent_null_and_a_number_are_three_things() {
        let text = r#"{"rate":2.5,"in_flight":null}"#;
        let patch: KeyPatch = serde_json::from_str(text).unwrap();
        let wanted = KeyPatch {
            rate: Change::To(2.5),
            in_flight: Change::TakeBack,
            ..KeyPatch::default()
        };
        assert_eq!(patch, wanted);
        assert_eq!(patch.burst, Change::Keep);
        assert_eq!(serde_json::to_string(&patch).unwrap(), text);
        let whole: KeyPatch = serde_json::from_str(r#"{"in_flight":3.0}"#).unwrap();
        assert_eq!(whole.in_flight, Change::To(3));
        assert!(serde_json::from_str::<KeyPatch>(r#"{"in_flight":1.5}"#).is_err());
    }

    #[test]
    fn of_two_changes_the_later_counts() {
        let (set, none) = (Change::To(1), Change::TakeBack);
        assert_eq!(Change::Keep.after(set), set);
        assert_eq!(none.after(set), Change::Keep);
        assert_eq!(Change::To(2).after(set), Change::To(2));
    }
}
