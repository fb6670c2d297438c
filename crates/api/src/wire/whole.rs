//! Deserialization of whole numbers from languages with a single number type: `30000.0` is 30000.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserializer, Serialize, Serializer};

/// Serializes a whole number as it is, for `#[serde(with)]`.
pub(super) fn serialize<T: Serialize, S: Serializer>(number: &T, to: S) -> Result<S::Ok, S::Error> {
    number.serialize(to)
}

/// Deserializes a whole number, for `#[serde(with)]`.
pub(super) fn deserialize<'de, T: TryFrom<u64>, D: Deserializer<'de>>(
    from: D,
) -> Result<T, D::Error> {
    from.deserialize_u64(Whole(PhantomData))
}

/// A whole number or null, for `#[serde(with)]`.
pub(super) mod maybe {
    use super::{Deserializer, Maybe, PhantomData};

    pub(in crate::wire) use super::serialize;

    pub(in crate::wire) fn deserialize<'de, T: TryFrom<u64>, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<T>, D::Error> {
        from.deserialize_option(Maybe(PhantomData))
    }
}

struct Whole<T>(PhantomData<T>);
struct Maybe<T>(PhantomData<T>);

impl<T: TryFrom<u64>> Visitor<'_> for Whole<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let most = u64::MAX >> (64 - 8 * size_of::<T>());
        write!(f, "a whole number from 0 to {most}")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        T::try_from(number).map_err(|_| E::invalid_value(Unexpected::Unsigned(number), &self))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        let whole = u64::try_from(number);
        whole
            .map_err(|_| E::invalid_value(Unexpected::Signed(number), &self))
            .and_then(|number| self.visit_u64(number))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<T, E> {
        // 2^64 is the first value that is too large. A cast would turn it into the largest `u64`.
        if number.fract() == 0.0 && (0.0..18_446_744_073_709_551_616.0).contains(&number) {
            return self.visit_u64(number as u64);
        }
        Err(E::invalid_value(Unexpected::Float(number), &self))
    }
}

impl<'de, T: TryFrom<u64>> Visitor<'de> for Maybe<T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Whole::<T>(PhantomData).expecting(f)
    }

    fn visit_none<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        deserialize(from).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use crate::wire::{Acquire, Item, Meaning};

    #[test]
    fn numbers_of_languages_with_one_kind_are_read() {
        let read = |json: &str| serde_json::from_str::<Acquire>(json).map(|call| call.wait_ms);
        let of = |wait: &str| read(&format!(r#"{{"client":"w","items":[],"wait_ms":{wait}}}"#));
        assert_eq!(
            [of("30000.0").unwrap(), of("3e4").unwrap(), of("0").unwrap()],
            [30_000, 30_000, 0]
        );
        for wrong in [
            "1.5",
            "-1",
            "-1.0",
            "4294967296",
            "4294967296.0",
            "1e300",
            "null",
            "\"1\"",
        ] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
        let item: Item = serde_json::from_str(r#"{"max_wait_ms":null,"cost":2.0}"#).unwrap();
        assert_eq!((item.max_wait_ms, item.cost), (None, 2.into()));
    }

    /// A regression that `scripts/fuzz-api` found: this number was read with 0.5 added.
    #[test]
    fn a_large_one_gains_no_fraction() {
        let json = r#"{"signal":"ok","quotas":[{"limit":4441317386582526.0}]}"#;
        let meaning: Meaning = serde_json::from_str(json).unwrap();
        assert_eq!(meaning.quotas[0].limit, Some(4_441_317_386_582_526));
    }
}
