//! Reads packed values from untrusted bytes.

use postcard::Error;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, SeqAccess,
    VariantAccess, Visitor,
};

use super::{Row, TIME, Times, at_distance};

/// Reads a value that [`super::pack`] wrote. Further bytes are an error.
pub(crate) fn unpack<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Error> {
    let mut unpacker = Unpacker {
        rest: bytes,
        flags: 0,
        left: 0,
        times: Times::default(),
        row: None,
        is_time: false,
    };
    let value = T::deserialize(&mut unpacker)?;
    if !unpacker.rest.is_empty() {
        return Err(Error::DeserializeBadEncoding);
    }
    Ok(value)
}

struct Unpacker<'b> {
    rest: &'b [u8],
    /// The last byte of bits. The next field counts the bits that are left in it.
    flags: u8,
    left: u8,
    times: Times,
    /// The last element of the list that is being read, if any.
    row: Option<Row>,
    /// Whether the next number is a time.
    is_time: bool,
}

impl Unpacker<'_> {
    fn byte(&mut self) -> Result<u8, Error> {
        let (&byte, rest) = self
            .rest
            .split_first()
            .ok_or(Error::DeserializeUnexpectedEnd)?;
        self.rest = rest;
        Ok(byte)
    }

    fn bit(&mut self) -> Result<bool, Error> {
        if self.left == 0 {
            self.flags = self.byte()?;
            self.left = 8;
        }
        self.left -= 1;
        Ok(self.flags >> self.left & 1 == 1)
    }

    fn take(&mut self) -> Result<u64, Error> {
        let mut number = 0;
        for i in 0..8 {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << (7 * i);
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Ok(number | u64::from(self.byte()?) << 56)
    }

    fn number(&mut self) -> Result<u64, Error> {
        let code = if self.bit()? { self.take()? } else { 0 };
        let is_time = std::mem::take(&mut self.is_time);
        if let Some(column) = self.row.as_mut().and_then(Row::next) {
            return Ok(column.number(code));
        }
        let number = if is_time { self.times.at(code) } else { code };
        if let Some(row) = &mut self.row {
            row.begin(number);
        }
        Ok(number)
    }

    fn float32(&mut self) -> Result<f32, Error> {
        let mut bits = [0; 4];
        if self.bit()? {
            for byte in &mut bits {
                *byte = self.byte()?;
            }
        }
        Ok(f32::from_le_bytes(bits))
    }

    fn float64(&mut self) -> Result<f64, Error> {
        let bits = if self.bit()? { self.take()? } else { 0 };
        Ok(f64::from_bits(bits.swap_bytes()))
    }

    fn narrow<N: TryFrom<u64>>(&mut self) -> Result<N, Error> {
        N::try_from(self.number()?).map_err(|_| Error::DeserializeBadVarint)
    }

    fn signed<N: TryFrom<i64>>(&mut self) -> Result<N, Error> {
        let number = at_distance(self.number()?, 0).cast_signed();
        N::try_from(number).map_err(|_| Error::DeserializeBadVarint)
    }
}

/// Reads numbers, each from the wider type that it was written as.
macro_rules! numbers {
    ($($method:ident: $visit:ident $read:expr,)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            visitor.$visit($read(self)?)
        }
    )*};
}

macro_rules! no {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
            Err(Error::WontImplement)
        }
    )*};
}

impl<'de> Deserializer<'de> for &mut Unpacker<'_> {
    type Error = Error;

    numbers! {
        deserialize_u8: visit_u8 Unpacker::narrow,
        deserialize_u16: visit_u16 Unpacker::narrow,
        deserialize_u32: visit_u32 Unpacker::narrow,
        deserialize_u64: visit_u64 Unpacker::number,
        deserialize_i8: visit_i8 Unpacker::signed,
        deserialize_i16: visit_i16 Unpacker::signed,
        deserialize_i32: visit_i32 Unpacker::signed,
        deserialize_i64: visit_i64 Unpacker::signed,
        deserialize_f32: visit_f32 Unpacker::float32,
        deserialize_f64: visit_f64 Unpacker::float64,
        deserialize_bool: visit_bool Unpacker::bit,
    }

    no! {
        deserialize_any deserialize_char deserialize_str deserialize_string deserialize_bytes deserialize_byte_buf
        deserialize_map deserialize_identifier deserialize_ignored_any
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.bit()? {
            visitor.visit_some(self)
        } else {
            visitor.visit_none()
        }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.is_time = name == TIME;
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let left = self.narrow()?;
        // An element takes at least one bit. So a forged length cannot reserve more memory than the
        // input allows.
        if left > 8 * (self.rest.len() + 1) {
            return Err(Error::DeserializeUnexpectedEnd);
        }
        let outer = self.row.replace(Row::default());
        let value = visitor.visit_seq(Parts {
            unpacker: self,
            left,
            is_list: true,
        })?;
        self.row = outer;
        Ok(value)
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        left: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_seq(Parts {
            unpacker: self,
            left,
            is_list: false,
        })
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        left: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_tuple(left, visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_tuple(fields.len(), visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_enum(self)
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}

/// The fields of a struct, or the elements of a list.
struct Parts<'a, 'b> {
    unpacker: &'a mut Unpacker<'b>,
    left: usize,
    is_list: bool,
}

impl<'de> SeqAccess<'de> for Parts<'_, '_> {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Error> {
        let Some(left) = self.left.checked_sub(1) else {
            return Ok(None);
        };
        self.left = left;
        if let Some(row) = self.unpacker.row.as_mut().filter(|_| self.is_list) {
            row.at = 0;
        }
        seed.deserialize(&mut *self.unpacker).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

impl<'de> EnumAccess<'de> for &mut Unpacker<'_> {
    type Error = Error;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self), Error> {
        let index: u32 = self.narrow()?;
        Ok((seed.deserialize(index.into_deserializer())?, self))
    }
}

impl<'de> VariantAccess<'de> for &mut Unpacker<'_> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        Ok(())
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Error> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_tuple(len, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_tuple(fields.len(), visitor)
    }
}
