//! Writes packed values.

use postcard::Error;
use serde::Serialize;
use serde::ser::{self, Serializer};

use super::{Row, TIME, Times, distance};

/// Appends `value` to `out`.
pub(crate) fn pack<T: Serialize>(value: &T, out: Vec<u8>) -> Result<Vec<u8>, Error> {
    let mut packer = Packer {
        out,
        flags: 0,
        free: 0,
        times: Times::default(),
        row: None,
        is_time: false,
    };
    value.serialize(&mut packer)?;
    Ok(packer.out)
}

struct Packer {
    out: Vec<u8>,
    /// The index of the last byte of bits. The next field counts the bits that are free in it.
    flags: usize,
    free: u8,
    times: Times,
    /// The last element of the list that is being written, if any.
    row: Option<Row>,
    /// Whether the next number is a time.
    is_time: bool,
}

impl Packer {
    fn bit(&mut self, set: bool) {
        if self.free == 0 {
            self.flags = self.out.len();
            self.free = 8;
            self.out.push(0);
        }
        self.free -= 1;
        self.out[self.flags] |= u8::from(set) << self.free;
    }

    /// Writes seven bits per byte, the lowest first.
    fn put(&mut self, mut number: u64) {
        for _ in 0..8 {
            if number < 0x80 {
                break;
            }
            self.out.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.out.push(number as u8);
    }

    fn number(&mut self, number: u64) {
        let is_time = std::mem::take(&mut self.is_time);
        let code = if let Some(column) = self.row.as_mut().and_then(Row::next) {
            column.code(number)
        } else {
            if let Some(row) = &mut self.row {
                row.begin(number);
            }
            if is_time {
                self.times.code(number)
            } else {
                number
            }
        };
        self.bit(code != 0);
        if code != 0 {
            self.put(code);
        }
    }
}

/// Writes numbers, each as the wider type that holds it.
macro_rules! numbers {
    ($($method:ident: $of:ty => $as:expr,)*) => {$(
        fn $method(self, value: $of) -> Result<(), Error> {
            let wide: fn($of) -> u64 = $as;
            self.number(wide(value));
            Ok(())
        }
    )*};
}

impl<'a> Serializer for &'a mut Packer {
    type Ok = ();
    type Error = Error;
    type SerializeSeq = List<'a>;
    type SerializeTuple = Self;
    type SerializeTupleStruct = Self;
    type SerializeTupleVariant = Self;
    type SerializeMap = ser::Impossible<(), Error>;
    type SerializeStruct = Self;
    type SerializeStructVariant = Self;

    numbers! {
        serialize_u8: u8 => u64::from,
        serialize_u16: u16 => u64::from,
        serialize_u32: u32 => u64::from,
        serialize_u64: u64 => |n| n,
        serialize_i8: i8 => |n| distance(i64::from(n).cast_unsigned(), 0),
        serialize_i16: i16 => |n| distance(i64::from(n).cast_unsigned(), 0),
        serialize_i32: i32 => |n| distance(i64::from(n).cast_unsigned(), 0),
        serialize_i64: i64 => |n| distance(n.cast_unsigned(), 0),
        serialize_char: char => |c| u64::from(c),
    }

    fn serialize_bool(self, value: bool) -> Result<(), Error> {
        self.bit(value);
        Ok(())
    }

    fn serialize_f32(self, value: f32) -> Result<(), Error> {
        let bits = value.to_bits();
        self.bit(bits != 0);
        if bits != 0 {
            self.out.extend(bits.to_le_bytes());
        }
        Ok(())
    }

    fn serialize_f64(self, value: f64) -> Result<(), Error> {
        let bits = value.to_bits();
        self.bit(bits != 0);
        if bits != 0 {
            self.put(bits.swap_bytes());
        }
        Ok(())
    }

    fn serialize_none(self) -> Result<(), Error> {
        self.bit(false);
        Ok(())
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Error> {
        self.bit(true);
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), Error> {
        Ok(())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), Error> {
        Ok(())
    }

    fn serialize_unit_variant(
        self,
        _: &'static str,
        index: u32,
        _: &'static str,
    ) -> Result<(), Error> {
        self.number(u64::from(index));
        Ok(())
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &T,
    ) -> Result<(), Error> {
        self.is_time = name == TIME;
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        index: u32,
        _: &'static str,
        value: &T,
    ) -> Result<(), Error> {
        self.number(u64::from(index));
        value.serialize(self)
    }

    fn serialize_seq(self, len: Option<usize>) -> Result<List<'a>, Error> {
        self.number(len.ok_or(Error::SerializeSeqLengthUnknown)? as u64);
        let outer = self.row.replace(Row::default());
        Ok(List {
            packer: self,
            outer,
        })
    }

    fn serialize_tuple(self, _: usize) -> Result<Self, Error> {
        Ok(self)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Self, Error> {
        Ok(self)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        index: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self, Error> {
        self.number(u64::from(index));
        Ok(self)
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self, Error> {
        Ok(self)
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        index: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self, Error> {
        self.number(u64::from(index));
        Ok(self)
    }

    /// States contain no text.
    fn serialize_str(self, _: &str) -> Result<(), Error> {
        Err(Error::WontImplement)
    }

    fn serialize_bytes(self, _: &[u8]) -> Result<(), Error> {
        Err(Error::WontImplement)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Self::SerializeMap, Error> {
        Err(Error::WontImplement)
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}

/// A list that is being written. `outer` is restored at its end.
struct List<'a> {
    packer: &'a mut Packer,
    outer: Option<Row>,
}

impl ser::SerializeSeq for List<'_> {
    type Ok = ();
    type Error = Error;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        if let Some(row) = &mut self.packer.row {
            row.at = 0;
        }
        value.serialize(&mut *self.packer)
    }

    fn end(self) -> Result<(), Error> {
        self.packer.row = self.outer;
        Ok(())
    }
}

/// Writes parts one after the other.
macro_rules! parts {
    ($($of:ident: $method:ident $(($key:ty))?,)*) => {$(
        impl ser::$of for &mut Packer {
            type Ok = ();
            type Error = Error;

            fn $method<T: Serialize + ?Sized>(&mut self, $(_: $key,)? value: &T) -> Result<(), Error> {
                value.serialize(&mut **self)
            }

            fn end(self) -> Result<(), Error> {
                Ok(())
            }
        }
    )*};
}

parts! {
    SerializeTuple: serialize_element,
    SerializeTupleStruct: serialize_field,
    SerializeTupleVariant: serialize_field,
    SerializeStruct: serialize_field (&'static str),
    SerializeStructVariant: serialize_field (&'static str),
}
